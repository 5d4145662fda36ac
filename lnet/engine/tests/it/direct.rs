//! GETs whose data a network writes directly (an RDMA network needs no REPLY message).

use lnet_api::EventKind::{Reply, Send};
use lnet_api::{AckRequest, Errno, LNet, Upcalls};

use super::common::*;

// Covers: S-201
#[test]
fn a_direct_get_gives_send_and_reply() {
    for unlinked_before in [false, true] {
        let (network, a, b) = two_nodes();
        let sink = memory(100);
        let md = a.bind(&sink, 2);
        a.get(md, b.id(), 1).unwrap();
        let packet = network.take(0).unwrap();
        let token = token_of(&packet);
        let mut lease = a.engine.sink_of_get(token).expect("the GET's memory");
        assert_eq!(lease.len(), 100);
        assert!(a.engine.sink_of_get(token).is_none(), "only once");
        lease.copy_from(0, &pattern_bytes(60, 1));
        drop(lease);
        if unlinked_before {
            a.engine.md_unlink(md).unwrap();
        }
        a.engine.finalize_get(token, Ok(60));
        let events = a.events();
        if unlinked_before {
            assert_eq!(brief(&events), [(Send, Err(Errno::ETIMEDOUT), true)]);
        } else {
            assert_eq!(brief(&events), [(Send, Ok(()), false), (Reply, Ok(()), true)]);
            assert_eq!((events[1].mlength, events[1].initiator), (60, b.id()));
        }
        assert_eq!(content(&sink)[..60], pattern_bytes(60, 1));
        assert!(a.is_quiet());
    }
}

#[test]
fn a_direct_get_that_fails_ends_with_its_send_event() {
    let (network, a, b) = two_nodes();
    a.get(a.bind(&memory(8), 2), b.id(), 1).unwrap();
    let token = token_of(&network.take(0).unwrap());
    drop(a.engine.sink_of_get(token).expect("the GET's memory"));
    a.engine.finalize_get(token, Err(Errno::ENODATA));
    assert_eq!(brief(&a.events()), [(Send, Err(Errno::ENODATA), true)]);
    assert!(a.is_quiet());
}

#[test]
fn only_gets_that_are_still_wanted_have_a_sink() {
    let (network, a, b) = two_nodes();
    a.put(a.bind(&memory(8), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    let md = a.bind(&memory(8), 2);
    a.get(md, b.id(), 1).unwrap();
    let (put, get) = (network.take(0).unwrap(), network.take(0).unwrap());
    assert!(a.engine.sink_of_get(token_of(&put)).is_none());
    a.engine.md_unlink(md).unwrap();
    assert!(a.engine.sink_of_get(token_of(&get)).is_none());
}

#[test]
fn more_bytes_than_there_is_memory_are_not_believed() {
    let (network, a, b) = two_nodes();
    a.get(a.bind(&memory(8), 2), b.id(), 1).unwrap();
    let token = token_of(&network.take(0).unwrap());
    drop(a.engine.sink_of_get(token));
    a.engine.finalize_get(token, Ok(9));
    assert_eq!(a.events().pop().map(|event| event.mlength), Some(8));
}
