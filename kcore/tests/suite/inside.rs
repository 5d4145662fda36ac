//! Operations that end inside the call that starts them (MT-225), event by event; `at_once` tests
//! this with the engine.

use lnet_fake::{CallKind, ScriptedEvent};
use nlx_core::Queue;

use super::bed;
use crate::bed::*;

/// No event is lost, and none comes twice.
// Covers: MT-225
#[test]
fn every_operation_can_end_inside_the_call_that_starts_it() {
    for kind in every_operation() {
        let (call, scripted_events) = match kind.queue() {
            Queue::MessageReceive | Queue::PassiveBulkReceive => {
                (CallKind::MdAttach, vec![ScriptedEvent::put().length(LENGTH)])
            }
            Queue::PassiveBulkSend => (CallKind::MdAttach, vec![ScriptedEvent::get()]),
            Queue::MessageSend => (CallKind::BindPut, vec![ScriptedEvent::send()]),
            Queue::ActiveBulkSend => (CallKind::BindPut, vec![ScriptedEvent::send(), ScriptedEvent::ack()]),
            Queue::ActiveBulkReceive => {
                (CallKind::BindGet, vec![ScriptedEvent::send(), ScriptedEvent::reply()])
            }
        };
        let bed = bed();
        bed.world.fake.complete_inside(call, scripted_events);
        bed.submit(kind).unwrap();
        let event = bed.only_event();
        assert_eq!((event.status(), event.length), (Ok(()), LENGTH.into()), "{kind:?}");
        bed.assert_no_faults();
    }
}

/// The REPLY can come before the SEND, both inside the call.
// Covers: MT-34, MT-225
#[test]
fn a_get_can_end_out_of_order_inside_its_call() {
    let bed = bed();
    bed.world.fake.complete_inside(CallKind::BindGet, [ScriptedEvent::reply(), ScriptedEvent::send()]);
    bed.submit(active_receive(LENGTH.into())).unwrap();
    let event = bed.only_event();
    assert_eq!((event.status(), event.length), (Ok(()), LENGTH.into()));
}
