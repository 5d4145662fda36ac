//! A connection to a helper: requests, the submission ring, and the end of both.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nlx_bev_cqueue::{Producer, PushError, QueueWord, SharedMemory};
use nlx_core::CoreError;
use nlx_driver_proto::{Entry, Hello, Reply, Request, Submission, Welcome};
use nlx_sync::{Bell, Waker};
use parking_lot::{Mutex, MutexGuard};

use crate::HelperOptions;
use crate::buffers::Kept;
use crate::exchange::{Exchange, ExchangeError};
use crate::refused::refused;
use crate::socket::Socket;
use crate::waiters::{SubmitWaiter, Waiters};

/// States of a link, in increasing order: a state never goes back.
const LIVE: u8 = 0;
/// No further request is sent. The helper may still run, and write to leased memory.
const BROKEN: u8 = 1;
/// The helper has closed its end: it has released everything.
const GONE: u8 = 2;

/// A connection to a helper.
///
/// Lock order: the ring, then the exchange. No other function of this crate is called while either
/// is held.
pub(crate) struct HelperLink {
    socket: Socket,
    exchange: Mutex<Exchange>,
    ring: Mutex<Producer<Submission, SharedMemory>>,
    pub(crate) submit_waiter: SubmitWaiter,
    doorbell: Waker<QueueWord<SharedMemory>>,
    pub(crate) welcome: Welcome,
    state: AtomicU8,
    /// Operations in flight, over all transfer machines.
    in_flight: AtomicU32,
    /// Waiters that are woken when the link ends.
    waiters: Mutex<Vec<Weak<Waiters>>>,
    /// Leases of operations that have ended on this side and perhaps not in the helper.
    kept: Mutex<Vec<Kept>>,
    path: String,
    timeout: Duration,
}

impl HelperLink {
    /// Connects and sends the hello.
    pub(crate) fn connect(options: &HelperOptions) -> Result<HelperLink, CoreError> {
        const ACTION: &str = "attach to the helper";
        let HelperOptions { path, name, timeout, spin, .. } = options;
        let (path, shown) = (path.as_path(), path.display().to_string());
        let failed = |reason: String, errno| CoreError::Transport { action: ACTION, reason, errno };
        let socket = Socket::connect(path, *timeout)
            .map_err(|errno| failed(format!("{shown}: {} ({})", errno.desc(), hint(errno)), errno))?;
        point!(Connected);
        let mut exchange = Exchange::new();
        let hello = Request::Hello(Hello::new(name));
        let called = exchange.call(&socket, &hello, Instant::now() + *timeout);
        let (welcome, fds) = match called {
            Ok((Reply::Welcome(welcome), fds)) => (welcome, fds),
            Ok((Reply::Refused(refusal), _)) => return Err(refused(ACTION, &refusal)),
            Ok(_) => return Err(failed(format!("{shown}: unexpected reply to the hello"), Errno::EPROTO)),
            Err(ExchangeError::Gone) => {
                return Err(failed(format!("{shown}: the helper closed the connection"), Errno::ECONNRESET));
            }
            Err(ExchangeError::Late) => {
                return Err(failed(format!("{shown}: no answer within {timeout:?}"), Errno::ETIMEDOUT));
            }
            Err(ExchangeError::Wrong(reason)) => {
                return Err(failed(format!("{shown}: {reason}"), Errno::EPROTO));
            }
        };
        let queue = |error: nlx_bev_cqueue::Error| failed(format!("{shown}: {error}"), error.errno());
        let Ok([ring, bell]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(failed(
                format!("{shown}: the reply to the hello lacks the submission ring or the doorbell"),
                Errno::EPROTO,
            ));
        };
        let memory = SharedMemory::attach(ring).map_err(queue)?;
        point!(RingMapped);
        Ok(HelperLink {
            socket,
            exchange: Mutex::new(exchange),
            ring: Mutex::new(Producer::new(memory.clone()).map_err(queue)?),
            doorbell: Waker::ringing(QueueWord::consumer(memory.clone()), Bell::eventfd(bell)),
            submit_waiter: SubmitWaiter::new(memory, *spin),
            welcome,
            state: AtomicU8::new(LIVE),
            in_flight: AtomicU32::new(0),
            waiters: Mutex::default(),
            kept: Mutex::default(),
            path: shown,
            timeout: *timeout,
        })
    }

