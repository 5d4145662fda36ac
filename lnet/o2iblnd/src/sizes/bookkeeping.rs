//! The heap memory of a connection of nlx, without its message buffers.

use lnet_region::WriteVec;

use super::messages;
use crate::conn::{Conn, Limits};
use crate::connection::Connection;
use crate::op_data::OpData;

/// Bytes per buffer for the lease on it: an entry in each of two lists of the region, which double
/// as they grow.
const LEASE_BYTES: usize = 2 * 24;

/// Allocations of the same size for each connection: the driver's data, and the endpoint.
const FIXED_BYTES: usize = 1024;

/// Returns the approximate size in bytes: the sizes of the tables' entries, which are allocated
/// with the connection and do not grow. Lists that grow with the first long transfers are not
/// counted.
pub(super) fn bookkeeping_bytes(depth: u16, receives: u32, sends: u16) -> u64 {
    let limits = Limits {
        depth: u8::try_from(depth).unwrap_or(u8::MAX),
        sends,
        messages: messages(depth),
        // These values do not change the size.
        high_water: 1,
        works: 1,
        keepalive_ns: u64::MAX,
    };
    let buffers = receives as usize + usize::from(sends);
    let leases = buffers * size_of::<WriteVec>() + buffers.next_power_of_two() * LEASE_BYTES;
    (Conn::<OpData>::table_bytes(&limits) + leases + size_of::<Connection>() + FIXED_BYTES) as u64
}
