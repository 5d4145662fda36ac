//! Match bits and header data: a transfer machine id in the upper 12 bits, something else in the
//! lower 52.
//!
//! The split is part of the wire protocol and can never change (motr-transport 3.2, 3.3; S-409).

use crate::{MatchBits, TmId};

/// Number of bits below the transfer machine id.
const LOW_BITS: u32 = 52;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// The lower 52 bits of match bits: selects a buffer of a transfer machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatchCounter(u64);

impl MatchCounter {
    /// No certain buffer: selects the queue of receive buffers. A passive buffer never has it.
    pub const UNSOLICITED: MatchCounter = MatchCounter(0);
    /// The first value that a started transfer machine assigns to a passive buffer.
    pub const FIRST: MatchCounter = MatchCounter(1);
    /// The last value; [`MatchCounter::FIRST`] follows.
    pub const LAST: MatchCounter = MatchCounter(LOW_MASK);

    /// Returns the counter with this value, if it has no more than 52 bits.
    #[must_use]
    pub const fn new(value: u64) -> Option<MatchCounter> {
        if value <= LOW_MASK { Some(MatchCounter(value)) } else { None }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the value for the next passive buffer: one more, after the last the first.
    #[must_use]
    pub const fn next(self) -> MatchCounter {
        if self.0 >= LOW_MASK { MatchCounter::FIRST } else { MatchCounter(self.0 + 1) }
    }
}

/// Returns the match bits of a transfer machine's buffer.
#[must_use]
pub const fn match_bits(tmid: TmId, counter: MatchCounter) -> MatchBits {
    MatchBits(pack(tmid.get(), counter.0))
}

/// Splits match bits: a number for [`TmId::new`], which may refuse it, and the counter.
#[must_use]
pub const fn split_match_bits(bits: MatchBits) -> (u32, MatchCounter) {
    let (high, low) = unpack(bits.0);
    (high, MatchCounter(low))
}

/// The 64 bits of header data of a PUT, by which the receiver can answer: the sender's transfer
/// machine id and portal. Its NID and PID are in the message's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HdrData {
    /// The sender's transfer machine id, 12 bits.
    pub tmid: u32,
    /// The sender's portal.
    pub portal: u32,
}

impl HdrData {
    /// Header data without a sender.
    pub const NONE: u64 = 0;

    /// Packs the fields. Of `tmid` the lower 12 bits are used.
    #[must_use]
    pub const fn encode(self) -> u64 {
        pack(self.tmid, self.portal as u64)
    }

    /// Unpacks header data; any value can be decoded. Of the 52 bits below the id the lower 32 are
    /// used.
    #[must_use]
    pub const fn decode(hdr_data: u64) -> HdrData {
        let (tmid, low) = unpack(hdr_data);
        HdrData { tmid, portal: low as u32 }
    }
}

const fn pack(high: u32, low: u64) -> u64 {
    (high as u64) << LOW_BITS | low
}

const fn unpack(value: u64) -> (u32, u64) {
    ((value >> LOW_BITS) as u32, value & LOW_MASK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Covers: MT-10
    #[test]
    fn header_data_survives_a_round_trip() {
        for (portal, tmid) in [(0, 0), (30, 0), (30, 4095), (63, 0), (63, 4095)] {
            let data = HdrData { tmid, portal };
            assert_eq!(HdrData::decode(data.encode()), data);
        }
        assert_eq!(HdrData { tmid: 0, portal: 0 }.encode(), HdrData::NONE);
    }

    // Covers: S-409, MT-72
    #[test]
    fn match_bits_survive_a_round_trip() {
        for (tmid, counter) in [(0, 0), (4095, 0), (4095, 1), (4095, LOW_MASK)] {
            assert_eq!(unpack(pack(tmid, counter)), (tmid, counter));
        }
        let bits = match_bits(TmId::MAX, MatchCounter::LAST);
        assert_eq!(bits, MatchBits(u64::MAX));
        assert_eq!(split_match_bits(bits), (TmId::MAX.get(), MatchCounter::LAST));
    }

    // Covers: S-409, MT-79
    #[test]
    fn the_counter_wraps_to_one() {
        let before_last = MatchCounter::new(LOW_MASK - 1).unwrap();
        assert_eq!(before_last.next(), MatchCounter::LAST);
        assert_eq!(MatchCounter::LAST.next(), MatchCounter::FIRST);
        assert_eq!(MatchCounter::UNSOLICITED.next(), MatchCounter::FIRST);
        assert_eq!(MatchCounter::new(LOW_MASK + 1), None);
    }

    proptest! {
        // Covers: S-409
        #[test]
        fn every_value_of_match_bits_has_its_parts(value: u64) {
            let (tmid, counter) = split_match_bits(MatchBits(value));
            prop_assert_eq!(pack(tmid, counter.get()), value);
            prop_assert_eq!(TmId::new(tmid).is_ok(), (1..=4095).contains(&tmid));
        }
    }
}
