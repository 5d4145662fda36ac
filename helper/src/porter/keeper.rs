//! The porter's loop.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use hashbrown::HashMap;
use lnet_api::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{
    MsgFlags, Shutdown, SockFlag, accept4, getsockopt, recvmsg, setsockopt, shutdown, sockopt,
};
use nix::unistd::{Pid, getppid};

use super::carrier::{Carriers, Job};
use super::channel::{self, PorterMessage};
use super::{
    BATCH_MAX, CARRIER_TIMEOUT, CARRIERS_FIRST, CARRIERS_MAX, CARRIERS_PER_USER, CARRIERS_ROOT, LATE_LOOK_MS,
    MESSAGES_BUDGET, RETRY_MS, SHARED,
};

/// The user whose carriers have a reserve.
const ROOT: u32 = 0;

/// Interval of the checks whether `nlxd` has ended, once it is about to.
const ENDING_LOOK: Duration = Duration::from_millis(1);

/// The state of the porter.
pub(super) struct Keeper {
    main: OwnedFd,
    /// Signals the end of a carrier.
    signals: Option<SignalFd>,
    links: Vec<Option<Link>>,
    listener: Option<Listener>,
    clients: HashMap<u64, Kept, foldhash::fast::RandomState>,
    users: BTreeMap<u32, User>,
    carriers: Carriers,
    /// Jobs that are over.
    done: Vec<Job>,
    batch_max: usize,
    /// Users that may have a carrier, and carriers that users may have beyond their first: fewer
    /// where there are few descriptors.
    first_max: usize,
    further_max: usize,
    /// Set if an attempt has failed that may succeed later.
    retry: bool,
}

/// A channel of a service thread.
struct Link {
    channel: OwnedFd,
    /// Messages for which the channel has no room yet.
    outbox: VecDeque<PorterMessage>,
}

struct Listener {
    socket: OwnedFd,
    own: bool,
}

/// A client's socket, or a descriptor that the client has as well.
struct Kept {
    socket: OwnedFd,
    /// Set once `nlxd` has dropped it: the user that is charged, and the link to be notified of its
    /// end.
    leaving: Option<(u32, usize)>,
    /// Set while `nlxd` has not closed its own descriptor of the same file.
    held: bool,
}

impl Kept {
    fn new(socket: OwnedFd) -> Kept {
        Kept { socket, leaving: None, held: true }
    }
}

/// The pending closes of a user, and the number of carriers that work for it.
#[derive(Default)]
struct User {
    closes: VecDeque<u64>,
    busy: usize,
}

impl Keeper {
    pub(super) fn new(main: OwnedFd, carriers: Carriers, signals: Option<SignalFd>) -> Keeper {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Keeper {
            main,
            signals,
            links: Vec::new(),
            listener: None,
            clients: HashMap::default(),
            users: BTreeMap::new(),
            carriers,
            done: Vec::new(),
            // Descriptors on their way to a carrier count against the limit of descriptors in
            // flight.
            batch_max: (descriptors / 8).clamp(1, BATCH_MAX),
            // Each carrier has a descriptor; descriptors kept for clients take up to half of the
            // limit.
            first_max: (descriptors / 8).clamp(1, CARRIERS_FIRST),
            further_max: (descriptors / 8).clamp(1, CARRIERS_MAX - CARRIERS_ROOT),
            retry: false,
        }
    }

    /// Serves `nlxd` until it closes the first channel, or dies; then ends the connections of all
    /// clients.
    pub(super) fn run(mut self, nlxd: Option<Pid>) {
        while self.turn() {}
        self.end(nlxd);
    }

    /// Waits for work, and does it. Returns false at the end.
    fn turn(&mut self) -> bool {
        (0..self.links.len()).for_each(|index| self.flush(index));
        let busy = self.carriers.kill_late(CARRIER_TIMEOUT);
        let timeout = match (self.retry, busy) {
            (true, _) => RETRY_MS.into(),
            (false, true) => LATE_LOOK_MS.into(),
            (false, false) => PollTimeout::NONE,
        };
        let ready = self.wait(timeout);
        if mem::take(&mut self.retry) {
            self.pump_all();
        }
        if ready.signals {
            while let Some(Ok(Some(_))) = self.signals.as_ref().map(SignalFd::read_signal) {}
        }
        if ready.signals || ready.carriers {
            self.done.append(&mut self.carriers.finished());
        }
        for index in ready.links {
            self.read_link(index);
        }
        self.settle();
        !ready.main || self.read_main()
    }

