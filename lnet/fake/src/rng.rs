//! Random numbers determined by a seed, the same on every machine and in every version.

/// SplitMix64: small, fast, and random enough for tests and simulations.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Makes the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns a separate sequence, so that two users of one seed do not disturb each other.
    #[must_use]
    pub fn fork(&mut self) -> Rng {
        Rng(self.next_u64())
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns true with a probability of `in_10_000` in 10,000.
    pub fn chance(&mut self, in_10_000: u32) -> bool {
        self.below(10_000) < u64::from(in_10_000)
    }

    /// Returns random bytes. `number` is the range of their number: lowest and highest.
    pub fn bytes(&mut self, number: (u64, u64)) -> Vec<u8> {
        (0..self.between(number)).map(|_| self.next_u64() as u8).collect()
    }

    /// Returns an index below `len`; 0 if that is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns one of the elements.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_and_numbers_stay_in_their_range() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let mut seen = [false; 10];
        for _ in 0..1000 {
            assert_eq!(a.next_u64(), b.next_u64());
            seen[a.between((0, 9)) as usize] = true;
            b.between((0, 9));
            assert!((1..=3).contains(&a.clone().bytes((1, 3)).len()));
            assert_eq!(a.below(0), b.below(0));
        }
        assert_eq!(seen, [true; 10]);
    }
}
