//! A pool's calls of the transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nlx::{Core, CoreError, CoreTm, IoVec, Limits, Nid, StartAddress, TmOptions};
use nlx_core::BufferHandle;

use super::*;

/// A transport that counts the registered buffers, and accepts a limited number.
#[derive(Default)]
struct Counting {
    registered: AtomicUsize,
    calls: AtomicUsize,
}

const MOST: usize = 5;

const NO_MORE: CoreError = CoreError::TooMany { objects: "buffers", limit: MOST };

impl Core for Counting {
    fn limits(&self) -> Limits {
        Limits::LNET
    }

    fn nids(&self) -> Vec<Nid> {
        vec![Nid::LOOPBACK]
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn register(&self, _: &IoVec) -> Result<BufferHandle, CoreError> {
        if self.registered.load(Ordering::Relaxed) == MOST {
            return Err(NO_MORE);
        }
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(BufferHandle(self.calls.fetch_add(1, Ordering::Relaxed) as u64))
    }

    fn deregister(&self, _: BufferHandle) -> Result<(), CoreError> {
        self.registered.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn tm_start(&self, _: &StartAddress, _: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError> {
        unreachable!("no transfer machine is started")
    }
}

/// MT-126, MT-127, MT-129, and the registration of MT-213: a buffer is registered once, however
/// often it is used, and deregistered with its pool, when it is pruned, or, if it left its pool,
/// when it is dropped.
// Covers: MT-126, MT-129
#[test]
fn buffers_are_registered_once_and_deregistered_at_the_end() {
    let core = Arc::new(Counting::default());
    let state = || [&core.registered, &core.calls].map(|count| count.load(Ordering::Relaxed));
    let domain = Domain::over(core.clone());
    let pool = pool(&domain, 4);
    for _ in 0..10 {
        drop(pool.get(Colour::Any).unwrap());
    }
    assert_eq!(state(), [4, 4]);
    assert!(pool.prune());
    assert_eq!(state(), [3, 4]);
    // Up to the limit; the sixth is refused.
    assert_eq!(pool.provision(4), Ok(2));
    assert_eq!(state(), [5, 6]);
    let error = pool.provision(1).expect_err("no more are taken");
    assert_eq!(error, Error::Core(NO_MORE));
    let left = pool.get(Colour::Any).unwrap().map(Buffer::leave_pool);
    let out = pool.get(Colour::Any).unwrap();
    drop(pool);
    assert_eq!(state(), [2, 6]);
    drop(out);
    assert_eq!(state(), [1, 6]);
    drop(left);
    assert_eq!(state(), [0, 6]);
}
