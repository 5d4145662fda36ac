//! The descriptor of an RDMA write: the memory to which it goes.

use std::fmt;
use std::mem::offset_of;

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cursor::Cursor;
use crate::{ByteOrder, ProtoError};

use super::RDMA_FRAGMENTS_MAX;

/// Memory of the sink, in fragments that are written in order: 1 to [`RDMA_FRAGMENTS_MAX`] of them
/// (lnet-wire 32).
///
/// The fragments are borrowed, from the received message or from the caller that sends them.
#[derive(Clone, Copy)]
pub struct RdmaDescriptor<'a> {
    /// The remote key of all fragments.
    pub key: u32,
    fragments: Fragments<'a>,
}

/// A fragment of the sink's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RdmaFragment {
    /// The length of the fragment in bytes, as claimed by the peer.
    pub length: u32,
    /// The start of the fragment, in the address space of the remote key.
    pub address: u64,
}

#[derive(Clone, Copy)]
enum Fragments<'a> {
    Own(&'a [RdmaFragment]),
    Wire(&'a [RawFragment], ByteOrder),
}

impl<'a> RdmaDescriptor<'a> {
    /// Makes a descriptor of these fragments.
    ///
    /// # Errors
    /// [`ProtoError::Fragments`].
    pub fn new(key: u32, fragments: &'a [RdmaFragment]) -> Result<RdmaDescriptor<'a>, ProtoError> {
        check_count(fragments.len())?;
        Ok(RdmaDescriptor { key, fragments: Fragments::Own(fragments) })
    }

    /// Returns the number of fragments.
    #[must_use]
    pub const fn count(&self) -> usize {
        match self.fragments {
            Fragments::Own(fragments) => fragments.len(),
            Fragments::Wire(fragments, _) => fragments.len(),
        }
    }

    /// Iterates over the fragments in order.
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = RdmaFragment> + Clone + use<'a> {
        let fragments = self.fragments;
        (0..self.count()).map(move |index| match fragments {
            Fragments::Own(fragments) => fragments[index],
            Fragments::Wire(fragments, order) => fragments[index].parse(order),
        })
    }

    /// Returns the total length of all fragments in bytes, which is the length of the source's
    /// write.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.fragments().map(|fragment| u64::from(fragment.length)).sum()
    }

    /// Returns the encoded length of the fragments in bytes.
    pub(crate) const fn fragments_len(&self) -> usize {
        self.count() * size_of::<RawFragment>()
    }

    /// Parses the descriptor at the start of `bytes`. If the descriptor claims more bytes than
    /// there are, `too_short` returns the error for the claimed length.
    pub(crate) fn parse(
        bytes: &'a [u8],
        order: ByteOrder,
        too_short: impl Fn(usize) -> ProtoError,
    ) -> Result<RdmaDescriptor<'a>, ProtoError> {
        let (raw, rest) = RawDescriptor::ref_from_prefix(bytes).map_err(|_| too_short(encoded_len(1)))?;
        let count = order.u32(raw.count.get()) as usize;
        check_count(count)?;
        let (fragments, _) = <[RawFragment]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| too_short(encoded_len(count)))?;
        Ok(RdmaDescriptor { key: order.u32(raw.key.get()), fragments: Fragments::Wire(fragments, order) })
    }

    pub(crate) fn emit(&self, out: &mut Cursor<'_>) {
        out.put(&RawDescriptor { key: U32::new(self.key), count: U32::new(self.count() as u32) });
        for fragment in self.fragments() {
            out.put(&RawFragment { length: U32::new(fragment.length), address: U64::new(fragment.address) });
        }
    }
}

impl PartialEq for RdmaDescriptor<'_> {
    fn eq(&self, other: &RdmaDescriptor<'_>) -> bool {
        self.key == other.key && self.fragments().eq(other.fragments())
    }
}

impl Eq for RdmaDescriptor<'_> {}

impl fmt::Debug for RdmaDescriptor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RdmaDescriptor {{ key: {:#x}, fragments: ", self.key)?;
        f.debug_list().entries(self.fragments()).finish()?;
        f.write_str(" }")
    }
}

const fn encoded_len(count: usize) -> usize {
    size_of::<RawDescriptor>() + count * size_of::<RawFragment>()
}

fn check_count(value: usize) -> Result<(), ProtoError> {
    let limit = usize::from(RDMA_FRAGMENTS_MAX);
    if (1..=limit).contains(&value) { Ok(()) } else { Err(ProtoError::Fragments { value, limit }) }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawDescriptor {
    key: U32,
    count: U32,
}

const_assert_eq!(size_of::<RawDescriptor>(), 8);
const_assert_eq!(offset_of!(RawDescriptor, count), 4);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFragment {
    length: U32,
    address: U64,
}

const_assert_eq!(size_of::<RawFragment>(), 12);
const_assert_eq!(offset_of!(RawFragment, address), 4);

impl RawFragment {
    fn parse(&self, order: ByteOrder) -> RdmaFragment {
        RdmaFragment { length: order.u32(self.length.get()), address: order.u64(self.address.get()) }
    }
}
