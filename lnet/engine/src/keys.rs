//! Hashing of NIDs and match bits.

use std::hash::{BuildHasher, Hasher as _};

use foldhash::fast::RandomState;
use lnet_nid::{Nid, ProcessId};

/// Hasher for the keys of the engine's tables. Its random seed makes it hard for a peer to choose
/// keys that collide.
#[derive(Debug, Default)]
pub(crate) struct Hasher(RandomState);

impl Hasher {
    /// Hashes a process and a number.
    pub(crate) fn process(&self, id: ProcessId, number: u64) -> u32 {
        let mut state = self.0.build_hasher();
        let [a, b, c] = words(id.nid);
        state.write_u64(a);
        state.write_u64(b);
        state.write_u64(c << 32 | u64::from(id.pid.0));
        state.write_u64(number);
        let hash = state.finish();
        (hash ^ hash >> 32) as u32
    }
}

/// Returns the 20 bytes of a NID as three numbers.
fn words(nid: Nid) -> [u64; 3] {
    let bytes = nid.to_wire();
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = bytes;
    [
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u64::from_le_bytes([i, j, k, l, m, n, o, p]),
        u64::from(u32::from_le_bytes([q, r, s, t])),
    ]
}
