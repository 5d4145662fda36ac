//! Addresses of this host.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns an address of this host that no other test uses, in this process or in a concurrent one.
///
/// # Panics
/// After about a thousand in one process.
pub fn unused() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id() % (50 << 8);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (block, number) = (number / 254, 1 + number % 254);
    assert!(block < 4, "too many addresses for one test program");
    Ipv4Addr::new(127, (50 + 50 * block + (process >> 8)) as u8, process as u8, number as u8)
}
