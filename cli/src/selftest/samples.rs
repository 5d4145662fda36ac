//! Made-up results for tests of the reports.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use super::result::{Ending, Outcome, Phase, RuleCount, Sample, Served, Settings};

/// A text that a hostile node might report.
pub(crate) const HOSTILE: &str = "\"'><script>alert(1)</script><svg onload=\"x\"";

/// Returns a complete test without errors: two clients, five phases.
pub(crate) fn outcome() -> Outcome {
    let phases = [
        ("ping_pong", 64, 1, 63_000.0),
        ("message_rate", 64, 64, 200_000.0),
        ("bulk_read", 1 << 20, 8, 1_900_000.0),
        ("bulk_write", 1 << 20, 8, 3_100_000.0),
        ("mixed", 1 << 20, 8, 1_200_000.0),
    ];
    Outcome {
        settings: Settings {
            mode: "in-process",
            net: "tcp",
            size: 1 << 20,
            concurrency: 8,
            clients: 2,
            duration: Duration::from_secs(3),
            seed: 0x5eed_5eed_5eed_5eed,
            faults: None,
        },
        started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_297_659),
        clients: ["127.0.0.1@tcp:12345:42:4095", "127.0.0.1@tcp:12345:42:4094"].map(String::from).to_vec(),
        servers: vec!["127.0.0.2@tcp:12345:42:4095".into()],
        phases: phases
            .map(|(name, size, in_flight, typical_ns)| phase(name, size, in_flight, typical_ns))
            .to_vec(),
        served: Served { verified_bytes: 6_760_000_000, errors: 0 },
        rules: Vec::new(),
        ending: Ending::Complete,
    }
}

/// Returns a test whose foreign texts are all malicious, and in which rules drop messages.
pub(crate) fn hostile() -> Outcome {
    let mut all = outcome();
    all.settings.faults = Some(HOSTILE.into());
    all.clients = vec![HOSTILE.into()];
    all.servers = vec![HOSTILE.into()];
    all.phases[0].errors = 1;
    all.phases[0].first_error = Some(HOSTILE.into());
    (all.phases[1].lost, all.phases[1].dropped) = (3, 3);
    let rule = RuleCount { node: HOSTILE.into(), rule: HOSTILE.into(), matched: 300, dropped: 3, delayed: 0 };
    all.rules = vec![rule];
    all.ending = Ending::Failed(HOSTILE.into());
    all
}

/// Returns a phase of three seconds whose latencies have a body and a long tail.
fn phase(name: &'static str, size: u64, in_flight: u32, typical_ns: f64) -> Phase {
    const CLIENTS: u32 = 2;
    let elapsed = Duration::from_secs(3);
    let operations = (3e9 / typical_ns * f64::from(in_flight * CLIENTS)) as u64;
    let mut latencies_ns =
        Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constant and valid");
    let mut random = Random(operations);
    for _ in 0..operations.min(200_000) {
        let bulk = typical_ns * (0.25 * random.normal()).exp();
        let tail = if random.share() < 0.002 { 4.0 + 20.0 * random.share() } else { 1.0 };
        latencies_ns.saturating_record((bulk * tail) as u64);
    }
    let mut sample = Sample { at: Duration::ZERO, operations: 0, bytes: 0 };
    let samples = (1..=30).map(|at| {
        let step = (operations as f64 / 30.0 * (1.0 + 0.08 * random.normal())) as u64;
        let operations = sample.operations + step;
        sample = Sample { at: elapsed * at / 30, operations, bytes: operations * size };
        sample
    });
    let samples = samples.collect();
    Phase {
        name,
        size,
        in_flight,
        clients: CLIENTS,
        elapsed,
        operations,
        bytes: operations * size,
        latencies_ns,
        samples,
        errors: 0,
        first_error: None,
        lost: 0,
        dropped: 0,
        delayed: 0,
        verified_bytes: operations * size,
    }
}

/// A deterministic random generator (an LCG of Knuth's).
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the sum of twelve uniform numbers, less its mean: approximately normally
    /// distributed.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}
