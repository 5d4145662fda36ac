use std::sync::{Arc, Mutex, mpsc};

use nlx::{Errno, TmEvent, TmState};

use super::*;

/// Returns the failures in the statistics of the receive queue.
fn failures(machine: &Machine) -> u64 {
    machine.statistics()[Queue::MessageReceive.index()].failures
}

// Covers: MT-112, X-7
#[test]
fn colours_and_lengths_are_set_and_read_back() {
    let (domain, pool) = with_pool(4);
    let tm = provisioned(&domain, &pool, Colour::Of(3)).start(ADDRESS).unwrap();
    assert_eq!((tm.colour(), tm.deficit(), posted(&tm)), (Colour::Of(3), 0, 2));
    tm.set_colour(Colour::Of(9)).unwrap();
    assert_eq!(tm.colour(), Colour::Of(9));
    assert_eq!(tm.set_colour(Colour::Of(10)), Err(Error::Colour { colour: 10, colours: 10 }));
    assert_eq!(tm.colour(), Colour::Of(9));
    // At least two; posted buffers stay.
    tm.set_provision(3).unwrap();
    tm.set_provision(0).unwrap();
    assert_eq!((posted(&tm), tm.deficit()), (3, 0));
}

/// MT-113. Better than required there: all buffers are posted before the observer is called for the
/// start of the machine.
// Covers: MT-113
#[test]
fn the_queue_is_full_when_the_machine_has_started() {
    let (domain, pool) = with_pool(8);
    let (tx, rx) = mpsc::channel();
    let seen = pool.clone();
    let observer = move |machine: &Machine, event: &TmEvent| {
        if let TmEvent::State { state: TmState::Started, .. } = event {
            tx.send((posted(machine), free(&seen))).unwrap();
        }
    };
    let tm = provisioned(&domain, &pool, Colour::Any).observer(observer).start(ADDRESS).unwrap();
    assert_eq!(rx.recv(), Ok((2, 6)));
    assert_eq!((posted(&tm), free(&pool)), (2, 6));
}

/// A machine takes the buffers there are, is served when more arrive, and so is a second machine.
// Covers: MT-114, MT-115, MT-116, MT-117, MT-118, X-7
#[test]
fn what_a_pool_lacks_follows_when_it_comes() {
    let domain = domain();
    let (tx, rx) = mpsc::channel();
    let not_empty = move |_: &BufferPool| tx.send(()).unwrap();
    let pool = domain.pool(BufferPoolOptions::new(BYTES).not_empty(not_empty)).unwrap();
    pool.provision(8).unwrap();
    assert_eq!(rx.try_iter().count(), 1);
    let first = provisioned(&domain, &pool, Colour::Any).start(ADDRESS).unwrap();
    let state = |tm: &Machine| (posted(tm), tm.deficit());

    first.set_provision(4).unwrap();
    assert_eq!((state(&first), free(&pool)), ((4, 0), 4));

    first.set_provision(10).unwrap();
    assert_eq!((state(&first), free(&pool), failures(&first)), ((8, 2), 0, 2));

    assert_eq!(pool.provision(2), Ok(2));
    assert_eq!((state(&first), free(&pool)), ((10, 0), 0));
    assert_eq!(rx.try_iter().count(), 2);

    let second = provisioned(&domain, &pool, Colour::Any).start(ADDRESS).unwrap();
    assert_eq!((state(&second), failures(&second)), ((0, 2), 2));

    first.set_provision(13).unwrap();
    assert_eq!((state(&first), failures(&first)), ((10, 3), 5));
    assert_eq!(pool.provision(6), Ok(6));
    assert_eq!((state(&first), state(&second), free(&pool)), ((13, 0), (2, 0), 1));
}

// Covers: MT-119
#[test]
fn a_buffer_comes_back_to_the_machine_that_used_it() {
    for order in [[0, 1], [1, 0]] {
        let (domain, pool) = with_pool(6);
        let mut sender = Sender::new(&domain);
        let texts = [b"for the first", b"to the second"];
        let tms =
            [0, 1].map(|colour| provisioned(&domain, &pool, Colour::Of(colour)).start(ADDRESS).unwrap());
        let used = [0, 1].map(|number| {
            sender.send(texts[number], &tms[number]);
            next(&tms[number])
        });
        assert_eq!(free(&pool), 0);
        drop(used);
        assert_eq!(free(&pool), 2);
        for number in order {
            tms[number].set_provision(3).unwrap();
        }
        assert_eq!(free(&pool), 0);
        for number in [0, 1] {
            // The third buffer used is the one that was returned last; a shorter message leaves the
            // rest of the old one.
            let third = [0; 3].map(|_| {
                sender.send(b"-", &tms[number]);
                let mut event = next(&tms[number]);
                drop(event.message.take());
                event.buffer.unwrap()
            });
            assert_eq!(third[2].read().unwrap()[1..13], texts[number][1..], "in order {order:?}");
        }
    }
}

