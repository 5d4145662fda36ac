use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nlx::{Errno, Queue, TmOptions};

use super::*;

fn counts(free: usize, total: usize) -> PoolCounts {
    PoolCounts { free, total }
}

/// Buffers of 64 segments of 4 KiB, in 10 colours.
// Covers: MT-123
#[test]
fn a_pool_makes_buffers_of_segments() {
    let domain = domain();
    let options = BufferPoolOptions::new(4096).segments(64).colours(10).alignment(4096);
    let pool = domain.pool(options).unwrap();
    assert_eq!(pool.counts(), counts(0, 0));
    assert!(pool.get(Colour::Any).unwrap().is_none());
    assert_eq!(pool.provision(10).unwrap(), 10);
    assert_eq!(pool.counts(), counts(10, 10));
    let buffer = pool.get(Colour::Of(9)).unwrap().unwrap();
    assert_eq!((buffer.len(), buffer.memory().fragments().len()), (64 * 4096, 64));
    assert_eq!(pool.buffer_bytes(), buffer.len());
}

#[test]
fn segments_begin_where_they_are_aligned() {
    let domain = domain();
    let pool = domain.pool(BufferPoolOptions::new(100).segments(3).alignment(64)).unwrap();
    pool.provision(1).unwrap();
    let buffer = pool.get(Colour::Any).unwrap().unwrap();
    let offsets: Vec<_> = buffer.memory().fragments().iter().map(|fragment| fragment.offset()).collect();
    assert_eq!((offsets, buffer.len()), (vec![0, 128, 256], 300));
}

// Covers: MT-124
#[test]
fn a_buffer_that_is_got_and_dropped_is_free_again() {
    let (_domain, pool) = with_pool(10);
    let buffer = pool.get(Colour::Any).unwrap().unwrap();
    assert_eq!(pool.counts(), counts(9, 10));
    drop(buffer);
    assert_eq!(pool.counts(), counts(10, 10));
}

/// Taken without a colour, returned with one, taken with that colour, returned without.
// Covers: MT-125
#[test]
fn a_buffer_comes_back_to_its_colour() {
    let (_domain, pool) = with_pool(10);
    let mut buffer = pool.get(Colour::Any).unwrap().unwrap();
    buffer.write().unwrap()[..4].copy_from_slice(b"ours");
    pool.put(buffer, Colour::Of(3)).unwrap();
    assert_eq!(pool.counts(), counts(10, 10));
    let buffer = pool.get(Colour::Of(3)).unwrap().unwrap();
    assert_eq!(buffer.read().unwrap()[..4], b"ours"[..]);
    // Taken for a colour, it returns under it.
    drop(buffer);
    let buffer = pool.get(Colour::Of(3)).unwrap().unwrap();
    assert_eq!(buffer.read().unwrap()[..4], b"ours"[..]);
    pool.put(buffer, Colour::Any).unwrap();
    assert_eq!(pool.counts(), counts(10, 10));
    // Without a colour it is reused last.
    let buffer = pool.get(Colour::Of(3)).unwrap().unwrap();
    assert_eq!(buffer.read().unwrap()[..4], [0; 4]);
}

// Covers: MT-126
#[test]
fn a_pool_grows() {
    let (_domain, pool) = with_pool(10);
    assert_eq!(pool.provision(1).unwrap(), 1);
    assert_eq!(pool.counts(), counts(11, 11));
}

// Covers: MT-127
#[test]
fn a_pool_shrinks_to_its_threshold() {
    let domain = domain();
    let pool = domain.pool(BufferPoolOptions::new(BYTES).threshold(2)).unwrap();
    pool.provision(3).unwrap();
    assert!(pool.prune());
    assert_eq!(pool.counts(), counts(2, 2));
    assert!(!pool.prune());
    assert_eq!(pool.counts(), counts(2, 2));
}

/// Buffers in use keep what they need, which is freed with the last of them.
// Covers: MT-129
#[test]
fn buffers_outlive_their_pool() {
    let (domain, pool) = with_pool(2);
    let mut buffer = pool.get(Colour::Any).unwrap().unwrap();
    assert!(buffer.pool().is_some());
    drop(pool);
    assert!(buffer.pool().is_none());
    drop(domain);
    buffer.write().unwrap()[0] = 1;
}