    fn wait(&self, timeout: PollTimeout) -> Ready {
        let mut watched = vec![PollFd::new(self.main.as_fd(), PollFlags::POLLIN)];
        watched.extend(self.signals.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        let before_links = watched.len();
        let mut numbers = Vec::with_capacity(self.links.len());
        for (index, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let room = if link.outbox.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            watched.push(PollFd::new(link.channel.as_fd(), PollFlags::POLLIN | room));
            numbers.push(index);
        }
        let before_carriers = watched.len();
        watched.extend(self.carriers.channels().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        if poll(&mut watched, timeout).unwrap_or(0) == 0 {
            return Ready::default();
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        Ready {
            main: is_ready(&watched[0]),
            signals: watched[1..before_links].iter().any(is_ready),
            links: numbers
                .into_iter()
                .zip(&watched[before_links..before_carriers])
                .filter(|(_, fd)| is_ready(fd))
                .map(|(index, _)| index)
                .collect(),
            carriers: watched[before_carriers..].iter().any(is_ready),
        }
    }

    /// Reads the first channel. Returns false at its end.
    fn read_main(&mut self) -> bool {
        loop {
            match channel::receive_one(self.main.as_fd(), MsgFlags::MSG_DONTWAIT) {
                Ok(Some((PorterMessage::Channel, fd))) => {
                    let link = fd.map(|channel| Link { channel, outbox: VecDeque::new() });
                    self.links.push(link);
                }
                Ok(Some((PorterMessage::Listener { own }, fd))) => {
                    self.listener = fd.map(|socket| Listener { socket, own });
                }
                Err(Errno::EAGAIN) => return true,
                Ok(None | Some(_)) | Err(_) => return false,
            }
        }
    }

    fn read_link(&mut self, index: usize) {
        for _ in 0..MESSAGES_BUDGET {
            let Some(Some(link)) = self.links.get(index) else { return };
            match channel::receive_one(link.channel.as_fd(), MsgFlags::MSG_DONTWAIT) {
                Ok(Some((message, fd))) => self.handle(index, message, fd),
                Err(Errno::EAGAIN) => return,
                Ok(None) | Err(_) => self.links[index] = None,
            }
        }
    }

    fn handle(&mut self, link: usize, message: PorterMessage, fd: Option<OwnedFd>) {
        match message {
            PorterMessage::Keep { client } => {
                if let Some(socket) = fd {
                    self.clients.entry(client).or_insert(Kept::new(socket));
                }
            }
            PorterMessage::Accept { first, count } => self.accept(link, first, count),
            PorterMessage::Drop { client, user } => {
                let held = fd.is_some();
                if let Some(socket) = fd {
                    self.clients.entry(client).or_insert(Kept::new(socket));
                }
                let Some(kept) = self.clients.get_mut(&client) else {
                    return self.push(link, PorterMessage::Gone { client });
                };
                if kept.leaving.replace((user, link)).is_some() {
                    return;
                }
                kept.held = held;
                if client < SHARED {
                    // The client sees its end at once, however long the socket stays.
                    let _ = shutdown(kept.socket.as_raw_fd(), Shutdown::Both);
                }
                self.dispose(client);
            }
            PorterMessage::Ask => self.push(link, PorterMessage::Here),
            PorterMessage::Closed { client } => {
                if let Some(kept) = self.clients.get_mut(&client) {
                    kept.held = false;
                    self.dispose(client);
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self, link: usize, first: u64, count: u32) {
        let mut end = 0;
        for client in (first..).take(count as usize) {
            let Some(listener) = &self.listener else {
                end = Errno::EBADF as i32;
                break;
            };
            match accept_one(&listener.socket) {
                Ok(socket) => {
                    // A socket without credentials counts for a uid that does not exist.
                    let user = getsockopt(&socket, sockopt::PeerCredentials);
                    let user = user.map_or(u32::MAX, |credentials| credentials.uid());
                    self.clients.insert(client, Kept::new(socket));
                    self.push(link, PorterMessage::Accepted { client, user });
                }
                Err(Errno::EAGAIN) => break,
                // The client has gone already.
                Err(Errno::ECONNABORTED | Errno::EINTR) => {}
                Err(errno) => {
                    end = errno as i32;
                    break;
                }
            }
        }
        self.push(link, PorterMessage::AcceptEnd { errno: end });
    }

    // --- to nlxd

    fn push(&mut self, index: usize, message: PorterMessage) {
        if let Some(Some(link)) = self.links.get_mut(index) {
            link.outbox.push_back(message);
        }
    }

    fn flush(&mut self, index: usize) {
        let Keeper { links, clients, .. } = self;
        let Some(Some(link)) = links.get_mut(index) else { return };
        while let Some(&message) = link.outbox.front() {
            let socket = match message {
                PorterMessage::Accepted { client, .. } => {
                    clients.get(&client).map(|kept| kept.socket.as_fd())
                }
                _ => None,
            };
            match channel::send(link.channel.as_fd(), message, socket.as_slice(), MsgFlags::MSG_DONTWAIT) {
                Ok(()) => drop(link.outbox.pop_front()),
                Err(Errno::EAGAIN) => return,
                Err(Errno::ETOOMANYREFS | Errno::ENOMEM | Errno::ENOBUFS) => {
                    self.retry = true;
                    return;
                }
                Err(_) => {
                    links[index] = None;
                    return;
                }
            }
        }
    }

    // --- closing

    /// Closes a descriptor that `nlxd` has dropped: a client's socket in this process if nothing is
    /// in it; all others in a carrier.
    fn dispose(&mut self, client: u64) {
        let Some(kept) = self.clients.get(&client) else { return };
        let Some((user, link)) = kept.leaving.filter(|_| !kept.held) else { return };
        if client < SHARED && is_empty(kept.socket.as_fd()) {
            self.clients.remove(&client);
            self.push(link, PorterMessage::Gone { client });
        } else {
            self.users.entry(user).or_default().closes.push_back(client);
            self.pump(user);
        }
    }

    /// Returns whether a user may have a further carrier: the first one if any is left;
    /// further ones up to [`CARRIERS_PER_USER`], and never more than are still free.
    fn may_start(&self, user: u32) -> bool {
        let own = self.users.get(&user).map_or(0, |user| user.busy);
        if user == ROOT {
            return own < CARRIERS_ROOT;
        }
        let ordinary = || self.users.iter().filter(|(user, _)| **user != ROOT).map(|(_, user)| user.busy);
        if own == 0 {
            return ordinary().filter(|busy| *busy > 0).count() < self.first_max;
        }
        let further: usize = ordinary().map(|busy| busy.saturating_sub(1)).sum();
        own < CARRIERS_PER_USER && own + further < self.further_max
    }

    fn pump_all(&mut self) {
        let users: Vec<u32> = self.users.keys().copied().collect();
        users.into_iter().for_each(|user| self.pump(user));
    }

    /// Gives a user's closes to carriers, up to the limit of the user.
    fn pump(&mut self, user: u32) {
        while self.may_start(user) && self.pump_one(user) {}
    }

    /// Gives a batch to a carrier. Returns false if there is none to give.
    fn pump_one(&mut self, user: u32) -> bool {
        let Some(work) = self.users.get_mut(&user) else { return false };
        // The more carriers a user occupies, the larger the next batch must be: so those of a user
        // have room for thousands of sockets, and closes that do not block need one carrier.
        let wanted = self.batch_max.min(1 << work.busy.min(16));
        if work.closes.len() < wanted || work.closes.is_empty() {
            return false;
        }
        let clients: Vec<u64> = work.closes.drain(..work.closes.len().min(self.batch_max)).collect();
        let (mut wanting, mut sockets, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for client in clients {
            let Some(kept) = self.clients.remove(&client) else { continue };
            let Some((_, link)) = kept.leaving else { continue };
            wanting.push((client, link));
            numbers.push((client, link));
            sockets.push(kept.socket);
        }
        match self.carriers.close(Job { user, clients: wanting }, sockets) {
            Ok(done) => {
                work.busy += 1;
                self.done.extend(done);
                true
            }
            Err((_, sockets)) => {
                for ((client, link), socket) in numbers.into_iter().zip(sockets).rev() {
                    let leaving = Some((user, link));
                    self.clients.insert(client, Kept { socket, leaving, held: false });
                    work.closes.push_front(client);
                }
                self.retry = true;
                false
            }
        }
    }

    /// Notifies `nlxd` of the jobs that are over, and starts further ones.
    fn settle(&mut self) {
        while let Some(job) = self.done.pop() {
            if let Some(user) = self.users.get_mut(&job.user) {
                user.busy = user.busy.saturating_sub(1);
            }
            job.clients
                .into_iter()
                .for_each(|(client, link)| self.push(link, PorterMessage::Gone { client }));
            self.pump_all();
        }
        self.users.retain(|_, user| user.busy > 0 || !user.closes.is_empty());
    }

    // --- the end

    /// Ends the connections after `nlxd` has ended, or is about to.
    fn end(mut self, nlxd: Option<Pid>) {
        for (_, kept) in self.clients.iter().filter(|(client, _)| **client < SHARED) {
            let _ = shutdown(kept.socket.as_raw_fd(), Shutdown::Both);
        }
        let mut backlog = Vec::new();
        if let Some(listener) = self.listener.take_if(|listener| listener.own) {
            // Clients that were not accepted yet see the end, too.
            let _ = shutdown(listener.socket.as_raw_fd(), Shutdown::Both);
            while let Ok(socket) = accept_one(&listener.socket) {
                let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
                backlog.push(socket);
            }
            self.listener = Some(listener);
        }
        // Its channel may be the first descriptor that it has closed, and no close of nlxd may be
        // the last one of a socket. A process has closed everything before its children get another
        // parent.
        while nlxd.is_some_and(|nlxd| getppid() == nlxd) {
            std::thread::sleep(ENDING_LOOK);
        }
        self.clients.retain(|&client, kept| client >= SHARED || !is_empty(kept.socket.as_fd()));
        backlog.retain(|socket| !is_empty(socket.as_fd()));
        if nlxd.is_some() {
            // The remaining sockets are closed as the process ends, where a lingering socket does
            // not block. A close that still blocks blocks only the porter and its carriers, and no
            // process waits for these.
            self.carriers.kill_late(Duration::ZERO);
            mem::forget((self.clients, backlog, self.listener));
        }
    }
}

/// The descriptors that can be read.
#[derive(Default)]
struct Ready {
    main: bool,
    signals: bool,
    links: Vec<usize>,
    carriers: bool,
}

fn accept_one(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the system has just made it, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns whether nothing is in the receive queue of a socket that has been shut down: then its
/// close closes nothing else. Nothing more comes into it.
fn is_empty(socket: BorrowedFd<'_>) -> bool {
    // Packets now have credentials, so that one without bytes differs from the end of the stream:
    // without room for them, MSG_CTRUNC is set.
    if setsockopt(&socket, sockopt::PassCred, &true).is_err() {
        return false;
    }
    // An error of the connection is reported once.
    for _ in 0..2 {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recvmsg::<()>(socket.as_raw_fd(), &mut [], None, flags) {
            Ok(seen) => return seen.bytes == 0 && !seen.flags.contains(MsgFlags::MSG_CTRUNC),
            Err(Errno::EAGAIN) => return true,
            Err(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::fd::AsFd;

    use nix::sys::eventfd::EventFd;
    use nix::sys::socket::{ControlMessage, send, sendmsg};

    use super::*;

    /// If the porter closed the socket first, the close of `nlxd` would be the last one, and would
    /// close what the client has sent.
    #[test]
    fn a_client_is_closed_after_nlxd_has_closed_its_own_descriptor() {
        let (main, _nlxd) = channel::pair().unwrap();
        let mut keeper = Keeper::new(main, Carriers::Inline, None);
        let (theirs, link) = channel::pair().unwrap();
        keeper.links.push(Some(Link { channel: theirs, outbox: VecDeque::new() }));
        let mut nlxd = super::super::PorterLink::new(link, 1);
        for (client, sends) in [(1, false), (2, true)] {
            let (socket, peer) = channel::pair().unwrap();
            if sends {
                send(peer.as_raw_fd(), b"unread", MsgFlags::empty()).unwrap();
            }
            assert!(nlxd.keep(client, socket.as_fd()));
            nlxd.drop_client(client, 0, socket);
            let mut step = || {
                let link = keeper.links[0].as_ref().unwrap();
                let message = channel::receive_one(link.channel.as_fd(), MsgFlags::MSG_DONTWAIT).unwrap();
                let (message, fd) = message.unwrap();
                keeper.handle(0, message, fd);
                keeper.settle();
                (message, keeper.clients.len(), keeper.links[0].as_mut().unwrap().outbox.pop_front())
            };
            assert_eq!(step(), (PorterMessage::Keep { client }, 1, None));
            assert_eq!(step(), (PorterMessage::Drop { client, user: 0 }, 1, None));
            assert_eq!(step(), (PorterMessage::Closed { client }, 0, Some(PorterMessage::Gone { client })));
            assert!(!nlxd.wants_room(), "nlxd has nothing of it any more");
        }
    }

    /// The unit of systemd states the number of these processes with the porter.
    #[test]
    fn users_that_take_all_carriers_have_as_many_as_the_unit_says() {
        let (main, _nlxd) = channel::pair().unwrap();
        let mut keeper = Keeper::new(main, Carriers::Inline, None);
        // Independent of the limit of descriptors.
        (keeper.first_max, keeper.further_max) = (CARRIERS_FIRST, CARRIERS_MAX - CARRIERS_ROOT);
        for _ in 0..=CARRIERS_PER_USER {
            // One more user than may have a first carrier.
            for user in 0..=CARRIERS_FIRST as u32 + 1 {
                if keeper.may_start(user) {
                    keeper.users.entry(user).or_default().busy += 1;
                }
            }
        }
        let carriers: usize = keeper.users.values().map(|user| user.busy).sum();
        // The last carrier beyond the first ones is never used: no user may have more than are
        // free.
        assert_eq!(carriers, CARRIERS_FIRST + (CARRIERS_MAX - CARRIERS_ROOT - 1) + CARRIERS_ROOT);
        let unit = include_str!("../../../packaging/systemd/nlxd.service");
        assert!(unit.contains(&format!("up to {} processes", carriers + 1)));
    }

    #[test]
    fn a_queue_is_empty_only_without_packets_of_any_length() {
        let bell = EventFd::new().unwrap();
        let numbers = [bell.as_fd().as_raw_fd()];
        let with: &[ControlMessage<'_>] = &[ControlMessage::ScmRights(&numbers)];
        type Act = fn(&OwnedFd, &[ControlMessage<'_>]);
        let acts: [(Act, bool); 5] = [
            (|_, _| {}, true),
            (|peer, _| assert!(send(peer.as_raw_fd(), b"x", MsgFlags::empty()).is_ok()), false),
            (|peer, _| assert!(send(peer.as_raw_fd(), b"", MsgFlags::empty()).is_ok()), false),
            (
                |peer, with| {
                    let bytes = [std::io::IoSlice::new(b"")];
                    sendmsg::<()>(peer.as_raw_fd(), &bytes, with, MsgFlags::empty(), None).unwrap();
                },
                false,
            ),
            (|peer, _| shutdown(peer.as_raw_fd(), Shutdown::Both).unwrap(), true),
        ];
        for (act, empty) in acts {
            for peer_closes in [false, true] {
                let (ours, theirs) = channel::pair().unwrap();
                act(&theirs, with);
                if peer_closes {
                    // Our unread packets make its close an error here.
                    send(ours.as_raw_fd(), b"unread", MsgFlags::MSG_NOSIGNAL).ok();
                    drop(theirs);
                }
                shutdown(ours.as_raw_fd(), Shutdown::Both).unwrap();
                assert_eq!(is_empty(ours.as_fd()), empty);
            }
        }
    }
}