/// The buffers of a machine that stops go to another one; at the end all are in the pool, and each
/// machine has reported its start and its stop.
// Covers: MT-120, MT-121
#[test]
fn a_stop_refills_another_machine() {
    let (domain, pool) = with_pool(15);
    let states = Arc::new(Mutex::new(Vec::new()));
    let observer = || {
        let states = states.clone();
        move |_: &Machine, event: &TmEvent| {
            if let TmEvent::State { state, status, .. } = event {
                states.lock().unwrap().push((*state, *status));
            }
        }
    };
    let [first, second] = [Colour::Of(1), Colour::Of(2)]
        .map(|colour| provisioned(&domain, &pool, colour).observer(observer()).start(ADDRESS).unwrap());
    first.set_provision(13).unwrap();
    second.set_provision(12).unwrap();
    assert_eq!((posted(&first), posted(&second), second.deficit(), free(&pool)), (13, 2, 10, 0));

    first.stop(Stop::Abort, None).unwrap();
    let mut cancelled = 0;
    while let Ok(Some(event)) = first.poll() {
        assert_eq!((event.queue, event.status), (Queue::MessageReceive, Err(Errno::ECANCELED)));
        cancelled += 1;
    }
    assert_eq!((cancelled, first.deficit()), (13, 0));
    assert_eq!((posted(&second), second.deficit(), free(&pool)), (12, 0, 3));

    second.stop(Stop::Abort, None).unwrap();
    drop(second);
    assert_eq!(pool.counts(), PoolCounts { free: 15, total: 15 });
    let both = |state| [(state, Ok(())); 2];
    assert_eq!(*states.lock().unwrap(), [both(TmState::Started), both(TmState::Stopped)].concat());
}

/// The properties of a provisioned buffer, checked in the callback.
// Covers: MT-122
#[test]
fn provisioned_buffers_are_as_asked_for() {
    let (domain, pool) = with_pool(3);
    let (tx, rx) = mpsc::channel();
    let provision =
        Provision { min_receive_size: BYTES / 4, max_messages: 3, buffers: 2, colour: Colour::Of(5) };
    let callback = move |machine: &Machine, event: Event| {
        // Before a last event is delivered, another buffer is posted.
        tx.send((posted(machine), event)).unwrap();
    };
    let tm = domain.machine().pool(&pool, provision).callbacks(callback).start(ADDRESS).unwrap();
    let mut sender = Sender::new(&domain);
    for number in 0..3 {
        // A message longer than `min_receive_size` does not match, and is lost.
        sender.send(&[0; BYTES / 4 + 1], &tm);
        sender.send(&[number; BYTES / 8], &tm);
        let (posted, event) = rx.recv().unwrap();
        assert_eq!((posted, event.queue, event.is_last()), (2, Queue::MessageReceive, number == 2));
        assert_eq!(event.message.as_deref(), Some(&[number; BYTES / 8][..]));
        assert_eq!(event.offset, usize::from(number) * BYTES / 8);
        assert_eq!(event.buffer.as_ref().is_some_and(|buffer| buffer.pool().is_some()), number == 2);
    }
    assert_eq!((tm.dropped_messages(), pool.counts()), (3, PoolCounts { free: 1, total: 3 }));
}

/// Receive buffers that the program posts count as well, and are replaced from the pool.
#[test]
fn a_buffer_of_the_programs_own_counts() {
    let (domain, pool) = with_pool(4);
    let tm = provisioned(&domain, &pool, Colour::Any).start(ADDRESS).unwrap();
    tm.start(Op::receive(domain.allocate(BYTES).unwrap())).unwrap();
    tm.set_provision(3).unwrap();
    assert_eq!((posted(&tm), free(&pool)), (3, 2));
    let mut sender = Sender::new(&domain);
    for _ in 0..3 {
        sender.send(b"-", &tm);
        drop(next(&tm));
    }
    assert_eq!((posted(&tm), pool.counts()), (3, PoolCounts { free: 1, total: 4 }));
}

#[test]
fn a_machine_without_a_pool_wants_for_nothing() {
    let domain = domain();
    let tm = domain.machine().start(ADDRESS).unwrap();
    assert_eq!((tm.deficit(), tm.colour()), (0, Colour::Any));
    let error = tm.set_provision(4).expect_err("it has no pool");
    assert_eq!((error.errno(), tm.set_colour(Colour::Any)), (Errno::EINVAL, Err(error)));
}

/// A number that no pool can satisfy, requested repeatedly, is counted up to the largest number.
#[test]
fn any_number_may_be_wanted() {
    let (domain, pool) = with_pool(4);
    let tm = provisioned(&domain, &pool, Colour::Any).start(ADDRESS).unwrap();
    for _ in 0..3 {
        tm.set_provision(usize::MAX).unwrap();
        assert_eq!((tm.deficit(), posted(&tm)), (usize::MAX - 4, 4));
        tm.set_provision(2).unwrap();
        assert_eq!(tm.deficit(), 0);
    }
    assert_eq!(failures(&tm), u64::MAX);
}
