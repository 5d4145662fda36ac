//! The judge against nodes that check too much, or too little, of a connection's first bytes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use nlx_tests::judge::passive::{Passive, Play, Stage, Tamper};
use nlx_tests::judge::wire::{Hello, Order, request};
use nlx_tests::judge::{CHECKS, Outcome, Target};

use crate::judged::SHORT;
use crate::place::Place;

/// Runs one check, which must fail with these words.
fn fails(name: &str, target: &Target, words: &str) {
    let check = CHECKS.iter().find(|check| check.name == name).unwrap();
    match check.run(target) {
        Outcome::Fail(said) if said.contains(words) => {}
        outcome => panic!("{name}: {outcome:?} without '{words}'"),
    }
}

/// Runs a node that accepts a connection if `takes` agrees to its request and hello, and then sends
/// only its hello.
fn with_node(place: &Place, takes: impl Fn(&[u8], &Hello) -> bool + Sync, judge: impl FnOnce(&Target)) {
    let target = Target { patience: SHORT, ..place.target() };
    let listener = TcpListener::bind(target.to).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming() {
                if greet(place, stream.unwrap(), &takes).is_none() {
                    return;
                }
            }
        });
        judge(&target);
        // A connection without bytes ends the node's thread.
        drop(TcpStream::connect(SocketAddr::new(target.to.ip(), target.to.port())).unwrap());
    });
}

/// Serves one connection; returns `None` if no byte has arrived.
fn greet(place: &Place, mut stream: TcpStream, takes: &impl Fn(&[u8], &Hello) -> bool) -> Option<()> {
    let mut named = request(place.to, Order::Little);
    if stream.read(&mut named[..1]).ok()? == 0 {
        return None;
    }
    // A request of the other form is treated as none.
    let _ = stream.read_exact(&mut named[1..]);
    let Ok((hello, _)) = Hello::read(&mut stream) else { return Some(()) };
    if takes(&named, &hello) {
        let answer = Hello { src: place.to, dst: hello.src, src_incarnation: 1, dst_pid: 0, ..hello };
        // A write error means that the peer has gone.
        let _ = stream.write_all(&Hello { dst_incarnation: 0, ..answer }.bytes(Order::Little));
    }
    Some(())
}

#[test]
fn a_node_that_checks_for_whom_a_hello_is_fails() {
    for place in Place::of(12, 1) {
        let by_pid = |_: &[u8], hello: &Hello| hello.dst_pid == 0;
        with_node(&place, by_pid, |target| {
            fails("hello-unchecked", target, "for PID 999, incarnation 0: closed")
        });
    }
}

/// The check tests each byte of a large NID.
#[test]
fn a_node_that_overlooks_a_byte_of_its_nid_fails() {
    for place in Place::of(13, 1) {
        let right = request(place.to, Order::Little);
        let counting = if place.to.is_large() { 8..28 } else { 8..15 };
        for at in counting {
            let others = |bytes: &[u8]| [&bytes[..at], &bytes[at + 1..]].concat();
            let takes = |named: &[u8], _: &Hello| others(named) == others(&right);
            with_node(&place, takes, |target| fails("wrong-nid", target, "where the connection was to end"));
        }
    }
}

/// A hello with a byte too many.
#[test]
fn a_node_whose_hello_is_too_long_fails() {
    for place in Place::of(14, 1) {
        let tamper: Tamper = Arc::new(|stage, bytes| {
            if stage == Stage::Hello {
                bytes.push(0);
            }
        });
        let _passive = Passive::start(Play { tamper: Some(tamper), ..place.play() }).unwrap();
        let name = if place.to.is_large() { "hello-large" } else { "hello-v3" };
        fails(name, &Target { patience: SHORT, ..place.target() }, "a prefix of type 0xc100");
    }
}

/// The node listens on all addresses, including IPv4.
#[test]
fn a_node_that_listens_everywhere_fails() {
    for place in Place::of(15, 1).into_iter().filter(|place| place.to.is_large()) {
        let target = place.target();
        let _listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, target.to.port())).unwrap();
        fails("address", &target, "it listens on 127.170.0.1");
    }
}
