//! The verbs LND under two engines and more: each scene runs over a simulated RDMA network
//! anywhere, and over this host's devices if it has any, which is the case in the guest (`./test
//! verbs`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calculated;
mod exchange;
mod hostile;
mod link;
mod memory;
mod processes;
mod small_devices;
mod threads;
mod together;
mod tunables;

use lnet_o2iblnd::O2ib;
use nlx_testkit::heap::{COUNTING, WatchedHeap};

type Bed = nlx_testkit::lnds::VerbsBed;
type Node = nlx_testkit::lnds::Node<O2ib>;

/// Excludes the simulated network's memory from the LND's heap.
#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap {
    gives: |layout| lnet_sim::ib::is_inside() || (COUNTING.gives)(layout),
    takes: |layout| {
        if !lnet_sim::ib::is_inside() {
            (COUNTING.takes)(layout);
        }
    },
};
