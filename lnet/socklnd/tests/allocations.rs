//! In the steady state a message over real sockets allocates nothing (architecture, rule 7).

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::{
    Arrival, Errno, Lnd, POLL_BUDGET, PayloadTarget, RxToken, Sent, Tx, TxToken, Upcalls, Verdict,
};
use lnet_nid::{MatchBits, Net, Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{IoVec, Region, WriteVec};
use lnet_socklnd::{SockConfig, SockLnd};
use nlx_testkit::heap::{COUNTING, WatchedHeap, allocations};

#[global_allocator]
static HEAP: WatchedHeap = COUNTING;

const PARTITIONS: usize = 2;

/// Receives everything into one place, and counts.
struct Sink {
    memory: IoVec,
    received: AtomicUsize,
    sent: AtomicUsize,
}

impl Upcalls for Sink {
    fn partition_of(&self, _: Nid, peer: Nid) -> usize {
        usize::from(peer.ipv4().unwrap().octets()[3])
    }

    fn parse(&self, arrival: &Arrival<'_>) -> Verdict {
        let length = arrival.header.payload_length as usize;
        let sink = (length > 0).then(|| self.memory.write(0..length).unwrap());
        Verdict::Deliver(PayloadTarget { token: RxToken(0), sink })
    }

    fn forget_delayed(&self, _: RxToken) -> bool {
        true
    }

    fn finalize_rx(&self, _: RxToken, result: Result<(), Errno>) {
        assert_eq!(result, Ok(()));
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    fn finalize_tx(&self, _: TxToken, result: Result<(), Errno>) {
        assert_eq!(result, Ok(()));
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn sink_of_get(&self, _: TxToken) -> Option<WriteVec> {
        None
    }

    fn finalize_get(&self, _: TxToken, _: Result<u32, Errno>) {}

    fn peer_lost(&self, _: Nid, _: ProcessId, _: Errno) {}
}

struct Node {
    lnd: SockLnd,
    sink: Arc<Sink>,
    id: ProcessId,
    tokens: AtomicUsize,
}

impl Node {
    fn new(address: Ipv4Addr) -> Node {
        let config = SockConfig { accept_port: 21_986, partitions: PARTITIONS, ..SockConfig::default() };
        let lnd = SockLnd::new(config).unwrap();
        let memory = IoVec::whole(Region::heap(1 << 20).unwrap());
        let sink = Arc::new(Sink { memory, received: AtomicUsize::new(0), sent: AtomicUsize::new(0) });
        let id = ProcessId::lnet(Nid::new_v4(Net::TCP, address));
        lnd.startup(id, sink.clone()).unwrap();
        Node { lnd, sink, id, tokens: AtomicUsize::new(0) }
    }

    fn put(&self, to: &Node, payload: &IoVec, length: usize) {
        let body = Body::Put {
            ack_wmd: WireHandle::NONE,
            match_bits: MatchBits(1),
            hdr_data: 0,
            portal: 9,
            offset: 0,
        };
        let header = Header { dest: to.id, src: self.id, payload_length: length as u32, body };
        let payload = (length > 0).then(|| payload.read(0..length).unwrap());
        let token = TxToken(self.tokens.fetch_add(1, Ordering::Relaxed) as u64);
        let (ni, peer) = (self.id.nid, to.id);
        let tx = Tx { ni, peer, header, payload, token, reply_to: None, deadline_ns: u64::MAX / 2 };
        if let Sent::Now(result) = self.lnd.send(tx) {
            self.sink.finalize_tx(token, result);
        }
    }

    fn poll(&self) {
        for shard in 0..PARTITIONS {
            self.lnd.poll(shard, 1, POLL_BUDGET);
        }
    }
}

#[test]
fn a_message_allocates_nothing() {
    const SIZES: [usize; 6] = [0, 1, 900, 5000, 70_000, 1 << 20];
    const BURST: usize = 8;
    let process = std::process::id();
    let address = |last| Ipv4Addr::new(127, 30 + (process >> 8) as u8 % 20, process as u8, last);
    let (a, b) = (Node::new(address(1)), Node::new(address(2)));
    let payload = IoVec::whole(Region::heap(1 << 20).unwrap());
    let round = || {
        for (from, to) in [(&a, &b), (&b, &a)] {
            for size in SIZES {
                let before =
                    (from.sink.sent.load(Ordering::Relaxed), to.sink.received.load(Ordering::Relaxed));
                for _ in 0..BURST {
                    from.put(to, &payload, size);
                }
                let after = (before.0 + BURST, before.1 + BURST);
                while (from.sink.sent.load(Ordering::Relaxed), to.sink.received.load(Ordering::Relaxed))
                    != after
                {
                    a.poll();
                    b.poll();
                }
            }
        }
    };
    // The first rounds open the connections, and let queues grow to their final size.
    for _ in 0..5 {
        round();
    }
    assert_eq!(allocations(|| (0..20).for_each(|_| round())).1, 0);
}
