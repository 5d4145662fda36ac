//! Nodes with addresses in a separate network namespace. Needs root, so `./test namespaces` runs
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nlx::{
    Descriptor, DescriptorForm, Domain, Event, MatchCounters, NodeConfig, Op, TmOptions, TransferMachine,
};

/// Bytes of a bulk transfer: the most of one operation.
const BULK: usize = 1 << 20;

/// A wait that takes longer is considered hung.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {args}");
}

/// Adds an address to the loopback, and waits for the route to it, which the system adds a moment
/// later.
fn add_address(address: &str) {
    ip(&format!("-6 addr add {address}/128 dev lo nodad"));
    let is_reachable =
        |_| Command::new("ip").args(["-6", "route", "get", address]).output().unwrap().status.success();
    assert!((0..10_000).any(is_reachable), "there is no route to {address}");
}

/// Returns the next event of both sides; both wait, because each drives its node.
fn ends(active: &TransferMachine, passive: &TransferMachine) -> [Event; 2] {
    std::thread::scope(|scope| {
        let waits = [active, passive].map(|tm| scope.spawn(|| tm.wait(PATIENCE).unwrap().unwrap()));
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
    let data: Vec<u8> = (0..BULK).map(|at| (at * 31 + at / 251) as u8).collect();
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
        let offer = passive.start(op.timeout(PATIENCE)).unwrap().offer;
        let descriptor = travelled(offer.descriptor(0));
        match round {
            0 => active.start(Op::active_send(filled(active_domain), descriptor).timeout(PATIENCE)).unwrap(),
            _ => active
                .start(
                    Op::active_receive(active_domain.allocate(BULK).unwrap(), descriptor).timeout(PATIENCE),
                )
                .unwrap(),
        };
        for event in ends(active, passive) {
            event.status.unwrap();
            assert!(*event.buffer.unwrap().read().unwrap() == data[..], "round {round}");
        }
    }
}
