//! Messages that wait for a receive buffer, between two transfer machines.

use nlx_core::{Core, OperationKind, TmOptions};

use super::pair;
use crate::bed::*;

fn send(pair: &Pair, to: &Side, bytes: &[u8]) {
    let (buffer, memory) = pair.a.buffer(bytes.len());
    fill(&memory, bytes);
    pair.a.submit(buffer, OperationKind::Send { length: bytes.len() as u64, to: to.tm.address() }).unwrap();
}

fn lazy(side: &Side) -> Side {
    let Side { core, tm } = side;
    let wanted = format!("{}:12345:{PORTAL}:*", tm.address().nid);
    Side { core: core.clone(), tm: core.tm_start(&start(&wanted), &TmOptions::default().lazy(true)).unwrap() }
}

#[test]
fn messages_wait_for_their_buffer_and_none_is_lost() {
    let pair = pair();
    let to = lazy(&pair.b);
    for number in 0..3 {
        send(&pair, &to, &pattern(number, 13));
    }
    let (inbox, memory) = to.buffer(100);
    to.submit(inbox, OperationKind::Receive { min_receive_size: 13, max_messages: 3 }).unwrap();
    for number in 0..3 {
        let event = pair.next(&to);
        assert_eq!((event.length, event.offset, event.unlinked()), (13, 13 * number, number == 2));
        assert_eq!(pair.next(&pair.a).status(), Ok(()));
    }
    let all: Vec<u8> = (0..3).flat_map(|number| pattern(number, 13)).collect();
    assert_eq!((&content(&memory)[..all.len()], to.tm.dropped()), (&all[..], 0));
    to.tm.stop().unwrap();
    pair.assert_idle();
}

/// While a lazy machine lives, messages for all machines on its portal wait; then they are lost,
/// and counted.
#[test]
fn the_patience_of_one_is_everybodys_on_its_portal() {
    let pair = pair();
    let patient = lazy(&pair.b);
    send(&pair, &pair.b, b"for nobody");
    assert_eq!(pair.b.tm.dropped(), 0);
    patient.tm.stop().unwrap();
    pair.until_dropped(&pair.b, 1);
    // The sender only gets the event that the message has left.
    assert_eq!(pair.next(&pair.a).status(), Ok(()));
    pair.assert_idle();
}

#[test]
fn without_patience_messages_are_lost_and_counted() {
    let pair = pair();
    for expected in 1..4 {
        send(&pair, &pair.b, b"for nobody");
        pair.until_dropped(&pair.b, expected);
        assert_eq!(pair.next(&pair.a).status(), Ok(()));
    }
    pair.assert_idle();
}
