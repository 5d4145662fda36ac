//! Pseudo-random numbers from a seed.

/// A generator with 64 bits of state (splitmix64): each seed gives a different sequence.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number from 0 to below `end`, which is not 0. The distribution is uneven by 2^-32,
    /// which does not matter here.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [0; 64].map(|_: u64| random.next())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut random = Random::new(3);
        let mut drawn = [0; 5];
        (0..1000).for_each(|_| drawn[random.below(5) as usize] += 1);
        assert!(drawn.iter().all(|count| *count > 0), "{drawn:?}");
    }
}
