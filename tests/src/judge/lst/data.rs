//! The pattern of bulk data (lst 7.3).

use crate::judge::wire::Order;

/// The pattern of correct data.
pub const PATTERN: u64 = 0xeeb0_eeb1_eeb2_eeb3;
/// The maximum length of a transfer.
pub const LENGTH_MAX: u32 = 1 << 20;
/// The size of the judge's pages.
pub const PAGE: usize = 4096;
/// Nothing is checked.
pub const NONE: u32 = 1;
/// The first and last eight bytes of each page are checked.
pub const SIMPLE: u32 = 2;
/// Every byte is checked.
pub const FULL: u32 = 3;
/// Nothing is checked, and the receiver may discard the data.
pub const DISCARD: u32 = 4;
/// The data go from server to client.
pub const READ: u32 = 1;
/// The data go from client to server.
pub const WRITE: u32 = 2;

/// Returns correct data for a check, with zeros where it does not look.
pub fn filled(length: usize, check: u32, order: Order) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for at in places(length, check) {
        bytes[at..at + 8].copy_from_slice(&order.u64(PATTERN));
    }
    bytes
}

/// Returns whether data pass a check.
pub fn is_right(bytes: &[u8], check: u32, order: Order) -> bool {
    places(bytes.len(), check).into_iter().all(|at| order.u64_at(bytes, at) == PATTERN)
}

/// Returns the offsets of the words that a check compares.
fn places(length: usize, check: u32) -> Vec<usize> {
    match check {
        FULL => (0..length / 8).map(|word| word * 8).collect(),
        SIMPLE => {
            let page = |start: usize| [start, (start + PAGE).min(length) - 8];
            (0..length - length % 8).step_by(PAGE).flat_map(page).collect()
        }
        _ => vec![],
    }
}
