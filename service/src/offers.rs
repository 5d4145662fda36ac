//! The table of offers at the start of a request: memory of the client that its server may read or
//! fill.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | number of offers that the server may read; they come first |
//! | 1 | 1 | number of offers that the server may fill |
//! | 2 | 6 | 0 |
//!
//! Each offer has [`OFFER_BYTES`], and the client's bytes follow the last one:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | bytes to read, or bytes that fit; little-endian |
//! | 4 | 4 | length of the offer in the form of its transport |
//! | 8 | 56 | that form, then zeros |

use lnet_region::IoVec;
use nlx_core::Descriptor;

use crate::Transport;
use crate::transport::Access;

/// Maximum number of offers of a call: they take a quarter of the shortest usual message of 4 KiB.
pub const OFFERS_MAX: usize = 16;

/// Bytes of an offer in a table.
pub const OFFER_BYTES: usize = 64;

/// Bytes before the first offer.
const COUNTS: usize = 8;

/// Bytes of the longest form of an offer.
const FORM_MAX: usize = Descriptor::MAX_LEN;

/// An offer as bytes of a message.
pub trait WireOffer: Sized {
    /// Returns the bytes of the offer, and their number.
    fn to_wire(&self) -> ([u8; FORM_MAX], usize);

    /// Returns the offer with these bytes; `None` for bytes that are no offer.
    fn from_wire(bytes: &[u8]) -> Option<Self>;
}

impl WireOffer for Descriptor {
    fn to_wire(&self) -> ([u8; FORM_MAX], usize) {
        let (mut form, bytes) = ([0; FORM_MAX], self.as_bytes());
        form[..bytes.len()].copy_from_slice(bytes);
        (form, bytes.len())
    }

    fn from_wire(bytes: &[u8]) -> Option<Descriptor> {
        Descriptor::from_bytes(bytes).ok()
    }
}

#[cfg(feature = "lnet")]
impl WireOffer for lnet_nid::MatchBits {
    fn to_wire(&self) -> ([u8; FORM_MAX], usize) {
        let mut form = [0; FORM_MAX];
        form[..8].copy_from_slice(&self.0.to_le_bytes());
        (form, 8)
    }

    fn from_wire(bytes: &[u8]) -> Option<lnet_nid::MatchBits> {
        Some(lnet_nid::MatchBits(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
}

/// Memory that a client offers with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered<O> {
    /// The offer, for [`Next::Pull`](crate::Next::Pull) or [`Next::Push`](crate::Next::Push).
    pub offer: O,
    /// Bytes to read, or bytes that fit, as the client says: up to 4 GiB. Check it before memory is
    /// allocated for it.
    pub length: usize,
}

/// The offers of a request.
#[derive(Debug, Clone, Copy)]
pub struct Offers<'a> {
    readable: &'a [u8],
    writable: &'a [u8],
}

impl<'a> Offers<'a> {
    /// The offers of a request without any.
    pub const NONE: Offers<'static> = Offers { readable: &[], writable: &[] };

    /// Splits the body of a request into its offers and the client's bytes. `None` if it does not
    /// begin with a table.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> Option<(Offers<'a>, &'a [u8])> {
        let (counts, rest) = body.split_first_chunk::<COUNTS>()?;
        let (readable, writable) = (usize::from(counts[0]), usize::from(counts[1]));
        if readable + writable > OFFERS_MAX {
            return None;
        }
        let (readable, rest) = rest.split_at_checked(readable * OFFER_BYTES)?;
        let (writable, rest) = rest.split_at_checked(writable * OFFER_BYTES)?;
        Some((Offers { readable, writable }, rest))
    }

    /// Returns the number of offers that may be read, and of those that may be filled.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.readable.len() / OFFER_BYTES, self.writable.len() / OFFER_BYTES)
    }

    /// Returns an offer that the server may read, for [`Next::Pull`](crate::Next::Pull); `None` if
    /// there is none with this index, or its bytes are no offer.
    #[must_use]
    pub fn readable<O: WireOffer>(&self, index: usize) -> Option<Offered<O>> {
        offered(self.readable, index)
    }

    /// Returns an offer that the server may fill, for [`Next::Push`](crate::Next::Push); as
    /// [`Offers::readable`].
    #[must_use]
    pub fn writable<O: WireOffer>(&self, index: usize) -> Option<Offered<O>> {
        offered(self.writable, index)
    }
}

