use std::panic::{AssertUnwindSafe, catch_unwind};

use nlx::{Errno, TmState};

use super::*;

// Covers: MT-112
#[test]
fn a_pool_that_does_not_go_with_the_machine_is_refused() {
    let domain = domain();
    let ours = pool(&domain, 2);
    let theirs = pool(&super::domain(), 2);
    let large = domain.pool(BufferPoolOptions::new(2 << 20)).unwrap();
    let provision = one_message(Colour::Any);
    let receive = |min_receive_size, max_messages| {
        (&ours, Provision { min_receive_size, max_messages, ..provision }, Errno::EINVAL)
    };
    let bad = [
        (&theirs, provision, Errno::EINVAL),
        (&large, provision, Errno::EFBIG),
        (&ours, Provision { colour: Colour::Of(10), ..provision }, Errno::EINVAL),
        receive(0, 1),
        receive(BYTES + 1, 1),
        receive(1, 0),
        receive(1, u32::MAX),
    ];
    for (pool, provision, errno) in bad {
        let before = pool.counts();
        let error = domain.machine().pool(pool, provision).start(ADDRESS).map(drop).expect_err("it is bad");
        assert_eq!((error.errno(), pool.counts()), (errno, before), "{provision:?}: {error}");
    }
}

/// A buffer that cannot be posted is not lost.
//
#[test]
fn a_buffer_that_is_refused_goes_back_to_the_pool() {
    let (domain, pool) = with_pool(1);
    let buffer = pool.get(Colour::Any).unwrap().unwrap();
    let lease = buffer.memory().read(0..1).unwrap();
    drop(buffer);
    let tms = [0; 2].map(|_| provisioned(&domain, &pool, Colour::Any).start(ADDRESS).unwrap());
    let state = || tms.each_ref().map(|tm| (posted(tm), tm.deficit()));
    assert_eq!((state(), pool.counts()), ([(0, 2); 2], PoolCounts { free: 1, total: 1 }));
    // The machine that could not use it is served later.
    drop(lease);
    pool.provision(3).unwrap();
    assert_eq!((state(), pool.counts()), ([(2, 0); 2], PoolCounts { free: 0, total: 4 }));
}

#[test]
fn a_machine_that_fails_gives_its_buffers_back() {
    let (domain, pool) = with_pool(8);
    let callback = |_: &Machine, _: Event| panic!("on purpose");
    let tm = provisioned(&domain, &pool, Colour::Any).callbacks(callback).start(ADDRESS).unwrap();
    Sender::new(&domain).send(b"-", &tm);
    until("the machine fails", || tm.state() == TmState::Failed);
    // Returns after the event thread has dropped its buffers.
    tm.stop(Stop::Abort, None).unwrap();
    assert_eq!(pool.counts(), PoolCounts { free: 8, total: 8 });
    assert_eq!((tm.set_provision(4), posted(&tm)), (Ok(()), 0));
}

/// The callback for a pool that is short of buffers must not block: it may use the pool and the
/// machine.
#[test]
fn a_pool_that_runs_short_can_grow_while_a_machine_is_provisioned() {
    let domain = domain();
    let grow = |pool: &BufferPool| {
        drop(pool.get(Colour::Any).unwrap());
        pool.provision(2).unwrap();
    };
    let pool = domain.pool(BufferPoolOptions::new(BYTES).below_threshold(grow)).unwrap();
    pool.provision(2).unwrap();
    let tm = provisioned(&domain, &pool, Colour::Any).start(ADDRESS).unwrap();
    tm.set_provision(20).unwrap();
    // The pool serves the machine each time that it grows, until the machine has all its buffers.
    assert_eq!((posted(&tm), tm.deficit()), (20, 0));
    assert_eq!(pool.counts().total, 20 + free(&pool));
}

#[test]
fn a_machine_outlives_what_the_program_has_of_its_pool() {
    let (domain, pool) = with_pool(3);
    let tm = provisioned(&domain, &pool, Colour::Any).start(ADDRESS).unwrap();
    drop(pool);
    let mut sender = Sender::new(&domain);
    for number in 0..10 {
        sender.send(&[number], &tm);
        assert_eq!(next(&tm).message.as_deref(), Some(&[number][..]));
    }
}

/// A buffer that is dropped while its thread panics returns to the pool.
#[test]
fn a_panic_loses_no_buffer() {
    let (_domain, pool) = with_pool(1);
    let panics = || {
        let _buffer = pool.get(Colour::Any).unwrap();
        panic!("on purpose");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(free(&pool), 1);
}
