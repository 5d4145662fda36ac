//! The keys of the rows `match/…`: (NID, match bits), the same on both sides, and their order.

/// Number of NIDs in the rows with many senders: the number of clients of a large storage server.
pub(crate) const MANY: usize = 4096;

/// The first of the senders' NIDs: 10.1.0.0.
const FIRST_ADDRESS: u32 = 0x0a01_0000;

/// Returns the match bits of an entry: spread over all 64 bits, and different for all numbers.
pub(crate) fn bits(number: u32) -> u64 {
    (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the IPv4 address that sends the messages for an entry, one of `sources`.
pub(crate) fn address(number: u32, sources: usize) -> u32 {
    FIRST_ADDRESS + number % sources as u32
}

/// Returns for each number below `count` the next one, in an unpredictable order that is a single
/// cycle through all numbers.
///
/// This makes look-ups *dependent*: the result determines the next key, so a processor cannot begin
/// the next look-up before the end of this one. It could otherwise: 1 M independent look-ups take
/// 20 to 30 ns each, dependent ones 140 to 180. A message is matched only after the one before it,
/// under a lock, so matching must be compared with dependent look-ups.
pub(crate) fn chain(count: usize) -> Vec<u32> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next: Vec<u32> = (0..count as u32).collect();
    // Sattolo's shuffle: it generates only permutations that are one cycle.
    for at in (1..count).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        next.swap(at, (random % at as u64) as usize);
    }
    next
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_chain_meets_every_number_once() {
        for count in [1, 2, 3, 1000] {
            let next = chain(count);
            let met = std::iter::successors(Some(0), |&at| Some(next[at as usize])).take(count);
            assert_eq!(met.collect::<HashSet<_>>().len(), count);
        }
    }

    #[test]
    fn keys_differ_and_come_from_as_many_addresses_as_there_are_sources() {
        let numbers = 0..10_000;
        assert_eq!(numbers.clone().map(bits).collect::<HashSet<_>>().len(), 10_000);
        for sources in [1, MANY] {
            let from: HashSet<u32> = numbers.clone().map(|number| address(number, sources)).collect();
            assert_eq!(from.len(), sources);
        }
    }
}
