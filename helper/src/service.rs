//! Sockets, threads and timers around the sessions: the part of the helper that runs.
//!
//! A [`ServingThreads`] has one or more threads. Each sleeps in one `epoll` on all descriptors that can
//! give it work:
//!
//! | descriptor | reported | means |
//! | --- | --- | --- |
//! | the listener (first thread) | while it is readable | a client connects: the [porter](super::porter) accepts it, and it goes to the thread with the fewest clients |
//! | the thread's channel to the porter | while it is readable | accepted clients, closed sockets, the porter's end |
//! | a client's socket | while it is readable | a request, or its end |
//! | a client's doorbell | once for each ring; never read | the client has submitted while its ring was not polled |
//! | a shard of the network | while it is readable | messages; the thread drives its own shards |
//! | the thread's own bell | while it is readable | clients from another thread, or the service ends |
//!
//! # Fair shares
//!
//! A round polls the network, then gives every user with work the same share, in units of work
//! ([`ROUND_UNITS`]), and within it serves the user's connections in turn (`schedule`). A user's
//! requests, entries, new connections, and sessions that are being closed all count. A ring that
//! was used lately is polled in its user's turns (*hot*). A ring that stays empty for
//! [`IDLE_ROUNDS`] turns and [`ServiceConfig::busy_poll`], or while the thread has nothing else to
//! do, gets the announcement that it is no longer polled: its client then rings the doorbell, and
//! costs nothing until it does. So a thousand idle clients cost the same as none.
//!
//! A turn is counted in units because where processors are shared its elapsed time says nothing
//! about the client. But some system calls take long, and a client can cause that: a fault waits
//! while its page is moved, a message wakes the million watches that the client has set on its
//! socket. A user in whose turn the thread itself has worked or blocked for [`LONG_TURN`] rests for
//! [`REST_FACTOR`] times that time, so that others have the thread until then (`turn_meter`). Work
//! for a client outside of its user's turn counts as a turn there.
//!
//! Nothing takes longer than a turn: timers, the sweep over all clients ([`SWEEP`]) and the end of
//! the service go in slices, too.
//!
//! A client may send the number of requests per second that its quotas allow, and all clients of a
//! user together [`ServiceConfig::user_requests_per_second`], where a connection counts as a
//! request. Further requests wait in the socket, and finally in the client. A user's rate outlives
//! its connections, so that a new connection does not reset it. A reply that the client does not
//! read is kept, and no request of this client is read until it can be sent; after
//! [`ServiceConfig::reply_timeout`] the client is cut off.
//!
//! Replies with descriptors count until their client has received all that was sent to it
//! (`Resource::UnreadReplies`): each user has a share, and a reply beyond it waits.
//!
//! # The end of a client
//!
//! A client that closes its socket has left; a client that breaks the rules
//! ([`Violation`](super::Violation)) is cut off. Either way its session is closed, in slices
//! ([`Session::close_some`](super::Session::close_some)). The socket of a client that is cut off
//! stays open, unread and with its place among the clients, until LNet has released the client's
//! memory: to the client the end of the stream then means that nothing writes there any more. Once
//! the client has hung up, the helper waits for no longer than [`ServiceConfig::quarantine`];
//! memory that LNet still holds then is quarantined without the client. A helper that stops does
//! not wait longer for any client: after its end it writes nowhere.
//!
//! The porter closes the socket, and the client's place is free again once it has: a client whose
//! descriptors cannot be closed keeps its place.
//!
//! # Memory
//!
//! Room for all records of a client is reserved before it is admitted (`Worker::make_room`);
//! objects that are made for it later can fail with its ENOMEM. The service does not end for want
//! of memory. A client for whose records there is none sees the end of its connection.
//!
//! # Panics
//!
//! No action of a client makes this code panic. If it panics nevertheless, the state that all
//! clients share may be half changed, so a panic is not contained: `nlxd` ends, clients see the end
//! of their streams, and systemd restarts it.
//!
//! | module | holds |
//! | --- | --- |
//! | `worker` | a thread and its loop |
//! | `descriptors` | its descriptors, and the reaction to their events |
//! | `due` | its deadlines and those of its clients |
//! | `entrance` | admission, and room for a client's records |
//! | `turns` | the work in a client's turn |
//! | `requests`, `answers` | reading a request, carrying it out, answering it |
//! | `keeping` | the porter's work for the thread's clients |
//! | `departing` | the end of clients and of the service, and the sweep over all clients |
//! | `turn_meter` | detection of users that hold a thread up |
//! | `deadlines` | deadlines, ordered by time |
//! | `schedule` | the order of turns |
//! | `user` | a thread's state of each user |
//! | `client` | a client as its thread sees it |
//! | `thread_shards` | driving the network's shards |
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
mod deadlines;
mod departing;
mod descriptors;
mod due;
mod entrance;
mod keeping;
mod rate;
mod requests;
mod schedule;
#[allow(unsafe_code, reason = "the system gives descriptors as numbers")]
mod socket;
#[cfg(test)]
mod tests;
mod thread_shards;
mod turn_meter;
mod turns;
mod user;
mod worker;

