//! A connection as the driver of its shard has it.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_lnd::admission::Permit;
use lnet_lnd::life::Doubt;
use smallvec::SmallVec;

use crate::buffers::Receive;
use crate::conn::Receipt;
use crate::connection::{Connection, Live};
use crate::fabric::{COMPLETIONS_PER_LOOK, Completions, ReceiveWork};

/// Receive buffers that are to be posted again, each with what that makes possible.
pub(super) type Reposts = SmallVec<[(usize, Receipt); COMPLETIONS_PER_LOOK]>;

/// How often who is about to sleep looks for the completions of sends that have not completed: devices take a microsecond or two
/// for that, which is less than it takes to sleep and to be woken.
const SHORT_LOOKS: usize = 16;

/// A connection as its driver has it.
pub(super) struct RxConn {
    pub(super) conn: Arc<Connection>,
    pub(super) receive: Receive,
    /// It is looked at by each poll, for it is not armed.
    pub(super) busy: bool,
    /// For so many polls nothing has come on it.
    pub(super) idle: u32,
    /// Sends had not completed when it was looked at last.
    pub(super) awaits_sends: bool,
    /// When something last came on it.
    pub(super) heard_ns: u64,
    /// When a NOOP of the peer was last answered by one.
    pub(super) answered_ns: u64,
    /// Whether the peer lives, while it gives no credits or answers.
    pub(super) doubt: Doubt,
    /// The progress of its own operations, and the first look at which it was that.
    pub(super) progress_mark: Option<(u64, u64)>,
    /// What came when it was armed, or shortly before.
    pub(super) stash: Completions,
    /// It counts as long as the connection stands, if the peer has opened it.
    _permit: Option<Permit>,
}

impl RxConn {
    pub(super) fn new(conn: Arc<Connection>, receive: Receive, permit: Option<Permit>) -> RxConn {
        let heard_ns = conn.shard().own.now_ns();
        RxConn {
            conn,
            receive,
            busy: false,
            idle: 0,
            awaits_sends: false,
            progress_mark: None,
            heard_ns,
            answered_ns: 0,
            doubt: Doubt::default(),
            stash: Completions::new(),
            _permit: permit,
        }
    }

    /// Arms it; `false` if something has come.
    pub(super) fn arm(&mut self) -> bool {
        if !self.stash.is_empty() || self.awaits_sends && self.look_for_sends() {
            return false;
        }
        let state = self.conn.state.lock();
        // A connection that is closed has nothing more to tell.
        let Some(live) = &state.live else { return true };
        let armed = live.endpoint.arm().and_then(|()| live.endpoint.poll(&mut self.stash));
        // What is wrong with it, the next look will show.
        armed.is_ok() && self.stash.is_empty()
    }

    /// Whether sends are to be carried out by a program, which needs a processor.
    pub(super) fn awaits_program(&self) -> bool {
        self.awaits_sends && self.conn.device().is_program()
    }

    /// Looks for completions a little longer.
    fn look_for_sends(&mut self) -> bool {
        let looks = if self.awaits_program() { 0 } else { SHORT_LOOKS };
        (0..looks).any(|_| {
            std::hint::spin_loop();
            let state = self.conn.state.lock();
            let looked = state.live.as_ref().map_or(Ok(()), |live| live.endpoint.poll(&mut self.stash));
            // What is wrong with it, the next look will show.
            looked.is_err() || !self.stash.is_empty()
        })
    }

    /// Posts receive buffers again, and tells the rules.
    pub(super) fn repost(&self, live: &mut Live, reposts: &mut Reposts) -> Result<(), Errno> {
        if reposts.is_empty() {
            return Ok(());
        }
        let works: SmallVec<[ReceiveWork; COMPLETIONS_PER_LOOK]> =
            reposts.iter().map(|(place, _)| self.receive.work(*place)).collect();
        live.endpoint.post_receives(&works).map_err(|error| error.errno)?;
        reposts.drain(..).for_each(|(_, receipt)| live.machine.reposted(receipt));
        Ok(())
    }
}
