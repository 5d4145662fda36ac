//! Sockets, threads and time around the sessions: the part of the helper that runs.
//!
//! A [`Service`] has one thread, or some. Each sleeps in one `epoll` on all that can give it something to do:
//!
//! | descriptor | told | means |
//! | --- | --- | --- |
//! | the listener (first thread) | while it is readable | a client connects: the [porter](super::porter) accepts it, and it goes to the thread that has the fewest |
//! | the thread's channel to the porter | while it is readable | clients, memory that they hand over, ends |
//! | a client's socket | while it is readable | a request, or its end |
//! | a client's doorbell | once for each ring; never read | the client has submitted while nobody looked |
//! | a shard of the network | while it is readable | messages; the thread drives the shards that are its own |
//! | the thread's own bell | while it is readable | clients from another thread, or the service ends |
//!
//! # Fair shares
//!
//! A round polls the network, then gives every user with work the same share, in units of work ([`ROUND_UNITS`]), and within
//! it turns to the user's connections one after the other (`schedule`). A user's requests, entries, connections that come, and
//! sessions that are closed all count. A ring that was lately used is looked at in its user's turns (*hot*). A client whose ring
//! stays empty for [`IDLE_ROUNDS`] turns and [`ServiceConfig::busy_poll`], or when the thread has nothing else to do, is left with
//! the announcement that nobody looks: it rings its doorbell then, and costs nothing until it does. So a thousand idle clients
//! cost what none cost.
//!
//! A turn is counted in units because time says nothing of a client where processors are shared. Some calls of the system take long
//! all the same, and a client can see to that: a fault waits while its page is moved, a message wakes the million watches that it
//! has set on its socket. A user in whose turn the thread itself has worked or waited for [`LONG_TURN`] rests for
//! [`REST_FACTOR`] times as long, so that others have the thread meanwhile (`patience`). What is done for a client outside of its
//! user's turn counts as a turn there.
//!
//! Nothing takes longer than a turn: timers, the look at all clients ([`SWEEP`]) and the end of the service go in slices, too.
//!
//! A client may send as many requests a second as its quotas say, and all clients of a user together
//! [`ServiceConfig::user_requests_per_second`], to which a connection counts as a request; what is more waits in its socket, and
//! at last in the client. A user's rate outlives its connections, so that to connect anew is no way around it. A reply that the
//! client does not read is kept, and until it can be sent nothing of this client is read; after
//! [`ServiceConfig::reply_timeout`] it is cut off.
//!
//! Replies with descriptors count until their client has received all that was sent to it (`Resource::UnreadReplies`): each
//! user has a share, and a reply beyond it waits.
//!
//! # The end of a client
//!
//! Whoever closes its socket has left; whoever breaks the rules ([`Violation`](super::Violation)) is cut off. Either way its
//! session is closed, in slices ([`Session::close_some`](super::Session::close_some)). Of one that is cut off the socket stays open, unread and with its place among the clients, until LNet
//! has let go of the client's memory: so the end of the stream tells the client that nobody writes there any more. Once the
//! client has hung up it is waited for no longer than [`ServiceConfig::quarantine`]; what LNet holds then is quarantined
//! without it. A helper that stops waits no longer for anybody: it writes nowhere when it is gone.
//!
//! The porter closes the socket, and the client's place is free again when it has: a client whose descriptors cannot be closed
//! keeps its place.
//!
//! # Memory
//!
//! All that the threads keep of a client finds room before it is let in (`Worker::make_room`); what is made for it later can fail, and is its ENOMEM.
//! Without memory the service does not end. A client for whose records there is none sees the end of its connection.
//!
//! # Panics
//!
//! Nothing here panics at what a client does. If it does all the same, what all clients share may be half changed: a panic is
//! not contained. `nlxd` ends then, clients see the end of their streams, and systemd starts it anew.
//!
//! | module | holds |
//! | --- | --- |
//! | `worker` | a thread and its loop |
//! | `descriptors` | what it watches, and what is done when the system reports it |
//! | `due` | its deadlines and those of its clients |
//! | `entrance` | who is let in, and room for what is kept of each |
//! | `turns` | what is done in a client's turn |
//! | `requests`, `answers` | reading a request, carrying it out, answering it |
//! | `keeping` | what the porter does for the thread's clients |
//! | `departing` | the end of clients and of the service, and the look at all clients |
//! | `patience` | users that hold a thread up |
//! | `timers` | when something is to be done about whom |
//! | `schedule` | whose turn it is |
//! | `user` | what a thread keeps of each user |
//! | `client` | a client, as its thread sees it |
//! | `network` | driving the network's shards |
//! | `socket` | packets with descriptors |
//! | `rate` | requests per second, of a connection and of a user |

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lnet_api::{Errno, MAX_SHARDS};
use nlx_driver_proto::Refusal;
use nlx_sync::Bell;
use parking_lot::Mutex;

