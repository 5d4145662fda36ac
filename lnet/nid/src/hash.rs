//! Hashes of NIDs, and the partition of a NID.
//!
//! These hashes stay inside the node and never reach the wire, so the constants are a local
//! decision: 2³² and 2⁶⁴ divided by the square of the golden ratio, rounded up. Their multiples,
//! modulo the power of two, spread evenly, as do those of the more common 2ⁿ divided by the golden
//! ratio itself, because the two add up to 2ⁿ.

use crate::{NetType, Nid};

const GOLDEN_32: u32 = 0x61c8_8647;
const GOLDEN_64: u64 = 0x61c8_8646_80b5_83eb;

impl Nid {
    /// Returns the CPU partition of this NID, below `ncpts` (lnet-semantics 22): always the same
    /// for the same NID and number.
    ///
    /// | NID | partition |
    /// | --- | --- |
    /// | small | the sum of the eight bytes of the 64-bit NID, modulo `ncpts` |
    /// | small, on `kfi` | the top bits of the 64-bit NID's multiplicative hash, folded |
    /// | large | the top bits of the multiplicative hash of the network id and, chained, of the four address words, folded |
    ///
    /// *Folded*: the number of bits that `ncpts - 1` needs; if their value v is not below `ncpts`,
    /// `(h + v + v / 2) modulo ncpts` instead, with the value h that was hashed last.
    #[must_use]
    pub fn cpt_of(self, ncpts: usize) -> usize {
        if ncpts <= 1 {
            return 0;
        }
        match self.to_nid4() {
            Some(nid4) if self.net().net_type() == NetType::KFI => {
                fold(nid4.wrapping_mul(GOLDEN_64), nid4, ncpts)
            }
            Some(nid4) => nid4.to_be_bytes().into_iter().map(usize::from).sum::<usize>() % ncpts,
            None => {
                let chain = |hash: u32, word: u32| (hash ^ word).wrapping_mul(GOLDEN_32);
                let hash = self.address_words().fold(0, chain);
                let product = (self.net().id() ^ hash).wrapping_mul(GOLDEN_32);
                fold(u64::from(product) << 32, hash.into(), ncpts)
            }
        }
    }

    /// Returns LNet's *nidhash* (lnet-semantics 10): the network id XOR each 32-bit word of the
    /// address.
    #[must_use]
    pub fn nidhash(self) -> u32 {
        self.address_words().fold(self.net().id(), |hash, word| hash ^ word)
    }

    /// Returns the used address bytes as 32-bit words.
    fn address_words(&self) -> impl Iterator<Item = u32> {
        self.address_bytes().as_chunks().0.iter().map(|word| u32::from_be_bytes(*word))
    }
}

/// Returns the top bits of `product` as an index below `count`, which is above 1; mixes `hash` in
/// if they are too great.
fn fold(product: u64, hash: u64, count: usize) -> usize {
    let bits = usize::BITS - (count - 1).leading_zeros();
    let value = product >> (u64::BITS - bits);
    let index = if value < count as u64 {
        value
    } else {
        hash.wrapping_add(value).wrapping_add(value / 2) % count as u64
    };
    index as usize
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::Net;

    /// c is 2³² / φ² rounded up if c - 1 < 2³² (3 - √5) / 2 ≤ c: without the root, a comparison of
    /// squares.
    #[test]
    fn the_constants_are_powers_of_two_over_the_square_of_the_golden_ratio() {
        let rest = |c: u32| (3_u128 << 32) - 2 * u128::from(c);
        let five = 5_u128 << 64;
        assert!(rest(GOLDEN_32).pow(2) <= five && rest(GOLDEN_32 - 1).pow(2) > five);
        assert_eq!(GOLDEN_64 >> 32, u64::from(GOLDEN_32 - 1), "the same number with more digits");
    }

    #[test]
    fn the_sum_of_a_small_nids_bytes() {
        let nid: Nid = "10.0.0.1@tcp1".parse().unwrap();
        for ncpts in 1..20 {
            assert_eq!(nid.cpt_of(ncpts), (2 + 1 + 10 + 1) % ncpts);
        }
        assert_eq!(Nid::ANY.cpt_of(7), 8 * 255 % 7);
        assert_eq!(nid.cpt_of(0), 0);
    }

    #[test]
    fn the_words_of_the_network_and_the_address() {
        assert_eq!("10.0.0.1@tcp1".parse::<Nid>().unwrap().nidhash(), 0x0002_0001 ^ 0x0a00_0001);
        let large: Nid = "fd00:1:2:3:4:5:6:7@tcp".parse().unwrap();
        assert_eq!(large.nidhash(), 0x0002_0000 ^ 0xfd00_0001 ^ 0x0002_0003 ^ 0x0004_0005 ^ 0x0006_0007);
    }

    /// Neighbouring NIDs on each kind of network spread over all partitions, none of which gets
    /// twice its share.
    #[test]
    fn neighbours_are_spread_evenly() {
        const NIDS: u32 = 4096;
        let kinds: [fn(u32) -> Nid; 3] = [
            |number| Nid::new_v4(Net::TCP, Ipv4Addr::from(0x0a00_0000 + number)),
            |number| Nid::new_numeric(Net::new(NetType::KFI, 0), number),
            |number| Nid::new_v6(Net::O2IB, Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(number))),
        ];
        for (kind, nid) in kinds.iter().enumerate() {
            for ncpts in [2, 3, 4, 6, 8, 16] {
                let mut counts = vec![0; ncpts];
                (0..NIDS).for_each(|number| counts[nid(number).cpt_of(ncpts)] += 1);
                let fair = NIDS as usize / ncpts;
                assert!(
                    counts.iter().all(|count| (1..2 * fair).contains(count)),
                    "{kind}, {ncpts}: {counts:?}"
                );
            }
        }
    }
}