fn offered<O: WireOffer>(table: &[u8], index: usize) -> Option<Offered<O>> {
    let entry = table.chunks_exact(OFFER_BYTES).nth(index)?;
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| entry[at + byte])) as usize;
    let form = entry[8..].get(..number(4))?;
    Some(Offered { offer: O::from_wire(form)?, length: number(0) })
}

/// Returns the length of a table.
pub(crate) fn table_bytes(offers: usize) -> usize {
    COUNTS + offers * OFFER_BYTES
}

/// Returns the start of a table.
pub(crate) fn counts(accesses: impl Iterator<Item = Access>) -> [u8; COUNTS] {
    let mut counts = [0; COUNTS];
    for access in accesses {
        counts[usize::from(access == Access::Write)] += 1;
    }
    counts
}

/// Returns the bytes of an offer in a table.
pub(crate) fn entry<T: Transport>(offer: &T::Offer, access: Access, memory: &IoVec) -> [u8; OFFER_BYTES] {
    let length = match access {
        Access::Read { length } => length,
        Access::Write => memory.len(),
    };
    let (form, form_length) = offer.to_wire();
    let mut entry = [0; OFFER_BYTES];
    // At most 1 MiB, and at most the length of the form.
    entry[..4].copy_from_slice(&(length as u32).to_le_bytes());
    entry[4..8].copy_from_slice(&(form_length as u32).to_le_bytes());
    entry[8..].copy_from_slice(&form);
    entry
}

#[cfg(test)]
mod tests {
    use lnet_region::Region;
    use proptest::prelude::*;

    use super::*;
    use crate::machines::Machines;

    fn descriptor() -> impl Strategy<Value = Descriptor> {
        let length = prop::sample::select(vec![Descriptor::COMPATIBLE_LEN, Descriptor::EXTENDED_LEN]);
        let bytes = length.prop_flat_map(|length| prop::collection::vec(any::<u8>(), length));
        bytes.prop_map(|bytes| Descriptor::from_bytes(&bytes).unwrap())
    }

    proptest! {
        #[test]
        fn a_table_that_is_written_is_parsed(
            readable in prop::collection::vec((descriptor(), 1..5000_usize), 0..=8),
            writable in prop::collection::vec((descriptor(), 1..5000_usize), 0..=8),
            body in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let accesses = || {
                let readable = readable.iter().map(|&(offer, length)| (offer, length, Access::Read { length }));
                readable.chain(writable.iter().map(|&(offer, length)| (offer, length, Access::Write)))
            };
            let mut message = counts(accesses().map(|(_, _, access)| access)).to_vec();
            for (offer, length, access) in accesses() {
                let memory = IoVec::whole(Region::heap(length).unwrap());
                message.extend(entry::<Machines>(&offer, access, &memory));
            }
            prop_assert_eq!(message.len(), table_bytes(readable.len() + writable.len()));
            message.extend(&body);
            let (offers, rest) = Offers::parse(&message).unwrap();
            prop_assert_eq!(rest, &body[..]);
            prop_assert_eq!(offers.counts(), (readable.len(), writable.len()));
            let both = [(&readable, true), (&writable, false)];
            for (expected, is_readable) in both {
                for (index, &(offer, length)) in expected.iter().enumerate() {
                    let found = if is_readable { offers.readable(index) } else { offers.writable(index) };
                    prop_assert_eq!(found, Some(Offered { offer, length }));
                }
                let beyond = expected.len();
                let found = if is_readable { offers.readable(beyond) } else { offers.writable(beyond) };
                prop_assert_eq!(found, None::<Offered<Descriptor>>);
            }
        }

        /// Lengths that lie make no offer, and never reach behind the message.
        #[test]
        fn any_bytes_are_parsed_or_refused(message in prop::collection::vec(any::<u8>(), 0..300), counts in any::<[u8; 2]>()) {
            let mut message = message;
            message.iter_mut().zip(counts).for_each(|(byte, count)| *byte = count % 8);
            if let Some((offers, rest)) = Offers::parse(&message) {
                let (readable, writable) = offers.counts();
                prop_assert_eq!(table_bytes(readable + writable) + rest.len(), message.len());
                let all = (0..readable).filter_map(|index| offers.readable::<Descriptor>(index));
                prop_assert!(all.count() <= readable);
            }
        }
    }
}
