//! The encoding of handles and tokens: the table, the partition, the object. The tables, with their
//! generations, are [`nlx_sync::Slots`] (see `slab`); this module packs their keys into numbers
//! that programs and LNDs carry.

use foldhash::fast::RandomState;
use lnet_api::{EqHandle, MdHandle, MeHandle, RxToken};
use std::hash::BuildHasher;

use crate::slab::{INDEX_BITS, Key};

/// The kinds of objects that have handles. The values of different kinds are disjoint, so a handle
/// of one kind never names an object of another (S-107).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum HandleKind {
    Queue = 0,
    Entry = 1,
    Posted = 2,
    Bound = 3,
}

/// The room and the partition of an MD. All rooms use it, so its fields are visible in the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MdLocation {
    /// True for an MD bound for PUTs and GETs of this node, false for one attached to an entry of a
    /// portal.
    pub(crate) bound: bool,
    pub(crate) partition: usize,
}

/// Names an MD in any room. The MD exists while a message in a table uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MdName {
    pub(crate) location: MdLocation,
    pub(crate) key: Key,
}

/// Bits of a partition in a name.
const PARTITION_BITS: u32 = 8;
/// Bits of a key in a name.
const KEY_BITS: u32 = 54;

/// Maximum number of partitions of a node. A portal keeps a bit for each of them; no machine that
/// runs LNet has more memory nodes.
pub const PARTITIONS_MAX: usize = 64;

const _: () = assert!(PARTITIONS_MAX <= 1 << PARTITION_BITS);

/// Returns a partition (or a portal) and a key in one number; the value of a token.
pub(crate) const fn pack(partition: usize, key: Key) -> u64 {
    (partition as u64) << KEY_BITS | key.to_bits(INDEX_BITS)
}

/// Returns the arguments of [`pack`].
pub(crate) const fn unpack(value: u64) -> (usize, Key) {
    let partition = (value >> KEY_BITS) as usize & ((1 << PARTITION_BITS) - 1);
    (partition, Key::from_bits(value & ((1 << KEY_BITS) - 1), INDEX_BITS))
}

/// The object that the token of a received message names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RxName {
    /// A message whose payload is being received, in one of the tables of MDs.
    Receiving(MdLocation, Key),
    /// A message that waits on a lazy portal, by the portal's index.
    Delayed(usize, Key),
    /// A message that a fault rule delays.
    Held(Key),
}

impl RxName {
    /// The two highest bits of a token contain its kind.
    const DELAYED: u64 = 1 << 63;
    const HELD: u64 = RxName::DELAYED | 1 << 62;
    const BOUND: u64 = 1 << 62;

    pub(crate) const fn token(self) -> RxToken {
        RxToken(match self {
            RxName::Receiving(MdLocation { bound: true, partition }, key) => {
                RxName::BOUND | pack(partition, key)
            }
            RxName::Receiving(MdLocation { bound: false, partition }, key) => pack(partition, key),
            RxName::Delayed(portal, key) => RxName::DELAYED | pack(portal, key),
            RxName::Held(key) => RxName::HELD | pack(0, key),
        })
    }

    /// Returns the name from [`RxName::token`]. The partition or portal may not exist.
    pub(crate) const fn decode(token: RxToken) -> RxName {
        let (index, key) = unpack(token.0 & !RxName::HELD);
        match token.0 & RxName::HELD {
            RxName::HELD => RxName::Held(key),
            RxName::DELAYED => RxName::Delayed(index, key),
            kind => RxName::Receiving(MdLocation { bound: kind == RxName::BOUND, partition: index }, key),
        }
    }
}

/// An odd number whose bits have no pattern: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// The inverse of [`FACTOR`] by Newton's method; each step doubles the number of correct bits.
const FACTOR_INVERSE: u64 = {
    let (mut inverse, mut bits) = (FACTOR, 3);
    while bits < 64 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
};

const _: () = assert!(FACTOR.wrapping_mul(FACTOR_INVERSE) == 1);

/// Spreads a change of any bit over the others; the inverse factor undoes it.
const fn mix(value: u64, factor: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(factor);
    value ^ value >> 32
}

