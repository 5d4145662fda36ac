//! Events: their fields, the state after them, and those that LNet would never give (lnet-semantics
//! 5 to 8).

use lnet_api::Event;
use lnet_fake::{DEFAULT_PEER, ScriptedEvent};
use lnet_nid::{Nid, Pid};

use super::*;

#[test]
fn events_at_the_initiator_are_filled_in_from_the_operation() {
    let rig = Rig::new();
    let md = rig.bind(2);
    rig.put(md, AckRequest::Ack).unwrap();
    let own = ProcessId::lnet("10.0.0.1@tcp".parse().unwrap());
    let send = rig.lnet.inject(md, ScriptedEvent::send());
    let nobody = ProcessId::new(Nid::ANY, Pid::LNET);
    let expected = Event {
        kind: EventKind::Send,
        target: peer(),
        initiator: nobody,
        source: nobody,
        sender: Nid::ANY,
        portal: 31,
        match_bits: MatchBits(5),
        hdr_data: 99,
        rlength: 8,
        mlength: 8,
        offset: 16,
        md,
        user_ptr: USER,
        status: Ok(()),
        unlinked: false,
    };
    assert_eq!(send, expected);
    let ack = rig.lnet.inject(md, ScriptedEvent::ack());
    let answer = Event {
        kind: EventKind::Ack,
        target: own,
        initiator: peer(),
        source: peer(),
        sender: peer().nid,
        portal: 0,
        hdr_data: 0,
        rlength: 0,
        offset: 0,
        unlinked: true,
        ..expected
    };
    assert_eq!(ack, answer);
    assert_eq!(rig.log.take(), [send, ack]);
    assert_eq!(rig.log.wakes(), 2);

    let md = rig.bind(2);
    let memory = rig.lnet.memory(md);
    rig.get(md).unwrap();
    let send = rig.lnet.inject(md, ScriptedEvent::send());
    assert_eq!(send, Event { md, match_bits: MatchBits(6), offset: 24, hdr_data: 0, ..expected });
    let reply = rig.lnet.inject(md, ScriptedEvent::reply().bytes("abc"));
    let match_bits = MatchBits(0);
    assert_eq!(reply, Event { kind: EventKind::Reply, md, match_bits, rlength: 3, mlength: 3, ..answer });
    assert_eq!(memory.read(0..4).unwrap().to_vec(), b"abc\0");
}

#[test]
fn messages_are_packed_into_a_buffer_until_too_little_is_left() {
    let rig = Rig::new();
    let md = Md { max_size: 20, ..rig.md(64, MdOptions::OP_PUT | MdOptions::MAX_SIZE, 9) };
    let md = rig.lnet.md_attach(rig.post(), md, Unlink::Auto).unwrap();
    let memory = rig.lnet.memory(md);
    let message = ScriptedEvent::put().bytes([7; 15]).hdr_data(3).from(peer());
    let first = rig.lnet.inject(md, &message);
    assert_eq!((first.initiator, first.source, first.sender), (peer(), peer(), peer().nid));
    assert_eq!((first.portal, first.match_bits, first.hdr_data), (30, BITS, 3));
    assert_eq!((first.target.nid.to_string(), first.user_ptr), ("10.0.0.1@tcp".into(), USER));
    assert_cannot(&rig.with_empty_log(), md, ScriptedEvent::put().length(21), "takes 20 bytes");
    rig.lnet.inject(md, &message);
    // Without a length and a source, the event has the length that the MD has left, and the default
    // peer.
    let third = rig.lnet.inject(md, ScriptedEvent::put());
    assert_eq!((third.offset, third.mlength, third.unlinked), (30, 20, true));
    assert_eq!(third.initiator, DEFAULT_PEER);
    assert_eq!(memory.read(0..31).unwrap().to_vec(), [&[7; 30][..], &[0]].concat());
    assert_eq!(rig.lnet.objects().mes, 0);
}

#[test]
fn managed_offsets_and_truncation() {
    let rig = Rig::new();
    let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
    let md = rig.expect(options, 3);
    let cut = rig.lnet.inject(md, ScriptedEvent::put().offset(60).bytes("123456"));
    assert_eq!((cut.offset, cut.rlength, cut.mlength), (60, 6, 4));
    assert_eq!(rig.lnet.payload(md)[58..], *b"\0\x001234");
    let read = rig.lnet.inject(md, ScriptedEvent::get().offset(8).length(16));
    assert_eq!((read.offset, read.rlength, read.mlength), (8, 0, 16));
    let rest = rig.lnet.inject(md, ScriptedEvent::get().offset(50));
    assert_eq!((rest.mlength, rest.unlinked), (14, true));
}

