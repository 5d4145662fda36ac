//! What a connection of nlx has on the heap beside its message buffers.

use lnet_region::WriteVec;

use super::messages;
use crate::conn::{Conn, Limits};
use crate::connection::Connection;
use crate::item::Item;

/// What the region of its message buffers keeps for the lease on each: an entry in each of two lists, which double as they grow.
const LEASE_BYTES: usize = 2 * 24;

/// Allocations of the same size for each connection: the driver's side of it, and the endpoint's.
const FIXED_BYTES: usize = 1024;

/// About so many bytes. They are counted by the sizes of what stands in the tables, which are made with the connection and do not
/// grow; lists that grow with the first long transfers are not counted.
pub(super) fn bookkeeping_bytes(depth: u16, receives: u32, sends: u16) -> u64 {
    let limits = Limits {
        depth: u8::try_from(depth).unwrap_or(u8::MAX),
        sends,
        messages: messages(depth),
        // On these nothing depends.
        high_water: 1,
        works: 1,
        keepalive_ns: u64::MAX,
    };
    let buffers = receives as usize + usize::from(sends);
    let leases = buffers * size_of::<WriteVec>() + buffers.next_power_of_two() * LEASE_BYTES;
    (Conn::<Item>::table_bytes(&limits) + leases + size_of::<Connection>() + FIXED_BYTES) as u64
}
