//! PUTs and GETs that create their MD: one call with the effect of two.

use lnet::EngineConfig;
use lnet_api::{
    AckRequest, Errno, EventKind, Get, LNet, LNetError, Md, MdHandle, MdOptions, Put, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Pid, ProcessId};
use lnet_region::IoVec;

use super::common::*;

const BITS: u64 = 1;

fn put_of(md: Md, target: ProcessId, ack: AckRequest) -> Put<Md> {
    let (portal, match_bits) = (portal(), MatchBits(BITS));
    Put { source: None, md, ack, target, portal, match_bits, offset: 0, hdr_data: HDR_DATA }
}

fn get_of(md: Md, target: ProcessId) -> Get<Md> {
    Get { source: None, md, target, portal: portal(), match_bits: MatchBits(BITS), offset: 0 }
}

fn own(node: &Node, memory: &IoVec, threshold: u32) -> Md {
    node.md(memory, MdOptions::empty(), threshold)
}

/// The way to send a message: true for one call, false for two.
#[derive(Clone, Copy)]
struct SendMode(bool);

impl SendMode {
    fn put(self, node: &Node, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        if self.0 {
            return node.engine.bind_put(put);
        }
        let (put, md) = put.with_md(());
        let md = node.engine.md_bind(md, Unlink::Auto)?;
        node.engine.put(&put.with_md(md).0).map(|()| Some(md))
    }

    fn get(self, node: &Node, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        if self.0 {
            return node.engine.bind_get(get);
        }
        let (get, md) = get.with_md(());
        let md = node.engine.md_bind(md, Unlink::Auto)?;
        node.engine.get(&get.with_md(md).0).map(|()| Some(md))
    }
}

/// The arriving messages, and the events of both sides, are the same, except for the handles of
/// MDs.
#[test]
fn one_call_sends_what_two_calls_send() {
    let observed = [true, false].map(|one| {
        let mode = SendMode(one);
        let (network, a, b) = two_nodes();
        let (sink, source) = (memory(20), pattern(20, 3));
        b.expect(BITS, &sink, MdOptions::OP_PUT);
        b.expect(BITS, &source, MdOptions::OP_GET);
        let put = put_of(own(&a, &pattern(20, 7), 2), b.id(), AckRequest::Ack);
        mode.put(&a, put).unwrap().expect("its ACK is to come");
        let asked = memory(20);
        mode.get(&a, get_of(own(&a, &asked, 2), b.id())).unwrap().expect("its REPLY is to come");
        network.run();
        assert_eq!((content(&sink), content(&asked)), (pattern_bytes(20, 7), pattern_bytes(20, 3)));
        assert!(a.is_quiet() && b.is_quiet());
        let unnamed = |event: lnet_api::Event| lnet_api::Event { md: MdHandle(0), ..event };
        [a, b].map(|node| node.events().into_iter().map(unnamed).collect::<Vec<_>>())
    });
    assert_eq!(observed[0], observed[1]);
    assert_eq!((observed[0][0].len(), observed[0][1].len()), (4, 2));
}

#[test]
fn a_handle_is_given_of_what_has_not_ended() {
    let (network, a, b) = two_nodes();
    let md = a.engine.bind_put(put_of(own(&a, &memory(8), 1), b.id(), AckRequest::NoAck)).unwrap();
    let md = md.expect("it waits");
    assert_eq!(a.events(), []);
    a.engine.md_unlink(md).unwrap();
    network.lose(0);
    let events = a.events();
    assert_eq!(brief(&events), [(EventKind::Send, Err(Errno::ETIMEDOUT), true)]);
    assert_eq!(events[0].md, md);
}

/// Inside the call a message leaves, fails, or reaches this node itself: the MD has then ended, and
/// has no handle to return.
#[test]
fn no_handle_is_given_of_what_has_ended() {
    let (network, a, b) = two_nodes();
    for (sending, status) in [(Sending::Now, Ok(())), (Sending::Fail(Errno::EIO), Err(Errno::EIO))] {
        *network.sending.lock() = sending;
        for ack in [AckRequest::NoAck, AckRequest::Ack] {
            let md = a.engine.bind_put(put_of(own(&a, &memory(8), 2), b.id(), ack)).unwrap();
            // A threshold of 2 has one operation left, unless the failed message has also used up
            // that of its missing answer.
            let ends = ack == AckRequest::Ack && status.is_err();
            assert_eq!((md.is_none(), brief(&a.events())), (ends, vec![(EventKind::Send, status, ends)]));
            md.into_iter().for_each(|md| a.engine.md_unlink(md).unwrap());
            a.events();
        }
        assert_eq!(a.engine.bind_put(put_of(own(&a, &memory(8), 1), b.id(), AckRequest::NoAck)), Ok(None));
        assert_eq!(brief(&a.events()), [(EventKind::Send, status, true)]);
    }
    for target in [ProcessId::lnet(lnet_nid::Nid::LOOPBACK), a.id()] {
        a.expect(BITS, &pattern(8, 5), MdOptions::OP_GET);
        let asked = memory(8);
        assert_eq!(a.engine.bind_get(get_of(own(&a, &asked, 2), target)), Ok(None));
        assert_eq!(content(&asked), pattern_bytes(8, 5));
        assert_eq!(a.events().iter().filter(|event| event.unlinked).count(), 2);
    }
    assert!(a.is_quiet());
}

