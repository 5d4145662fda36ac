//! The work requests of a payload transfer: they copy it from the source's pieces of memory to the
//! sink's fragments (lnet-wire 37).

use lnet_api::Errno;
use lnet_proto::ib::RdmaFragment;
use smallvec::SmallVec;

use crate::fabric::Piece;

/// The limits of work requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteLimits {
    /// Maximum number of pieces of memory per work request.
    pub(crate) pieces: usize,
    /// Maximum number of bytes per work request.
    pub(crate) bytes: u32,
    /// Maximum number of work requests per transfer: the negotiated number of fragments.
    pub(crate) writes: usize,
}

/// The reason why a transfer cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WriteError {
    /// The pieces of both sides' memory do not match, and need too many work requests.
    #[error(
        "the transfer takes more than the {limit} work requests that both nodes have agreed on, each of at most {pieces} pieces \
         and {bytes} bytes: use buffers of fewer and larger fragments, raise wrq_sge as far as the device can, or map_on_demand \
         of an old peer"
    )]
    TooMany {
        /// The negotiated number of fragments.
        limit: usize,
        /// Maximum number of pieces per work request.
        pieces: usize,
        /// Maximum number of bytes per work request.
        bytes: u32,
    },
    /// The source has fewer bytes than the sink requests.
    #[error("the peer asks for {wanted} bytes, but the payload has {bytes}")]
    TooShort {
        /// Bytes that the sink requests.
        wanted: u64,
        /// Bytes that the source has.
        bytes: u64,
    },
    /// A fragment of the sink reaches beyond the end of the address space.
    #[error("the peer names {length} bytes at {address:#x}, beyond the end of the address space")]
    NoMemory {
        /// The address at which the fragment starts.
        address: u64,
        /// The length of the fragment in bytes.
        length: u32,
    },
}

impl WriteError {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            WriteError::TooMany { .. } => Errno::EMSGSIZE,
            WriteError::TooShort { .. } | WriteError::NoMemory { .. } => Errno::EPROTO,
        }
    }
}

/// Splits a transfer into work requests: fills the sink's fragments with the first bytes of the
/// source's pieces. Contiguous neighbours on either side are merged. Calls `add` for each piece of
/// memory, in order, with the address at the sink if a work request begins with that piece. Returns
/// the number of work requests.
///
/// # Errors
/// [`WriteError`]; `add` may have been called before.
pub(crate) fn each_write(
    limits: WriteLimits,
    source: impl Iterator<Item = Piece>,
    sink: impl Iterator<Item = RdmaFragment>,
    mut add: impl FnMut(Piece, Option<u64>),
) -> Result<u32, WriteError> {
    let WriteLimits { pieces, bytes, writes: limit } = limits;
    let mut source = Joined::of(source);
    let mut piece = Piece::default();
    let (mut writes, mut wanted, mut found) = (0, 0, 0);
    for RdmaFragment { address, length } in Joined::of(sink) {
        // This check also excludes an overflow in all later sums within the fragment.
        address.checked_add(length.into()).ok_or(WriteError::NoMemory { address, length })?;
        wanted += u64::from(length);
        // A work request does not reach beyond one fragment, even if the next one is contiguous.
        let (mut pieces_left, mut bytes_left) = (0, 0);
        let mut done = 0;
        while done < length {
            if piece.length == 0 {
                piece = source.next().ok_or(WriteError::TooShort { wanted, bytes: found })?;
                continue;
            }
            let begins = pieces_left == 0 || bytes_left == 0;
            if begins {
                if writes as usize >= limit {
                    return Err(WriteError::TooMany { limit, pieces, bytes });
                }
                writes += 1;
                (pieces_left, bytes_left) = (pieces.max(1), bytes);
            }
            let count = piece.length.min(length - done).min(bytes_left);
            add(Piece { length: count, ..piece }, begins.then_some(address + u64::from(done)));
            (pieces_left, bytes_left) = (pieces_left - 1, bytes_left - count);
            piece =
                Piece { address: piece.address + u64::from(count), length: piece.length - count, ..piece };
            done += count;
            found += u64::from(count);
        }
    }
    Ok(writes)
}

/// An iterator that merges contiguous neighbours of another iterator.
struct Joined<I, T> {
    items: I,
    held: Option<T>,
}

impl<I: Iterator<Item = T>, T: Join> Joined<I, T> {
    fn of(mut items: I) -> Joined<I, T> {
        let held = items.next();
        Joined { items, held }
    }
}

