//! Large transfers with faulty parts: refused, late, ended by another thread.

use std::sync::OnceLock;

use nlx::{Batch, Machine, Offer, Refused};

use super::*;

const PART: usize = 1 << 20;

fn no_memory() -> CoreError {
    CoreError::TooMany { objects: "events", limit: 7 }
}

impl Rig {
    fn large(&self, parts: usize) -> Buffer {
        self.domain.allocate(parts * PART).unwrap()
    }

    /// Offers room of this number of parts.
    fn offer(&self, parts: usize, timeout: Option<Duration>) -> (OpId, Offer) {
        let op = Op::passive_receive(self.large(parts)).timeout(timeout);
        let Started { op, offer } = self.tm.start(op).unwrap();
        (op, offer)
    }

    /// Lets the transport end the operation that was started as number `at`.
    fn end_part(&self, at: usize, status: Result<(), Errno>, length: usize) {
        let operation = self.script.operations().nth(at).unwrap();
        self.script.inject(last(happened(&operation, status, length as u64)));
    }

    fn nothing(&self) {
        assert!(self.tm.poll().unwrap().is_none(), "the whole has not ended");
    }
}

fn cancelled(rig: &Rig) -> Vec<u64> {
    rig.script.take_cancels().into_iter().map(|(_, cookie)| cookie).collect()
}

fn cookies(rig: &Rig, parts: &[usize]) -> Vec<u64> {
    parts.iter().map(|part| rig.script.operations().nth(*part).unwrap().cookie).collect()
}

#[test]
fn a_transfer_whose_first_part_is_refused_was_never_there() {
    let rig = Rig::new();
    rig.script.refuse_submit(no_memory());
    let refused = rig.tm.start(Op::passive_receive(rig.large(3))).expect_err("it is refused");
    assert_eq!(refused.error.errno(), Errno::ENOMEM);
    assert_eq!((refused.buffer.len(), rig.tm.in_flight()), (3 * PART, 0));
    rig.nothing();
    // All its parts have been put back.
    rig.tm.start(Op::passive_receive(refused.buffer)).unwrap();
    assert_eq!(rig.tm.in_flight(), 3);
}

#[test]
fn a_later_part_that_is_refused_ends_those_before() {
    let rig = Rig::new();
    rig.script.at_submit(2, |script| script.refuse_submit(no_memory()));
    let (op, offer) = rig.offer(5, None);
    assert_eq!((offer.parts(), rig.tm.in_flight()), (5, 2), "nothing is started behind it");
    assert_eq!(cancelled(&rig), cookies(&rig, &[0, 1]));
    rig.end_part(1, Err(Errno::ECANCELED), 0);
    rig.nothing();
    rig.end_part(0, Ok(()), PART);
    let event = rig.now();
    assert_eq!((event.op, event.status, event.length), (op, Err(Errno::ENOMEM), 0));
    assert_eq!(event.buffer.unwrap().len(), 5 * PART);
    assert!(!rig.tm.cancel(op));
}

// The first part has ended, and another thread has taken its event, when the second one is refused:
// the transport has no further event that could end the transfer.
#[test]
fn a_transfer_that_ends_while_it_is_started_has_its_event() {
    let rig = Rig::new();
    let tm = Arc::new(OnceLock::<TransferMachine>::new());
    let theirs = tm.clone();
    rig.script.at_submit(1, move |script| {
        script.inject(last(happened(&script.last_operation(), Ok(()), PART as u64)));
        assert!(theirs.get().unwrap().take().unwrap().is_none(), "it is not the whole's");
        script.refuse_submit(no_memory());
    });
    let tm = tm.get_or_init(|| rig.domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()).unwrap());
    let op = tm.start(Op::passive_receive(rig.large(2)).length(2 * PART)).unwrap().op;
    let event = tm.take().unwrap().expect("it has ended");
    assert_eq!((event.op, event.status), (op, Err(Errno::ENOMEM)));
    assert_eq!(event.buffer.unwrap().len(), 2 * PART);
}

#[test]
fn the_first_failure_is_the_reason_and_ends_the_others() {
    let rig = Rig::new();
    let (op, _) = rig.offer(4, None);
    rig.end_part(2, Err(Errno::EIO), 0);
    rig.nothing();
    assert_eq!(cancelled(&rig), cookies(&rig, &[0, 1, 3]));
    assert!(rig.tm.cancel(op), "it is in flight");
    assert!(cancelled(&rig).is_empty(), "once is enough");
    rig.end_part(0, Err(Errno::EHOSTUNREACH), 0);
    rig.end_part(3, Err(Errno::ECANCELED), 0);
    rig.nothing();
    rig.end_part(1, Ok(()), PART);
    assert_eq!(rig.now().status, Err(Errno::EIO));
    let counted = rig.tm.statistics()[Queue::PassiveBulkReceive.index()];
    assert_eq!((counted.adds, counted.cancels, counted.successes, counted.failures), (4, 3, 1, 3));
}