pub use schedule::{
    MAPPING_UNITS, REQUEST_BYTES_PER_UNIT, REQUEST_UNITS, ROUND_UNITS, TURN_UNITS_MAX, VISIT_UNITS,
};
pub use socket::{bind, bind_with};

/// Clients that are accepted before other work has its turn.
pub const ACCEPT_BUDGET: usize = 16;

/// Empty turns after which a ring is no longer polled.
pub const IDLE_ROUNDS: u32 = 64;

/// Rounds with work after which sockets are polled, too: that takes a system call.
pub const BUSY_ROUNDS: u32 = 16;

/// Units of work after which sockets are polled, too: a poll takes as long as a request.
pub const LOOK_UNITS: usize = 4 * ROUND_UNITS;

/// Timers that are handled before other work has its turn.
pub const DUE_BUDGET: usize = 64;

/// Clients in one slice of the sweep over all of them: some tens of microseconds.
pub const PLACES_SLICE: usize = 32;

/// Departed clients whose leftovers are checked in one slice.
pub const LEFTOVERS_SLICE: usize = 16;

/// Minimum wait of a user's requests after it has used up its rate, so that a thread does not wake
/// for each of them.
pub const PARK_LEAST: Duration = Duration::from_millis(1);

/// Parked clients of a user that are resumed at a time.
pub const UNPARK_BUDGET: usize = 64;

/// Memory that must be free for a line of the log, because its writer cannot handle a failed
/// allocation. It is not taken.
pub const LOG_HEADROOM_BYTES: usize = 64 << 10;

/// Time limit of a client's hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Clients that get their refusal as an answer. Further ones see the end of the stream at once.
pub const REFUSED_MAX: usize = 64;

/// Pause in accepting once there are no descriptors left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval of attempts to send an answer while too many descriptors are on their way to clients.
pub const CROWD_LOOK: Duration = Duration::from_millis(10);

/// Interval of checks whether clients have read the descriptors that were sent to them, while some
/// have not.
pub const UNREAD_LOOK: Duration = Duration::from_millis(20);

/// Unread descriptors of one user from which on the user's own clients are at fault if its share is
/// used up. A client that reads its replies has two.
pub const UNREAD_BLAMED: u64 = 32;

/// Pause before the next request for a new porter when none could be started.
pub const PORTER_PAUSE: Duration = Duration::from_millis(100);

/// Interval of sweeps over all clients, busy or not ([`Session::check`](super::Session::check)).
pub const SWEEP: Duration = Duration::from_millis(500);

/// First interval of checks whether LNet has released a client's memory.
pub const DEPARTURE_LOOK: Duration = Duration::from_millis(5);

