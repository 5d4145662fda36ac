//! Leases on the bytes that the helper may write to.

use lnet_region::{IoVec, RegionError, WriteVec};

/// The remainder of a transport's lease to receive into a buffer: at first all of it, then the
/// parts that no message has taken. Messages come in any order of their offsets, so there may be
/// gaps.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Vec<Piece>);

#[derive(Debug)]
struct Piece {
    /// Offset of the first byte in the buffer.
    start: usize,
    lease: WriteVec,
}

impl Pieces {
    /// Takes the lease on the first bytes of a buffer.
    pub(crate) fn take(&mut self, memory: &IoVec, length: usize) -> Result<(), RegionError> {
        debug_assert!(self.0.is_empty());
        self.0.push(Piece { start: 0, lease: memory.incoming(0..length)? });
        Ok(())
    }

    /// Cuts out the lease on the bytes of a message; `None` if they are not all in one piece, which
    /// a correct helper never reports.
    pub(crate) fn cut(&mut self, offset: u64, length: u64) -> Option<WriteVec> {
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        let end = offset.checked_add(length)?;
        let holds = |piece: &Piece| piece.start <= offset && end <= piece.start + piece.lease.len();
        let at = self.0.iter().position(holds)?;
        let before = offset - self.0[at].start;
        let mut message = match before {
            0 => self.0.swap_remove(at).lease,
            before => self.0[at].lease.split_off(before),
        };
        if message.len() > length {
            let lease = message.split_off(length);
            self.0.push(Piece { start: end, lease });
        }
        Some(message)
    }

    /// Releases all leases.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use lnet_region::Region;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Adjacent messages come in any order: each byte is free once its message has come, and no
        /// sooner.
        #[test]
        fn messages_are_cut_out_in_any_order(
            lengths in prop::collection::vec(1usize..100, 1..20), seed: u64, rest in 0usize..50,
        ) {
            let total: usize = lengths.iter().sum::<usize>() + rest;
            let buffer = IoVec::whole(Region::heap(total).unwrap());
            let mut pieces = Pieces::default();
            pieces.take(&buffer, total).unwrap();
            let mut at = 0;
            let mut messages: Vec<_> = lengths.iter().map(|&length| { at += length; at - length..at }).collect();
            let mut random = seed;
            let mut came = vec![false; total];
            while !messages.is_empty() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let message = messages.swap_remove((random >> 33) as usize % messages.len());
                let cut = pieces.cut(message.start as u64, message.len() as u64).unwrap();
                prop_assert_eq!(cut.len(), message.len());
                drop(cut);
                came[message.clone()].fill(true);
                prop_assert!(pieces.cut(message.start as u64, message.len() as u64).is_none());
                for (byte, came) in came.iter().enumerate() {
                    prop_assert_eq!(buffer.check_read(byte..byte + 1).is_ok(), *came);
                }
            }
            pieces.clear();
            prop_assert!(buffer.write(0..total).is_ok());
        }

        /// No numbers make it panic, and each returned lease lies within the buffer.
        #[test]
        fn whatever_is_cut_was_there(cuts in prop::collection::vec((0u64..150, 0u64..150), 0..30), far: u64) {
            let buffer = IoVec::whole(Region::heap(100).unwrap());
            let mut pieces = Pieces::default();
            pieces.take(&buffer, 100).unwrap();
            prop_assert!(pieces.cut(far, u64::MAX).is_none() && pieces.cut(u64::MAX, far.max(1)).is_none());
            let mut taken = vec![];
            for (offset, length) in cuts.into_iter().filter(|cut| cut.1 > 0) {
                if let Some(cut) = pieces.cut(offset, length) {
                    prop_assert_eq!(cut.len() as u64, length);
                    prop_assert!(offset + length <= 100);
                    prop_assert!(taken.iter().all(|&(start, end)| end <= offset || offset + length <= start));
                    taken.push((offset, offset + length));
                }
            }
        }
    }
}