use super::accounts::{Charge, Resource};
use super::costs::CLIENT_HEAP_BYTES;
use super::porter::Porter;
use super::{Credentials, Host};
use rate::UserRates;
use worker::Worker;

mod answers;
mod client;
mod departing;
mod descriptors;
mod due;
mod entrance;
mod keeping;
mod network;
mod patience;
mod rate;
mod requests;
mod schedule;
#[allow(unsafe_code, reason = "the system gives descriptors as numbers")]
mod socket;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
mod user;
mod worker;

pub use schedule::{
    MAPPING_UNITS, REQUEST_BYTES_PER_UNIT, REQUEST_UNITS, ROUND_UNITS, TURN_UNITS_MAX, VISIT_UNITS,
};
pub use socket::{bind, bind_with};

/// Clients that are accepted before anything else has its turn.
pub const ACCEPT_BUDGET: usize = 16;

/// Rounds without a submission after which a ring is not looked at any more.
pub const IDLE_ROUNDS: u32 = 64;

/// Rounds with work after which sockets are looked at, too: a look is a system call.
pub const BUSY_ROUNDS: u32 = 16;

/// Units of work after which they are looked at, too: a look takes as long as a request.
pub const LOOK_UNITS: usize = 4 * ROUND_UNITS;

/// Timers that are handled before anything else has its turn.
pub const DUE_BUDGET: usize = 64;

/// Clients that are looked at in one slice of a look at all of them: some tens of microseconds.
pub const PLACES_SLICE: usize = 32;

/// Clients that are gone of which is looked in one slice what LNet still holds.
pub const LEFTOVERS_SLICE: usize = 16;

/// The least time that the requests of a user wait who has made as many as it may in a second: a thread does not wake for
/// each of them then.
pub const PARK_LEAST: Duration = Duration::from_millis(1);

/// Clients of such a user that are read again at a time.
pub const UNPARK_BUDGET: usize = 64;

/// Memory that must be free for a line of the log, whose writer cannot do without. It is not taken.
pub const LOG_HEADROOM_BYTES: usize = 64 << 10;

/// How long a client may take for its hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Refused clients that are told why. Those beyond see the end of the stream at once.
pub const REFUSED_MAX: usize = 64;

/// The time without a look at the listener once there are no descriptors left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time after which an answer is sent again for which there were too many descriptors on their way to clients.
pub const CROWD_LOOK: Duration = Duration::from_millis(10);

/// The time from one look whether clients have read the descriptors that were sent to them to the next, while some have not.
pub const UNREAD_LOOK: Duration = Duration::from_millis(20);

/// Unread descriptors of one user from which on the user's own clients are at fault if there is no share for more. A client
/// that reads its replies has two.
pub const UNREAD_BLAMED: u64 = 32;

/// The time until another porter is asked for when none could be started.
pub const PORTER_PAUSE: Duration = Duration::from_millis(100);

