//! What is decided under a lock and done after it.

use std::sync::Arc;

use lnet_api::{Errno, EventHandler, Lnd, Tx};
use lnet_region::IoVec;
use smallvec::SmallVec;

use crate::message::{Launch, Message, Way};
use crate::names::MdName;

/// A message to be handed to its LND.
pub(crate) struct Outgoing {
    pub(crate) lnd: Arc<Arc<dyn Lnd>>,
    pub(crate) tx: Tx,
    /// The MD of one that has waited for credits: it may have been unlinked meanwhile.
    pub(crate) waited_for: Option<MdName>,
}

/// A message of this node that ended without its LND, or is over.
pub(crate) struct Ended {
    pub(crate) message: Message,
    pub(crate) result: Result<(), Errno>,
}

/// What must not be done under a lock: calls into LNDs and handlers, freeing memory, and what needs the lock of another
/// table. One call into the engine rarely has more of each than fits here without allocating: a
/// message that completes lets at most two others go, one for each kind of credit.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) launches: SmallVec<[Launch; 1]>,
    pub(crate) sends: SmallVec<[Outgoing; 2]>,
    pub(crate) ended: SmallVec<[Ended; 1]>,
    /// Peers whose push is over.
    pub(crate) pushed: SmallVec<[Way; 1]>,
    pub(crate) wakes: SmallVec<[Arc<dyn EventHandler>; 2]>,
    pub(crate) garbage: SmallVec<[IoVec; 2]>,
}

impl Work {
    /// Remembers to wake a handler that got an event, once.
    pub(crate) fn wake(&mut self, handler: &Arc<dyn EventHandler>) {
        if !self.wakes.iter().any(|known| Arc::ptr_eq(known, handler)) {
            self.wakes.push(handler.clone());
        }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.launches.is_empty()
            && self.sends.is_empty()
            && self.ended.is_empty()
            && self.pushed.is_empty()
            && self.wakes.is_empty()
    }
}