// An MD that is sending is unlinked with its SEND (lnet-semantics 7).
#[test]
fn an_unlink_of_what_is_being_sent_ends_with_its_send() {
    let rig = Rig::new();
    for (answer, status) in [
        (ScriptedEvent::send(), Err(Errno::ETIMEDOUT)),
        (ScriptedEvent::send().failed(Errno::ECANCELED), Err(Errno::ECANCELED)),
        (ScriptedEvent::send().succeeded(), Ok(())),
    ] {
        let md = rig.bind(2);
        rig.put(md, AckRequest::NoAck).unwrap();
        rig.lnet.md_unlink(md).unwrap();
        assert_eq!(errno(rig.lnet.md_unlink(md)), Errno::ENOENT);
        assert_eq!(errno(rig.put(md, AckRequest::NoAck)), Errno::ENOENT);
        assert_eq!(rig.brief(), []);
        rig.lnet.inject(md, answer);
        assert_eq!(rig.brief(), [(EventKind::Send, status, true)]);
    }
    // An MD with only a response to come is not sending.
    let md = rig.bind(2);
    rig.get(md).unwrap();
    rig.lnet.inject(md, ScriptedEvent::send());
    rig.lnet.md_unlink(md).unwrap();
    assert_eq!(rig.brief()[1..], [(EventKind::Unlink, Ok(()), true)]);
    assert_cannot(&rig, md, ScriptedEvent::reply(), "has had its last event");
}

#[test]
fn an_unlink_can_find_messages_being_received() {
    let rig = Rig::new();
    let md = rig.expect(MdOptions::OP_PUT, 3);
    rig.lnet.set_busy(true);
    rig.lnet.md_unlink(md).unwrap();
    assert_eq!(rig.lnet.matching(EventKind::Put, peer(), portal(30), BITS), None);
    rig.lnet.inject(md, ScriptedEvent::put().length(1).not_last());
    rig.lnet.inject(md, ScriptedEvent::put().length(1));
    let events = [(EventKind::Put, Ok(()), false), (EventKind::Put, Err(Errno::ETIMEDOUT), true)];
    assert_eq!(rig.brief(), events);
}

#[test]
fn a_send_that_fails_ends_its_operation_or_leaves_the_end_to_an_unlink() {
    let rig = Rig::new();
    let failed = ScriptedEvent::send().failed(Errno::EHOSTUNREACH);
    for (scripted_event, ended) in [(failed.clone(), true), (failed.not_last(), false)] {
        let md = rig.bind(2);
        rig.get(md).unwrap();
        rig.lnet.inject(md, scripted_event);
        assert_eq!(rig.brief(), [(EventKind::Send, Err(Errno::EHOSTUNREACH), ended)]);
        assert_eq!(rig.lnet.md_unlink(md).is_err(), ended);
        rig.log.take();
    }
}

#[test]
fn a_response_that_is_late_can_end_its_md() {
    let rig = Rig::new();
    let md = rig.lnet.md_bind(rig.md(8, MdOptions::empty(), 9), Unlink::Auto).unwrap();
    rig.get(md).unwrap();
    let late = ScriptedEvent::reply().length(0).failed(Errno::ETIMEDOUT).last();
    assert_cannot(&rig, md, late.clone(), "still sending");
    rig.lnet.inject(md, ScriptedEvent::send());
    rig.log.take();
    rig.lnet.inject(md, late);
    assert_eq!(rig.brief(), [(EventKind::Reply, Err(Errno::ETIMEDOUT), true)]);
}

