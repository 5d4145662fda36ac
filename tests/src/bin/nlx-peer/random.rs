//! Numbers and bytes that derive from a seed.

/// A stream of numbers (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 to `most`, inclusive.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        (self.next() % (most as u64 + 1)) as usize
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.up_to(choices.len() - 1)]
    }
}

pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the bytes of a pattern: each depends on the seed and on its own offset.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let word = |number: u64| mix(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    let mut bytes: Vec<u8> = (0..length.div_ceil(8) as u64).flat_map(word).collect();
    bytes.truncate(length);
    bytes
}
