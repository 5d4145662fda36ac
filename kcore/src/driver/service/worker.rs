//! A thread: what it looks at, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lnet_api::Errno;
use lnet_region::closer;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{Shutdown, shutdown};
use nlx_driver_proto::{Header, Kind, PACKET_MAX, Reason, Refusal, Reply};
use nlx_fallible::try_box;

use super::super::accounts::{Charge, Payer, Resource};
use super::super::porter::{Link, Message};
use super::super::{Answer, Session};
use super::client::{Client, Clients, Pending, Ring, Served, Source, State, Talk};
use super::network::Network;
use super::rate::Rate;
use super::schedule::{REQUEST_UNITS, ROUND_UNITS, Schedule, request_units};
use super::socket::{self, Inbox, Received};
use super::user::User;
use super::{
    ACCEPT_BUDGET, ACCEPT_PAUSE, ADOPT_TIMEOUT, Admission, Arrival, BUSY_ROUNDS, CROWD_LOOK, DUE_BUDGET,
    Desk, HELLO_TIMEOUT, LOOK_UNITS, PORTER_PAUSE, Phase, REFUSED_MAX, SWEEP, Shared, UNREAD_BLAMED,
    UNREAD_LOOK,
};

/// What the system says of descriptors that are no client's. No client's mark is so large.
const BELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const SHARD: u64 = u64::MAX - 2;
const PORTER: u64 = u64::MAX - 3;

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
const ENDED: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// One of the service's threads.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    pub(super) epoll: Epoll,
    listener: Option<OwnedFd>,
    /// The channel to the porter.
    link: Link,
    /// What the channel is watched for.
    watched: EpollFlags,
    /// The porter has died, and another is asked for then.
    relink_ns: Option<u64>,
    /// The porter has been asked to accept.
    accepting: bool,
    /// Clients whose sockets the porter has not closed yet.
    leaving: BTreeMap<u64, Leaving>,
    /// Clients that have not received all descriptors that were sent to them, and departed ones.
    unread: BTreeSet<usize>,
    lingering: Vec<Lingering>,
    /// When they are looked at next.
    unread_ns: u64,
    /// Without descriptors nobody is let in until then.
    paused_until_ns: Option<u64>,
    pub(super) clients: Clients,
    /// Whose turn it is.
    pub(super) schedule: Schedule<User>,
    /// When something is to be done about whom.
    pub(super) timers: BTreeSet<(u64, usize)>,
    /// When requests of a user are read again.
    pub(super) parked: BTreeSet<(u64, u32)>,
    network: Network,
    inbox: Inbox,
    answer: Answer,
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

/// A client whose socket the porter closes, with the place that it has; without, it was refused.
struct Leaving {
    admission: Option<Admission>,
    /// For the status: what bounds them is the place.
    _pending: Option<Charge>,
}

/// A client that has gone, and has not received all descriptors that were sent to it.
struct Lingering {
    id: u64,
    socket: OwnedFd,
    payer: Payer,
    admission: Option<Admission>,
    _unread: Charge,
}