// Covers: S-7
#[test]
fn what_lnet_would_not_do_is_refused_with_the_reason() {
    let rig = Rig::new();
    let (bound, attached) = (rig.bind(3), rig.expect(MdOptions::OP_PUT, 2));
    let cannot = |md, scripted_event, reason| assert_cannot(&rig, md, scripted_event, reason);
    cannot(bound, ScriptedEvent::send(), "no PUT or GET of it is still to be sent");
    cannot(bound, ScriptedEvent::ack(), "no PUT of it waits for an ACK");
    cannot(bound, ScriptedEvent::reply(), "no GET of it waits for a REPLY");
    cannot(bound, ScriptedEvent::put(), "it is bound");
    cannot(bound, ScriptedEvent::new(EventKind::Unlink), "from `md_unlink` alone");
    cannot(attached, ScriptedEvent::get(), "does not allow GET");
    cannot(attached, ScriptedEvent::ack(), "waits for an ACK");
    cannot(attached, ScriptedEvent::put().length(65), "takes 64 bytes more in one message, not 65");
    cannot(attached, ScriptedEvent::put().offset(1), "goes to offset 0, not to 1");
    cannot(attached, ScriptedEvent::put().match_bits(MatchBits(1)), "does not let in");
    cannot(attached, ScriptedEvent::put().last(), "cannot be its last event");
    cannot(MdHandle(1000), ScriptedEvent::put(), "there never was an MD");
    rig.put(bound, AckRequest::NoAck).unwrap();
    cannot(bound, ScriptedEvent::ack(), "waits for an ACK");
    rig.get(bound).unwrap();
    cannot(bound, ScriptedEvent::reply().length(9), "does not fit its 8 bytes");
    // Refused events have no effect.
    let (last, end) = (ScriptedEvent::put().length(1), ScriptedEvent::put().length(1).last());
    rig.lnet.inject(attached, last);
    rig.lnet.inject(attached, end);
    rig.log.take();
    cannot(attached, ScriptedEvent::put(), "has had its last event");
    let md = rig.expect(MdOptions::OP_PUT, 1);
    cannot(md, ScriptedEvent::put().length(1).not_last(), "this is its last event");
}

#[test]
fn an_exhausted_md_that_is_retained_takes_nothing_more() {
    let rig = Rig::new();
    let md = rig.lnet.md_attach(rig.post(), rig.md(8, MdOptions::OP_PUT, 1), Unlink::Retain).unwrap();
    assert!(!rig.lnet.inject(md, ScriptedEvent::put()).unlinked);
    rig.log.take();
    assert_cannot(&rig, md, ScriptedEvent::put().length(0), "exhausted");
    rig.lnet.md_unlink(md).unwrap();
    assert_eq!(rig.brief(), [(EventKind::Unlink, Ok(()), true)]);
}

// Covers: MT-229
#[test]
fn the_impossible_happens_when_it_is_called_so() {
    let rig = Rig::new();
    let md = rig.bind(1);
    let event =
        rig.lnet.inject(md, ScriptedEvent::get().length(5).offset(9).portal(70).user_ptr(1).impossible());
    assert_eq!((event.kind, event.rlength, event.mlength, event.offset), (EventKind::Get, 5, 5, 9));
    assert_eq!((event.portal, event.user_ptr, event.unlinked), (70, 1, false));
    rig.lnet.inject(md, ScriptedEvent::put().bytes("too long to fit").mlength(500).last());
    assert_eq!(rig.lnet.objects().mds, 0);
    assert_cannot(&rig.with_empty_log(), md, ScriptedEvent::send().impossible(), "last event");
    let stray = rig.lnet.inject_stray(rig.eq, ScriptedEvent::send().user_ptr(u64::MAX).last());
    assert_eq!((stray.md, stray.user_ptr, stray.unlinked), (MdHandle(0), u64::MAX, true));
    assert_eq!(rig.log.take().len(), 3);
    assert!(
        panic_of(|| rig.lnet.inject_stray(EqHandle(50), ScriptedEvent::send())).contains("does not exist")
    );
}

#[test]
fn an_md_without_a_queue_has_no_events() {
    let rig = Rig::new();
    let md = rig.lnet.md_bind(Md { eq: None, ..rig.md(8, MdOptions::empty(), 1) }, Unlink::Auto).unwrap();
    rig.put(md, AckRequest::NoAck).unwrap();
    assert!(rig.lnet.inject(md, ScriptedEvent::send()).unlinked);
    assert_eq!((rig.log.take(), rig.lnet.objects().mds), (vec![], 0));
}

#[test]
fn an_md_is_there_until_its_last_event_has_come() {
    let rig = Rig::new();
    let md = rig.expect(MdOptions::OP_PUT, 1);
    rig.lnet.set_busy(true);
    rig.lnet.md_unlink(md).unwrap();
    assert!(rig.lnet.has_md(md));
    rig.lnet.inject(md, ScriptedEvent::put().length(1));
    assert!(!rig.lnet.has_md(md) && !rig.lnet.has_md(MdHandle(u64::MAX)));
}