#[test]
fn a_buffer_can_leave_its_pool() {
    let (domain, pool) = with_pool(2);
    let buffer = pool.get(Colour::Any).unwrap().unwrap().leave_pool();
    assert_eq!(pool.counts(), counts(1, 1));
    assert!(buffer.pool().is_none());
    drop(buffer);
    assert_eq!(pool.counts(), counts(1, 1));
    assert!(domain.allocate(1).unwrap().leave_pool().pool().is_none());
}

#[test]
fn what_does_not_belong_to_the_pool_is_refused() {
    let domain = domain();
    let (ours, theirs) = (pool(&domain, 1), pool(&domain, 1));
    let buffers = [domain.allocate(BYTES).unwrap(), theirs.get(Colour::Any).unwrap().unwrap()];
    for buffer in buffers {
        let refused = ours.put(buffer, Colour::Any).expect_err("it is not of this pool");
        assert_eq!(refused.error, Error::OtherPool);
        assert_eq!(refused.error.errno(), Errno::EINVAL);
    }
    assert_eq!((ours.counts(), theirs.counts()), (counts(1, 1), counts(1, 1)));
}

#[test]
fn colours_that_are_not_there_are_refused() {
    let (_domain, pool) = with_pool(1);
    let error = pool.get(Colour::Of(10)).expect_err("there are 10, from 0");
    assert_eq!(error.to_string(), "the pool has 10 colours, counted from 0: there is no colour 10");
    assert_eq!(pool.get_wait(Colour::Of(10), None).map(drop), Err(error.clone()));
    let buffer = pool.get(Colour::Of(9)).unwrap().unwrap();
    let refused = pool.put(buffer, Colour::Of(10)).expect_err("there are 10, from 0");
    assert_eq!(refused.error, error);
}

#[test]
fn options_out_of_bounds_are_refused() {
    let domain = domain();
    let bad = [
        BufferPoolOptions::new(0),
        BufferPoolOptions::new(usize::MAX),
        BufferPoolOptions::new(1).segments(0),
        BufferPoolOptions::new(1).segments(257),
        BufferPoolOptions::new(1).alignment(0),
        BufferPoolOptions::new(1).alignment(48),
        BufferPoolOptions::new(1).alignment(8192),
        BufferPoolOptions::new(1).colours(u32::MAX),
    ];
    for options in bad {
        let error = domain.pool(options.clone()).expect_err("it is out of bounds");
        assert_eq!(error.errno(), Errno::EINVAL, "{options:?}");
    }
}

