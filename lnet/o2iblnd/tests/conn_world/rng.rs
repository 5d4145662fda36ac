//! Random numbers that a seed determines.

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit.max(1)
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn place(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

/// Runs these seeds, or the one that `NLX_SIM_SEED` names; one that fails is named.
pub(crate) fn seeds(count: u64, mut run: impl FnMut(u64)) {
    struct Name(u64);
    impl Drop for Name {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("seed {0} fails; again: NLX_SIM_SEED={0}", self.0);
            }
        }
    }
    let said = std::env::var("NLX_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in said.map_or(0..count, |seed| seed..seed + 1) {
        let name = Name(seed);
        run(seed);
        drop(name);
    }
}