    /// Returns whether the link has ended: only events in the queues can still come.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) != LIVE
    }

    pub(crate) fn check(&self) -> Result<(), CoreError> {
        if self.has_ended() { Err(self.disconnected()) } else { Ok(()) }
    }

    pub(crate) fn disconnected(&self) -> CoreError {
        CoreError::Disconnected { path: self.path.clone() }
    }

    /// Sends a request, and waits for the answer, which may be a refusal.
    pub(crate) fn request(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), CoreError> {
        let mut exchange = self.exchange.lock();
        self.check()?;
        let called = exchange.call(&self.socket, request, Instant::now() + self.timeout);
        drop(exchange);
        called.map_err(|failure| match failure {
            ExchangeError::Gone => {
                self.end(GONE);
                self.disconnected()
            }
            ExchangeError::Late => {
                let reason = format!("no answer within {:?}", self.timeout);
                self.fail("wait for the helper", reason, Errno::ETIMEDOUT)
            }
            ExchangeError::Wrong(reason) => self.violated(reason),
        })
    }

    /// Pushes an entry into the ring. After the last one the caller must [wake the
    /// helper](HelperLink::wake_helper).
    pub(crate) fn push(&self, entry: &Entry) -> Result<(), CoreError> {
        let submission = entry.write();
        point!(entry => due);
        let mut ring = self.ring.lock();
        self.check()?;
        match ring.push(submission) {
            Ok(()) => {}
            Err(PushError::Full { .. }) => self.push_when_drained(ring, submission)?,
            Err(error) => {
                drop(ring);
                return Err(self.violated(format!("the submission ring is corrupt: {error}")));
            }
        }
        point!(entry => pushed);
        Ok(())
    }

    /// Makes room by a request, which is carried out after all entries of the ring.
    #[cold]
    fn push_when_drained(
        &self,
        mut ring: MutexGuard<'_, Producer<Submission, SharedMemory>>,
        submission: Submission,
    ) -> Result<(), CoreError> {
        self.wake_helper();
        point!(RingFull);
        let answered = self.request(&Request::Sync);
        point!(RingDrained);
        let pushed = match answered {
            Ok((Reply::Done, _)) => ring.push(submission).map_err(|error| error.to_string()),
            Ok((reply, _)) => Err(format!("unexpected reply to a sync: {reply:?}")),
            Err(error) => return Err(error),
        };
        drop(ring);
        pushed.map_err(|error| self.violated(format!("the submission ring is corrupt: {error}")))
    }

    /// Wakes the helper if it sleeps.
    pub(crate) fn wake_helper(&self) {
        point!(DoorbellDue);
        // An error means that the helper has sent a wrong doorbell; it then sees the entry when it
        // next wakes.
        let _ = self.doorbell.wake();
        point!(DoorbellDone);
    }

    /// Waits until the helper has carried out all present entries of the ring, or is gone.
    pub(crate) fn settle(&self) {
        point!(SettleBegun);
        let last = self.ring.lock().pushed();
        if self.submit_waiter.wait(last, || self.has_ended()) {
            point!(Settled);
        } else {
            // A helper that is gone ends all operations.
            let _ = self.request(&Request::Sync);
        }
    }

    /// Counts a further operation in flight, within the limit.
    pub(crate) fn enter(&self) -> Result<(), CoreError> {
        let limit = self.welcome.operations_max;
        if self.in_flight.fetch_add(1, Ordering::Relaxed) < limit {
            return Ok(());
        }
        self.leave();
        Err(CoreError::TooMany { objects: "operations in flight", limit: limit as usize })
    }

    /// Counts an operation that is over.
    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds waiters to be woken when the link ends.
    pub(crate) fn add_waiters(&self, waiters: &Arc<Waiters>) {
        let mut all = self.waiters.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(waiters));
    }

    /// Keeps leases until the helper is gone, because it may still write there.
    pub(crate) fn keep(&self, leases: Kept) {
        let mut kept = self.kept.lock();
        if self.state.load(Ordering::SeqCst) == GONE {
            drop(kept);
            drop(leases);
        } else {
            kept.push(leases);
        }
    }

    /// Ends the link because the helper has broken the protocol.
    pub(crate) fn violated(&self, reason: String) -> CoreError {
        self.fail("understand the helper", reason, Errno::EPROTO)
    }

    /// Ends the link from this side.
    fn fail(&self, action: &'static str, reason: String, errno: Errno) -> CoreError {
        if !self.has_ended() {
            tracing::error!(path = %self.path, action, reason, "the connection to the helper is lost");
        }
        self.end(BROKEN);
        CoreError::Transport { action, reason, errno }
    }

    /// Ends the link: no further request is sent. The helper closes its end when it has released
    /// everything.
    pub(crate) fn finish(&self) {
        self.end(BROKEN);
    }

    /// Blocks until the helper has closed its end.
    pub(crate) fn wait_for_end(&self) {
        self.socket.wait_for_end();
        point!(HelperGone);
        self.end(GONE);
        point!(EndKnown);
    }

    /// Ends all waits.
    fn end(&self, state: u8) {
        let before = self.state.fetch_max(state, Ordering::SeqCst);
        if state == BROKEN && before == LIVE {
            self.socket.finish();
            point!(Finished);
        }
        if state == GONE {
            // Under the lock, where `keep` checks the state.
            let kept = std::mem::take(&mut *self.kept.lock());
            drop(kept);
        }
        if before == LIVE {
            let waiters: Vec<_> = self.waiters.lock().iter().filter_map(Weak::upgrade).collect();
            waiters.iter().for_each(|waiters| waiters.wake());
            self.submit_waiter.wake();
            point!(AllWoken);
        }
    }
}

/// Returns a hint for a socket that cannot be reached.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EACCES | Errno::EPERM => "check the owner, group and mode of the socket",
        _ => "is nlxd running?",
    }
}

impl std::fmt::Debug for HelperLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("path", &self.path)
            .field("ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}
