//! Calls that the real LNet refuses are refused (lnet-semantics 2, 5, 10).

use lnet_api::Distance;
use lnet_nid::{Nid, Pid};

use super::*;

#[test]
fn handles_of_what_is_gone_are_enoent() {
    let rig = Rig::new();
    let me = rig.post();
    let md = rig.lnet.md_attach(me, rig.md(8, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    rig.lnet.me_unlink(me).unwrap();
    assert_eq!(rig.brief(), [(EventKind::Unlink, Ok(()), true)]);
    assert_eq!(errno(rig.lnet.me_unlink(me)), Errno::ENOENT);
    assert_eq!(errno(rig.lnet.md_unlink(md)), Errno::ENOENT);
    assert_eq!(errno(rig.lnet.me_insert(me, &spec())), Errno::ENOENT);
    assert_eq!(errno(rig.put(md, AckRequest::NoAck)), Errno::ENOENT);
    assert_eq!(errno(rig.get(MdHandle(1 << 40))), Errno::ENOENT);
    // The handle of an event queue is no MD's.
    assert_eq!(errno(rig.lnet.md_unlink(MdHandle(rig.eq.0))), Errno::ENOENT);
    assert!(rig.post() != me && rig.bind(1) != md);
}

#[test]
fn an_event_queue_in_use_is_not_freed() {
    let rig = Rig::new();
    let md = rig.bind(1);
    assert_eq!(errno(rig.lnet.eq_free(rig.eq)), Errno::EBUSY);
    rig.lnet.md_unlink(md).unwrap();
    rig.lnet.eq_free(rig.eq).unwrap();
    assert_eq!(errno(rig.lnet.eq_free(rig.eq)), Errno::ENOENT);
    assert_eq!(errno(rig.lnet.md_bind(rig.md(8, MdOptions::empty(), 1), Unlink::Auto)), Errno::ENOENT);
}

#[test]
fn descriptors_that_make_no_sense_are_refused() {
    let rig = Rig::new();
    let bind = |options, max_size, bytes| {
        rig.lnet.md_bind(Md { max_size, ..rig.md(bytes, options, 1) }, Unlink::Auto)
    };
    assert_eq!(errno(bind(MdOptions::OP_PUT, 0, 64)), Errno::EINVAL);
    assert_eq!(errno(bind(MdOptions::MAX_SIZE, 65, 64)), Errno::EINVAL);
    assert_eq!(errno(bind(MdOptions::empty(), 0, (1 << 20) + 1)), Errno::EINVAL);
    assert!(bind(MdOptions::empty(), 0, 1 << 20).is_ok());
    let me = rig.post();
    assert_eq!(errno(rig.lnet.md_attach(me, rig.md(8, MdOptions::empty(), 1), Unlink::Auto)), Errno::EINVAL);
    // The entry was removed with its MD.
    assert_eq!(errno(rig.lnet.me_unlink(me)), Errno::ENOENT);
}

#[test]
fn an_entry_has_one_descriptor() {
    let rig = Rig::new();
    let me = rig.lnet.me_attach(&MeSpec { unlink: Unlink::Retain, ..spec() }).unwrap();
    let attach = || rig.lnet.md_attach(me, rig.md(8, MdOptions::OP_PUT, 1), Unlink::Auto);
    let md = attach().unwrap();
    assert_eq!(errno(attach()), Errno::EBUSY);
    rig.lnet.md_unlink(md).unwrap();
    // An entry that is retained takes another MD.
    rig.lnet.md_unlink(attach().unwrap()).unwrap();
    rig.lnet.me_unlink(me).unwrap();
    assert_eq!(errno(attach()), Errno::ENOENT);
}

// Covers: S-101, S-103
#[test]
fn the_first_entry_decides_the_type_of_a_portal() {
    let rig = Rig::new();
    let attach = |index, match_id, ignore, position| {
        let me =
            MeSpec { portal: portal(index), match_id, ignore_bits: MatchBits(ignore), position, ..spec() };
        rig.lnet.me_attach(&me)
    };
    let open = [
        (ProcessId::ANY, 0),
        (ProcessId::new(Nid::ANY, Pid::LNET), 0),
        (ProcessId::new(peer().nid, Pid::ANY), 0),
        (peer(), 1),
    ];
    assert_eq!(errno(attach(1, peer(), 0, Position::Before)), Errno::EPERM);
    let first = attach(1, peer(), 0, Position::After).unwrap();
    for (index, (match_id, ignore)) in (2..).zip(open) {
        assert_eq!(errno(attach(1, match_id, ignore, Position::After)), Errno::EPERM);
        attach(index, match_id, ignore, Position::Before).unwrap();
        assert_eq!(errno(attach(index, peer(), 0, Position::After)), Errno::EPERM);
    }
    let beside = MeSpec { portal: portal(1), match_id: peer(), ..spec() };
    assert_eq!(errno(rig.lnet.me_insert(first, &beside)), Errno::EPERM);
}

// Covers: S-104
#[test]
fn entries_are_tried_in_the_order_of_their_places() {
    let rig = Rig::new();
    let bits = BITS;
    let attach =
        |me: MeHandle| rig.lnet.md_attach(me, rig.md(8, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    let at = |position| MeSpec { position, ..spec() };
    let me = rig.post();
    let second = attach(me);
    let first = attach(rig.lnet.me_insert(me, &at(Position::Before)).unwrap());
    let third = attach(rig.lnet.me_insert(me, &at(Position::After)).unwrap());
    let last = attach(rig.post());
    let head = attach(rig.lnet.me_attach(&at(Position::Before)).unwrap());
    let masked = attach(rig.lnet.me_attach(&MeSpec { ignore_bits: MatchBits(1), ..spec() }).unwrap());
    for expected in [masked, head, first, second, third, last] {
        assert_eq!(rig.lnet.matching(EventKind::Put, peer(), portal(30), bits), Some(expected));
        rig.lnet.md_unlink(expected).unwrap();
    }
    assert_eq!(rig.lnet.matching(EventKind::Put, peer(), portal(30), bits), None);
    let me = rig.post();
    assert_eq!(errno(rig.lnet.me_insert(me, &at(Position::Local))), Errno::EINVAL);
    assert_eq!(errno(rig.lnet.me_insert(me, &MeSpec { portal: portal(9), ..spec() })), Errno::EINVAL);
}

#[test]
fn a_message_meets_only_what_lets_it_in() {
    let rig = Rig::new();
    let me = MeSpec { match_id: ProcessId::new(peer().nid, Pid::ANY), ..spec() };
    let me = rig.lnet.me_attach(&me).unwrap();
    let md = rig.lnet.md_attach(me, rig.md(8, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    let find = |kind, source, bits| rig.lnet.matching(kind, source, portal(30), MatchBits(bits));
    assert_eq!(find(EventKind::Put, peer(), BITS.0), Some(md));
    assert_eq!(find(EventKind::Get, peer(), BITS.0), None);
    assert_eq!(find(EventKind::Put, peer(), BITS.0 + 1), None);
    assert_eq!(find(EventKind::Put, lnet_fake::DEFAULT_PEER, BITS.0), None);
    assert_eq!(rig.lnet.matching(EventKind::Put, peer(), portal(31), BITS), None);
    assert!(panic_of(|| find(EventKind::Ack, peer(), 0)).contains("matches nothing"));
}

#[test]
fn only_bound_descriptors_with_operations_left_send() {
    let rig = Rig::new();
    let attached = rig.expect(MdOptions::OP_PUT, 1);
    assert_eq!(errno(rig.put(attached, AckRequest::NoAck)), Errno::ENOENT);
    let md = rig.bind(1);
    rig.put(md, AckRequest::NoAck).unwrap();
    assert_eq!(errno(rig.put(md, AckRequest::NoAck)), Errno::ENOENT);
    assert_eq!(errno(rig.get(md)), Errno::ENOENT);
}

/// A refused call that would make its MD leaves neither an MD nor an event, and the memory
/// unleased.
#[test]
fn a_refused_call_that_makes_its_md_leaves_none() {
    let rig = Rig::new();
    let nowhere = ProcessId::lnet("10.0.0.2@tcp1".parse().unwrap());
    let (good, bytes) = (rig.bind_put(AckRequest::Ack, 2), IoVec::whole(Region::heap(8).unwrap()));
    let with = |md: Md| Put { md, ..good.clone() };
    let own = || Md { memory: bytes.clone(), ..good.md.clone() };
    let refused = [
        (Put { target: nowhere, ..with(own()) }, Errno::EHOSTUNREACH),
        (Put { source: Some(peer().nid), ..with(own()) }, Errno::EADDRNOTAVAIL),
        (with(Md { options: MdOptions::OP_GET, ..own() }), Errno::EINVAL),
        (with(Md { threshold: Threshold::Limited(0), ..own() }), Errno::EINVAL),
        (with(Md { eq: Some(EqHandle(99)), ..own() }), Errno::ENOENT),
    ];
    for (put, expected) in refused {
        let Put { source, target, portal, match_bits, offset, .. } = put;
        let get = Get { source, md: put.md.clone(), target, portal, match_bits, offset };
        assert_eq!(errno(rig.lnet.bind_put(put)), expected);
        assert_eq!(errno(rig.lnet.bind_get(get)), expected);
    }
    let written = bytes.write(0..1).unwrap();
    assert_eq!(errno(rig.lnet.bind_put(with(own()))), Errno::EBUSY);
    drop(written);
    assert_eq!((rig.lnet.objects().mds, rig.brief()), (0, vec![]));
    assert!(bytes.write(0..8).is_ok(), "no message has it");
    rig.lnet.eq_free(rig.eq).unwrap();
    rig.lnet.assert_quiet();
}

#[test]
fn memory_that_is_written_to_is_not_sent_and_what_is_sent_is_not_written_to() {
    let rig = Rig::new();
    let md = rig.bind(1);
    let memory = rig.lnet.memory(md);
    let lease = memory.write(7..8).unwrap();
    assert_eq!(errno(rig.put(md, AckRequest::NoAck)), Errno::EBUSY);
    drop(lease);
    rig.put(md, AckRequest::NoAck).unwrap();
    assert!(memory.write(0..1).is_err());
    rig.lnet.inject(md, lnet_fake::ScriptedEvent::send());
    assert!(memory.write(0..8).is_ok());
}

#[test]
fn messages_go_where_a_network_leads() {
    let rig = Rig::new();
    let go = |source: Option<&str>, to: &str| {
        let source = source.map(|nid| nid.parse().unwrap());
        rig.lnet.put(&Put {
            source,
            target: ProcessId::lnet(to.parse().unwrap()),
            ..put(rig.bind(1), AckRequest::NoAck)
        })
    };
    assert_eq!(go(None, "10.9.9.9@tcp"), Ok(()));
    assert_eq!(go(Some("10.0.0.1@tcp"), "10.9.9.9@tcp"), Ok(()));
    assert_eq!(go(None, "0@lo"), Ok(()));
    assert_eq!(errno(go(None, "10.0.0.2@tcp1")), Errno::EHOSTUNREACH);
    assert_eq!(errno(go(Some("0@lo"), "10.0.0.2@tcp")), Errno::EHOSTUNREACH);
    assert_eq!(errno(go(Some("10.0.0.7@tcp"), "10.0.0.2@tcp")), Errno::EADDRNOTAVAIL);
    let distance = |nid: &str| rig.lnet.distance(nid.parse().unwrap());
    let source = "10.0.0.1@tcp".parse().unwrap();
    assert_eq!(distance("10.0.0.2@tcp"), Ok(Distance { hops: 1, order: 0, source }));
    assert_eq!(distance("0@lo"), Ok(Distance { hops: 0, order: 1, source: Nid::LOOPBACK }));
    assert_eq!(errno(distance("10.0.0.2@o2ib")), Errno::EHOSTUNREACH);
}

#[test]
fn a_lenient_lnet_looks_at_handles_alone() {
    let rig = Rig::new();
    rig.lnet.set_lenient(true);
    let me = MeSpec { match_id: peer(), position: Position::Before, ..spec() };
    rig.lnet.me_attach(&me).unwrap();
    let me = rig.post();
    rig.lnet.md_attach(me, rig.md(8, MdOptions::empty(), 1), Unlink::Auto).unwrap();
    let md = rig.lnet.md_bind(rig.md(2 << 20, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    for _ in 0..2 {
        rig.lnet.put(&Put { source: Some(peer().nid), ..put(md, AckRequest::NoAck) }).unwrap();
    }
    rig.lnet.eq_free(rig.eq).unwrap();
    assert_eq!(errno(rig.lnet.eq_free(rig.eq)), Errno::ENOENT);
    assert_eq!(errno(rig.get(MdHandle(99))), Errno::ENOENT);
}
