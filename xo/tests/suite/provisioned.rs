//! Receive buffers from a pool, on every network.

use nlx::{BufferPool, BufferPoolOptions, Colour, Provision, Queue, Stop};

use super::world;
use crate::bed::*;

const BYTES: usize = 4096;

/// Creates a pair whose `b` takes its receive buffers, two at a time and each for one message, from
/// a pool of this number of buffers.
fn pair_with_pool(buffers: usize) -> (Pair, BufferPool) {
    let world = world();
    let domain = world.domain(1);
    let pool = domain.pool(BufferPoolOptions::new(BYTES)).unwrap();
    assert_eq!(pool.provision(buffers), Ok(buffers));
    let provision = Provision { min_receive_size: BYTES, max_messages: 1, buffers: 2, colour: Colour::Any };
    let tm = domain.machine().pool(&pool, provision).start(&wanted(&world, 1, "9")).unwrap();
    (Pair { a: Side::on(&world, 0, "8"), b: Side::of(tm, domain), world }, pool)
}

/// Returns the numbers of posted, missing and free buffers.
fn balance(pair: &Pair, pool: &BufferPool) -> (usize, usize, usize) {
    (pair.b.tm.posted(Queue::MessageReceive), pair.b.tm.deficit(), pool.counts().free)
}

/// Messages find the pool's buffers, without a post by the program; after the stop all are free.
// Covers: MT-113, MT-121, MT-213
#[test]
fn messages_find_buffers_of_the_pool() {
    let (pair, pool) = pair_with_pool(4);
    assert_eq!(balance(&pair, &pool), (2, 0, 2));
    for length in 1..=64 {
        let event = pair.pass(&pattern(0, length));
        assert!(event.is_last());
        assert_eq!(balance(&pair, &pool), (2, 0, 1));
        drop(event);
        assert_eq!(balance(&pair, &pool), (2, 0, 2));
    }
    assert_eq!(pair.b.counts(Queue::MessageReceive), (66, 0, 64, 0));
    pair.b.tm.stop(Stop::Abort, HUNG).unwrap();
    pair.b.rest();
    assert_eq!(balance(&pair, &pool), (0, 0, 4));
}

/// A program that keeps its messages runs out of buffers, which counts as a failure; all buffers
/// are posted again when the messages are dropped.
// Covers: MT-115, MT-116
#[test]
fn a_deficit_lasts_until_buffers_come_back() {
    let (pair, pool) = pair_with_pool(3);
    let kept = [(2, 0, 0), (1, 1, 0), (0, 2, 0)].map(|after| {
        let event = pair.pass(b"kept");
        assert_eq!(balance(&pair, &pool), after);
        event
    });
    assert_eq!(pair.b.counts(Queue::MessageReceive), (3, 0, 3, 2));
    drop(kept);
    assert_eq!(balance(&pair, &pool), (2, 0, 1));
    pair.pass(b"found");
}
