//! The bytes of transfers: each 8-byte word depends on its transfer and its position, so a byte
//! that is lost, doubled, moved or stale is detected.

/// The odd constant of the golden ratio: consecutive words differ in about half of their bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the first word of the pattern of one transfer.
fn base(stream: u64, sequence: u64) -> u64 {
    let mut word = stream.wrapping_mul(STEP) ^ sequence.wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^= word >> 32;
    word = word.wrapping_mul(STEP);
    word ^ (word >> 29)
}

/// Returns a number from 0 to below `end` that stream and sequence number determine. The distribution
/// is uneven by 2^-32, which does not matter here.
pub(crate) fn draw(stream: u64, sequence: u64, end: u32) -> u32 {
    (((base(stream, sequence) >> 32) * u64::from(end)) >> 32) as u32
}

/// Writes the pattern of a transfer.
pub(crate) fn fill(stream: u64, sequence: u64, bytes: &mut [u8]) {
    let mut word = base(stream, sequence);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    tail.copy_from_slice(&word.to_le_bytes()[..tail.len()]);
}

/// Returns whether all bytes are the pattern of this transfer.
pub(crate) fn check(stream: u64, sequence: u64, bytes: &[u8]) -> bool {
    let mut word = base(stream, sequence);
    let (words, tail) = bytes.as_chunks::<8>();
    let mut differences = 0;
    for chunk in words {
        differences |= u64::from_le_bytes(*chunk) ^ word;
        word = word.wrapping_add(STEP);
    }
    differences == 0 && tail == &word.to_le_bytes()[..tail.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Covers: MT-63
    #[test]
    fn each_wrong_byte_is_found_at_every_length() {
        for length in [1, 7, 8, 9, 63, 64, 65, 4097] {
            let mut bytes = vec![0; length];
            fill(3, 17, &mut bytes);
            assert!(check(3, 17, &bytes));
            for at in 0..length {
                bytes[at] ^= 0x10;
                assert!(!check(3, 17, &bytes), "byte {at} of {length}");
                bytes[at] ^= 0x10;
            }
        }
    }

    // Covers: MT-63
    #[test]
    fn the_patterns_of_other_transfers_differ() {
        let mut bytes = [0; 64];
        fill(1, 2, &mut bytes);
        for (stream, sequence) in [(1, 1), (1, 3), (2, 2), (2, 1), (0, 2)] {
            assert!(!check(stream, sequence, &bytes), "{stream}/{sequence}");
        }
    }

    #[test]
    fn a_pattern_that_is_moved_by_a_word_is_found() {
        let mut bytes = [0; 128];
        fill(1, 2, &mut bytes);
        assert!(!check(1, 2, &bytes[8..]));
    }

    #[test]
    fn a_seed_determines_what_is_drawn() {
        let draws = |seed| [0, 1, 2, 3, 4, 5, 6, 7].map(|sequence| draw(seed, sequence, 1 << 20));
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        let mut drawn = [0; 5];
        (0..1000).for_each(|sequence| drawn[draw(3, sequence, 5) as usize] += 1);
        assert!(drawn.iter().all(|count| (100..300).contains(count)), "{drawn:?}");
    }
}