/// An MD without a limit stays, and sends again.
#[test]
fn an_md_without_a_limit_can_be_used_again() {
    let (network, a, b) = two_nodes();
    let md = Md { threshold: Threshold::Infinite, ..own(&a, &memory(8), 0) };
    let md = a.engine.bind_put(put_of(md, b.id(), AckRequest::NoAck)).unwrap().expect("it stays");
    a.put(md, b.id(), BITS, AckRequest::NoAck).unwrap();
    network.run();
    a.engine.md_unlink(md).unwrap();
    assert_eq!(a.events().len(), 3);
}

/// A refusal for any reason has no effect: nothing is sent, there is no event, no MD uses the event
/// queue, and the memory is free.
#[test]
fn a_refusal_leaves_nothing() {
    let network = Network::new();
    let mut config = EngineConfig::new(Pid::LNET, cookie(2));
    config.limits.descriptors = 1;
    let a = Node::with_config(&network, 2, config);
    let to = ProcessId::lnet(nid(3));
    let nowhere = ProcessId::lnet("10.0.0.1@o2ib9".parse().unwrap());
    let bytes = memory(8);
    let gone = {
        let eq = a.engine.eq_alloc(a.log.clone()).unwrap();
        a.engine.eq_free(eq).unwrap();
        eq
    };
    let good = || own(&a, &bytes, 2);
    let refused = [
        (good(), nowhere, None, Errno::EHOSTUNREACH),
        (good(), to, Some("10.9.9.9@tcp"), Errno::EADDRNOTAVAIL),
        (Md { eq: Some(gone), ..good() }, to, None, Errno::ENOENT),
        (Md { options: MdOptions::OP_PUT, ..good() }, to, None, Errno::EINVAL),
        (Md { threshold: Threshold::Limited(0), ..good() }, to, None, Errno::EINVAL),
        (Md { memory: memory((1 << 20) + 1), ..good() }, to, None, Errno::EINVAL),
    ];
    let check = |md: Md, target, source: Option<&str>, expected| {
        let source = source.map(|nid| nid.parse().unwrap());
        let put = Put { source, ..put_of(md.clone(), target, AckRequest::Ack) };
        assert_eq!(errno(a.engine.bind_put(put)), expected);
        assert_eq!(errno(a.engine.bind_get(Get { source, ..get_of(md, target) })), expected);
    };
    for (md, target, source, expected) in refused {
        check(md, target, source, expected);
    }
    // Memory that is being written cannot be sent. A GET into it is checked only when the REPLY
    // arrives.
    let written = bytes.write(0..1).unwrap();
    assert_eq!(errno(a.engine.bind_put(put_of(good(), to, AckRequest::Ack))), Errno::EBUSY);
    drop(written);
    // The maximum number of MDs already exists.
    let last = a.bind(&bytes, 1);
    check(good(), to, None, Errno::ENOMEM);
    a.engine.md_unlink(last).unwrap();
    assert_eq!(brief(&a.events()), [(EventKind::Unlink, Ok(()), true)]);
    assert!(network.queue.lock().is_empty());
    assert!(a.is_quiet());
    a.engine.audit().unwrap();
    assert!(bytes.write(0..8).is_ok(), "no message has it");
    a.engine.eq_free(a.eq).unwrap();
}

/// Without room for the answer, the message is not sent and its MD is gone.
#[test]
fn without_room_for_an_answer_nothing_is_left() {
    let network = Network::new();
    let mut config = EngineConfig::new(Pid::LNET, cookie(2));
    config.limits.messages = 2;
    let a = Node::with_config(&network, 2, config);
    *network.sending.lock() = Sending::Now;
    let target = ProcessId::lnet(nid(3));
    let sent: Vec<_> = (0..2)
        .map(|_| a.engine.bind_get(get_of(own(&a, &memory(8), 2), target)).unwrap().expect("it is asked for"))
        .collect();
    assert_eq!(brief(&a.events()), [(EventKind::Send, Ok(()), false); 2]);
    assert_eq!(errno(a.engine.bind_get(get_of(own(&a, &memory(8), 2), target))), Errno::ENOMEM);
    sent.into_iter().for_each(|md| a.engine.md_unlink(md).unwrap());
    assert_eq!(brief(&a.events()), [(EventKind::Unlink, Ok(()), true); 2]);
    a.engine.audit().unwrap();
    a.engine.eq_free(a.eq).unwrap();
}
