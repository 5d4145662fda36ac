//! The driver's data of a connection.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_lnd::admission::Permit;
use lnet_lnd::life::Doubt;
use smallvec::SmallVec;

use crate::buffers::ReceiveBuffers;
use crate::conn::Receipt;
use crate::connection::{Connection, LiveConn};
use crate::fabric::{COMPLETIONS_PER_LOOK, Completions, ReceiveWork};

/// Receive buffers to be posted again, by index, each with its receipt.
pub(super) type Reposts = SmallVec<[(usize, Receipt); COMPLETIONS_PER_LOOK]>;

/// Maximum number of polls for the completions of posted sends before a thread sleeps: devices take
/// a microsecond or two for a send, which is less than a sleep and a wake-up take.
const SHORT_LOOKS: usize = 16;

/// The driver's data of a connection.
pub(super) struct RxConn {
    pub(super) conn: Arc<Connection>,
    pub(super) receive: ReceiveBuffers,
    /// True while each poll includes the connection, because it is not armed.
    pub(super) busy: bool,
    /// The number of consecutive polls without completions.
    pub(super) idle: u32,
    /// True if sends were posted and not completed at the last poll.
    pub(super) awaits_sends: bool,
    /// Time of the last received message, in nanoseconds.
    pub(super) received_ns: u64,
    /// Time at which this side last answered a NOOP of the peer with one, in nanoseconds.
    pub(super) answered_ns: u64,
    /// The doubt whether a peer that gives no credits or answers is still alive.
    pub(super) doubt: Doubt,
    /// The progress of this side's operations, and the time at which that progress was first seen.
    pub(super) progress_mark: Option<(u64, u64)>,
    /// Completions found when the connection was armed, or shortly before.
    pub(super) stash: Completions,
    /// The admission permit, held until the connection is closed; `None` for a connection that this
    /// side opened.
    _permit: Option<Permit>,
}

impl RxConn {
    pub(super) fn new(conn: Arc<Connection>, receive: ReceiveBuffers, permit: Option<Permit>) -> RxConn {
        let received_ns = conn.shard().own.now_ns();
        RxConn {
            conn,
            receive,
            busy: false,
            idle: 0,
            awaits_sends: false,
            progress_mark: None,
            received_ns,
            answered_ns: 0,
            doubt: Doubt::default(),
            stash: Completions::new(),
            _permit: permit,
        }
    }

    /// Arms the connection; `false` if it has completions to process.
    pub(super) fn arm(&mut self) -> bool {
        if !self.stash.is_empty() || self.awaits_sends && self.look_for_sends() {
            return false;
        }
        let state = self.conn.state.lock();
        // A closed connection has no more completions.
        let Some(live) = &state.live else { return true };
        let armed = live.endpoint.arm().and_then(|()| live.endpoint.poll(&mut self.stash));
        // An error is reported by the next poll.
        armed.is_ok() && self.stash.is_empty()
    }

    /// Returns whether sends wait for a software device, which needs a processor.
    pub(super) fn awaits_program(&self) -> bool {
        self.awaits_sends && self.conn.device().is_program()
    }

    /// Polls several times for completions of sends; returns whether there are any.
    fn look_for_sends(&mut self) -> bool {
        let looks = if self.awaits_program() { 0 } else { SHORT_LOOKS };
        (0..looks).any(|_| {
            std::hint::spin_loop();
            let state = self.conn.state.lock();
            let looked = state.live.as_ref().map_or(Ok(()), |live| live.endpoint.poll(&mut self.stash));
            // An error is reported by the next poll.
            looked.is_err() || !self.stash.is_empty()
        })
    }

    /// Posts receive buffers again, and records that in the connection's rules.
    pub(super) fn repost(&self, live: &mut LiveConn, reposts: &mut Reposts) -> Result<(), Errno> {
        if reposts.is_empty() {
            return Ok(());
        }
        let works: SmallVec<[ReceiveWork; COMPLETIONS_PER_LOOK]> =
            reposts.iter().map(|(index, _)| self.receive.work(*index)).collect();
        live.endpoint.post_receives(&works).map_err(|error| error.errno)?;
        reposts.drain(..).for_each(|(_, receipt)| live.machine.reposted(receipt));
        Ok(())
    }
}
