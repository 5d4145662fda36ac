//! Nodes with addresses in a separate network namespace. Needs root, so `./test namespaces` runs
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nlx::{
    Descriptor, DescriptorForm, Domain, Event, MatchCounters, NodeConfig, Op, TmOptions, TransferMachine,
};
use nlx_testkit::buffers::pattern;
use nlx_testkit::namespace::{add_address, ip};

/// Bytes of a bulk transfer: the most of one operation.
const BULK: usize = 1 << 20;

/// A wait that takes longer is considered hung.
const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// Returns the next event of both sides; both wait, because each drives its node.
fn ends(active: &TransferMachine, passive: &TransferMachine) -> [Event; 2] {
    std::thread::scope(|scope| {
        let waits = [active, passive].map(|tm| scope.spawn(|| tm.wait(TIME_LIMIT).unwrap().unwrap()));
        waits.map(|wait| wait.join().unwrap())
    })
}

/// A passive buffer behind an IPv6 NID: its descriptor has nlx's extended form, travels as bytes,
/// and its buffer is written and read over TCP. Motr's form has no room for such a NID.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn bulk_goes_both_ways_over_ipv6() {
    // A namespace of this thread, and of the threads and programs that it starts.
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    ip("link set lo up");
    add_address("fd00::1");
    let sides = ["::1", "fd00::1"].map(|address| {
        let domain = Domain::in_process(&NodeConfig::new().net(&format!("tcp({address})")).unwrap()).unwrap();
        let options = TmOptions::default().match_counters(MatchCounters::Random);
        let tm = domain.transfer_machine(&format!("{address}@tcp:12345:31:*"), options).unwrap();
        (domain, tm)
    });
    let [(active_domain, active), (passive_domain, passive)] = &sides;
    let data = pattern(0, BULK);
    let filled = |domain: &Domain| {
        let mut buffer = domain.allocate(BULK).unwrap();
        buffer.write().unwrap().copy_from_slice(&data);
        buffer
    };
    let travelled = |descriptor: Descriptor| {
        assert_eq!(descriptor.form(), DescriptorForm::Extended);
        Descriptor::from_bytes(descriptor.as_bytes()).unwrap()
    };
    for round in 0..2 {
        let op = match round {
            0 => Op::passive_receive(passive_domain.allocate(BULK).unwrap()),
            _ => Op::passive_send(filled(passive_domain)),
        };
        let offer = passive.start(op.timeout(TIME_LIMIT)).unwrap().offer;
        let descriptor = travelled(offer.descriptor(0));
        match round {
            0 => {
                active.start(Op::active_send(filled(active_domain), descriptor).timeout(TIME_LIMIT)).unwrap()
            }
            _ => active
                .start(
                    Op::active_receive(active_domain.allocate(BULK).unwrap(), descriptor).timeout(TIME_LIMIT),
                )
                .unwrap(),
        };
        for event in ends(active, passive) {
            event.status.unwrap();
            assert!(*event.buffer.unwrap().read().unwrap() == data[..], "round {round}");
        }
    }
}