/// Encodes names as handles and decodes handles. Each engine mixes its handles with its own random
/// keys, and every bit of a handle depends on every bit of the name. So a handle of another engine,
/// or a stale one with a changed bit, names an object here only with negligible probability. (It is
/// no cipher: other checks decide what a peer may do with a handle.)
#[derive(Debug)]
pub(crate) struct Handles {
    keys: [u64; 2],
    partitions: usize,
}

impl Handles {
    pub(crate) fn new(partitions: usize) -> Handles {
        let keys = [RandomState::default().hash_one(0), RandomState::default().hash_one(1)];
        Handles { keys, partitions }
    }

    fn encode(&self, kind: HandleKind, partition: usize, key: Key) -> u64 {
        let [first, second] = self.keys;
        mix(mix(((kind as u64) << 62 | pack(partition, key)) ^ first, FACTOR) ^ second, FACTOR)
    }

    /// Returns the partition and key, if the handle has this kind.
    fn decode(&self, handle: u64, kind: HandleKind) -> Option<(usize, Key)> {
        let [first, second] = self.keys;
        let value = mix(mix(handle, FACTOR_INVERSE) ^ second, FACTOR_INVERSE) ^ first;
        let (partition, key) = unpack(value & ((1 << 62) - 1));
        (value >> 62 == kind as u64 && partition < self.partitions).then_some((partition, key))
    }

    pub(crate) fn eq(&self, key: Key) -> EqHandle {
        EqHandle(self.encode(HandleKind::Queue, 0, key))
    }

    pub(crate) fn me(&self, partition: usize, key: Key) -> MeHandle {
        MeHandle(self.encode(HandleKind::Entry, partition, key))
    }

    pub(crate) fn md(&self, location: MdLocation, key: Key) -> MdHandle {
        let kind = if location.bound { HandleKind::Bound } else { HandleKind::Posted };
        MdHandle(self.encode(kind, location.partition, key))
    }

    pub(crate) fn decode_eq(&self, eq: EqHandle) -> Option<Key> {
        self.decode(eq.0, HandleKind::Queue).map(|(_, key)| key)
    }

    pub(crate) fn decode_me(&self, me: MeHandle) -> Option<(usize, Key)> {
        self.decode(me.0, HandleKind::Entry)
    }

    pub(crate) fn decode_md(&self, md: MdHandle) -> Option<(MdLocation, Key)> {
        let posted = self.decode(md.0, HandleKind::Posted).map(|(partition, key)| (false, partition, key));
        let found = posted
            .or_else(|| self.decode(md.0, HandleKind::Bound).map(|(partition, key)| (true, partition, key)));
        found.map(|(bound, partition, key)| (MdLocation { bound, partition }, key))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Covers: S-107
        #[test]
        fn a_handle_names_its_object_and_no_other_kind(
            partition in 0..PARTITIONS_MAX, bits in 0u64..1 << KEY_BITS, bound: bool,
        ) {
            let handles = Handles::new(PARTITIONS_MAX);
            let (location, key) = (MdLocation { bound, partition }, Key::from_bits(bits, INDEX_BITS));
            let (eq, me, md) = (handles.eq(key), handles.me(partition, key), handles.md(location, key));
            prop_assert_eq!(handles.decode_eq(eq), Some(key));
            prop_assert_eq!(handles.decode_me(me), Some((partition, key)));
            prop_assert_eq!(handles.decode_md(md), Some((location, key)));
            prop_assert_eq!(handles.decode_md(MdHandle(me.0)), None);
            prop_assert_eq!(handles.decode_me(MeHandle(md.0)), None);
            prop_assert_eq!(handles.decode_eq(EqHandle(md.0)), None);
            prop_assert_eq!(unpack(pack(partition, key)), (partition, key));
            for name in [RxName::Receiving(location, key), RxName::Delayed(partition, key), RxName::Held(key)] {
                prop_assert_eq!(RxName::decode(name.token()), name);
            }
        }
    }

    #[test]
    fn partitions_that_are_not_there_have_no_handles() {
        let handles = Handles::new(2);
        let md = handles.md(MdLocation { bound: true, partition: 2 }, Key::from_bits(1, INDEX_BITS));
        assert_eq!(handles.decode_md(md), None);
    }
}