#[test]
fn buffers_that_cannot_be_had_are_not_counted() {
    let domain = domain();
    let pool = domain.pool(BufferPoolOptions::new(isize::MAX as usize).segments(256)).unwrap();
    assert_eq!(pool.provision(3).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(pool.provision(0), Ok(0));
    assert_eq!(pool.counts(), counts(0, 0));
}

#[test]
fn waiting_for_a_buffer_ends_at_its_timeout() {
    let (_domain, pool) = with_pool(1);
    let buffer = pool.get_wait(Colour::Any, None).unwrap().unwrap();
    assert!(pool.get_wait(Colour::Any, Some(Duration::ZERO)).unwrap().is_none());
    assert!(pool.get_wait(Colour::Any, Some(Duration::from_millis(2))).unwrap().is_none());
    drop(buffer);
    assert!(pool.get_wait(Colour::Of(1), Some(Duration::ZERO)).unwrap().is_some());
}

/// Motr-transport 2.10: `below_threshold` is called whenever a buffer is taken below the threshold,
/// `not_empty` when the first one returns.
#[test]
fn callbacks_tell_of_shortage_and_of_its_end() {
    let [short, not_empty] = [0; 2].map(|_| Arc::new(AtomicUsize::new(0)));
    let count = |counter: &Arc<AtomicUsize>| {
        let counter = counter.clone();
        move |pool: &BufferPool| {
            // A callback may call the pool: no lock is held.
            assert!(free(pool) <= pool.counts().total);
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    let options = BufferPoolOptions::new(BYTES).below_threshold(count(&short)).not_empty(count(&not_empty));
    let pool = domain().pool(options).unwrap();
    let calls = || (short.load(Ordering::Relaxed), not_empty.load(Ordering::Relaxed));
    pool.provision(3).unwrap();
    assert_eq!(calls(), (0, 1));
    let mut out: Vec<_> = (0..3).map(|_| pool.get(Colour::Any).unwrap().unwrap()).collect();
    assert_eq!(calls(), (2, 1));
    out.pop();
    assert_eq!(calls(), (2, 2));
    out.pop();
    assert_eq!(calls(), (2, 2));
}

#[test]
fn a_pool_that_runs_short_can_grow_by_itself() {
    let grow = |pool: &BufferPool| assert_eq!(pool.provision(4), Ok(4));
    let pool = domain().pool(BufferPoolOptions::new(BYTES).below_threshold(grow)).unwrap();
    pool.provision(2).unwrap();
    let buffers: Vec<_> = (0..100).map(|_| pool.get(Colour::Any).unwrap().unwrap()).collect();
    assert_eq!(pool.counts().total - pool.counts().free, buffers.len());
}

#[test]
fn a_callback_that_panics_loses_no_buffer() {
    let panics = |_: &BufferPool| panic!("on purpose");
    let options = BufferPoolOptions::new(BYTES).below_threshold(panics).not_empty(panics);
    let pool = domain().pool(options).unwrap();
    pool.provision(1).unwrap();
    for _ in 0..2 {
        drop(pool.get(Colour::Any).unwrap().unwrap());
    }
    assert_eq!(pool.counts(), counts(1, 1));
}

/// A buffer whose bytes a message lends out is not given out again before the message is dropped.
#[test]
fn a_buffer_is_free_when_its_messages_are_gone() {
    let (domain, pool) = with_pool(1);
    let tm = domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()).unwrap();
    tm.start(Op::receive(pool.get(Colour::Of(4)).unwrap().unwrap()).min_receive_size(64).max_messages(2))
        .unwrap();
    let mut messages = Vec::new();
    let mut source = domain.allocate(4).unwrap();
    for text in [b"one.", b"two."] {
        source.write().unwrap().copy_from_slice(text);
        tm.start(Op::send(source, tm.own_end_point()).length(4)).unwrap();
        let mut events = [0; 2].map(|_| tm.wait(None).unwrap().unwrap());
        events.sort_by_key(|event| event.queue.index());
        let [received, sent] = events;
        assert_eq!((received.queue, sent.queue), (Queue::MessageReceive, Queue::MessageSend));
        source = sent.buffer.unwrap();
        // The second event has the buffer, which is dropped; the message stays.
        messages.extend(received.message);
    }
    assert_eq!(pool.counts(), counts(0, 1));
    messages.swap_remove(0);
    assert_eq!((&messages[0][..], free(&pool)), (&b"two."[..], 0));
    messages.clear();
    assert_eq!(pool.counts(), counts(1, 1));
    let mut buffer = pool.get(Colour::Of(4)).unwrap().unwrap();
    assert!(buffer.write().is_ok());
}

#[test]
fn a_message_outlives_the_pool_of_its_buffer() {
    let (domain, pool) = with_pool(1);
    let tm = domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()).unwrap();
    let buffer = pool.get(Colour::Any).unwrap().unwrap();
    tm.start(Op::receive(buffer).min_receive_size(BYTES)).unwrap();
    let mut source = domain.allocate(4).unwrap();
    source.write().unwrap().copy_from_slice(b"late");
    tm.start(Op::send(source, tm.own_end_point()).length(4)).unwrap();
    let received = [0; 2].map(|_| tm.wait(None).unwrap().unwrap().message).into_iter().flatten();
    let messages: Vec<_> = received.collect();
    drop((tm, domain, pool));
    assert_eq!(messages[0][..], b"late"[..]);
}
