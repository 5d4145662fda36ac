//! A thread: what it looks at, and in which order.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashMap;
use lnet_api::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nlx_sync::Spin;

use super::super::Answer;
use super::super::custody::Custody;
use super::super::porter::Link;
use super::super::wakeups::gathered;
use super::answers::Lingering;
use super::client::{Clients, Source, State, Talk};
use super::keeping::Leaving;
use super::network::Network;
use super::patience::Patience;
use super::schedule::Schedule;
use super::socket::Inbox;
use super::timers::Timers;
use super::user::User;
use super::{BUSY_ROUNDS, DUE_BUDGET, Desk, LOOK_UNITS, Phase, SWEEP, Shared, UNREAD_LOOK};

/// What the system says of descriptors that are no client's. No client's mark is so large.
const BELL: u64 = u64::MAX;
pub(super) const LISTENER: u64 = u64::MAX - 1;
const SHARD: u64 = u64::MAX - 2;
pub(super) const PORTER: u64 = u64::MAX - 3;

/// Descriptors that one system call tells of.
const EVENTS: usize = 64;

/// A socket that is looked at for its end alone. All of a client's descriptors are reported once for each change: then its user's
/// share, not the system's list, decides when it is served.
pub(super) const END: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLET);

/// How a doorbell is watched.
pub(super) const DOORBELL: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);

/// And for requests, or for room.
pub(super) const REQUESTS: EpollFlags = END.union(EpollFlags::EPOLLIN);
pub(super) const ROOM: EpollFlags = END.union(EpollFlags::EPOLLOUT);

