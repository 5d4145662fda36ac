//! 100,000 peers fit in memory.

#[path = "../src/heap.rs"]
mod heap;
#[path = "../src/peers.rs"]
mod peers;

#[global_allocator]
static HEAP: heap::CountingHeap = heap::CountingHeap;

/// The costs that `lnet-sim peers` prints are within their limits.
#[test]
fn peers_and_buffers_cost_little() {
    let cost = peers::measure(100_000, 100_000).unwrap();
    println!("{cost}");
    assert!(cost.peers.1 > 0 && cost.peers.1 <= peers::PEER_BYTES, "{cost}");
    assert!(cost.mds.1 > 0 && cost.mds.1 <= peers::MD_BYTES, "{cost}");
}
