//! Refusals, by LNet (MT-226) or before it is called.

use lnet_api::Errno;
use lnet_fake::CallKind;
use nlx_core::{
    Address, Core, CoreError, Descriptor, DescriptorForm, OperationKind, PassiveBuffer, Queue, TmOptions,
};

use super::bed;
use crate::bed::*;

/// Returns the LNet calls of each operation, in order.
fn calls_of(kind: &OperationKind) -> &'static [CallKind] {
    match kind.queue() {
        Queue::MessageReceive | Queue::PassiveBulkReceive | Queue::PassiveBulkSend => {
            &[CallKind::MeAttach, CallKind::MdAttach]
        }
        Queue::MessageSend | Queue::ActiveBulkSend => &[CallKind::BindPut],
        Queue::ActiveBulkReceive => &[CallKind::BindGet],
    }
}

/// Attach, put and get; the buffer and the room for its events are free again, and nothing has to
/// be undone.
// Covers: MT-207, MT-226
#[test]
fn a_refusal_of_lnet_is_passed_on_and_leaves_nothing_behind() {
    for kind in every_operation() {
        for (number, &failing) in calls_of(&kind).iter().enumerate() {
            let bed = bed();
            bed.spy.fail(failing, Errno::EHOSTUNREACH);
            let error = bed.submit(kind).unwrap_err();
            assert_eq!(error.errno(), Errno::EHOSTUNREACH, "{kind:?} {error}");
            assert_eq!(bed.spy.take_kinds(), calls_of(&kind)[..=number]);
            bed.assert_idle();
            bed.assert_no_faults();
        }
    }
}

/// Refusals of LNet itself: a network that does not exist, and an unknown NID.
// Covers: MT-226
#[test]
fn a_peer_that_no_network_leads_to_is_refused_and_leaves_nothing_behind() {
    for nid in ["10.0.0.1@tcp7", "10.0.0.1@o2ib"] {
        let bed = bed();
        let to = Address { nid: nid.parse().unwrap(), ..peer() };
        let error = bed.submit(OperationKind::Send { length: 1, to }).unwrap_err();
        assert!(matches!(error.errno(), Errno::EHOSTUNREACH | Errno::ENETUNREACH), "{error}");
        bed.assert_idle();
    }
}

/// After a refusal the next attempt succeeds, with the whole buffer.
// Covers: MT-226
#[test]
fn a_buffer_is_whole_again_after_a_refusal() {
    let bed = bed();
    fill(&bed.memory, &pattern(1, BUFFER_BYTES));
    bed.spy.fail(CallKind::BindPut, Errno::ENOMEM);
    let cut = OperationKind::Send { length: 3, to: peer() };
    assert_eq!(bed.submit(cut).unwrap_err().errno(), Errno::ENOMEM);
    let message = bed.send(OperationKind::Send { length: BUFFER_BYTES as u64, to: peer() });
    assert_eq!(message.payload, pattern(1, BUFFER_BYTES));
    bed.world.leave(&message, Ok(()));
    assert_eq!(bed.tm.event_get().unwrap().unwrap().status(), Ok(()));
    bed.assert_idle();
}

#[test]
fn a_buffer_has_one_operation_at_a_time() {
    let bed = bed();
    let passive = bed.expose(OperationKind::PassiveReceive);
    for kind in every_operation() {
        assert_eq!(bed.submit(kind).unwrap_err(), CoreError::BufferBusy { buffer: bed.buffer });
        assert_eq!(bed.tm.needed(), 1);
    }
    bed.receive(&passive.put(&peer(), 1));
    bed.only_event();
}

// Covers: MT-235, MT-238
#[test]
fn an_operation_of_any_queue_holds_up_stop_and_deregistration() {
    for kind in every_operation() {
        let bed = bed().started(kind);
        assert_eq!(bed.tm.stop().unwrap_err().errno(), Errno::EBUSY, "{kind:?}");
        assert_eq!(bed.core.deregister(bed.buffer).unwrap_err().errno(), Errno::EBUSY, "{kind:?}");
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        bed.world.outgoing().iter().for_each(|message| bed.world.leave(message, Ok(())));
        // Its event has not been taken; the buffer is free.
        assert_eq!(bed.tm.stop().unwrap_err().errno(), Errno::EBUSY);
        bed.core.deregister(bed.buffer).unwrap();
        assert!(bed.tm.event_get().unwrap().is_some());
        bed.tm.stop().unwrap();
    }
}

#[test]
fn an_unknown_buffer_is_refused() {
    let bed = bed();
    bed.core.deregister(bed.buffer).unwrap();
    for kind in every_operation() {
        assert_eq!(bed.submit(kind).unwrap_err().errno(), Errno::ENOENT);
        assert_eq!(bed.tm.needed(), 0);
    }
}

