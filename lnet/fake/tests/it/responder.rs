//! Operations that the responder answers.

use lnet_fake::{Answer, ScriptedEvent};

use super::*;

const SENT: (EventKind, Result<(), Errno>, bool) = (EventKind::Send, Ok(()), true);

#[test]
fn puts_are_decided_by_what_they_carry() {
    let rig = Rig::new();
    rig.lnet.on_put(|put, payload| match (put.hdr_data, payload) {
        (99, b"deliver!") => Answer::Done(()),
        (99, b"get lost") => Answer::Lose,
        (99, b"bad road") => Answer::Fail(Errno::EHOSTUNREACH),
        (99, b"ack 1st!") => Answer::Events(vec![ScriptedEvent::ack(), ScriptedEvent::send()]),
        _ => Answer::Hold,
    });
    let send = |text: &[u8], ack| {
        let md = rig.bind(if ack == AckRequest::Ack { 2 } else { 1 });
        rig.lnet.memory(md).write(0..8).unwrap().copy_from(0, text);
        rig.put(md, ack).unwrap();
        rig.brief()
    };
    assert_eq!(send(b"deliver!", AckRequest::NoAck), [SENT]);
    let acknowledged = [(EventKind::Send, Ok(()), false), (EventKind::Ack, Ok(()), true)];
    assert_eq!(send(b"deliver!", AckRequest::Ack), acknowledged);
    assert_eq!(send(b"get lost", AckRequest::Ack), [(EventKind::Send, Ok(()), false)]);
    let failed = [(EventKind::Send, Err(Errno::EHOSTUNREACH), true)];
    assert_eq!(send(b"bad road", AckRequest::Ack), failed);
    let turned = [(EventKind::Ack, Ok(()), false), (EventKind::Send, Ok(()), true)];
    assert_eq!(send(b"ack 1st!", AckRequest::Ack), turned);
    assert_eq!(send(b"whatever", AckRequest::Ack), []);
    // With `Answer::Hold`, the test delivers the events itself.
    rig.lnet.inject(rig.lnet.last_md(), ScriptedEvent::send());
    assert_eq!(rig.brief(), [(EventKind::Send, Ok(()), false)]);
}

// An MD with a threshold for the PUT alone ends with its SEND; its ACK is not delivered.
#[test]
fn an_answer_that_comes_after_the_end_is_dropped() {
    let rig = Rig::new();
    rig.lnet.on_put(|_, _| Answer::Done(()));
    rig.put(rig.bind(1), AckRequest::Ack).unwrap();
    assert_eq!(rig.brief(), [SENT]);
}

#[test]
fn gets_are_answered_with_bytes_and_every_third_is_lost() {
    let rig = Rig::new();
    let mut number = 0u8;
    rig.lnet.on_get(move |get| {
        assert_eq!(get.match_bits, MatchBits(6));
        number += 1;
        if number.is_multiple_of(3) { Answer::Lose } else { Answer::Done(vec![number; 5]) }
    });
    for expected in 1..=6 {
        let md = rig.bind(2);
        let memory = rig.lnet.memory(md);
        rig.get(md).unwrap();
        let events = rig.log.take();
        if expected % 3 == 0 {
            assert_eq!((events.len(), events[0].unlinked), (1, false));
            continue;
        }
        assert_eq!((events[1].kind, events[1].mlength, events[1].unlinked), (EventKind::Reply, 5, true));
        assert_eq!(memory.read(0..8).unwrap().to_vec(), [&[expected; 5][..], &[0; 3]].concat());
    }
}
