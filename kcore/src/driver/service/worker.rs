//! A thread: what it looks at, and in which order.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lnet_api::Errno;
use lnet_region::closer;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nlx_driver_proto::{Header, Kind, PACKET_MAX, Reason, Refusal, Reply};

use super::super::{Answer, Session};
use super::client::{Client, Clients, Ring, Served, Source, State, Talk};
use super::network::Network;
use super::rate::Rate;
use super::socket::{self, Inbox, Received};
use super::{
    ACCEPT_BUDGET, ACCEPT_PAUSE, Arrival, BUSY_ROUNDS, CROWD_LOOK, DEPARTURE_LOOK, DRAIN_BUDGET, Desk,
    HELLO_TIMEOUT, IDLE_ROUNDS, Phase, REFUSED_MAX, REQUESTS_BUDGET, SWEEP, Shared,
};

/// What the system says of descriptors that are no client's. No client's mark is so large.
const BELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const SHARD: u64 = u64::MAX - 2;

/// Descriptors that one look at them tells of.
const EVENTS: usize = 64;

/// A socket that is looked at for its end alone.
const END: EpollFlags = EpollFlags::EPOLLRDHUP;

/// And for requests, or for room.
const REQUESTS: EpollFlags = END.union(EpollFlags::EPOLLIN);
const ROOM: EpollFlags = END.union(EpollFlags::EPOLLOUT);