impl<I: Iterator<Item = T>, T: Join> Iterator for Joined<I, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let mut item = self.held.take()?;
        for next in self.items.by_ref() {
            match item.join(&next) {
                Some(both) => item = both,
                None => {
                    self.held = Some(next);
                    break;
                }
            }
        }
        Some(item)
    }
}

/// A range that can be merged with a contiguous one.
trait Join: Sized {
    /// Returns both ranges as one, if `next` begins where this one ends.
    fn join(&self, next: &Self) -> Option<Self>;
}

impl Join for Piece {
    fn join(&self, next: &Piece) -> Option<Piece> {
        let adjoins = self.key == next.key && self.address + u64::from(self.length) == next.address;
        let length = self.length.checked_add(next.length).filter(|_| adjoins)?;
        Some(Piece { length, ..*self })
    }
}

impl Join for RdmaFragment {
    fn join(&self, next: &RdmaFragment) -> Option<RdmaFragment> {
        let adjoins = self.address.checked_add(self.length.into()) == Some(next.address);
        let length = self.length.checked_add(next.length).filter(|_| adjoins)?;
        Some(RdmaFragment { length, ..*self })
    }
}

/// The number of fragments stored without the heap, which is enough for most descriptors.
const FRAGMENTS_INLINE: usize = 4;

/// The fragments of a descriptor.
pub(crate) type FragmentList = SmallVec<[RdmaFragment; FRAGMENTS_INLINE]>;

