//! The meaning of each LNet event for its operation (S-411; motr-transport 5.8).

use lnet_api::{Errno, Event, EventKind};
use nlx_core::Queue;

/// The outcome of an operation, or of one message of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpOutcome {
    pub(crate) status: Result<(), Errno>,
    pub(crate) length: u64,
    pub(crate) offset: u64,
}

impl OpOutcome {
    fn of(event: &Event) -> OpOutcome {
        OpOutcome { status: event.status, length: event.mlength.into(), offset: event.offset }
    }

    fn failed(errno: Errno) -> OpOutcome {
        OpOutcome { status: Err(errno), length: 0, offset: 0 }
    }
}

/// The reaction to an event. The operation is over if the event is its MD's last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventAction {
    /// Do nothing: a later event has the outcome.
    Ignore,
    /// Remember the outcome: the event that ends the operation is yet to come.
    Remember(OpOutcome),
    /// Remember the outcome, and unlink the MD, as LNet will send no further event until then.
    Unlink(OpOutcome),
    /// Deliver an event to the client.
    Deliver(OpOutcome),
    /// LNet should not have sent the event. Count it; deliver an event only if there is an outcome.
    Unexpected(Option<OpOutcome>),
}

/// Returns the reaction to an event of an operation on this queue; `remembered` is the outcome of
/// an earlier event. An ACK matters only to an active send, the only kind that asks for one.
pub(crate) fn decide(queue: Queue, remembered: Option<OpOutcome>, event: &Event) -> EventAction {
    use EventKind::{Ack, Get, Put, Reply, Send, Unlink};
    let outcome = OpOutcome::of(event);
    match (queue, event.kind, event.unlinked) {
        (_, Unlink, true) => EventAction::Deliver(unlinked(remembered, event)),
        (Queue::MessageReceive, Put, _) => EventAction::Deliver(outcome),
        (Queue::PassiveBulkReceive, Put, true) | (Queue::PassiveBulkSend, Get, true) => {
            EventAction::Deliver(outcome)
        }
        (Queue::MessageSend, Send, true) => EventAction::Deliver(outcome),
        (Queue::ActiveBulkReceive, Send, true) => {
            EventAction::Deliver(last_send(remembered, outcome, |reply| reply))
        }
        // The ACK reports whether the data has arrived; the length is taken from the SEND, which is
        // local, and not from the peer.
        (Queue::ActiveBulkSend, Send, true) => {
            EventAction::Deliver(last_send(remembered, outcome, |ack| acknowledged(outcome, ack)))
        }
        (Queue::ActiveBulkSend, Ack, true) => {
            EventAction::Deliver(acknowledged(remembered.unwrap_or(outcome), outcome))
        }
        (Queue::ActiveBulkSend, Ack, false) => EventAction::Remember(outcome),
        (_, Ack, false) => EventAction::Ignore,
        (Queue::ActiveBulkReceive, Reply, true) => EventAction::Deliver(outcome),
        (Queue::ActiveBulkReceive, Reply, false) => EventAction::Remember(outcome),
        // A message that was never sent gets no answer, but the MD would wait for one
        // (lnet-semantics 8).
        (Queue::MessageSend | Queue::ActiveBulkSend | Queue::ActiveBulkReceive, Send, false)
            if outcome.status.is_err() =>
        {
            EventAction::Unlink(outcome)
        }
        (Queue::ActiveBulkReceive, Send, false) => EventAction::Ignore,
        (Queue::ActiveBulkSend, Send, false) => EventAction::Remember(outcome),
        _ => EventAction::Unexpected(event.unlinked.then(|| impossible(outcome))),
    }
}

/// Returns the outcome of an operation whose last event is the SEND of its request. Either the
/// answer (REPLY or ACK) came before the SEND and is remembered, or the MD was unlinked before an
/// answer came: then the operation is cancelled.
fn last_send(
    remembered: Option<OpOutcome>,
    send: OpOutcome,
    answered: impl FnOnce(OpOutcome) -> OpOutcome,
) -> OpOutcome {
    match (send.status, remembered) {
        (Err(_), _) => send,
        (Ok(()), Some(answer)) => answered(answer),
        (Ok(()), None) => OpOutcome::failed(Errno::ECANCELED),
    }
}

/// Returns the outcome of a PUT from its SEND and its ACK.
fn acknowledged(send: OpOutcome, ack: OpOutcome) -> OpOutcome {
    match ack.status {
        Ok(()) => send,
        Err(errno) => OpOutcome::failed(errno),
    }
}

/// Returns the outcome of an explicit unlink: cancelled, unless an earlier event reported a
/// failure.
fn unlinked(remembered: Option<OpOutcome>, event: &Event) -> OpOutcome {
    match (remembered, event.status) {
        (Some(OpOutcome { status: Err(errno), .. }), _) | (_, Err(errno)) => OpOutcome::failed(errno),
        _ => OpOutcome::failed(Errno::ECANCELED),
    }
}

