//! Operations that start together.

use nlx::{Batch, Error, Offer, Started};

use super::*;

const BYTES: usize = 100;

/// Submits, and separates started operations from refused ones.
fn submit(tm: &TransferMachine, batch: &mut Batch) -> (Vec<Started>, Vec<nlx::Refused>) {
    let (mut started, mut refused) = (Vec::new(), Vec::new());
    for outcome in tm.submit(batch) {
        match outcome {
            Ok(one) => started.push(one),
            Err(one) => refused.push(one),
        }
    }
    assert!(batch.is_empty());
    (started, refused)
}

#[test]
fn messages_of_a_batch_arrive_in_order() {
    const COUNT: u8 = 16;
    let pair = Pair::new();
    let to = pair.a.end_point(&pair.b.address().to_string()).unwrap();
    pair.b.start(Op::receive(pair.empty(BYTES * usize::from(COUNT))).max_messages(COUNT.into())).unwrap();
    let mut batch = Batch::new();
    for number in 0..COUNT {
        batch.push(Op::send(pair.filled(&[number; BYTES]), &to));
    }
    assert_eq!((batch.len(), pair.a.in_flight()), (COUNT.into(), 0), "nothing starts before it is submitted");
    let (started, refused) = submit(&pair.a, &mut batch);
    assert!(refused.is_empty());
    let ended: Vec<OpId> = (0..COUNT).map(|_| next(&pair.a).op).collect();
    assert_eq!(ended, started.iter().map(|started| started.op).collect::<Vec<_>>());
    for number in 0..COUNT {
        assert_eq!(next(&pair.b).message.as_deref(), Some(&[number; BYTES][..]));
    }
}

#[test]
fn a_batch_has_operations_of_all_kinds() {
    let pair = Pair::new();
    let (a, b) = (&pair.a, &pair.b);
    let mut batch = Batch::new();
    batch.push(Op::passive_receive(pair.empty(BYTES)));
    batch.push(Op::passive_send(pair.filled(&[7; BYTES])));
    batch.push(Op::receive(pair.empty(BYTES)));
    let offers: Vec<_> = b.submit(&mut batch).map(|outcome| outcome.unwrap().offer).collect();
    let [write, read, none] = &offers[..] else { panic!("{offers:?}") };
    assert_eq!(none, &Offer::NONE);
    batch.push(Op::active_send(pair.filled(&[5; BYTES]), write));
    batch.push(Op::active_receive(pair.empty(BYTES), read));
    batch.push(
        Op::send(pair.filled(&[3; BYTES]), &a.end_point(&b.address().to_string()).unwrap()).length(BYTES),
    );
    assert_eq!(submit(a, &mut batch).0.len(), 3);
    let content = |tm| {
        let event = next(tm);
        assert_eq!(event.status, Ok(()));
        (event.queue, event.buffer.expect("it is its last").read().unwrap()[0])
    };
    let of_a = [(); 3].map(|()| content(a));
    let of_b = [(); 3].map(|()| content(b));
    assert_eq!(of_a, [(Queue::ActiveBulkSend, 5), (Queue::ActiveBulkReceive, 7), (Queue::MessageSend, 3)]);
    assert_eq!(
        of_b,
        [(Queue::PassiveBulkReceive, 5), (Queue::PassiveBulkSend, 7), (Queue::MessageReceive, 3)]
    );
}

/// Each refusal returns its buffer at its place in the order, from whichever layer it comes.
// Covers: MT-226
#[test]
fn a_refusal_gives_its_buffer_back_and_the_others_start() {
    let pair = Pair::new();
    let to = pair.a.end_point(&pair.b.address().to_string()).unwrap();
    let mut batch = Batch::new();
    batch.push(Op::passive_receive(pair.empty(1)).timeout(Duration::ZERO));
    batch.push(Op::passive_receive(pair.empty(2)));
    batch.push(Op::send(pair.empty(3), &to).length(4));
    batch.push(Op::receive(domain().allocate(4).unwrap()));
    batch.push(Op::passive_send(pair.empty(5)));
    let outcomes: Vec<_> = pair.a.submit(&mut batch).collect();
    let refused: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().err()).collect();
    let of = |place: usize| refused[place].map(|refused| (refused.buffer.len(), refused.error.errno()));
    assert_eq!([0, 1, 2].map(of), [Some((1, Errno::ETIME)), None, Some((3, Errno::EINVAL))]);
    assert!(matches!(refused[3].map(|refused| &refused.error), Some(Error::OtherDomain)));
    assert_eq!((of(4), pair.a.in_flight()), (None, 2));
    let adds: u64 = pair.a.statistics().iter().map(|queue| queue.adds).sum();
    assert_eq!(adds, 2, "what was refused was never there");
    pair.a.stop(Stop::Abort, None).unwrap();
    // A stopped transfer machine refuses all operations.
    batch.push(Op::passive_receive(pair.empty(6)));
    let (_, refused) = submit(&pair.a, &mut batch);
    assert_eq!((refused[0].buffer.len(), refused[0].error.errno()), (6, Errno::ESHUTDOWN));
}

/// Refusals that are not read are dropped; the batch can be reused.
#[test]
fn untaken_outcomes_are_no_outcomes_of_the_next_batch() {
    let pair = Pair::new();
    let mut batch = Batch::new();
    batch.push(Op::passive_receive(pair.empty(1)).timeout(Duration::ZERO));
    drop(pair.a.submit(&mut batch));
    assert_eq!(pair.a.submit(&mut batch).count(), 0);
    batch.push(Op::passive_receive(pair.empty(1)));
    assert_eq!(submit(&pair.a, &mut batch).0.len(), 1);
}

#[test]
fn a_batch_that_is_dropped_starts_nothing() {
    let pair = Pair::new();
    let mut batch = Batch::new();
    batch.push(Op::passive_receive(pair.empty(1)));
    drop(batch);
    assert_eq!(pair.a.in_flight(), 0);
}

/// Timeouts count from the submission; an operation of the batch that is cancelled ends alone.
#[test]
fn operations_of_a_batch_end_one_by_one() {
    let pair = Pair::new();
    let mut batch = Batch::new();
    batch.push(Op::passive_receive(pair.empty(1)).timeout(Duration::from_millis(1)));
    batch.push(Op::passive_receive(pair.empty(1)).timeout(Duration::from_secs(3600)));
    batch.push(Op::passive_receive(pair.empty(1)));
    let (started, _) = submit(&pair.a, &mut batch);
    assert!(pair.a.cancel(started[2].op));
    let mut ended = [(); 2].map(|()| next(&pair.a)).map(|event| (event.op, event.status));
    ended.sort_by_key(|(op, _)| *op);
    let mut expected = [(started[0].op, Err(Errno::ETIMEDOUT)), (started[2].op, Err(Errno::ECANCELED))];
    expected.sort_by_key(|(op, _)| *op);
    assert_eq!((ended, pair.a.in_flight()), (expected, 1));
}
