//! Checks of the connections that a node must refuse, and of the form of the refusal.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use super::CheckResult;
use crate::judge::active::{Answer, Target, expect_end, new_incarnation};
use crate::judge::session::Session;
use crate::judge::wire::{
    ACCEPTOR_MAGIC, BadHello, Hello, LNET_MAGIC, Nid, OLD_MAGIC, Order, PID, kind, request, request_v1,
    request_v2,
};

/// The offset of the NID in a connection request.
const NID_AT: usize = 8;

/// Checks that the node refuses requests for other NIDs, in both forms of the request, and for its
/// NID with any byte changed.
pub(super) fn wrong_nid(target: &Target) -> CheckResult {
    let hello = target.hello(target.version(), kind::CONTROL, new_incarnation()).bytes(Order::Little);
    let others = [target.nid.turned(1), target.nid.elsewhere(7), Nid::ANY, Nid::LOOPBACK];
    let named = |nid| [(nid, request_v1(nid, Order::Little)), (nid, request_v2(nid, Order::Little))];
    for (nid, request) in others.into_iter().flat_map(named) {
        closed(target, &[request, hello.clone()].concat()).map_err(|fault| format!("{nid}: {fault}"))?;
    }
    let right = request(target.nid, Order::Little);
    // No node checks the eight bits above a small NID's type (lnet-wire 2).
    let noticed = if target.nid.is_large() { right.len() } else { right.len() - 1 };
    for at in NID_AT..noticed {
        let mut request = right.clone();
        request[at] ^= 1;
        closed(target, &[request, hello.clone()].concat())
            .map_err(|fault| format!("byte {at} of the request changed: {fault}"))?;
    }
    Ok(())
}

/// Checks that the node closes the connection without an answer to these bytes.
fn closed(target: &Target, bytes: &[u8]) -> CheckResult {
    expect_end(&mut target.say(bytes)?)
}

pub(super) fn request_magic(target: &Target) -> CheckResult {
    let little = Order::Little;
    let nid = target.nid.small();
    let words = |magic: [u8; 4], version: [u8; 4]| [&magic[..], &version, &little.u64(nid)].concat();
    let acceptor = little.u32(ACCEPTOR_MAGIC);
    for (name, request) in [
        ("LNet's magic", words(little.u32(LNET_MAGIC), little.u32(1))),
        ("LNet's magic, swapped", words(Order::Big.u32(LNET_MAGIC), Order::Big.u32(1))),
        ("version 0", words(acceptor, little.u32(0))),
        ("version 3", words(acceptor, little.u32(3))),
    ] {
        let mut stream = target.say(&request)?;
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).map_err(|error| format!("{name}: no 16 bytes in answer: {error}"))?;
        let expected = [&acceptor[..], &little.u32(1), &[0; 8]].concat();
        if reply[..] != expected {
            return Err(format!("{name}: answered {reply:02x?}"));
        }
        expect_end(&mut stream).map_err(|fault| format!("{name}: {fault}"))?;
    }
    for (name, magic) in [("the old magic", OLD_MAGIC), ("no magic", 0x2054_4547), ("zeros", 0)] {
        closed(target, &words(little.u32(magic), little.u32(1)))
            .map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}

pub(super) fn unknown_version(target: &Target) -> CheckResult {
    for version in [0, 5, 0x0001_0000, u32::MAX] {
        let hello = target.hello(target.version(), kind::CONTROL, new_incarnation());
        let mut hello = hello.bytes(Order::Little);
        hello[4..8].copy_from_slice(&version.to_le_bytes());
        let mut stream = target.say(&[request(target.nid, Order::Little), hello].concat())?;
        let reply = Hello::read(&mut stream);
        let (reply, _) = reply.map_err(|bad| format!("version {version}: it answered {bad}"))?;
        let said = (reply.version, reply.kind, reply.src, reply.src_pid);
        if said != (target.version(), kind::NONE, target.nid, PID) {
            return Err(format!("version {version}: it answered {reply:?}"));
        }
        expect_end(&mut stream).map_err(|fault| format!("version {version}: {fault}"))?;
    }
    Ok(())
}