/// How a socket says that its client has gone.
pub(super) const ENDED: EpollFlags =
    EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// One of the service's threads.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    pub(super) epoll: Epoll,
    pub(super) listener: Option<OwnedFd>,
    /// The channel to the porter.
    pub(super) link: Link,
    /// What the channel is watched for.
    pub(super) watched: EpollFlags,
    /// The porter has died, and another is asked for then.
    pub(super) relink_ns: Option<u64>,
    /// The system has refused to send the porter something, which is tried again then.
    pub(super) retry_ns: Option<u64>,
    /// When the porter was last asked for something that it has not answered.
    pub(super) asked_ns: Option<u64>,
    /// It was asked whether it is there.
    pub(super) asking: bool,
    /// The porter has the sockets of all clients.
    pub(super) keeps_all: bool,
    /// The porter has been asked to accept.
    pub(super) accepting: bool,
    /// What clients have, too.
    pub(super) custody: Custody,
    /// Clients whose sockets, and what else of theirs, the porter has not closed yet.
    pub(super) leaving: HashMap<u64, Leaving, foldhash::fast::RandomState>,
    /// The names of clients that have not received all descriptors that were sent to them; and departed ones.
    pub(super) unread: Vec<u64>,
    pub(super) lingering: Vec<Lingering>,
    /// When they are looked at next.
    pub(super) unread_ns: u64,
    /// Without descriptors nobody is let in until then.
    pub(super) paused_until_ns: Option<u64>,
    /// Without memory clients from other threads wait until then.
    pub(super) deferred_ns: Option<u64>,
    pub(super) clients: Clients,
    /// Whose turn it is.
    pub(super) schedule: Schedule<User>,
    /// When something is to be done about whom.
    pub(super) timers: Timers,
    /// When requests of a user are read again.
    pub(super) parked: Timers,
    /// When a user that has held the thread up is served again.
    pub(super) resting: Timers,
    pub(super) patience: Patience,
    network: Network,
    pub(super) inbox: Inbox,
    pub(super) answer: Answer,
    pub(super) phase: Phase,
    /// When all clients are to be looked at next.
    pub(super) sweep_ns: u64,
    /// Which of them is looked at next, while they are.
    pub(super) sweeping: Option<usize>,
    /// The same for what clients that are gone have left.
    pub(super) sweeping_left: Option<usize>,
    /// Which client is to be told next that the service drains or stops, until all are.
    pub(super) winding: Option<usize>,
    /// Clients whose ring is carried out for the last time.
    pub(super) quiescing: usize,
    /// LNet has not let go of all that clients have left.
    pub(super) leftovers: bool,
    /// The most units of work of one turn so far.
    pub(super) longest_turn: u64,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        number: usize,
        listener: Option<OwnedFd>,
    ) -> Result<Worker, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&shared.desks[number].bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        if let Some(listener) = &listener {
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        }
        let link = shared.porter.link()?;
        epoll.add(&link.channel, EpollEvent::new(EpollFlags::EPOLLIN, PORTER))?;
        Ok(Worker {
            network: Network::new(number, shared.desks.len()),
            shared,
            number,
            epoll,
            listener,
            link,
            watched: EpollFlags::EPOLLIN,
            relink_ns: None,
            retry_ns: None,
            asked_ns: None,
            asking: false,
            keeps_all: true,
            accepting: false,
            custody: Custody::try_new(number).map_err(|_| Errno::ENOMEM)?,
            leaving: HashMap::default(),
            unread: Vec::new(),
            lingering: Vec::new(),
            unread_ns: 0,
            paused_until_ns: None,
            deferred_ns: None,
            clients: Clients::default(),
            schedule: Schedule::default(),
            timers: Timers::default(),
            parked: Timers::default(),
            resting: Timers::default(),
            patience: Patience::default(),
            inbox: Inbox::new(),
            answer: Answer::try_new().map_err(|_| Errno::ENOMEM)?,
            phase: Phase::Serving,
            sweep_ns: 0,
            sweeping: None,
            sweeping_left: None,
            winding: None,
            quiescing: 0,
            leftovers: false,
            longest_turn: 0,
        })
    }

    /// Serves until the service stops and nobody is left.
    pub(super) fn run(mut self) {
        let busy_poll_ns = ns(self.shared.config.busy_poll);
        let (mut worked_ns, mut rounds, mut units) = (self.now_ns(), 0, 0);
        let spin = Spin::new(self.shared.host.drive().spin());
        let mut spinning = spin.wait();
        while !self.is_over() {
            let polled = gathered(|| self.network.poll(&**self.shared.host.drive(), &self.epoll, SHARD));
            let round_units = self.serve_round();
            let now_ns = self.now_ns();
            self.handle_due(now_ns);
            let sweeps = self.sweep_slice();
            self.hand_over_shared();
            rounds += 1;
            units += round_units;
            let work = polled.work + round_units + usize::from(sweeps);
            if work > 0 {
                worked_ns = now_ns;
                spinning.event();
            }
            let is_busy = work > 0 || spinning.goes_on() || now_ns.saturating_sub(worked_ns) < busy_poll_ns;
            if is_busy && rounds < BUSY_ROUNDS && units < LOOK_UNITS {
                continue;
            }
            (rounds, units) = (0, 0);
            self.watch_link();
            let sleeps = !is_busy && self.falls_asleep();
            let timeout = if sleeps { self.timeout(polled.deadline_ns) } else { EpollTimeout::ZERO };
            if sleeps {
                spinning.slept();
            }
            if self.look(timeout) {
                worked_ns = self.now_ns();
                spinning.event();
            }
        }
        self.network.release(&**self.shared.host.drive(), &self.epoll);
        // The porter sees the end of the channel, and closes what is left.
        self.hand_over_shared();
        while let Some(Lingering { id, socket, payer, admission, .. }) = self.lingering.pop() {
            self.hand_over(id, payer, socket, admission);
        }
        mem::take(&mut self.leaving).into_values().for_each(|leaving| self.give_back(leaving));
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Stopping && self.clients.is_empty()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.shared.host.drive().now_ns()
    }

    pub(super) fn desk(&self) -> &Desk {
        &self.shared.desks[self.number]
    }

    /// Announces on rings that nobody looks any more, and arms the shards. False if there is something to do.
    fn falls_asleep(&mut self) -> bool {
        self.rest_round() && self.network.arm(&**self.shared.host.drive())
    }

    // --- descriptors

    /// Looks at all descriptors, and sleeps meanwhile. Gives whether a client or another thread wanted something.
    ///
    /// All that the system has to tell is taken at once, and put into the queues of users: so it does not matter of how many
    /// sockets of one user it tells first. No descriptor is told of twice before its client has been served.
    fn look(&mut self, timeout: EpollTimeout) -> bool {
        let mut events = [EpollEvent::empty(); EVENTS];
        let (mut found, mut timeout) = (false, timeout);
        // Each client has two descriptors, and one that it makes tell again and again is muted.
        for _ in 0..=self.clients.places() * 2 / EVENTS + 1 {
            // EINTR and every other answer mean the same: look again.
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            for event in &events[..count] {
                found |= self.hear_of(event.data(), event.events());
            }
            if count < EVENTS {
                break;
            }
            timeout = EpollTimeout::ZERO;
        }
        found
    }

    fn hear_of(&mut self, mark: u64, flags: EpollFlags) -> bool {
        match mark {
            SHARD => return false,
            BELL => self.hear(),
            LISTENER => self.accept(),
            PORTER => _ = self.read_porter(),
            mark => match self.clients.source(mark) {
                Some(Source::Socket(place)) => self.turn_to(place, flags),
                Some(Source::Doorbell(place)) => self.hear_doorbell(place),
                None => return false,
            },
        }
        true
    }

    pub(super) fn hear(&mut self) {
        let _ = self.desk().bell.silence();
        self.desk().heard.fetch_add(1, Ordering::AcqRel);
        // Another thread has replaced the porter: arrivals are those of the next one.
        if self.link.generation < self.shared.porter.generation() {
            self.leave_porter();
        }
        self.admit_arrivals();
        let phase = self.shared.phase();
        if phase > self.phase {
            self.phase = phase;
            self.wind_up();
        }
    }

    pub(super) fn watch(&mut self, place: usize, flags: EpollFlags) {
        let mut event = EpollEvent::new(flags, self.clients.mark(Source::Socket(place)));
        if let Some(client) = self.clients.get(place) {
            // It stands in there: this cannot fail.
            let _ = self.epoll.modify(&client.socket, &mut event);
        }
    }

    // --- time

    pub(super) fn set_due(&mut self, place: usize, due_ns: Option<u64>) {
        if self.clients.get(place).is_some() {
            self.timers.set(place, due_ns);
        }
    }

    pub(super) fn handle_due(&mut self, now_ns: u64) {
        for _ in 0..DUE_BUDGET {
            let Some(place) = self.timers.take_due(now_ns) else { break };
            self.for_client(place, |worker, place| worker.handle_one(place, now_ns));
        }
        self.unpark_due(now_ns);
        self.resume_rested(now_ns);
        if self.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.paused_until_ns = None;
            self.watch_listener(EpollFlags::EPOLLIN);
        }
        if self.deferred_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.deferred_ns = None;
            self.admit_arrivals();
        }
        if self.retry_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            self.flush_link();
        }
        if self.relink_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            self.leave_porter();
        }
        if self.silent_ns().is_some_and(|silent_ns| silent_ns <= now_ns) {
            self.replace_porter(now_ns);
        }
        if self.waits_for_readers() && self.unread_ns <= now_ns {
            self.unread_ns = now_ns + ns(UNREAD_LOOK);
            self.look_who_has_read();
        }
        if self.sweep_ns <= now_ns {
            self.sweep_ns = now_ns + ns(SWEEP);
            self.begin_sweep();
        }
    }

    pub(super) fn handle_one(&mut self, place: usize, now_ns: u64) {
        let Some(client) = self.clients.get(place) else { return };
        match &mut client.state {
            State::Served(served) => {
                match served.talk {
                    Talk::Throttled => {
                        served.talk = Talk::Reading;
                        // To wait did not give it more time for its hello.
                        let due_ns = served.greet_until_ns;
                        if self.phase == Phase::Serving {
                            self.set_due(place, due_ns);
                            self.queue(place);
                        }
                    }
                    Talk::Answering { until_ns, crowded, .. } if crowded || now_ns < until_ns => {
                        self.answer_now(place);
                    }
                    Talk::Answering { .. } => {
                        self.shared.door.unread.fetch_add(1, Ordering::Relaxed);
                        self.cut_off(place, &"it does not read its answers");
                    }
                    Talk::Reading | Talk::Parked => {
                        self.shared.door.silent.fetch_add(1, Ordering::Relaxed);
                        self.cut_off(place, &"it sent no hello in time");
                    }
                }
            }
            State::Refused(_) => self.remove(place),
            State::Departing { .. } => {}
            State::Departed { .. } => self.look_at_departed(place, now_ns),
        }
    }

    /// How long it can sleep.
    fn timeout(&self, network_ns: Option<u64>) -> EpollTimeout {
        let sweep_ns = (self.leftovers || !self.clients.is_empty()).then_some(self.sweep_ns);
        let timer_ns = self.timers.first().map(|(due_ns, _)| due_ns);
        let unread_ns = self.waits_for_readers().then_some(self.unread_ns);
        let parked_ns = self.parked.first().map(|(until_ns, _)| until_ns);
        let rested_ns = self.resting.first().map(|(until_ns, _)| until_ns);
        let links = [self.relink_ns, self.retry_ns, self.silent_ns()];
        let others = [self.paused_until_ns, self.deferred_ns, unread_ns, parked_ns, rested_ns];
        let next_ns = [network_ns, sweep_ns, timer_ns].into_iter().chain(others).chain(links).flatten().min();
        let Some(next_ns) = next_ns else { return EpollTimeout::NONE };
        // Rounded up: a timer that comes too early is slept for again, and again.
        let left = Duration::from_nanos(self.shared.host.drive().sleep_ns(next_ns));
        EpollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(EpollTimeout::MAX)
    }
}

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}