/// Minimum duration of a long turn. The work that is counted in units cannot explain one: it takes
/// less than a millisecond, unless the processor is very slow.
pub const LONG_TURN: Duration = Duration::from_millis(10);

/// Ratio of a user's rest to its long turn, so that it has at most a twentieth of a thread.
pub const REST_FACTOR: u64 = 20;

/// The longest rest.
pub const REST_MAX: Duration = Duration::from_secs(10);

/// Time for which threads measure turns more exactly after a long turn and the rest that follows.
/// Each measurement takes system calls.
pub const WARY: Duration = Duration::from_secs(10);

/// The configuration of a [`ServingThreads`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Threads; 0 for one per shard of the network.
    pub threads: usize,
    /// Requests of all clients of one user per second, and the same number at once after a second
    /// without any; a connection counts as one more. Further requests wait. Root has no such limit.
    pub user_requests_per_second: u32,
    /// Time for which a thread keeps polling after each piece of work, whether that pays or not.
    /// The node's spin limit ([`Drive::spin`](lnet_api::Drive::spin)) applies in any case.
    pub busy_poll: Duration,
    /// Time limit of a reply to a client that does not read.
    pub reply_timeout: Duration,
    /// Maximum wait for LNet to release memory, of a departed client or at the end of the service.
    pub quarantine: Duration,
    /// Lets clients send descriptors, as they can to every service before Linux 6.16. None is
    /// received: a client that sends some is cut off.
    pub let_descriptors_pass: bool,
}

impl Default for ServiceConfig {
    fn default() -> ServiceConfig {
        ServiceConfig {
            threads: 0,
            // Five connections at their maximum rate: half of what a processor can answer.
            user_requests_per_second: 50_000,
            busy_poll: Duration::ZERO,
            reply_timeout: Duration::from_secs(10),
            quarantine: Duration::from_secs(10),
            let_descriptors_pass: false,
        }
    }
}

/// Counters of admission since the start, and current numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionStatus {
    /// Connected clients, including refused ones and those that are being cut off.
    pub clients: u64,
    /// Serving threads.
    pub threads: u64,
    /// Connections of users that the policy does not admit.
    pub refused_users: u64,
    /// Connections beyond the limit of clients, of all or of one user.
    pub refused_clients: u64,
    /// Times that there was no descriptor for a client.
    pub without_descriptors: u64,
    /// Clients cut off for any reason.
    pub cut_off: u64,
    /// Clients cut off because they sent no hello in time.
    pub silent: u64,
    /// Clients cut off because they did not read a reply in time.
    pub unread: u64,
    /// Times that a client had to wait because it, or its user, exceeded its request rate.
    pub throttled: u64,
    /// Maximum units of work of one user's turn: [`TURN_UNITS_MAX`] is the limit.
    pub longest_turn: u64,
    /// Times that a user had to rest because a turn of it had taken very long ([`LONG_TURN`]).
    pub rested: u64,
}