// A part that won against its timeout: the parts after it have no time left.
#[test]
fn no_part_is_started_after_the_timeout_of_the_whole() {
    let rig = Rig::new();
    let active = rig.domain.machine().large_window(1).start("0@lo:12345:31:*").unwrap();
    let (op, _) = start_active(&rig, &active, 3, Some(5 * MS));
    let part = rig.script.last_operation();
    assert!(active.wait(Some(7 * MS)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), [(5 * MS_NS, part.cookie)]);
    rig.script.inject(last(happened(&part, Ok(()), PART as u64)));
    let event = active.poll().unwrap().expect("it is over");
    assert_eq!((event.op, event.status, event.after), (op, Err(Errno::ETIMEDOUT), 7 * MS));
    assert_eq!(rig.script.last_operation().cookie, part.cookie, "none was started");
}

// The timeout of each part is the time left of the transfer's.
#[test]
fn the_parts_share_one_timeout() {
    let rig = Rig::new();
    let active = rig.domain.machine().large_window(1).start("0@lo:12345:31:*").unwrap();
    let (op, _) = start_active(&rig, &active, 3, Some(10 * MS));
    assert!(active.wait(Some(4 * MS)).unwrap().is_none());
    rig.script.inject(last(happened(&rig.script.last_operation(), Ok(()), PART as u64)));
    assert!(active.wait(Some(20 * MS)).unwrap().is_none());
    let second = rig.script.last_operation();
    assert_eq!(rig.script.take_cancels(), [(10 * MS_NS, second.cookie)]);
    rig.script.inject(last(happened(&second, Err(Errno::ECANCELED), 0)));
    let event = active.poll().unwrap().expect("it is over");
    assert_eq!((event.op, event.status), (op, Err(Errno::ETIMEDOUT)));
}

/// Reads the offer of another machine, whose descriptors are real.
fn start_active(rig: &Rig, tm: &Machine, parts: usize, timeout: Option<Duration>) -> (OpId, Offer) {
    let real = Domain::in_process(&nlx::NodeConfig::new()).unwrap();
    let peer = real.transfer_machine("0@lo:12345:31:*", TmOptions::default()).unwrap();
    let source = real.allocate(parts * PART).unwrap();
    let offer = peer.start(Op::passive_send(source)).unwrap().offer;
    let op = tm.start(Op::active_receive(rig.large(parts), &offer).timeout(timeout)).unwrap().op;
    (op, offer)
}

/// A batch keeps its order: the operations before a split one are submitted before its parts, and
/// the operations after it follow the parts. A refusal is reported at its place.
#[test]
fn a_large_operation_of_a_batch_starts_in_its_turn() {
    let rig = Rig::new();
    let mut batch = Batch::new();
    batch.push(Op::passive_receive(rig.buffer()));
    batch.push(Op::passive_send(rig.large(3)).timeout(Duration::from_secs(1)));
    batch.push(Op::passive_receive(rig.large(2)).length(0));
    batch.push(Op::passive_receive(rig.buffer()));
    batch.push(Op::passive_receive(rig.large(2)));
    let parts_or_error = |outcome: Result<Started, Refused>| match outcome {
        Ok(started) => Ok(started.offer.parts()),
        Err(refused) => Err((refused.error.errno(), refused.buffer.len())),
    };
    let outcomes: Vec<_> = rig.tm.submit(&mut batch).map(parts_or_error).collect();
    assert_eq!(outcomes, [Ok(1), Ok(3), Err((Errno::EINVAL, 2 * PART)), Ok(1), Ok(2)]);
    let asked: Vec<_> = rig.script.operations().map(|operation| operation.kind.queue()).collect();
    let (receive, send) = (Queue::PassiveBulkReceive, Queue::PassiveBulkSend);
    assert_eq!(asked, [receive, send, send, send, receive, receive, receive]);
    assert_eq!((batch.len(), rig.tm.in_flight()), (0, 7));
    // The timeout is that of the transfer.
    rig.script.set_now_ns(1_000_000_000);
    rig.nothing();
    assert_eq!(rig.script.take_cancels().len(), 3);
}