/// How a socket says that its client has gone.
const ENDED: EpollFlags = END.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// One of the service's threads.
pub(super) struct Worker {
    shared: Arc<Shared>,
    number: usize,
    epoll: Epoll,
    listener: Option<OwnedFd>,
    /// Without descriptors nobody is let in until then.
    paused_until_ns: Option<u64>,
    clients: Clients,
    /// Those whose rings are looked at in each round.
    hot: Vec<usize>,
    /// When something is to be done about whom.
    timers: BTreeSet<(u64, usize)>,
    network: Network,
    inbox: Inbox,
    answer: Answer,
    phase: Phase,
    /// When all clients are to be looked at next.
    sweep_ns: u64,
    /// LNet has not let go of all that clients have left.
    leftovers: bool,
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
        Ok(Worker {
            network: Network::new(number, shared.desks.len()),
            shared,
            number,
            epoll,
            listener,
            paused_until_ns: None,
            clients: Clients::default(),
            hot: Vec::new(),
            timers: BTreeSet::new(),
            inbox: Inbox::new(),
            answer: Answer::default(),
            phase: Phase::Serving,
            sweep_ns: 0,
            leftovers: false,
        })
    }

    /// Serves until the service stops and nobody is left.
    pub(super) fn run(mut self) {
        let busy_poll_ns = ns(self.shared.config.busy_poll);
        let (mut worked_ns, mut rounds) = (self.now_ns(), 0);
        while !self.is_over() {
            let polled = self.network.poll(&**self.shared.host.drive(), &self.epoll, SHARD);
            let work = polled.work + self.drain_hot();
            let now_ns = self.now_ns();
            self.handle_due(now_ns);
            rounds += 1;
            if work > 0 {
                worked_ns = now_ns;
            }
            let is_busy = work > 0 || now_ns.saturating_sub(worked_ns) < busy_poll_ns;
            if is_busy && rounds < BUSY_ROUNDS {
                continue;
            }
            rounds = 0;
            let sleeps = !is_busy && self.falls_asleep();
            let timeout = if sleeps { self.timeout(polled.deadline_ns) } else { EpollTimeout::ZERO };
            if self.look(timeout) {
                worked_ns = self.now_ns();
            }
        }
        self.network.release(&**self.shared.host.drive(), &self.epoll);
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Stopping && self.clients.is_empty()
    }

    fn now_ns(&self) -> u64 {
        self.shared.host.drive().now_ns()
    }

    fn desk(&self) -> &Desk {
        &self.shared.desks[self.number]
    }

    // --- rings

    /// Carries out what stands in the hot rings, a share of each.
    fn drain_hot(&mut self) -> usize {
        let mut hot = mem::take(&mut self.hot);
        let mut work = 0;
        hot.retain(|&place| {
            let drained = self.drain(place);
            work += drained.unwrap_or(0);
            drained.is_some()
        });
        self.hot = hot;
        work
    }

    /// `None` if the ring is not to be looked at any more.
    fn drain(&mut self, place: usize) -> Option<usize> {
        let (busy_poll_ns, drive) = (ns(self.shared.config.busy_poll), self.shared.host.drive());
        let served = self.clients.served(place)?;
        let drained = served.session.drain(DRAIN_BUDGET).and_then(|count| {
            // What it did may have spoilt something; what nobody did, the sweep finds.
            if count > 0 { served.session.check().map(|()| count) } else { Ok(0) }
        });
        match drained {
            Ok(0) => {
                if served.idle_rounds == 0 && busy_poll_ns > 0 {
                    served.idle_since_ns = drive.now_ns();
                }
                served.idle_rounds += 1;
                // Who is to find this thread awake must not find the ring asleep.
                let is_idle = |since_ns| busy_poll_ns == 0 || drive.now_ns() - since_ns >= busy_poll_ns;
                let sleeps = served.idle_rounds > IDLE_ROUNDS
                    && is_idle(served.idle_since_ns)
                    && served.session.prepare_sleep();
                if sleeps {
                    served.ring = Ring::Asleep;
                }
                (!sleeps).then_some(0)
            }
            Ok(count) => {
                served.idle_rounds = 0;
                Some(count)
            }
            Err(violation) => {
                self.cut_off(place, &violation);
                None
            }
        }
    }

    /// Announces on every ring that nobody looks any more, and arms the shards. False if there is something to do.
    fn falls_asleep(&mut self) -> bool {
        let Worker { hot, clients, .. } = self;
        hot.retain(|&place| {
            let Some(served) = clients.served(place) else { return false };
            let sleeps = served.session.prepare_sleep();
            if sleeps {
                served.ring = Ring::Asleep;
            }
            !sleeps
        });
        self.hot.is_empty() && self.network.arm(&**self.shared.host.drive())
    }

    /// The ring is looked at from now on.
    fn wake(&mut self, place: usize) {
        let Some(served) = self.clients.served(place) else { return };
        if served.ring == Ring::Asleep {
            served.session.finish_sleep();
            (served.ring, served.idle_rounds) = (Ring::Hot, 0);
            self.hot.push(place);
        }
    }

    // --- descriptors

    /// Looks at all descriptors, and sleeps meanwhile. Gives whether a client or another thread wanted something.
    fn look(&mut self, timeout: EpollTimeout) -> bool {
        let mut events = [EpollEvent::empty(); EVENTS];
        // EINTR and every other answer mean the same: look again.
        let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
        let mut found = false;
        for event in &events[..count] {
            match event.data() {
                SHARD => continue,
                BELL => self.hear(),
                LISTENER => self.accept(),
                mark => match self.clients.source(mark) {
                    Some(Source::Socket(place)) => self.turn_to(place, event.events()),
                    Some(Source::Doorbell(place)) => self.wake(place),
                    None => continue,
                },
            }
            found = true;
        }
        found
    }

    fn hear(&mut self) {
        let _ = self.desk().bell.read();
        let arrivals = mem::take(&mut *self.desk().arrivals.lock());
        self.desk().heard.fetch_add(1, Ordering::AcqRel);
        arrivals.into_iter().for_each(|arrival| self.admit(arrival));
        let phase = self.shared.phase();
        if phase > self.phase {
            self.phase = phase;
            self.wind_up();
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPT_BUDGET {
            let Some(listener) = &self.listener else { return };
            match socket::accept(listener.as_fd()) {
                Ok((socket, who)) => self.let_in(socket, who),
                Err(Errno::EAGAIN) => return,
                // The client has gone already.
                Err(Errno::ECONNABORTED | Errno::EINTR) => {}
                Err(errno) => return self.pause(errno),
            }
        }
    }

    /// Nobody is let in for a while.
    fn pause(&mut self, errno: Errno) {
        self.shared.door.without_descriptors.fetch_add(1, Ordering::Relaxed);
        if self.shared.may_warn() {
            tracing::warn!(%errno, "a client cannot be let in");
        }
        self.paused_until_ns = Some(self.now_ns() + ns(ACCEPT_PAUSE));
        self.watch_listener(EpollFlags::empty());
    }

    fn watch_listener(&self, flags: EpollFlags) {
        if let Some(listener) = &self.listener {
            // It stands in there: this cannot fail.
            let _ = self.epoll.modify(listener, &mut EpollEvent::new(flags, LISTENER));
        }
    }

    fn let_in(&mut self, socket: OwnedFd, who: super::Credentials) {
        let Shared { door, host, .. } = &*self.shared;
        let admission = if host.policy().rights_of(&who).is_none() {
            door.refused_users.fetch_add(1, Ordering::Relaxed);
            Err(Refusal::of(Errno::EPERM, Reason::User, who.uid.into(), 0))
        } else {
            let admission = door.enter(&who, host);
            door.refused_clients.fetch_add(admission.is_err().into(), Ordering::Relaxed);
            admission
        };
        if admission.is_err() {
            if door.refused.load(Ordering::Relaxed) >= REFUSED_MAX {
                return self.shared.closer.close(socket);
            }
            door.refused.fetch_add(1, Ordering::Relaxed);
        }
        let arrival = Arrival { socket, who, admission };
        let desks = self.shared.desks.iter().enumerate();
        let least = desks.min_by_key(|(_, desk)| desk.load.load(Ordering::Relaxed));
        match least {
            Some((number, desk)) if number != self.number => {
                desk.load.fetch_add(1, Ordering::Relaxed);
                desk.arrivals.lock().push(arrival);
                desk.ring();
            }
            _ => {
                self.desk().load.fetch_add(1, Ordering::Relaxed);
                self.admit(arrival);
            }
        }
    }

    /// A client is this thread's.
    fn admit(&mut self, arrival: Arrival) {
        let Arrival { socket, who, admission } = arrival;
        let greet_until_ns = self.now_ns() + ns(HELLO_TIMEOUT);
        let (state, admission) = match admission {
            Err(refusal) => (State::Refused(refusal), None),
            Ok(admission) => {
                let session = Session::new(&self.shared.host, who);
                let rate = Rate::per_second(session.quotas().requests_per_second);
                let (talk, ring, greet_until_ns) = (Talk::Reading, Ring::None, Some(greet_until_ns));
                let served = Box::new(Served {
                    session,
                    talk,
                    rate,
                    ring,
                    greet_until_ns,
                    idle_rounds: 0,
                    idle_since_ns: 0,
                });
                (State::Served(served), Some(admission))
            }
        };
        let place = self.clients.insert(Client { socket, who, state, due_ns: None, admission });
        self.set_due(place, Some(greet_until_ns));
        let event = EpollEvent::new(REQUESTS, self.clients.mark(Source::Socket(place)));
        let Some(client) = self.clients.get(place) else { return };
        let watched = self.epoll.add(&client.socket, event);
        if watched.is_err() || self.phase != Phase::Serving {
            self.leave(place);
        }
    }

    fn watch(&mut self, place: usize, flags: EpollFlags) {
        let mut event = EpollEvent::new(flags, self.clients.mark(Source::Socket(place)));
        if let Some(client) = self.clients.get(place) {
            // It stands in there: this cannot fail.
            let _ = self.epoll.modify(&client.socket, &mut event);
        }
    }

    // --- requests

    fn turn_to(&mut self, place: usize, flags: EpollFlags) {
        if flags.intersects(ENDED) {
            // It may have closed only its own direction: then it waits for ours, which says that LNet has let go of its memory.
            return self.depart(place);
        }
        match self.clients.get(place).map(|client| &client.state) {
            Some(State::Served(served)) if matches!(served.talk, Talk::Answering { .. }) => {
                self.answer_now(place)
            }
            Some(State::Served(_)) => self.read(place),
            Some(State::Refused(_)) => self.refuse(place),
            Some(State::Departed { .. }) | None => {}
        }
    }

    fn read(&mut self, place: usize) {
        for _ in 0..REQUESTS_BUDGET {
            if !self.read_one(place) {
                return;
            }
        }
    }

    /// Takes a request, and answers it. False if there is none, or no other may be read now.
    fn read_one(&mut self, place: usize) -> bool {
        let now_ns = self.now_ns();
        let Some(client) = self.clients.get(place) else { return false };
        let State::Served(served) = &mut client.state else { return false };
        let mut rate = served.rate;
        if let Err(later_ns) = rate.take(now_ns) {
            served.talk = Talk::Throttled;
            self.shared.door.throttled.fetch_add(1, Ordering::Relaxed);
            self.set_due(place, Some(later_ns));
            self.watch(place, END);
            return false;
        }
        let desk = &self.shared.desks[self.number];
        let received = self.inbox.receive(client.socket.as_fd(), &self.shared.closer, desk.bell.as_fd());
        match received {
            Received::Packet(length, fds) if length > PACKET_MAX => {
                fds.into_iter().for_each(closer::close);
                self.cut_off(place, &format_args!("a packet of more than {PACKET_MAX} bytes"));
                false
            }
            Received::Packet(length, fds) => {
                // One that only asks to be told when all is done costs no more than what stands in the ring.
                if Header::peek(self.inbox.packet(length))
                    .is_none_or(|header| header.kind.get() != Kind::Sync as u16)
                {
                    served.rate = rate;
                }
                self.wake(place);
                self.carry_out(place, length, fds)
            }
            Received::Nothing => false,
            Received::End => {
                self.depart(place);
                false
            }
        }
    }

    fn carry_out(&mut self, place: usize, length: usize, fds: Vec<OwnedFd>) -> bool {
        let Some(served) = self.clients.served(place) else { return false };
        if let Err(violation) = served.session.request(self.inbox.packet(length), fds, &mut self.answer) {
            self.cut_off(place, &violation);
            return false;
        }
        if served.ring == Ring::None && !self.begin_ring(place) {
            return false;
        }
        let Some(client) = self.clients.get(place) else { return false };
        match socket::send(client.socket.as_fd(), &self.answer) {
            Ok(()) => {
                self.answer.fds.clear();
                true
            }
            Err(errno @ (Errno::EAGAIN | Errno::ETOOMANYREFS)) => {
                self.keep_answer(place, errno);
                false
            }
            Err(Errno::EPIPE | Errno::ECONNRESET) => {
                self.leave(place);
                false
            }
            Err(errno) => {
                self.cut_off(place, &format_args!("its answer cannot be sent: {errno}"));
                false
            }
        }
    }

    /// After the hello there is a ring, and a doorbell. False if it cannot be watched.
    fn begin_ring(&mut self, place: usize) -> bool {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        let event = EpollEvent::new(flags, self.clients.mark(Source::Doorbell(place)));
        let Some(served) = self.clients.served(place) else { return false };
        let Some(doorbell) = served.session.doorbell() else { return true };
        if let Err(errno) = self.epoll.add(doorbell, event) {
            self.cut_off(place, &format_args!("its doorbell cannot be watched: {errno}"));
            return false;
        }
        (served.ring, served.greet_until_ns) = (Ring::Hot, None);
        self.hot.push(place);
        self.set_due(place, None);
        true
    }

    /// The client does not read, or others do not: nothing of it is read until it has its answer.
    fn keep_answer(&mut self, place: usize, why: Errno) {
        let answer = mem::take(&mut self.answer);
        let until_ns = self.now_ns() + ns(self.shared.config.reply_timeout);
        if let Some(served) = self.clients.served(place) {
            served.talk = Talk::Answering { answer, until_ns };
        }
        self.wait_for_room(place, why, until_ns);
    }

    /// Its socket tells of room in itself. Of descriptors that others have received nobody tells.
    fn wait_for_room(&mut self, place: usize, why: Errno, until_ns: u64) {
        let told = why == Errno::EAGAIN;
        let again_ns = self.now_ns() + ns(CROWD_LOOK);
        self.set_due(place, Some(if told { until_ns } else { until_ns.min(again_ns) }));
        self.watch(place, if told { ROOM } else { END });
    }

    fn answer_now(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else { return };
        let State::Served(served) = &mut client.state else { return };
        let Talk::Answering { answer, until_ns } = &served.talk else { return };
        let until_ns = *until_ns;
        match socket::send(client.socket.as_fd(), answer) {
            Ok(()) => {
                served.talk = Talk::Reading;
                let due_ns = served.greet_until_ns.filter(|_| self.phase == Phase::Serving);
                self.set_due(place, due_ns);
                self.watch(place, if self.phase == Phase::Serving { REQUESTS } else { END });
            }
            Err(errno @ (Errno::EAGAIN | Errno::ETOOMANYREFS)) => self.wait_for_room(place, errno, until_ns),
            Err(_) => self.leave(place),
        }
    }

    /// Tells a client that is not let in why, and that is all.
    fn refuse(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else { return };
        let State::Refused(refusal) = client.state else { return };
        let desk = &self.shared.desks[self.number];
        let received = self.inbox.receive(client.socket.as_fd(), &self.shared.closer, desk.bell.as_fd());
        if let Received::Packet(length, fds) = received {
            fds.into_iter().for_each(closer::close);
            if let Ok((header, _)) = Header::read(self.inbox.packet(length.min(PACKET_MAX))) {
                Reply::Refused(refusal).write(header.kind.get(), header.id.get(), &mut self.answer.packet);
                self.answer.fds.clear();
                let _ = socket::send(client.socket.as_fd(), &self.answer);
            }
        }
        self.remove(place);
    }

    // --- time

    fn set_due(&mut self, place: usize, due_ns: Option<u64>) {
        let Some(client) = self.clients.get(place) else { return };
        if let Some(before_ns) = mem::replace(&mut client.due_ns, due_ns) {
            self.timers.remove(&(before_ns, place));
        }
        self.timers.extend(due_ns.map(|due_ns| (due_ns, place)));
    }

    fn handle_due(&mut self, now_ns: u64) {
        while let Some(&(due_ns, place)) = self.timers.first().filter(|(due_ns, _)| *due_ns <= now_ns) {
            self.timers.remove(&(due_ns, place));
            if let Some(client) = self.clients.get(place) {
                client.due_ns = None;
            }
            self.handle_one(place, now_ns);
        }
        if self.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.paused_until_ns = None;
            self.watch_listener(EpollFlags::EPOLLIN);
        }
        if self.sweep_ns <= now_ns {
            self.sweep_ns = now_ns + ns(SWEEP);
            self.sweep();
        }
    }

    fn handle_one(&mut self, place: usize, now_ns: u64) {
        let Some(client) = self.clients.get(place) else { return };
        match &mut client.state {
            State::Served(served) => match served.talk {
                Talk::Throttled => {
                    served.talk = Talk::Reading;
                    // To wait did not give it more time for its hello.
                    let due_ns = served.greet_until_ns;
                    if self.phase == Phase::Serving {
                        self.set_due(place, due_ns);
                        self.watch(place, REQUESTS);
                    }
                }
                Talk::Answering { until_ns, .. } if now_ns < until_ns => self.answer_now(place),
                Talk::Answering { .. } => {
                    self.shared.door.unread.fetch_add(1, Ordering::Relaxed);
                    self.cut_off(place, &"it does not read its answers");
                }
                Talk::Reading => {
                    self.shared.door.silent.fetch_add(1, Ordering::Relaxed);
                    self.cut_off(place, &"it sent no hello in time");
                }
            },
            State::Refused(_) => self.remove(place),
            State::Departed { departure, until_ns } => {
                let is_late = *until_ns <= now_ns;
                // The end of the stream would tell one who is still there that nobody writes into its memory any more.
                let may_go = self.phase == Phase::Stopping || socket::is_hung_up(client.socket.as_fd());
                if departure.is_over() || is_late && may_go {
                    self.remove(place);
                } else {
                    let look = if is_late { SWEEP } else { DEPARTURE_LOOK };
                    self.set_due(place, Some(now_ns + ns(look)));
                }
            }
        }
    }

    /// Finds what no call of a session sees; and what stands in a ring though nobody has rung: a thread of the client may be
    /// stopped between the one and the other.
    fn sweep(&mut self) {
        for place in self.clients.places() {
            if let Some(served) = self.clients.served(place)
                && served.ring == Ring::Asleep
                && !served.session.prepare_sleep()
            {
                (served.ring, served.idle_rounds) = (Ring::Hot, 0);
                self.hot.push(place);
            }
            let checked = self.clients.served(place).map(|served| {
                served.session.trim();
                served.session.check()
            });
            if let Some(Err(violation)) = checked {
                self.cut_off(place, &violation);
            }
        }
        self.leftovers = self.number == 0 && self.shared.host.sweep();
    }

    /// How long it can sleep.
    fn timeout(&self, network_ns: Option<u64>) -> EpollTimeout {
        let sweep_ns = (self.leftovers || !self.clients.is_empty()).then_some(self.sweep_ns);
        let timer_ns = self.timers.first().map(|(due_ns, _)| *due_ns);
        let next_ns = [network_ns, sweep_ns, timer_ns, self.paused_until_ns].into_iter().flatten().min();
        let Some(next_ns) = next_ns else { return EpollTimeout::NONE };
        // Rounded up: a timer that comes too early is slept for again, and again.
        let left = Duration::from_nanos(self.shared.host.drive().sleep_ns(next_ns));
        EpollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(EpollTimeout::MAX)
    }

    // --- ends

    /// The client has broken the rules.
    fn cut_off(&mut self, place: usize, why: &dyn Display) {
        let Some(client) = self.clients.get(place) else { return };
        let who = client.who;
        self.shared.door.cut_off.fetch_add(1, Ordering::Relaxed);
        if self.shared.may_warn() {
            tracing::warn!(pid = who.pid, uid = who.uid, %why, "a client is cut off");
        }
        self.depart(place);
    }

    /// Closes the session; the socket stays until LNet has let go of what it had.
    fn depart(&mut self, place: usize) {
        let now_ns = self.now_ns();
        let until_ns = now_ns + ns(self.shared.config.quarantine);
        self.forget_ring(place);
        let Some(client) = self.clients.get(place) else { return };
        let _ = self.epoll.delete(&client.socket);
        // What it is in between, nobody sees.
        let blank = State::Refused(Refusal::new(Errno::ESHUTDOWN, Reason::Ending));
        let departure = match mem::replace(&mut client.state, blank) {
            State::Served(served) => served.session.close(),
            State::Departed { departure, .. } => departure,
            State::Refused(_) => return self.remove(place),
        };
        client.state = State::Departed { departure, until_ns };
        self.handle_one(place, now_ns);
    }

    /// The client has gone, or nothing is owed to it.
    fn leave(&mut self, place: usize) {
        self.forget_ring(place);
        self.remove(place);
    }

    /// Nobody hears its doorbell any more. The client has the other end, and may hold it open: so it does not leave the
    /// epoll by itself.
    fn forget_ring(&mut self, place: usize) {
        let Some(served) = self.clients.served(place) else { return };
        if let Some(doorbell) = served.session.doorbell().filter(|_| served.ring != Ring::None) {
            let _ = self.epoll.delete(doorbell);
        }
        served.ring = Ring::None;
        self.hot.retain(|&other| other != place);
    }

    fn remove(&mut self, place: usize) {
        self.set_due(place, None);
        let Some(Client { socket, state, admission, .. }) = self.clients.remove(place) else { return };
        if let State::Served(served) = state {
            let departure = served.session.close();
            self.leftovers |= !departure.is_over();
        }
        // Packets that nobody has read may have descriptors.
        let _ = self.epoll.delete(&socket);
        self.shared.closer.close(socket);
        match admission {
            Some(admission) => self.shared.door.leave(admission),
            None => _ = self.shared.door.refused.fetch_sub(1, Ordering::Relaxed),
        }
        self.desk().load.fetch_sub(1, Ordering::Relaxed);
    }

    /// The service drains, or stops.
    fn wind_up(&mut self) {
        if let Some(listener) = self.listener.take() {
            // Whoever handed it over may have it open.
            let _ = self.epoll.delete(&listener);
            self.paused_until_ns = None;
        }
        for place in self.clients.places() {
            if self.phase == Phase::Stopping { self.depart(place) } else { self.quiesce(place) }
        }
        self.desk().settled.store(true, Ordering::Release);
    }

    /// What stands in its ring is carried out; from then on nothing is read of it.
    fn quiesce(&mut self, place: usize) {
        let Some(served) = self.clients.served(place) else { return };
        let slots = served.session.quotas().ring_slots as usize;
        if let Err(violation) = served.session.drain(slots) {
            return self.cut_off(place, &violation);
        }
        self.forget_ring(place);
        self.set_due(place, None);
        let answering =
            self.clients.served(place).is_some_and(|served| matches!(served.talk, Talk::Answering { .. }));
        self.watch(place, if answering { ROOM } else { END });
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}