/// The time from one look at all clients, busy or not, to the next ([`Session::check`](super::Session::check)).
pub const SWEEP: Duration = Duration::from_millis(500);

/// The time from one look at what LNet still holds of a client to the next.
pub const DEPARTURE_LOOK: Duration = Duration::from_millis(5);

/// A turn in which a thread works or waits for as long is not the work of a client that is counted in units: that takes less than a
/// millisecond on a processor that is not very slow.
pub const LONG_TURN: Duration = Duration::from_millis(10);

/// A user whose turn was long rests for so many times as long, and so has a twentieth of a thread at the most.
pub const REST_FACTOR: u64 = 20;

/// The longest rest.
pub const REST_MAX: Duration = Duration::from_secs(10);

/// How long threads measure turns more exactly after a long one, and after the rest for it: it takes system calls for each.
pub const WARY: Duration = Duration::from_secs(10);

/// How clients are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Threads; 0 for one for each shard of the network.
    pub threads: usize,
    /// Requests of all clients of one user per second, and as many at once after a second without any; a connection counts as
    /// one more. Those beyond wait. Root has no such limit.
    pub user_requests_per_second: u32,
    /// How long a thread keeps polling after each piece of work, whether that pays or not. The node's spin limit
    /// ([`Drive::spin`](lnet_api::Drive::spin)) applies in any case.
    pub busy_poll: Duration,
    /// How long a reply may wait for a client that does not read.
    pub reply_timeout: Duration,
    /// How long LNet is waited for when a client has gone, or all are to.
    pub quarantine: Duration,
    /// Clients may send descriptors, as they can to every service before Linux 6.16. None is taken: whoever sends some is cut off.
    pub let_descriptors_pass: bool,
}

impl Default for ServiceConfig {
    fn default() -> ServiceConfig {
        ServiceConfig {
            threads: 0,
            // Five connections that make as many as they may: half of what a processor can answer.
            user_requests_per_second: 50_000,
            busy_poll: Duration::ZERO,
            reply_timeout: Duration::from_secs(10),
            quarantine: Duration::from_secs(10),
            let_descriptors_pass: false,
        }
    }
}

/// What happened at the door, since the start; and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorStatus {
    /// Clients that are connected, refused ones and those that are being cut off included.
    pub clients: u64,
    /// Threads.
    pub threads: u64,
    /// Connections of users whom the policy does not admit.
    pub refused_users: u64,
    /// Connections beyond the limit of clients, of all or of one user.
    pub refused_clients: u64,
    /// Times that there was no descriptor for a client.
    pub without_descriptors: u64,
    /// Clients cut off, for whatever reason.
    pub cut_off: u64,
    /// Those of them that sent no hello in time.
    pub silent: u64,
    /// Those of them that did not read a reply in time.
    pub unread: u64,
    /// Times that a client had to wait because it, or its user, sent more requests than it may in a second.
    pub throttled: u64,
    /// The most units of work of one user's turn: [`TURN_UNITS_MAX`] is the limit.
    pub longest_turn: u64,
    /// Times that a user was not served for a while because a turn of it had taken very long ([`LONG_TURN`]).
    pub rested: u64,
}

