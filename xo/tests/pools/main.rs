//! Buffer pools, and transfer machines that are provisioned from them, over the loopback network `0@lo` (MT-112 to 129).

// A helper that cannot do its part fails the test that called it.
#![allow(clippy::unwrap_used)]

use nlx::{BufferPool, Colour, Domain, Error, NodeConfig, PoolCounts, PoolOptions};

mod pool;
mod threads;

const BYTES: usize = 4096;

fn domain() -> Domain {
    Domain::in_process(&NodeConfig::new()).unwrap()
}

/// A pool of this many buffers, with 10 colours.
fn pool(domain: &Domain, buffers: usize) -> BufferPool {
    let pool = domain.pool(PoolOptions::new(BYTES).colours(10)).unwrap();
    assert_eq!(pool.provision(buffers).unwrap_or_default(), buffers);
    pool
}

fn free(pool: &BufferPool) -> usize {
    pool.counts().free
}
