//! A network in memory, on which messages move only when the test says so.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lnet_api::{
    Arrival, Errno, Lnd, LndError, NiLimits, PayloadTarget, RxContext, Sent, Tx, Upcalls, Verdict,
};
use lnet_cpt::with_partition;
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_proto::Header;
use nlx_sync::uncounted;
use parking_lot::Mutex;

/// One LND for all nodes of a test.
#[derive(Default)]
pub(crate) struct Wire {
    nodes: Mutex<HashMap<Nid, Arc<dyn Upcalls>>>,
    waiting: Mutex<Vec<Waiting>>,
    next: AtomicU64,
    /// Messages leave inside the call, and do not arrive.
    pub(crate) at_once: AtomicBool,
}

/// A message that has not left.
struct Waiting {
    id: u64,
    tx: Tx,
}

/// A message whose header has arrived, and which an engine receives.
pub(crate) struct Taken {
    node: Arc<dyn Upcalls>,
    delivery: PayloadTarget,
    payload: Vec<u8>,
    partition: usize,
}

impl Wire {
    fn node(&self, nid: Nid) -> Option<Arc<dyn Upcalls>> {
        self.nodes.lock().get(&nid).cloned()
    }

    /// Returns the messages that have not left: id, header and payload, oldest first.
    pub(crate) fn waiting(&self) -> Vec<(u64, Header, Vec<u8>)> {
        let payload = |tx: &Tx| tx.payload.as_ref().map(|payload| payload.to_vec()).unwrap_or_default();
        self.waiting
            .lock()
            .iter()
            .map(|waiting| (waiting.id, waiting.tx.header, payload(&waiting.tx)))
            .collect()
    }

    /// Ends the sending of a message with this result.
    pub(crate) fn leave(&self, id: u64, result: Result<(), Errno>) {
        let waiting = {
            let mut all = self.waiting.lock();
            let place = all.iter().position(|waiting| waiting.id == id).expect("it has not left");
            all.remove(place)
        };
        let Tx { ni, peer, token, .. } = waiting.tx;
        let node = self.node(ni).expect("its node is there");
        // A real network has made this call before, at its first contact with the peer.
        let partition = uncounted(|| node.partition_of(ni, peer.nid));
        drop(waiting.tx.payload);
        with_partition(partition, || node.finalize_tx(token, result));
    }

    /// Delivers a header.
    pub(crate) fn arrive(&self, to: Nid, from: ProcessId, header: &Header, payload: &[u8]) -> Verdicts {
        let Some(node) = self.node(to) else { return Verdicts::Nobody };
        let rx = RxContext(self.next.fetch_add(1, Ordering::Relaxed));
        let partition = node.partition_of(to, from.nid);
        let arrival = Arrival { ni: to, from, header, host: None, rx };
        match with_partition(partition, || node.parse(&arrival)) {
            Verdict::Deliver(delivery) => {
                Verdicts::Taken(Taken { node, delivery, payload: payload.to_vec(), partition })
            }
            Verdict::Done => Verdicts::Done,
            Verdict::Discard | Verdict::Close(_) => Verdicts::Nobody,
            Verdict::Delay(_) | Verdict::Stay(_) => panic!("no portal here is lazy"),
        }
    }

    /// Delivers messages until none is on its way.
    pub(crate) fn run(&self) {
        while let Some((id, header, payload)) = self.waiting().into_iter().next() {
            self.leave(id, Ok(()));
            if let Verdicts::Taken(taken) = self.arrive(header.dest.nid, header.src, &header, &payload) {
                taken.finish(Ok(()));
            }
        }
    }
}

/// The engine's reaction to a header.
pub(crate) enum Verdicts {
    Taken(Taken),
    /// The other side has handled the message completely.
    Done,
    Nobody,
}

impl Taken {
    /// Completes the payload, or loses it half-way.
    pub(crate) fn finish(self, result: Result<(), Errno>) {
        let Taken { node, delivery: PayloadTarget { token, sink }, payload, partition } = self;
        if let Some(mut sink) = sink {
            let bytes = if result.is_ok() { sink.len() } else { sink.len() / 2 };
            sink.copy_from(0, &payload[..bytes]);
        }
        with_partition(partition, || node.finalize_rx(token, result));
    }
}

impl Lnd for Wire {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        self.nodes.lock().insert(ni.nid, upcalls);
        Ok(NiLimits { credits: 256, peer_credits: 64, timeout_ns: 50_000_000_000 })
    }

    fn shutdown(&self, ni: Nid) {
        let left: Vec<u64> = {
            let waiting = self.waiting.lock();
            waiting.iter().filter(|waiting| waiting.tx.ni == ni).map(|waiting| waiting.id).collect()
        };
        left.into_iter().for_each(|id| self.leave(id, Err(Errno::ESHUTDOWN)));
        self.nodes.lock().remove(&ni);
    }

    fn send(&self, tx: Tx) -> Sent {
        if self.at_once.load(Ordering::Relaxed) {
            return Sent::Now(Ok(()));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().push(Waiting { id, tx });
        Sent::Later
    }

    fn resume(&self, _: RxContext, _: Option<PayloadTarget>) {
        unreachable!("nothing is delayed");
    }
}
