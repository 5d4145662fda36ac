//! An LND that holds its messages until a step of the input finalises them.

use std::sync::Arc;

use lnet_api::{Lnd, LndError, NiLimits, PayloadTarget, RxContext, Sent, Tx, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use parking_lot::Mutex;

/// Limits of the NI, with few credits, so that messages wait for them.
const LIMITS: NiLimits = NiLimits { credits: 6, peer_credits: 3, timeout_ns: 50_000_000_000 };

/// Messages in progress.
#[derive(Debug, Default)]
pub(in crate::targets) struct HoldingLnd {
    /// Messages being sent.
    pub(in crate::targets) sending: Mutex<Vec<Tx>>,
    /// Payloads being received.
    pub(in crate::targets) receiving: Mutex<Vec<PayloadTarget>>,
}

impl Lnd for HoldingLnd {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, _: ProcessId, _: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        Ok(LIMITS)
    }

    fn shutdown(&self, _: Nid) {}

    fn send(&self, tx: Tx) -> Sent {
        let length = tx.payload.as_ref().map_or(0, |payload| payload.len());
        assert_eq!(length, tx.header.payload_length as usize, "the header has the length of the payload");
        self.sending.lock().push(tx);
        Sent::Later
    }

    fn resume(&self, _: RxContext, delivery: Option<PayloadTarget>) {
        self.receiving.lock().extend(delivery);
    }
}
