//! A thread: what it looks at, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
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

use super::super::accounts::{Charge, Payer, Resource};
use super::super::porter::{Link, Message};
use super::super::{Answer, Session};
use super::client::{Client, Clients, Ring, Served, Source, State, Talk};
use super::network::Network;
use super::rate::Rate;
use super::socket::{self, Inbox, Received};
use super::{
    ACCEPT_BUDGET, ACCEPT_PAUSE, ADOPT_TIMEOUT, Admission, Arrival, BUSY_ROUNDS, CROWD_LOOK, DEPARTURE_LOOK,
    DRAIN_BUDGET, Desk, HELLO_TIMEOUT, IDLE_ROUNDS, PORTER_PAUSE, Phase, REFUSED_MAX, REQUESTS_BUDGET, SWEEP,
    Shared, UNREAD_BLAMED, UNREAD_LOOK,
};

/// What the system says of descriptors that are no client's. No client's mark is so large.
const BELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const SHARD: u64 = u64::MAX - 2;
const PORTER: u64 = u64::MAX - 3;

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
                PORTER => self.read_porter(),
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
        let Arrival { id, socket, may_attach, generation, who, admission } = arrival;
        if generation != self.link.generation {
            self.keep(id, &socket);
        }
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
        let payer = self.shared.host.payer_of(&who);
        let unread = self.shared.host.accounts().open(payer, Resource::UnreadReplies);
        let place = self.clients.insert(Client {
            id,
            socket,
            may_attach,
            unread,
            who,
            payer,
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
        let may_attach = client.may_attach;
        match self.inbox.receive(client.socket.as_fd(), may_attach) {
            Received::Packet(length) if length > PACKET_MAX => {
                self.cut_off(place, &format_args!("a packet of more than {PACKET_MAX} bytes"));
                false
            }
            Received::Packet(length) => {
                // One that only asks to be told when all is done costs no more than what stands in the ring.
                if kind_of(self.inbox.packet(length)) != Some(Kind::Sync as u16) {
                    served.rate = rate;
                }
                self.wake(place);
                self.carry_out(place, length, Vec::new())
            }
            Received::Attached(length) => {
                served.rate = rate;
                self.wake(place);
                self.adopt(place, length);
                false
            }
            Received::Nothing => false,
            Received::End => {
                self.depart(place);
                false
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
        self.set_due(place, due_ns);
        self.watch(place, if serving { REQUESTS } else { END });
        let length = self.inbox.put(&packet);
        match fds {
            Ok(fds) => drop(self.carry_out(place, length, fds)),
            Err(errno) => {
                let Some(header) = Header::peek(&packet) else { return };
                let refusal = Reply::Refused(Refusal::new(errno, Reason::System));
                refusal.write(header.kind.get(), header.id.get(), &mut self.answer.packet);
                self.answer.fds.clear();
                self.send_answer(place);
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
        self.send_answer(place)
    }

    /// Sends the answer that has been made. False if no other request may be read now.
    fn send_answer(&mut self, place: usize) -> bool {
        let answer = mem::take(&mut self.answer);
        let sent = self.send(place, &answer);
        self.answer = answer;
        match sent {
            Ok(()) => {
                self.answer.fds.clear();
                true
            }
            Err(Unsent::Gone) => {
                self.leave(place);
                false
            }
            Err(Unsent::Failed(errno)) => {
                self.cut_off(place, &format_args!("its answer cannot be sent: {errno}"));
                false
            }
            Err(why) => {
                self.keep_answer(place, &why);
                false
            }
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
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        let event = EpollEvent::new(flags, self.clients.mark(Source::Doorbell(place)));
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
        self.hot.push(place);
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
                let due_ns = served.greet_until_ns.filter(|_| serving);
                self.set_due(place, due_ns);
                self.watch(place, if serving { REQUESTS } else { END });
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
    fn refuse(&mut self, place: usize) {
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
        if self.relink_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            self.relink();
        }
        if self.waits_for_readers() && self.unread_ns <= now_ns {
            self.unread_ns = now_ns + ns(UNREAD_LOOK);
            self.look_who_has_read();
        }
        if self.sweep_ns <= now_ns {
            self.sweep_ns = now_ns + ns(SWEEP);
            self.sweep();
        }
    }

    fn handle_one(&mut self, place: usize, now_ns: u64) {
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
                            self.watch(place, REQUESTS);
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
                    Talk::Reading => {
                        self.shared.door.silent.fetch_add(1, Ordering::Relaxed);
                        self.cut_off(place, &"it sent no hello in time");
                    }
                }
            }
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
        let unread_ns = self.waits_for_readers().then_some(self.unread_ns);
        let others = [self.paused_until_ns, self.relink_ns, unread_ns];
        let next_ns = [network_ns, sweep_ns, timer_ns].into_iter().chain(others).flatten().min();
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
        let Some(client) = self.clients.remove(place) else { return };
        let Client { id, socket, unread, payer, state, admission, .. } = client;
        if let State::Served(served) = state {
            let departure = served.session.close();
            self.leftovers |= !departure.is_over();
        }
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
        for place in self.clients.places() {
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

/// What a packet claims to be.
fn kind_of(packet: &[u8]) -> Option<u16> {
    Header::peek(packet).map(|header| header.kind.get())
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}