/// Returns the outcome of an operation whose last event is of an unexpected kind: the operation
/// must end, but with an error.
fn impossible(outcome: OpOutcome) -> OpOutcome {
    OpOutcome::failed(outcome.status.err().unwrap_or(Errno::EIO))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use lnet_api::MdHandle;
    use lnet_nid::ProcessId;

    use super::*;

    fn event(kind: EventKind, unlinked: bool, status: Result<(), Errno>) -> Event {
        let (md, offset) = (MdHandle(1), 8);
        let blank = Event::blank(kind, ProcessId::ANY);
        Event { rlength: 100, mlength: 100, offset, md, status, unlinked, ..blank }
    }

    const OK: Result<(), Errno> = Ok(());
    const EIO: Result<(), Errno> = Err(Errno::EIO);
    const ALL_KINDS: [EventKind; 6] = [
        EventKind::Get,
        EventKind::Put,
        EventKind::Reply,
        EventKind::Ack,
        EventKind::Send,
        EventKind::Unlink,
    ];

    fn status(action: EventAction) -> Result<(), Errno> {
        match action {
            EventAction::Deliver(outcome) => outcome.status,
            other => panic!("it is not delivered: {other:?}"),
        }
    }

    // One event ends the operation, with its own status.
    // Covers: MT-29, MT-30, MT-31, MT-32, MT-40, MT-41, MT-42
    #[test]
    fn operations_of_one_event_end_with_it() {
        for (queue, kind) in [
            (Queue::MessageReceive, EventKind::Put),
            (Queue::MessageSend, EventKind::Send),
            (Queue::PassiveBulkReceive, EventKind::Put),
            (Queue::PassiveBulkSend, EventKind::Get),
            (Queue::ActiveBulkSend, EventKind::Ack),
            (Queue::ActiveBulkReceive, EventKind::Reply),
        ] {
            for result in [OK, EIO] {
                assert_eq!(status(decide(queue, None, &event(kind, true, result))), result);
            }
            assert_eq!(
                status(decide(queue, None, &event(EventKind::Unlink, true, OK))),
                Err(Errno::ECANCELED)
            );
        }
    }

    #[test]
    fn the_response_tracker_of_lnet_is_not_taken_for_a_cancel() {
        let expired = event(EventKind::Unlink, true, Err(Errno::ETIMEDOUT));
        assert_eq!(status(decide(Queue::ActiveBulkReceive, None, &expired)), Err(Errno::ETIMEDOUT));
    }

    // Covers: MT-33
    #[test]
    fn in_order_the_send_of_a_get_says_nothing() {
        assert_eq!(
            decide(Queue::ActiveBulkReceive, None, &event(EventKind::Send, false, OK)),
            EventAction::Ignore
        );
    }

    // Covers: MT-34, MT-37
    #[test]
    fn out_of_order_the_send_of_a_get_ends_it_as_the_reply_said() {
        for result in [OK, EIO] {
            let reply = OpOutcome { status: result, length: 4096, offset: 0 };
            let mut early = event(EventKind::Reply, false, result);
            (early.mlength, early.offset) = (4096, 0);
            assert_eq!(decide(Queue::ActiveBulkReceive, None, &early), EventAction::Remember(reply));
            let send = event(EventKind::Send, true, OK);
            assert_eq!(decide(Queue::ActiveBulkReceive, Some(reply), &send), EventAction::Deliver(reply));
        }
    }

    #[test]
    fn an_active_send_ends_with_send_and_ack_in_any_order() {
        let send = OpOutcome { status: OK, length: 100, offset: 8 };
        for result in [OK, Err(Errno::ENODATA)] {
            let outcome = |action| match action {
                EventAction::Deliver(outcome) => outcome,
                other => panic!("it is not delivered: {other:?}"),
            };
            let expected =
                if result == OK { send } else { OpOutcome { status: result, length: 0, offset: 0 } };
            let left = decide(Queue::ActiveBulkSend, None, &event(EventKind::Send, false, OK));
            assert_eq!(left, EventAction::Remember(send));
            let mut ack = event(EventKind::Ack, true, result);
            // The length according to the peer.
            ack.mlength = 7;
            assert_eq!(outcome(decide(Queue::ActiveBulkSend, Some(send), &ack)), expected);
            ack.unlinked = false;
            let EventAction::Remember(early) = decide(Queue::ActiveBulkSend, None, &ack) else {
                panic!("an ACK that comes first is not the end")
            };
            let last = event(EventKind::Send, true, OK);
            assert_eq!(outcome(decide(Queue::ActiveBulkSend, Some(early), &last)), expected);
        }
    }

    // Covers: MT-35, MT-38
    #[test]
    fn active_bulk_can_end_with_its_send() {
        for queue in [Queue::ActiveBulkSend, Queue::ActiveBulkReceive] {
            assert_eq!(status(decide(queue, None, &event(EventKind::Send, true, EIO))), EIO);
            let riding = event(EventKind::Send, true, OK);
            assert_eq!(status(decide(queue, None, &riding)), Err(Errno::ECANCELED));
        }
    }

    #[test]
    fn a_failed_send_that_leaves_its_md_is_ended_with_its_own_status() {
        for queue in [Queue::MessageSend, Queue::ActiveBulkSend, Queue::ActiveBulkReceive] {
            let EventAction::Unlink(outcome) = decide(queue, None, &event(EventKind::Send, false, EIO))
            else {
                panic!("{queue} would wait for ever");
            };
            assert_eq!(status(decide(queue, Some(outcome), &event(EventKind::Unlink, true, OK))), EIO);
        }
    }

    // Whatever LNet sends, the operation ends with its last event and not before.
    // Covers: S-411, MT-229
    #[test]
    fn impossible_events_are_counted_and_end_what_they_must() {
        for queue in Queue::ALL {
            for kind in ALL_KINDS {
                for result in [OK, EIO] {
                    let last = decide(queue, None, &event(kind, true, result));
                    assert!(
                        matches!(
                            last,
                            EventAction::Deliver(_)
                                | EventAction::Unexpected(Some(OpOutcome { status: Err(_), .. }))
                        ),
                        "{queue} {kind:?} {last:?}"
                    );
                    let other = decide(queue, None, &event(kind, false, result));
                    let message = (queue, kind) == (Queue::MessageReceive, EventKind::Put);
                    assert_eq!(
                        matches!(other, EventAction::Deliver(_)),
                        message,
                        "{queue} {kind:?} {other:?}"
                    );
                }
            }
        }
    }
}