pub(super) fn bad_hello(target: &Target) -> CheckResult {
    let good = || target.hello(target.version(), kind::CONTROL, new_incarnation());
    let mut cases = vec![
        ("source NID ANY", Hello { src: Nid::ANY, ..good() }),
        ("type 4", Hello { kind: 4, ..good() }),
        ("type NONE", Hello { kind: kind::NONE, ..good() }),
    ];
    if good().version < 4 {
        cases.push(("17 addresses", Hello { addresses: vec![1; 17], ..good() }));
    }
    for (name, hello) in cases {
        let bytes = [request(target.nid, Order::Little), hello.bytes(Order::Little)].concat();
        closed(target, &bytes).map_err(|fault| format!("{name}: {fault}"))?;
    }
    let mut hello = good().bytes(Order::Little);
    hello[0] ^= 1;
    closed(target, &[request(target.nid, Order::Little), hello].concat())
        .map_err(|fault| format!("no magic: {fault}"))
}

/// Checks that the node refuses a further connection of a type. A peer has one CONTROL connection,
/// and conns_per_peer of each bulk type, which is 1 unless a link is fast.
pub(super) fn duplicate(target: &Target) -> CheckResult {
    let mut session = Session::full(target)?;
    match session.offer(kind::CONTROL)? {
        Answer::Refused(_) => {}
        other => return Err(format!("a second CONTROL was {other}")),
    }
    for kind in [kind::BULK_IN, kind::BULK_OUT] {
        // No kernel makes more than 127 connections of one type.
        let mut refused = false;
        for _ in 0..128 {
            match session.offer(kind)? {
                Answer::Accepted(stream, reply) => {
                    session.take(stream, kind, reply.src_incarnation).map(drop)?
                }
                Answer::Refused(_) => refused = true,
                Answer::Closed => {
                    return Err(format!("another {} was closed without NONE", kind::name(kind)));
                }
            }
            if refused {
                break;
            }
        }
        if !refused {
            return Err(format!("{} connections without end", kind::name(kind)));
        }
    }
    // The other connections remain.
    session.ping(0).map(drop)
}

pub(super) fn incarnation(target: &Target) -> CheckResult {
    let mut before = Session::full(target)?;
    let restarted = Session::new(target);
    refused_and_dropped(&mut before, restarted)
}

pub(super) fn version_change(target: &Target) -> CheckResult {
    let mut before = Session::with(target, &[kind::CONTROL])?;
    let mut other = Session::new(target);
    other.version = 2;
    refused_and_dropped(&mut before, other)
}

fn refused_and_dropped(before: &mut Session<'_>, mut after: Session<'_>) -> CheckResult {
    match after.offer(kind::CONTROL)? {
        Answer::Refused(_) => {}
        other => return Err(format!("the first connection of another life was {other}, not answered NONE")),
    }
    before.expect_ends()?;
    let control = after.open(kind::CONTROL)?;
    after.ping(control).map(drop)
}

/// Checks that the node closes a connection without bytes, and one that stops after the request.
pub(super) fn silence(target: &Target) -> CheckResult {
    let mut silent = target.say(&[])?;
    let mut half = target.say(&request(target.nid, Order::Little))?;
    expect_end(&mut silent).map_err(|fault| format!("no request: {fault}"))?;
    match Hello::read(&mut half) {
        Err(BadHello::Ended(_)) => expect_end(&mut half).map_err(|fault| format!("no hello: {fault}")),
        answered => Err(format!("no hello: it answered {answered:?}")),
    }
}

/// Checks that the node listens only at its own address. Any address of 127.0.0.0/8 leads to this
/// host; IPv6 has one such address, but a node that listens on all addresses listens there, too.
pub(super) fn address(target: &Target) -> CheckResult {
    let other = match target.nid.is_large() {
        true => IpAddr::V4(Ipv4Addr::new(127, 0xaa, 0, 1)),
        false => target.nid.turned(0xaa00).address(),
    };
    let other = SocketAddr::new(other, target.to.port());
    match TcpStream::connect(other) {
        Ok(_) => Err(format!("it listens on {other} too")),
        Err(_) => Ok(()),
    }
}