/// Why an answer was not sent.
enum Unsent {
    /// There is no room in the socket, or the descriptors have to wait.
    NoRoom,
    OwnCrowd,
    OthersCrowd,
    /// The client is gone.
    Gone,
    /// The system refuses.
    Failed(Errno),
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
            accepting: false,
            leaving: BTreeMap::new(),
            unread: BTreeSet::new(),
            lingering: Vec::new(),
            unread_ns: 0,
            paused_until_ns: None,
            clients: Clients::default(),
            schedule: Schedule::default(),
            timers: BTreeSet::new(),
            parked: BTreeSet::new(),
            inbox: Inbox::new(),
            answer: Answer::default(),
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
        while !self.is_over() {
            let polled = self.network.poll(&**self.shared.host.drive(), &self.epoll, SHARD);
            let round_units = self.serve_round();
            let now_ns = self.now_ns();
            self.handle_due(now_ns);
            let sweeps = self.sweep_slice();
            rounds += 1;
            units += round_units;
            let work = polled.work + round_units + usize::from(sweeps);
            if work > 0 {
                worked_ns = now_ns;
            }
            let is_busy = work > 0 || now_ns.saturating_sub(worked_ns) < busy_poll_ns;
            if is_busy && rounds < BUSY_ROUNDS && units < LOOK_UNITS {
                continue;
            }
            (rounds, units) = (0, 0);
            self.watch_link();
            let sleeps = !is_busy && self.falls_asleep();
            let timeout = if sleeps { self.timeout(polled.deadline_ns) } else { EpollTimeout::ZERO };
            if self.look(timeout) {
                worked_ns = self.now_ns();
            }
        }
        self.network.release(&**self.shared.host.drive(), &self.epoll);
        // The porter sees the end of the channel, and closes what is left.
        for Lingering { id, socket, payer, admission, .. } in mem::take(&mut self.lingering) {
            self.hand_over(id, payer, socket, admission);
        }
        mem::take(&mut self.leaving).into_values().for_each(|leaving| self.give_place_back(leaving));
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
            PORTER => self.read_porter(),
            mark => match self.clients.source(mark) {
                Some(Source::Socket(place)) => self.turn_to(place, flags),
                Some(Source::Doorbell(place)) => self.hear_doorbell(place),
                None => return false,
            },
        }
        true
    }

    fn hear(&mut self) {
        let _ = self.desk().bell.read();
        self.desk().heard.fetch_add(1, Ordering::AcqRel);
        for _ in 0..ACCEPT_BUDGET {
            let arrival = self.desk().arrivals.lock().pop_front();
            let Some(arrival) = arrival else { break };
            self.admit(arrival);
        }
        if !self.desk().arrivals.lock().is_empty() {
            self.desk().ring();
        }
        let phase = self.shared.phase();
        if phase > self.phase {
            self.phase = phase;
            self.wind_up();
        }
    }

    /// Nobody is accepted any more.
    pub(super) fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            // Whoever handed it over may have it open.
            let _ = self.epoll.delete(&listener);
            self.paused_until_ns = None;
        }
    }

    /// Has the porter accept clients.
    fn accept(&mut self) {
        if self.listener.is_none() || mem::replace(&mut self.accepting, true) {
            return;
        }
        let first = self.shared.next_client.fetch_add(ACCEPT_BUDGET as u64, Ordering::Relaxed);
        self.link.push(Message::Accept { first, count: ACCEPT_BUDGET as u32 });
        self.watch_listener(EpollFlags::empty());
    }

    fn accepted(&mut self, id: u64, user: u32, socket: Option<OwnedFd>) {
        let prepared = socket.map(|socket| (socket::prepare(&socket), socket));
        match prepared {
            Some((Ok((who, may_attach)), socket)) => {
                self.let_in(id, socket, may_attach, who);
            }
            Some((Err(_), socket)) => {
                let payer = self.enter_refused(user);
                self.hand_over(id, payer, socket, None);
            }
            // The table of descriptors is full: the porter alone has it.
            None => {
                let payer = self.enter_refused(user);
                self.leaving.insert(id, self.leaving(payer, None));
                self.link.push(Message::Drop { client: id, user: payer.user.0 });
                self.pause(Errno::EMFILE);
            }
        }
    }

    /// Counts a client that never had a place.
    fn enter_refused(&self, uid: u32) -> Payer {
        self.shared.door.refused.fetch_add(1, Ordering::Relaxed);
        self.shared.host.payer_of(&super::Credentials { pid: 0, uid, gid: u32::MAX })
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

    fn let_in(&mut self, id: u64, socket: OwnedFd, may_attach: bool, who: super::Credentials) {
        let shared = self.shared.clone();
        let Shared { door, host, .. } = &*shared;
        let admission = if host.policy().rights_of(&who).is_none() {
            door.refused_users.fetch_add(1, Ordering::Relaxed);
            Err(Refusal::of(Errno::EPERM, Reason::User, who.uid.into(), 0))
        } else {
            let admission = door.enter(&who, host);
            door.refused_clients.fetch_add(admission.is_err().into(), Ordering::Relaxed);
            admission
        };
        if admission.is_err() && door.refused.fetch_add(1, Ordering::Relaxed) >= REFUSED_MAX {
            return self.hand_over(id, host.payer_of(&who), socket, None);
        }
        let arrival = Arrival { id, socket, may_attach, generation: self.link.generation, who, admission };
        let desks = shared.desks.iter().enumerate();
        let least = desks.min_by_key(|(_, desk)| desk.load.load(Ordering::Relaxed));
        match least {
            Some((number, desk)) if number != self.number => {
                desk.load.fetch_add(1, Ordering::Relaxed);
                desk.arrivals.lock().push_back(arrival);
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
        let Arrival { id, socket, may_attach, generation, who, admission } = arrival;
        if generation != self.link.generation {
            self.keep(id, &socket);
        }
        let greet_until_ns = self.now_ns() + ns(HELLO_TIMEOUT);
        let session = match &admission {
            Ok(_) => Session::new(&self.shared.host, who),
            Err(refusal) => Err(*refusal),
        };
        let admission = admission.ok();
        let state = match session {
            Err(refusal) => State::Refused(refusal),
            Ok(session) => {
                let rate = Rate::per_second(session.quotas().requests_per_second);
                let (talk, ring, greet_until_ns) = (Talk::Reading, Ring::None, Some(greet_until_ns));
                let served = try_box(Served {
                    session,
                    talk,
                    rate,
                    ring,
                    bell_muted: false,
                    readable: false,
                    muted: false,
                    pending: None,
                    entries: 0,
                    quiescing: None,
                    greet_until_ns,
                    idle_rounds: 0,
                    idle_since_ns: 0,
                });
                served.map_or(State::Refused(Refusal::new(Errno::ENOMEM, Reason::System)), State::Served)
            }
        };
        let payer = self.shared.host.payer_of(&who);
        let unread = self.shared.host.accounts().open(payer, Resource::UnreadReplies);
        let user = self.enter_user(payer.user);
        self.schedule.charge(user, REQUEST_UNITS);
        let place = self.clients.insert(Client {
            id,
            socket,
            may_attach,
            unread,
            who,
            payer,
            user,
            queued: false,
            state,
            due_ns: None,
            admission,
        });
        self.set_due(place, Some(greet_until_ns));
        let event = EpollEvent::new(REQUESTS, self.clients.mark(Source::Socket(place)));
        let Some(client) = self.clients.get(place) else { return };
        let watched = self.epoll.add(&client.socket, event);
        if watched.is_err() || self.phase != Phase::Serving {
            self.leave(place);
        }
    }

    pub(super) fn watch(&mut self, place: usize, flags: EpollFlags) {
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
        let Some(client) = self.clients.get(place) else { return };
        match &mut client.state {
            State::Served(served) if matches!(served.talk, Talk::Answering { .. }) => self.answer_now(place),
            State::Served(served) if served.readable => {
                // It has been told of already: what comes before that is read is not told of.
                if !mem::replace(&mut served.muted, true) {
                    self.watch(place, END);
                }
            }
            State::Served(served) => {
                served.readable = true;
                self.queue(place);
            }
            State::Refused(_) => self.queue(place),
            State::Departing { .. } | State::Departed { .. } => {}
        }
    }

    /// Takes a request, and answers it once what stands in the ring before it is carried out. Gives the units of work.
    pub(super) fn read_one(&mut self, place: usize, budget: usize) -> usize {
        let now_ns = self.now_ns();
        let Some(client) = self.clients.get(place) else { return 0 };
        let State::Served(served) = &mut client.state else { return 0 };
        let mut rate = served.rate;
        let shared_rate = self.schedule.state(client.user).and_then(|user| user.requests.clone());
        if let Err(later_ns) = rate.take(now_ns) {
            served.talk = Talk::Throttled;
            self.shared.door.throttled.fetch_add(1, Ordering::Relaxed);
            self.set_due(place, Some(later_ns));
            return 1;
        }
        if let Some(Err(later_ns)) = shared_rate.as_ref().map(|shared| shared.take(now_ns)) {
            self.park(place, later_ns);
            return 1;
        }
        let may_attach = client.may_attach;
        match self.inbox.receive(client.socket.as_fd(), may_attach) {
            Received::Packet(length) if length > PACKET_MAX => {
                self.cut_off(place, &format_args!("a packet of more than {PACKET_MAX} bytes"));
                REQUEST_UNITS
            }
            Received::Packet(length) => {
                served.rate = rate;
                self.wake(place);
                self.begin_request(place, length, Vec::new(), budget)
            }
            Received::Attached(length) => {
                served.rate = rate;
                self.wake(place);
                self.adopt(place, length);
                REQUEST_UNITS
            }
            Received::Nothing => {
                if let Some(shared) = shared_rate {
                    shared.give_back();
                }
                served.readable = false;
                if mem::take(&mut served.muted) {
                    // What has come meanwhile is told of now.
                    self.watch(place, REQUESTS);
                }
                1
            }
            Received::End => {
                self.depart(place);
                1
            }
        }
    }

    /// A packet with descriptors is next in a client's socket: the porter receives it where one may have some.
    fn adopt(&mut self, place: usize, length: usize) {
        let is_adoption =
            length <= PACKET_MAX && kind_of(self.inbox.packet(length)) == Some(Kind::AdoptArena as u16);
        let may = self.clients.served(place).is_some_and(|served| served.session.adopts());
        if !is_adoption || !may {
            return self.cut_off(place, &"descriptors came with a packet that has none");
        }
        let until_ns = self.now_ns() + ns(ADOPT_TIMEOUT);
        let token = self.clients.mark(Source::Socket(place));
        let Some(client) = self.clients.get(place) else { return };
        let (id, payer) = (client.id, client.payer);
        let charge = self.shared.host.accounts().charge(payer, Resource::DescriptorsInFlight, 1).ok();
        if let State::Served(served) = &mut client.state {
            served.talk = Talk::Adopting { packet: self.inbox.packet(length).to_vec(), _charge: charge };
        }
        self.set_due(place, Some(until_ns));
        self.watch(place, END);
        self.link.push(Message::Adopt { client: id, user: payer.user.0, token });
    }

    /// The porter has received the packet that a client waits for to be carried out.
    fn adopted(&mut self, token: u64, count: u32, errno: i32, memory: Option<OwnedFd>) {
        let place = match self.clients.source(token) {
            Some(Source::Socket(place)) => place,
            // It has gone meanwhile.
            _ => return memory.into_iter().for_each(closer::close),
        };
        let serving = self.phase == Phase::Serving;
        let Some(served) = self.clients.served(place) else {
            return memory.into_iter().for_each(closer::close);
        };
        let Talk::Adopting { packet, .. } = &mut served.talk else {
            return memory.into_iter().for_each(closer::close);
        };
        let packet = mem::take(packet);
        served.talk = Talk::Reading;
        let due_ns = served.greet_until_ns.filter(|_| serving);
        let fds = match (errno, memory) {
            (0, Some(memory)) => Ok(vec![memory]),
            // The table of descriptors is full.
            (0, None) => Err(Errno::EMFILE),
            (errno, _) if count == 0 => {
                let errno = Errno::from_raw(errno);
                return self.cut_off(place, &format_args!("its descriptors cannot be received: {errno}"));
            }
            // As many that surely are no memory: the session says what is wrong.
            _ => {
                let bell = &self.shared.desks[self.number].bell;
                let others = (0..count).map(|_| bell.as_fd().try_clone_to_owned());
                others.collect::<Result<Vec<_>, _>>().map_err(|_| Errno::EMFILE)
            }
        };
        served.muted = false;
        self.set_due(place, due_ns);
        self.watch(place, if serving { REQUESTS } else { END });
        self.queue(place);
        let length = self.inbox.put(&packet);
        match fds {
            Ok(fds) => {
                let units = self.begin_request(place, length, fds, ROUND_UNITS);
                if let Some(user) = self.clients.get(place).map(|client| client.user) {
                    self.schedule.charge(user, units);
                }
            }
            Err(errno) => {
                let Some(header) = Header::peek(&packet) else { return };
                let refusal = Reply::Refused(Refusal::new(errno, Reason::System));
                refusal.write(header.kind.get(), header.id.get(), &mut self.answer.packet);
                self.answer.fds.clear();
                self.send_answer(place);
            }
        }
    }

    /// A request is in the inbox: it is carried out now if the budget is enough for what stands in the ring before it.
    fn begin_request(&mut self, place: usize, length: usize, fds: Vec<OwnedFd>, budget: usize) -> usize {
        let Some(served) = self.clients.served(place) else { return REQUEST_UNITS };
        let entries = served.session.quotas().ring_slots as usize;
        let drained = match self.drain_before(place, entries.min(budget)) {
            // It is cut off.
            None => return REQUEST_UNITS,
            Some(drained) => drained,
        };
        if drained < budget || drained == entries {
            return drained + self.carry_out(place, length, fds);
        }
        let Some(served) = self.clients.served(place) else { return drained };
        let mut packet = Vec::new();
        if packet.try_reserve_exact(length).is_err() {
            // Without memory to keep it in, it is carried out at the cost of all.
            let more = self.drain_before(place, entries - drained);
            return drained + more.map_or(0, |more| more + self.carry_out(place, length, fds));
        }
        packet.extend_from_slice(self.inbox.packet(length));
        served.pending = Some(Pending { packet, fds, entries: entries - drained });
        drained
    }

    /// Goes on with a request that has been received. Gives the units of work.
    pub(super) fn go_on_with_request(&mut self, place: usize, budget: usize) -> usize {
        let Some(Pending { entries, .. }) =
            self.clients.served(place).and_then(|served| served.pending.as_ref())
        else {
            return 0;
        };
        let most = budget.min(*entries);
        let Some(drained) = self.drain_before(place, most) else { return REQUEST_UNITS };
        let Some(served) = self.clients.served(place) else { return drained };
        if let Some(pending) = &mut served.pending {
            pending.entries -= drained;
            if drained == most && pending.entries > 0 {
                return drained.max(1);
            }
        }
        let Some(Pending { packet, fds, .. }) = served.pending.take() else { return drained };
        let length = self.inbox.put(&packet);
        drained + self.carry_out(place, length, fds)
    }

    /// Carries out entries of the ring that may stand before a request; `None` if the client is cut off for it.
    fn drain_before(&mut self, place: usize, most: usize) -> Option<usize> {
        let served = self.clients.served(place)?;
        match served.session.drain(most) {
            Ok(drained) => {
                served.entries = served.entries.saturating_add(drained);
                Some(drained)
            }
            Err(violation) => {
                self.cut_off(place, &violation);
                None
            }
        }
    }

    /// Carries out the request in the inbox, and answers it. Gives the units of work.
    fn carry_out(&mut self, place: usize, length: usize, fds: Vec<OwnedFd>) -> usize {
        let units = request_units(self.inbox.packet(length));
        self.repay_sync(place, length);
        let Some(served) = self.clients.served(place) else { return units };
        let carried_out = served.session.request_alone(self.inbox.packet(length), fds, &mut self.answer);
        if let Err(violation) = carried_out {
            self.cut_off(place, &violation);
            return units;
        }
        if served.ring == Ring::None && !self.begin_ring(place) {
            return units;
        }
        self.send_answer(place);
        units
    }

    /// A client whose ring is full asks, by a sync, for that to be carried out: one for each half of a ring costs nothing of
    /// its requests per second, for its entries have cost it its share already.
    fn repay_sync(&mut self, place: usize, length: usize) {
        let is_sync = kind_of(self.inbox.packet(length)) == Some(Kind::Sync as u16);
        let Some(client) = self.clients.get(place).filter(|_| is_sync) else { return };
        let State::Served(served) = &mut client.state else { return };
        if served.entries < (served.session.quotas().ring_slots as usize / 2).max(1) {
            return;
        }
        served.entries = 0;
        served.rate.give_back();
        if let Some(shared) = self.schedule.state(client.user).and_then(|user| user.requests.as_ref()) {
            shared.give_back();
        }
    }

    /// Sends the answer that has been made.
    fn send_answer(&mut self, place: usize) {
        let answer = mem::take(&mut self.answer);
        let sent = self.send(place, &answer);
        self.answer = answer;
        match sent {
            Ok(()) => self.answer.fds.clear(),
            Err(Unsent::Gone) => self.leave(place),
            Err(Unsent::Failed(errno)) => {
                self.cut_off(place, &format_args!("its answer cannot be sent: {errno}"));
            }
            Err(why) => self.keep_answer(place, &why),
        }
    }

    /// Sends an answer, whose descriptors count until the client has received them.
    fn send(&mut self, place: usize, answer: &Answer) -> Result<(), Unsent> {
        let count = answer.fds.len() as u64;
        if count > 0 {
            self.look_whether_read(place);
        }
        let Some(client) = self.clients.get(place) else { return Err(Unsent::Gone) };
        if client.unread.grow(count).is_err() {
            let held = self.shared.host.accounts().held_by(client.payer.user);
            let is_own = held.of(Resource::UnreadReplies) >= UNREAD_BLAMED;
            return Err(if is_own { Unsent::OwnCrowd } else { Unsent::OthersCrowd });
        }
        let sent = socket::send(client.socket.as_fd(), answer);
        match sent {
            Ok(()) if count > 0 => _ = self.unread.insert(place),
            Ok(()) => {}
            Err(_) => client.unread.shrink(count),
        }
        sent.map_err(|errno| match errno {
            Errno::EAGAIN => Unsent::NoRoom,
            // Of what this user's clients have not read, there is less than it may have.
            Errno::ETOOMANYREFS => Unsent::OthersCrowd,
            Errno::EPIPE | Errno::ECONNRESET => Unsent::Gone,
            errno => Unsent::Failed(errno),
        })
    }

    /// Notes if a client has received all that was sent to it.
    fn look_whether_read(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else { return };
        if client.unread.count() > 0 && socket::is_all_read(client.socket.as_fd()) {
            client.unread.shrink(client.unread.count());
            self.unread.remove(&place);
        }
    }

    /// The same of all clients, and of those that have departed: their sockets stay until they have received everything, or
    /// are gone.
    fn look_who_has_read(&mut self) {
        for place in self.unread.clone() {
            self.look_whether_read(place);
        }
        let (over, left): (Vec<_>, Vec<_>) = mem::take(&mut self.lingering)
            .into_iter()
            .partition(|client| socket::is_all_read(client.socket.as_fd()));
        self.lingering = left;
        for Lingering { id, socket, payer, admission, .. } in over {
            self.hand_over(id, payer, socket, admission);
        }
    }

    /// After the hello there is a ring, and a doorbell. False if it cannot be watched.
    fn begin_ring(&mut self, place: usize) -> bool {
        let event = EpollEvent::new(DOORBELL, self.clients.mark(Source::Doorbell(place)));
        let Some(client) = self.clients.get(place) else { return false };
        let State::Served(served) = &mut client.state else { return false };
        let Some(doorbell) = served.session.doorbell() else { return true };
        if served.session.adopts() {
            socket::allow_descriptors(&client.socket);
            client.may_attach = true;
        }
        if let Err(errno) = self.epoll.add(doorbell, event) {
            self.cut_off(place, &format_args!("its doorbell cannot be watched: {errno}"));
            return false;
        }
        (served.ring, served.greet_until_ns) = (Ring::Hot, None);
        self.queue(place);
        self.set_due(place, None);
        true
    }

    /// The client does not read, or others do not: nothing of it is read until it has its answer.
    fn keep_answer(&mut self, place: usize, why: &Unsent) {
        let answer = mem::take(&mut self.answer);
        let until_ns = self.now_ns() + ns(self.shared.config.reply_timeout);
        if let Some(served) = self.clients.served(place) {
            served.talk = Talk::Answering { answer, until_ns, crowded: false };
        }
        self.wait_for_room(place, why);
    }

    /// Its socket tells of room in itself. Of descriptors that others have received nobody tells.
    fn wait_for_room(&mut self, place: usize, why: &Unsent) {
        let told = matches!(why, Unsent::NoRoom);
        let again_ns = self.now_ns() + ns(CROWD_LOOK);
        let Some(served) = self.clients.served(place) else { return };
        let Talk::Answering { until_ns, crowded, .. } = &mut served.talk else { return };
        *crowded = matches!(why, Unsent::OthersCrowd);
        let due_ns = match (told, *crowded) {
            (true, _) => *until_ns,
            (false, true) => again_ns,
            (false, false) => again_ns.min(*until_ns),
        };
        self.set_due(place, Some(due_ns));
        self.watch(place, if told { ROOM } else { END });
    }

    fn answer_now(&mut self, place: usize) {
        let Some(served) = self.clients.served(place) else { return };
        let Talk::Answering { answer, .. } = &mut served.talk else { return };
        let answer = mem::take(answer);
        let sent = self.send(place, &answer);
        let serving = self.phase == Phase::Serving;
        let Some(served) = self.clients.served(place) else { return };
        match sent {
            Ok(()) => {
                served.talk = Talk::Reading;
                served.muted = false;
                let due_ns = served.greet_until_ns.filter(|_| serving);
                self.set_due(place, due_ns);
                // What has come meanwhile is told of now.
                self.watch(place, if serving { REQUESTS } else { END });
                self.queue(place);
            }
            Err(Unsent::Gone | Unsent::Failed(_)) => self.leave(place),
            Err(why) => {
                if let Talk::Answering { answer: kept, .. } = &mut served.talk {
                    *kept = answer;
                }
                self.wait_for_room(place, &why);
            }
        }
    }

    /// Tells a client that is not let in why, and that is all.
    pub(super) fn refuse(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else { return };
        let State::Refused(refusal) = client.state else { return };
        // One with descriptors stays where it is, and is not answered.
        if let Received::Packet(length) = self.inbox.receive(client.socket.as_fd(), client.may_attach)
            && let Ok((header, _)) = Header::read(self.inbox.packet(length.min(PACKET_MAX)))
        {
            Reply::Refused(refusal).write(header.kind.get(), header.id.get(), &mut self.answer.packet);
            self.answer.fds.clear();
            let _ = socket::send(client.socket.as_fd(), &self.answer);
        }
        self.remove(place);
    }

    // --- time

    pub(super) fn set_due(&mut self, place: usize, due_ns: Option<u64>) {
        let Some(client) = self.clients.get(place) else { return };
        if let Some(before_ns) = mem::replace(&mut client.due_ns, due_ns) {
            self.timers.remove(&(before_ns, place));
        }
        self.timers.extend(due_ns.map(|due_ns| (due_ns, place)));
    }

    fn handle_due(&mut self, now_ns: u64) {
        for _ in 0..DUE_BUDGET {
            let due = self.timers.first().filter(|(due_ns, _)| *due_ns <= now_ns);
            let Some(&(due_ns, place)) = due else { break };
            self.timers.remove(&(due_ns, place));
            if let Some(client) = self.clients.get(place) {
                client.due_ns = None;
            }
            self.handle_one(place, now_ns);
        }
        self.unpark_due(now_ns);
        if self.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.paused_until_ns = None;
            self.watch_listener(EpollFlags::EPOLLIN);
        }
        if self.relink_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            self.relink();
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
                    Talk::Adopting { .. } => {
                        self.cut_off(place, &"its descriptors were not received in time: too many of its user cannot be closed");
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
        let timer_ns = self.timers.first().map(|(due_ns, _)| *due_ns);
        let unread_ns = self.waits_for_readers().then_some(self.unread_ns);
        let parked_ns = self.parked.first().map(|(until_ns, _)| *until_ns);
        let others = [self.paused_until_ns, self.relink_ns, unread_ns, parked_ns];
        let next_ns = [network_ns, sweep_ns, timer_ns].into_iter().chain(others).flatten().min();
        let Some(next_ns) = next_ns else { return EpollTimeout::NONE };
        // Rounded up: a timer that comes too early is slept for again, and again.
        let left = Duration::from_nanos(self.shared.host.drive().sleep_ns(next_ns));
        EpollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(EpollTimeout::MAX)
    }

    // --- ends

    /// Of a client without a session.
    pub(super) fn remove(&mut self, place: usize) {
        self.set_due(place, None);
        let Some(client) = self.clients.remove(place) else { return };
        let Client { id, socket, unread, payer, user, admission, .. } = client;
        self.schedule.leave(user);
        let _ = self.epoll.delete(&socket);
        self.unread.remove(&place);
        self.desk().load.fetch_sub(1, Ordering::Relaxed);
        let lingers = unread.count() > 0 && !socket::is_all_read(socket.as_fd());
        if lingers && self.phase != Phase::Stopping {
            // It sees its end. What it has not received still counts.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
            self.lingering.push(Lingering { id, socket, payer, admission, _unread: unread });
        } else {
            self.hand_over(id, payer, socket, admission);
        }
    }

    /// The porter closes the socket of a client that has gone, which keeps its place until then.
    fn hand_over(&mut self, id: u64, payer: Payer, socket: OwnedFd, admission: Option<Admission>) {
        self.leaving.insert(id, self.leaving(payer, admission));
        self.link.drop_client(id, payer.user.0, socket);
    }

    fn leaving(&self, payer: Payer, admission: Option<Admission>) -> Leaving {
        let pending = self.shared.host.accounts().charge(payer, Resource::PendingCloses, 1);
        Leaving { admission, _pending: pending.ok() }
    }

    fn give_place_back(&self, leaving: Leaving) {
        match leaving.admission {
            Some(admission) => self.shared.door.leave(admission),
            None => _ = self.shared.door.refused.fetch_sub(1, Ordering::Relaxed),
        }
    }

    fn waits_for_readers(&self) -> bool {
        !self.unread.is_empty() || !self.lingering.is_empty()
    }

    // --- the porter

    fn read_porter(&mut self) {
        self.link.flush();
        // As many as it sends for one request, and some.
        for _ in 0..2 * ACCEPT_BUDGET {
            match self.link.receive() {
                Ok(Some((Message::Accepted { client, user }, socket))) => self.accepted(client, user, socket),
                Ok(Some((Message::AcceptEnd { errno }, _))) => {
                    self.accepting = false;
                    match errno {
                        0 if self.paused_until_ns.is_none() => self.watch_listener(EpollFlags::EPOLLIN),
                        0 => {}
                        errno => self.pause(Errno::from_raw(errno)),
                    }
                }
                Ok(Some((Message::Adopted { token, count, errno }, memory))) => {
                    self.adopted(token, count, errno, memory);
                }
                Ok(Some((Message::Gone { client }, _))) => {
                    if let Some(leaving) = self.leaving.remove(&client) {
                        self.give_place_back(leaving);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => return self.relink(),
            }
        }
    }

    /// Watches the channel for room while something waits for it.
    fn watch_link(&mut self) {
        let room = if self.link.wants_room() { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        let wanted = EpollFlags::EPOLLIN | room;
        if self.relink_ns.is_none() && wanted != self.watched {
            self.watched = wanted;
            // It stands in there: this cannot fail.
            let _ = self.epoll.modify(&self.link.channel, &mut EpollEvent::new(wanted, PORTER));
        }
    }

    /// The porter has died: another one takes over.
    fn relink(&mut self) {
        if self.relink_ns.take().is_none() {
            let _ = self.epoll.delete(&self.link.channel);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, PORTER);
        let linked = self.shared.porter.link().and_then(|link| {
            self.epoll.add(&link.channel, event)?;
            Ok(link)
        });
        let link = match linked {
            Ok(link) => link,
            Err(errno) => {
                if errno != Errno::EAGAIN && self.shared.may_warn() {
                    tracing::warn!(%errno, "no porter can be started: clients cannot connect");
                }
                self.relink_ns = Some(self.now_ns() + ns(PORTER_PAUSE));
                return;
            }
        };
        let earlier = mem::replace(&mut self.link, link);
        self.watched = EpollFlags::EPOLLIN;
        // It has closed all that it had.
        let waiting: BTreeSet<u64> = earlier.waiting().collect();
        let (left, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            mem::take(&mut self.leaving).into_iter().partition(|(id, _)| waiting.contains(id));
        self.leaving = left;
        gone.into_values().for_each(|leaving| self.give_place_back(leaving));
        for place in 0..self.clients.places() {
            let Some(client) = self.clients.get(place) else { continue };
            let kept = client.socket.try_clone().map(|socket| (client.id, socket));
            let is_adopting = matches!(&client.state, State::Served(served) if matches!(served.talk, Talk::Adopting { .. }));
            if let Ok((id, socket)) = kept {
                self.link.keep(id, socket);
            }
            if is_adopting {
                self.cut_off(place, &"the porter has ended while it received its descriptors");
            }
        }
        for client in &self.lingering {
            if let Ok(socket) = client.socket.try_clone() {
                self.link.keep(client.id, socket);
            }
        }
        self.link.take_over(earlier);
        if mem::take(&mut self.accepting) && self.paused_until_ns.is_none() {
            self.watch_listener(EpollFlags::EPOLLIN);
        }
    }

    /// The porter of this thread keeps a client's socket from now on.
    fn keep(&mut self, id: u64, socket: &OwnedFd) {
        if let Ok(socket) = socket.try_clone() {
            self.link.keep(id, socket);
        }
    }
}

/// What a packet claims to be.
fn kind_of(packet: &[u8]) -> Option<u16> {
    Header::peek(packet).map(|header| header.kind.get())
}

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}