/// The threads that serve clients. Dropping it stops them.
pub struct ServingThreads {
    shared: Arc<ServiceShared>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that the threads of a service share.
pub(super) struct ServiceShared {
    host: Arc<Host>,
    config: ServiceConfig,
    phase: AtomicU8,
    worker_handles: Box<[WorkerHandle]>,
    counters: AdmissionCounters,
    porter: Porter,
    /// Source of client numbers, for the porter.
    next_client: AtomicU64,
    /// The request rate of each user, shared by its connections.
    rates: UserRates,
}

/// The other threads' handle to a serving thread.
struct WorkerHandle {
    bell: Bell,
    /// Clients that another thread has accepted for this one.
    pending_clients: Mutex<VecDeque<PendingClient>>,
    /// Number of the thread's clients, including those that another thread has accepted for it.
    load: AtomicUsize,
    /// Number of times that the thread has handled its bell.
    bells_handled: AtomicU64,
    /// Set once the thread has done the work of the current phase.
    settled: AtomicBool,
}

/// A client that has been accepted.
struct PendingClient {
    id: u64,
    socket: OwnedFd,
    may_attach: bool,
    /// Generation of the porter that has accepted it.
    generation: u64,
    credentials: Credentials,
    admission: Result<Admission, Refusal>,
}

/// A client's place among the clients, its socket, and the memory of its session: the charges of
/// its user.
struct Admission {
    _client: Charge,
    _socket: Charge,
    _heap: Charge,
}

/// Counters of admitted and refused clients.
#[derive(Default)]
struct AdmissionCounters {
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
    /// Time of the last warning, in seconds of the host's clock: clients must not fill the log.
    warned_s: AtomicU64,
}

/// The phase of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Phase {
    Serving,
    /// New requests and clients are not taken; operations in flight continue.
    Draining,
    Stopping,
}

impl ServingThreads {
    /// Serves the clients that connect to this listening socket of type `SOCK_SEQPACKET` ([`bind`]
    /// creates one), with a [porter in this process](Porter::in_process): for trusted clients.
    ///
    /// # Errors
    /// Errors of the system for a further thread or descriptor.
    pub fn start(host: Arc<Host>, listener: OwnedFd, config: ServiceConfig) -> Result<ServingThreads, Errno> {
        let porter = Porter::in_process()?;
        porter.listen(listener.as_fd(), true)?;
        ServingThreads::start_with(host, listener, porter, config)
    }

    /// Like [`start`](ServingThreads::start), with a porter that [listens](Porter::listen) on the
    /// socket already.
    ///
    /// # Errors
    /// Those of `start`; EPIPE if the porter is gone.
    pub fn start_with(
        host: Arc<Host>,
        listener: OwnedFd,
        porter: Porter,
        config: ServiceConfig,
    ) -> Result<ServingThreads, Errno> {
        socket::let_descriptors_pass(&listener, config.let_descriptors_pass);
        // If the process has a closer thread ([`lnet_region::closer`]), queues are unmapped there,
        // too.
        nlx_bev_cqueue::unmap_by(lnet_region::closer::discard);
        let wanted = if config.threads == 0 { host.drive().shards() } else { config.threads };
        let count = wanted.clamp(1, MAX_SHARDS);
        let worker_handles = (0..count).map(|_| WorkerHandle::new()).collect::<Result<_, _>>()?;
        let shared = Arc::new(ServiceShared::new(host, worker_handles, porter, config));
        let mut service = ServingThreads { shared, threads: Vec::with_capacity(count) };
        let mut listener = Some(listener);
        for number in 0..count {
            let worker = Worker::new(service.shared.clone(), number, listener.take())?;
            let thread = std::thread::Builder::new().name(format!("nlx-serve-{number}"));
            let thread = thread.spawn(move || worker.run());
            service.threads.push(thread.map_err(errno_of)?);
        }
        Ok(service)
    }

    /// Returns the counters of admission.
    #[must_use]
    pub fn admission_status(&self) -> AdmissionStatus {
        self.shared.admission_status()
    }

