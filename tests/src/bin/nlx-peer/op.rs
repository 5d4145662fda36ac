//! Operations that derive from a seed: initiator and target compute the same list independently.

use lnet_nid::{MatchBits, Portal};

use crate::random::{Random, mix, pattern};

/// Sizes in bytes: 0, small and odd ones, those around `min_bulk` (1024 bytes, with and without
/// prefix and header) and around a page, and LNet's maximum.
const SIZES: [usize; 18] = [
    0,
    1,
    3,
    95,
    927,
    928,
    929,
    1023,
    1024,
    1025,
    4095,
    4096,
    4097,
    16_383,
    65_535,
    65_536,
    1_048_575,
    1 << 20,
];

/// Two unique portals, two wildcard portals.
const PORTALS: [(u32, bool); 4] = [(20, true), (21, true), (22, false), (23, false)];

/// Returns the portal of this number, which must be valid.
pub(crate) fn portal(index: u32) -> Portal {
    Portal::new(index).unwrap_or(Portal::RESERVED)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    AckedPut,
    Get,
}

/// One PUT or GET.
#[derive(Debug, Clone)]
pub(crate) struct PeerOp {
    pub(crate) kind: Kind,
    pub(crate) portal: Portal,
    /// Set if the portal's entry names the initiator.
    pub(crate) unique: bool,
    pub(crate) match_bits: MatchBits,
    /// The number of bytes at the initiator.
    pub(crate) length: usize,
    /// The number of bytes at the target.
    pub(crate) room: usize,
    /// The offset at the target.
    pub(crate) offset: usize,
    /// Set if the target takes the offset from the message.
    pub(crate) managed: bool,
    /// The numbers of fragments at the initiator and at the target.
    pub(crate) fragments: [usize; 2],
    pub(crate) seed: u64,
}

impl PeerOp {
    /// Returns the operation with this number in the list of a seed: first each size with each
    /// kind, then random sizes. The length is at most `max` bytes.
    pub(crate) fn nth(seed: u64, number: u32, max: usize) -> PeerOp {
        let own = mix(seed ^ mix(u64::from(number)));
        let mut random = Random::new(own);
        let kind = [Kind::Put, Kind::AckedPut, Kind::Get][number as usize % 3];
        let sizes: Vec<usize> = SIZES.into_iter().filter(|size| *size <= max).collect();
        let length = match sizes.get(number as usize / 3) {
            Some(size) => *size,
            None if random.up_to(3) == 0 => random.one_of(&sizes),
            None => {
                let most = max >> random.up_to(12);
                random.up_to(most)
            }
        };
        let (room, offset) = match random.up_to(3) {
            0 | 1 => (length, 0),
            // An offset, and room after the message.
            2 => (length + 100, random.up_to(100)),
            // A truncated message.
            _ => (random.up_to(length), 0),
        };
        let offset = if room < length { random.up_to(room) } else { offset };
        let (portal, unique) = random.one_of(&PORTALS);
        let mut fragments = || random.one_of(&[1, 1, 2, 3, 16, 255, 256]);
        PeerOp {
            kind,
            portal: self::portal(portal),
            unique,
            match_bits: MatchBits(own),
            length,
            room,
            offset,
            managed: offset > 0 || number.is_multiple_of(2),
            fragments: [fragments(), fragments()],
            seed: own,
        }
    }

    /// Returns the number of bytes transferred.
    pub(crate) fn moved(&self) -> usize {
        self.length.min(self.room - self.offset)
    }

    pub(crate) fn hdr_data(&self) -> u64 {
        if self.kind == Kind::Get { 0 } else { self.seed.rotate_left(13) }
    }

    /// Returns the initiator's memory before and after the operation.
    pub(crate) fn initiators(&self) -> [Vec<u8>; 2] {
        let before = pattern(self.seed, self.length);
        let mut after = before.clone();
        if self.kind == Kind::Get {
            let moved = self.moved();
            after[..moved].copy_from_slice(&pattern(!self.seed, self.room)[self.offset..][..moved]);
        }
        [before, after]
    }

    /// Returns the target's memory before and after the operation.
    pub(crate) fn targets(&self) -> [Vec<u8>; 2] {
        let before = pattern(!self.seed, self.room);
        let mut after = before.clone();
        if self.kind != Kind::Get {
            let moved = self.moved();
            after[self.offset..][..moved].copy_from_slice(&pattern(self.seed, self.length)[..moved]);
        }
        [before, after]
    }
}