/// Returns the fragments of memory with these parts, contiguous neighbours merged; `None` if there
/// are more than `most`.
pub(crate) fn fragments(parts: impl Iterator<Item = RdmaFragment>, most: usize) -> Option<FragmentList> {
    let mut list = FragmentList::new();
    for fragment in Joined::of(parts) {
        if list.len() == most {
            return None;
        }
        list.push(fragment);
    }
    Some(list)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ranges of memory with gaps between some of them.
    fn stretches() -> impl Strategy<Value = Vec<(u64, u32)>> {
        let stretch = (prop_oneof![1 => Just(0u64), 2 => 1u64..100], 1u32..60);
        prop::collection::vec(stretch, 1..40).prop_map(|shape| {
            let mut at = 1000;
            let mut place = |(gap, length): (u64, u32)| {
                let start = at + gap;
                at = start + u64::from(length);
                (start, length)
            };
            shape.into_iter().map(&mut place).collect()
        })
    }

    /// Returns the address of each byte, in order.
    fn bytes(stretches: impl IntoIterator<Item = (u64, u32)>) -> Vec<u64> {
        stretches.into_iter().flat_map(|(start, length)| start..start + u64::from(length)).collect()
    }

    fn pieces(stretches: &[(u64, u32)], keys: u32) -> Vec<Piece> {
        let of = |(index, &(address, length)): (usize, &(u64, u32))| Piece {
            address,
            length,
            key: index as u32 % keys,
        };
        stretches.iter().enumerate().map(of).collect()
    }

    /// Returns the work requests of a transfer: the target of each, and its bytes.
    fn writes(
        limits: WriteLimits,
        source: &[Piece],
        sink: &[RdmaFragment],
    ) -> Result<Vec<(u64, Vec<Piece>)>, WriteError> {
        let mut all: Vec<(u64, Vec<Piece>)> = Vec::new();
        let add = |piece, begins: Option<u64>| {
            all.extend(begins.map(|address| (address, Vec::new())));
            all.last_mut().unwrap().1.push(piece);
        };
        let count = each_write(limits, source.iter().copied(), sink.iter().copied(), add)?;
        assert_eq!(count as usize, all.len());
        Ok(all)
    }

    proptest! {
        /// lnet-wire 37: each byte goes to its place in the sink's list, in order, by requests that
        /// the device can carry out.
        // Covers: S-504
        #[test]
        fn each_byte_is_written_once_and_in_order(
            source in stretches(), sink in stretches(), cut in 1u64..3000, keys in 1u32..3,
            pieces_max in 1usize..5, bytes_max in 8u32..200, writes_max in 1usize..80,
        ) {
            let (from, there) = (bytes(source.iter().copied()), bytes(sink.iter().copied()));
            let wanted = there.len().min(from.len()).min(cut as usize);
            let mut left = wanted as u32;
            let sink: Vec<RdmaFragment> = sink.iter().map_while(|&(address, length)| {
                let length = length.min(left);
                left -= length;
                (length > 0).then_some(RdmaFragment { length, address })
            }).collect();
            let limits = WriteLimits { pieces: pieces_max, bytes: bytes_max, writes: writes_max };
            let source = pieces(&source, keys);
            let unlimited = WriteLimits { writes: usize::MAX, ..limits };
            let whole = writes(unlimited, &source, &sink).unwrap();
            match writes(limits, &source, &sink) {
                Ok(limited) => prop_assert_eq!(&limited, &whole),
                Err(error) => {
                    prop_assert!(whole.len() > writes_max);
                    prop_assert_eq!(error.errno(), Errno::EMSGSIZE);
                    prop_assert!(error.to_string().contains("wrq_sge"), "the message says what to change");
                }
            }
            let mut moved = Vec::new();
            for (address, pieces) in whole {
                prop_assert!(!pieces.is_empty() && pieces.len() <= pieces_max);
                let length: u32 = pieces.iter().map(|piece| piece.length).sum();
                prop_assert!(length <= bytes_max);
                let here = bytes(pieces.iter().map(|piece| (piece.address, piece.length)));
                moved.extend(here.into_iter().zip(address..address + u64::from(length)));
            }
            let expected: Vec<(u64, u64)> = from.into_iter().zip(there).take(wanted).collect();
            prop_assert_eq!(moved, expected);
        }

        /// Contiguous memory is one fragment, however it was split.
        // Covers: S-505
        #[test]
        fn neighbours_are_one(cuts in prop::collection::vec(1u32..100, 1..300)) {
            let mut at = 5000;
            let parts: Vec<RdmaFragment> = cuts.iter().map(|&length| {
                at += u64::from(length);
                RdmaFragment { length, address: at - u64::from(length) }
            }).collect();
            let list = fragments(parts.iter().copied(), 1).unwrap();
            prop_assert_eq!(list.as_slice(), &[RdmaFragment { length: cuts.iter().sum(), address: 5000 }]);
            let limits = WriteLimits { pieces: 1, bytes: u32::MAX, writes: 1 };
            let piece = |part: &RdmaFragment| Piece { address: part.address, length: part.length, key: 3 };
            let source: Vec<Piece> = parts.iter().map(piece).collect();
            prop_assert!(writes(limits, &source, &parts).is_ok());
        }
    }

    #[test]
    fn a_sink_that_asks_for_more_than_there_is_gets_nothing() {
        let limits = WriteLimits { pieces: 2, bytes: 1 << 20, writes: 10 };
        let source = [Piece { address: 1, length: 10, key: 1 }];
        let sink = [RdmaFragment { length: 11, address: 1 }];
        assert_eq!(writes(limits, &source, &sink).unwrap_err().errno(), Errno::EPROTO);
    }

    /// A sink at the end of the address space, where a sum would overflow, and one just before it;
    /// also as neighbours that are merged.
    #[test]
    fn a_sink_beyond_all_addresses_gets_nothing() {
        let limits = WriteLimits { pieces: 2, bytes: 1 << 20, writes: 10 };
        let fill = |sink: &[(u32, u64)]| {
            let source = [Piece { address: 1, length: 4096, key: 1 }];
            let sink: Vec<_> =
                sink.iter().map(|&(length, address)| RdmaFragment { length, address }).collect();
            writes(limits, &source, &sink).map(drop).map_err(|error| error.errno())
        };
        for sink in [
            &[(10, u64::MAX)][..],
            &[(10, u64::MAX - 9)],
            &[(5, 100), (10, u64::MAX - 5)],
            &[(10, u64::MAX - 14), (5, u64::MAX - 4)],
        ] {
            assert_eq!(fill(sink), Err(Errno::EPROTO), "{sink:?}");
        }
        for sink in [
            &[(10, u64::MAX - 10)][..],
            &[(5, u64::MAX - 10), (5, u64::MAX - 5)],
            &[(0, 8), (10, u64::MAX - 10)],
        ] {
            assert_eq!(fill(sink), Ok(()), "{sink:?}");
        }
    }

    #[test]
    fn fragments_beyond_the_limit_are_none() {
        let apart = |index: u64| RdmaFragment { length: 1, address: 2 * index };
        assert_eq!(fragments((0..5).map(apart), 5).unwrap().len(), 5);
        assert!(fragments((0..6).map(apart), 5).is_none());
    }
}