/// The threads that serve clients. Dropped, it stops.
pub struct Service {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
pub(super) struct Shared {
    host: Arc<Host>,
    config: ServiceConfig,
    phase: AtomicU8,
    desks: Box<[Desk]>,
    door: Door,
    porter: Porter,
    /// Numbers of clients, for the porter.
    next_client: AtomicU64,
    /// Of each user, what its connections may ask for together.
    rates: UserRates,
}

/// Where a thread can be reached.
struct Desk {
    bell: Bell,
    /// Clients that another thread has accepted for it.
    arrivals: Mutex<VecDeque<Arrival>>,
    /// Its clients, those that are on their way included.
    load: AtomicUsize,
    /// How often it has heard its bell.
    heard: AtomicU64,
    /// It has done what the phase asks for.
    settled: AtomicBool,
}

/// A client that has been accepted.
struct Arrival {
    id: u64,
    socket: OwnedFd,
    may_attach: bool,
    /// Of the porter that has accepted it.
    generation: u64,
    who: Credentials,
    admission: Result<Admission, Refusal>,
}

/// A client's place among the clients, its socket, and the memory of its session: what its user is charged with.
struct Admission {
    _client: Charge,
    _socket: Charge,
    _heap: Charge,
}

/// Who comes in.
#[derive(Default)]
struct Door {
    clients: AtomicUsize,
    refused: AtomicUsize,
    refused_users: AtomicU64,
    refused_clients: AtomicU64,
    without_descriptors: AtomicU64,
    cut_off: AtomicU64,
    silent: AtomicU64,
    unread: AtomicU64,
    throttled: AtomicU64,
    longest_turn: AtomicU64,
    rested: AtomicU64,
    /// When a warning was last written, in seconds of the host's clock: clients must not fill the log.
    warned_s: AtomicU64,
}

/// What the threads are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Phase {
    Serving,
    /// Nothing new is taken; what is under way goes on.
    Draining,
    Stopping,
}

impl Service {
    /// Serves the clients that connect to this listening socket, of type `SOCK_SEQPACKET` ([`bind`] makes one), with a
    /// [porter in this process](Porter::in_process): for clients that are trusted.
    ///
    /// # Errors
    /// What the system says to a thread or a descriptor more.
    pub fn start(host: Arc<Host>, listener: OwnedFd, config: ServiceConfig) -> Result<Service, Errno> {
        let porter = Porter::in_process()?;
        porter.listen(listener.as_fd(), true)?;
        Service::start_with(host, listener, porter, config)
    }

    /// The same with a porter that [listens](Porter::listen) there already.
    ///
    /// # Errors
    /// As there; EPIPE if the porter is gone.
    pub fn start_with(
        host: Arc<Host>,
        listener: OwnedFd,
        porter: Porter,
        config: ServiceConfig,
    ) -> Result<Service, Errno> {
        socket::let_descriptors_pass(&listener, config.let_descriptors_pass);
        // Where the process has a thread for that ([`lnet_region::closer`]), queues are unmapped there, too.
        nlx_bev_cqueue::unmap_by(lnet_region::closer::discard);
        let wanted = if config.threads == 0 { host.drive().shards() } else { config.threads };
        let count = wanted.clamp(1, MAX_SHARDS);
        let desks = (0..count).map(|_| Desk::new()).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared::new(host, desks, porter, config));
        let mut service = Service { shared, threads: Vec::with_capacity(count) };
        let mut listener = Some(listener);
        for number in 0..count {
            let worker = Worker::new(service.shared.clone(), number, listener.take())?;
            let thread = std::thread::Builder::new().name(format!("nlx-serve-{number}"));
            let thread = thread.spawn(move || worker.run());
            service.threads.push(thread.map_err(errno_of)?);
        }
        Ok(service)
    }

    /// The numbers of the door.
    #[must_use]
    pub fn door(&self) -> DoorStatus {
        self.shared.door_status()
    }

    /// The same, for whoever has no service at hand later.
    pub fn door_teller(&self) -> impl Fn() -> DoorStatus + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.door_status()
    }

    /// Whether every thread has heard its bell since this was last called, and rings it again: a thread that hangs does not.
    #[must_use]
    pub fn is_responsive(&self, asked: &mut u64) -> bool {
        let heard = self.shared.desks.iter().all(|desk| desk.heard.load(Ordering::Acquire) >= *asked);
        *asked =
            self.shared.desks.iter().map(|desk| desk.heard.load(Ordering::Acquire)).min().unwrap_or(0) + 1;
        self.shared.ring_all();
        heard
    }

    /// Takes nothing new: nobody connects any more, and neither requests nor submissions are read but those that have been
    /// made. What is under way goes on until `is_quiet` or until the time is over. Gives whether it was quiet in time.
    pub fn drain(&self, limit: Duration, mut is_quiet: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + limit;
        self.enter(Phase::Draining);
        loop {
            let settled = self.shared.desks.iter().all(|desk| desk.settled.load(Ordering::Acquire));
            if settled && is_quiet() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            // A thread that has settled has no reason to say when the last message is gone.
            std::thread::sleep(DEPARTURE_LOOK);
        }
    }

    /// Closes all sessions, waits for LNet to let go of what they had, for [`ServiceConfig::quarantine`] at the most, and
    /// ends the connections.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.enter(Phase::Stopping);
        for thread in self.threads.drain(..) {
            // A panic of it has been printed by the runtime.
            let _ = thread.join();
        }
    }

    fn enter(&self, phase: Phase) {
        self.shared.phase.fetch_max(phase as u8, Ordering::Release);
        self.shared.ring_all();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("door", &self.door()).finish_non_exhaustive()
    }
}

