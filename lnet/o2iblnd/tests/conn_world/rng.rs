//! Runs of worlds from seeds.

/// Runs this number of seeds, or the one in `NLX_SIM_SEED`; reports the seed of a failed run.
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
