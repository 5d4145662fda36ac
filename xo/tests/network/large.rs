//! Bulk of any size over TCP.

use std::time::Duration;

use nlx::{Buffer, Domain, Event, NodeConfig, Offer, Op, TmOptions, TransferMachine};
use nlx_testkit::buffers::pattern;

const PART: usize = 1 << 20;
const LENGTH: usize = 24 * PART + 3;

/// A wait that takes longer is considered hung.
const HUNG: Option<Duration> = Some(Duration::from_secs(60));

struct Peer {
    domain: Domain,
    tm: TransferMachine,
}

impl Peer {
    /// Starts a node on 127.61.NETWORK.HOST.
    fn new(network: u8, host: u8) -> Peer {
        let ip = format!("127.61.{network}.{host}");
        let config =
            NodeConfig::new().net(&format!("tcp({ip})")).unwrap().accept_port(21_780 + u16::from(network));
        // The longest wait for a dead node.
        let domain = Domain::in_process(&config.transaction_timeout(Duration::from_secs(2))).unwrap();
        let tm = domain.transfer_machine(&format!("{ip}@tcp:12345:31:*"), TmOptions::default()).unwrap();
        Peer { domain, tm }
    }

    fn filled(&self, bytes: &[u8]) -> Buffer {
        self.domain.buffer_of(bytes).unwrap()
    }
}

/// Waits for both machines' events: each transfer has one.
fn ends(a: &Peer, b: &Peer) -> [Event; 2] {
    std::thread::scope(|scope| {
        [a, b]
            .map(|peer| scope.spawn(|| peer.tm.wait(HUNG).unwrap().expect("it ends")))
            .map(|waiter| waiter.join().unwrap())
    })
}

#[test]
fn large_buffers_cross_the_network_both_ways() {
    let (a, b) = (Peer::new(3, 1), Peer::new(3, 2));
    let text = pattern(0, LENGTH);
    for _ in 0..2 {
        let offer = b.tm.start(Op::passive_send(b.filled(&text)).timeout(HUNG)).unwrap().offer;
        let offer = Offer::from_bytes(offer.as_bytes()).unwrap();
        a.tm.start(Op::active_receive(a.domain.allocate(LENGTH).unwrap(), &offer).timeout(HUNG)).unwrap();
        let [here, there] = ends(&a, &b);
        assert_eq!([here.status, there.status], [Ok(()); 2]);
        assert!(here.buffer.unwrap().read().unwrap()[..] == text, "read wrongly");

        let offer =
            b.tm.start(Op::passive_receive(b.domain.allocate(LENGTH).unwrap()).timeout(HUNG)).unwrap().offer;
        a.tm.start(Op::active_send(a.filled(&text), &offer).timeout(HUNG)).unwrap();
        let [here, there] = ends(&a, &b);
        assert_eq!([here.status, there.status], [Ok(()); 2]);
        assert!(there.buffer.unwrap().read().unwrap()[..] == text, "written wrongly");
    }
}

// The offering node ends while the other reads: the reader gets one event, an error, with its whole
// buffer.
#[test]
fn a_node_that_goes_in_the_middle_fails_the_whole() {
    let (a, b) = (Peer::new(4, 1), Peer::new(4, 2));
    let tm = a.domain.machine().large_window(2).start("127.61.4.1@tcp:12345:31:*").unwrap();
    let offer = b.tm.start(Op::passive_send(b.filled(&pattern(0, LENGTH)))).unwrap().offer;
    let op = tm.start(Op::active_receive(a.domain.allocate(LENGTH).unwrap(), &offer)).unwrap().op;
    // Its first parts are in flight: two of 25.
    drop(b);
    let event = tm.wait(HUNG).unwrap().expect("it fails");
    assert_eq!(event.op, op);
    assert!(event.status.is_err(), "25 parts of two in flight");
    assert_eq!(event.buffer.unwrap().len(), LENGTH);
    assert_eq!(tm.in_flight(), 0);
    assert!(tm.poll().unwrap().is_none());
}