/// Room for events is bounded, and refused before LNet is called.
// Covers: S-407, MT-243
#[test]
fn an_operation_without_room_for_its_events_is_refused() {
    let Bed { world, .. } = bed();
    let bed = Bed::with(world, &TmOptions::default().events_max(MESSAGES + 1));
    let other = bed.core.register(&bed.memory).unwrap();
    bed.submit(RECEIVE).unwrap();
    bed.spy.take_calls();
    assert_eq!(bed.submit_on(other, COOKIE, RECEIVE).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!((bed.spy.take_kinds(), bed.tm.needed()), (vec![], MESSAGES as usize));
    bed.submit_on(other, COOKIE, OperationKind::PassiveReceive).unwrap();
    assert_eq!(bed.tm.needed(), MESSAGES as usize + 1);
}

/// K7, and motr-transport 2.6.2: nothing that does not fit reaches LNet.
// Covers: MT-76, MT-78
#[test]
fn numbers_that_do_not_fit_the_buffer_are_refused() {
    let bed = bed();
    let all = BUFFER_BYTES as u64;
    let limits = bed.core.limits();
    let send = |length| OperationKind::Send { length, to: peer() };
    let to_portal = |portal| OperationKind::Send { length: 1, to: Address { portal, ..peer() } };
    let receive = |min_receive_size, max_messages| OperationKind::Receive { min_receive_size, max_messages };
    let put = |room, length| OperationKind::ActiveSend {
        descriptor: peers_descriptor(Queue::PassiveBulkReceive, room),
        length,
    };
    let wrong =
        [(peers_descriptor(Queue::PassiveBulkReceive, 1), Errno::EPERM), (Descriptor::NONE, Errno::EINVAL)];
    let wrong = wrong.map(|(descriptor, errno)| (OperationKind::ActiveReceive { descriptor }, errno));
    let backwards =
        OperationKind::ActiveSend { descriptor: peers_descriptor(Queue::PassiveBulkSend, 1), length: 1 };
    let refused = [
        (send(0), Errno::EINVAL),
        (send(all + 1), Errno::EINVAL),
        (to_portal(64), Errno::EINVAL),
        (to_portal(0), Errno::EINVAL),
        (receive(0, 1), Errno::EINVAL),
        (receive(all + 1, 1), Errno::EINVAL),
        (receive(1, 0), Errno::EINVAL),
        (receive(1, limits.messages_max + 1), Errno::EINVAL),
        (receive(1, u32::MAX), Errno::EINVAL),
        (OperationKind::PassiveSend { length: 0 }, Errno::EINVAL),
        (OperationKind::PassiveSend { length: all + 1 }, Errno::EINVAL),
        (active_receive(all + 1), Errno::EFBIG),
        (put(all, 0), Errno::EINVAL),
        (put(all, all + 1), Errno::EFBIG),
        (put(u64::MAX, all + 1), Errno::EINVAL),
        (backwards, Errno::EPERM),
    ];
    for (kind, errno) in refused.into_iter().chain(wrong) {
        assert_eq!(bed.submit(kind).map_err(|error| error.errno()), Err(errno), "{kind:?}");
        assert_eq!((bed.spy.take_kinds(), bed.tm.needed()), (vec![], 0));
    }
    bed.assert_idle();
}

/// Whichever bit of a descriptor is flipped, LNet is not called, and the buffer and the room for
/// events are free.
// Covers: MT-76, MT-78, MT-246
#[test]
fn a_descriptor_with_any_bit_turned_is_refused_and_leaves_everything_as_it_was() {
    let bed = bed();
    let forms = [DescriptorForm::Compatible, DescriptorForm::Extended];
    let queues = [Queue::PassiveBulkSend, Queue::PassiveBulkReceive];
    for (form, queue) in forms.into_iter().flat_map(|form| queues.map(|queue| (form, queue))) {
        let described = PassiveBuffer { queue, ..passive_of(&peers_descriptor(queue, 10)) };
        let good = Descriptor::encode_as(form, &described).unwrap();
        for bit in 0..8 * good.as_bytes().len() {
            let mut bytes = good.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let descriptor = Descriptor::from_bytes(&bytes).unwrap();
            for kind in [
                OperationKind::ActiveReceive { descriptor },
                OperationKind::ActiveSend { descriptor, length: 10 },
            ] {
                assert_eq!(
                    bed.submit(kind).unwrap_err().errno(),
                    Errno::EINVAL,
                    "bit {bit} of {form:?}, {queue}"
                );
                assert_eq!(bed.tm.needed(), 0);
            }
        }
    }
    assert_eq!(bed.spy.take_kinds(), []);
    bed.assert_idle();
}