impl Desk {
    fn new() -> Result<Desk, Errno> {
        Ok(Desk {
            bell: Bell::new()?,
            arrivals: Mutex::default(),
            load: AtomicUsize::new(0),
            heard: AtomicU64::new(0),
            settled: AtomicBool::new(false),
        })
    }

    fn ring(&self) {
        // No error: it is an eventfd.
        let _ = self.bell.ring();
    }
}

impl Shared {
    fn new(host: Arc<Host>, desks: Box<[Desk]>, porter: Porter, config: ServiceConfig) -> Shared {
        Shared {
            rates: UserRates::per_second(config.user_requests_per_second),
            host,
            config,
            phase: AtomicU8::new(Phase::Serving as u8),
            desks,
            door: Door::default(),
            porter,
            next_client: AtomicU64::new(1),
        }
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serving,
            1 => Phase::Draining,
            _ => Phase::Stopping,
        }
    }

    fn ring_all(&self) {
        self.desks.iter().for_each(Desk::ring);
    }

    fn door_status(&self) -> DoorStatus {
        let Door {
            refused_users,
            refused_clients,
            without_descriptors,
            cut_off,
            silent,
            unread,
            throttled,
            longest_turn,
            rested,
            ..
        } = &self.door;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DoorStatus {
            clients: self.door.clients.load(Ordering::Relaxed) as u64,
            threads: self.desks.len() as u64,
            refused_users: read(refused_users),
            refused_clients: read(refused_clients),
            without_descriptors: read(without_descriptors),
            cut_off: read(cut_off),
            silent: read(silent),
            unread: read(unread),
            throttled: read(throttled),
            longest_turn: read(longest_turn),
            rested: read(rested),
        }
    }

    /// Whether something may be written into the log: once in a second, and if there is memory to write it.
    fn may_warn(&self) -> bool {
        // 0 is before the first warning.
        let now_s = self.host.drive().now_ns() / 1_000_000_000 + 1;
        self.door.warned_s.swap(now_s, Ordering::Relaxed) != now_s
            && Vec::<u8>::new().try_reserve_exact(LOG_HEADROOM_BYTES).is_ok()
    }
}

impl Door {
    /// Charges the client's user with a client, its socket and its session.
    fn enter(&self, who: &Credentials, host: &Host) -> Result<Admission, Refusal> {
        let (accounts, payer) = (host.accounts(), host.payer_of(who));
        let client = accounts.charge(payer, Resource::Clients, 1)?;
        let socket = accounts.charge(payer, Resource::Descriptors, 1)?;
        let heap = accounts.charge(payer, Resource::HeapBytes, CLIENT_HEAP_BYTES)?;
        self.clients.fetch_add(1, Ordering::Relaxed);
        Ok(Admission { _client: client, _socket: socket, _heap: heap })
    }

    /// A client that was let in has gone.
    fn leave(&self, admission: Admission) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
        drop(admission);
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw)
}