    /// Returns a function that returns the counters of admission, for code that outlives its access
    /// to the service.
    pub fn admission_reporter(&self) -> impl Fn() -> AdmissionStatus + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.admission_status()
    }

    /// Returns whether every thread has handled its bell since the last call, and rings again: a
    /// thread that hangs does not.
    #[must_use]
    pub fn is_responsive(&self, asked: &mut u64) -> bool {
        let all_handled = self
            .shared
            .worker_handles
            .iter()
            .all(|worker_handle| worker_handle.bells_handled.load(Ordering::Acquire) >= *asked);
        *asked = self
            .shared
            .worker_handles
            .iter()
            .map(|worker_handle| worker_handle.bells_handled.load(Ordering::Acquire))
            .min()
            .unwrap_or(0)
            + 1;
        self.shared.ring_all();
        all_handled
    }

    /// Stops taking work: no client is accepted, and only requests and submissions that were made
    /// already are read. Operations in flight continue until `is_quiet` returns true or the time is
    /// over. Returns whether it was quiet in time.
    pub fn drain(&self, limit: Duration, mut is_quiet: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + limit;
        self.enter(Phase::Draining);
        loop {
            let settled = self
                .shared
                .worker_handles
                .iter()
                .all(|worker_handle| worker_handle.settled.load(Ordering::Acquire));
            if settled && is_quiet() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            // A settled thread does not report when the last message is gone, so that is polled.
            std::thread::sleep(DEPARTURE_LOOK);
        }
    }

    /// Closes all sessions, waits for LNet to release their memory, for
    /// [`ServiceConfig::quarantine`] at most, and ends the connections.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.enter(Phase::Stopping);
        for thread in self.threads.drain(..) {
            // The runtime has printed a panic of it.
            let _ = thread.join();
        }
    }

    fn enter(&self, phase: Phase) {
        self.shared.phase.fetch_max(phase as u8, Ordering::Release);
        self.shared.ring_all();
    }
}

impl Drop for ServingThreads {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for ServingThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingThreads").field("admission", &self.admission_status()).finish_non_exhaustive()
    }
}

impl WorkerHandle {
    fn new() -> Result<WorkerHandle, Errno> {
        Ok(WorkerHandle {
            bell: Bell::new()?,
            pending_clients: Mutex::default(),
            load: AtomicUsize::new(0),
            bells_handled: AtomicU64::new(0),
            settled: AtomicBool::new(false),
        })
    }

    fn ring(&self) {
        // Cannot fail: it is an eventfd.
        let _ = self.bell.ring();
    }
}

impl ServiceShared {
    fn new(
        host: Arc<Host>,
        worker_handles: Box<[WorkerHandle]>,
        porter: Porter,
        config: ServiceConfig,
    ) -> ServiceShared {
        ServiceShared {
            rates: UserRates::per_second(config.user_requests_per_second),
            host,
            config,
            phase: AtomicU8::new(Phase::Serving as u8),
            worker_handles,
            counters: AdmissionCounters::default(),
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
        self.worker_handles.iter().for_each(WorkerHandle::ring);
    }

    fn admission_status(&self) -> AdmissionStatus {
        let AdmissionCounters {
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
        } = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AdmissionStatus {
            clients: self.counters.clients.load(Ordering::Relaxed) as u64,
            threads: self.worker_handles.len() as u64,
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

    /// Returns whether a warning may be logged: at most one per second, and only if there is memory
    /// to write it.
    fn may_warn(&self) -> bool {
        // 0 means that there was no warning yet.
        let now_s = self.host.drive().now_ns() / 1_000_000_000 + 1;
        self.counters.warned_s.swap(now_s, Ordering::Relaxed) != now_s
            && Vec::<u8>::new().try_reserve_exact(LOG_HEADROOM_BYTES).is_ok()
    }
}

impl AdmissionCounters {
    /// Charges the client's user for a client, its socket and its session.
    fn admit(&self, credentials: &Credentials, host: &Host) -> Result<Admission, Refusal> {
        let (accounts, payer) = (host.accounts(), host.payer_of(credentials));
        let client = accounts.charge(payer, Resource::Clients, 1)?;
        let socket = accounts.charge(payer, Resource::Descriptors, 1)?;
        let heap = accounts.charge(payer, Resource::HeapBytes, CLIENT_HEAP_BYTES)?;
        self.clients.fetch_add(1, Ordering::Relaxed);
        Ok(Admission { _client: client, _socket: socket, _heap: heap })
    }

    /// Releases the charges of an admitted client that has gone.
    fn release(&self, admission: Admission) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
        drop(admission);
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw)
}
