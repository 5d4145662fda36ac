//! The table of the honest clients' latencies.

use std::fmt;
use std::io::Write;
use std::sync::Once;

/// The durations of honest rounds, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    rounds: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

impl Figures {
    /// Parses the answer of `helper-client measure`.
    #[track_caller]
    pub(crate) fn read(line: &str) -> Figures {
        let numbers: Vec<u64> = line.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
        let [rounds, p50_us, p99_us, max_us] = numbers[..] else { panic!("no figures: {line}") };
        Figures { rounds, p50_us, p99_us, max_us }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { rounds, p50_us, p99_us, max_us } = self;
        write!(f, "{rounds:>7} | {p50_us:>8} | {p99_us:>8} | {max_us:>8}")
    }
}

/// Adds a line to the table. The test harness does not capture it in tests that pass.
pub(crate) fn tell(attack: &str, threads: u32, beside: Figures, quiet: Figures) {
    static HEAD: Once = Once::new();
    HEAD.call_once(|| {
        write(&format!(
            "{:<32} | threads | rounds  | p50 µs   | p99 µs   | max µs   | quiet   | p50 µs   | p99 µs   | max µs",
            "attack"
        ));
    });
    write(&format!("{attack:<32} | {threads:>7} | {beside} | {quiet}"));
}

fn write(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(path) = std::env::var_os("NLX_ATTACK_TABLE") {
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}
