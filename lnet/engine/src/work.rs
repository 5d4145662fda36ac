//! What is decided under the lock and done after it.

use std::sync::Arc;

use lnet_api::{Delivery, EventHandler, Lnd, RxContext, Tx, TxToken};
use lnet_region::{IoVec, ReadVec};
use smallvec::SmallVec;

/// A message to be handed to its LND.
pub(crate) struct Outgoing {
    pub(crate) lnd: Arc<dyn Lnd>,
    pub(crate) tx: Tx,
}

/// A payload that this node sends to itself.
pub(crate) struct LocalCopy {
    pub(crate) payload: Option<ReadVec>,
    pub(crate) delivery: Delivery,
    pub(crate) tx: TxToken,
}

/// A delayed message that goes on.
pub(crate) struct Resume {
    pub(crate) lnd: Arc<dyn Lnd>,
    pub(crate) rx: RxContext,
    pub(crate) delivery: Option<Delivery>,
}

/// Everything that must not be done under the lock: calls into LNDs and handlers, copying, freeing memory. One call
/// into the engine rarely has more of each than fits here without allocating: a message that completes lets at
/// most two others go, one for each kind of credit.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) sends: SmallVec<[Outgoing; 4]>,
    pub(crate) copies: SmallVec<[LocalCopy; 2]>,
    pub(crate) resumes: SmallVec<[Resume; 1]>,
    pub(crate) wakes: SmallVec<[Arc<dyn EventHandler>; 4]>,
    pub(crate) garbage: SmallVec<[IoVec; 4]>,
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
        self.sends.is_empty() && self.copies.is_empty() && self.resumes.is_empty() && self.wakes.is_empty()
    }
}
