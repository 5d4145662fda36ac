//! The tunables that only nlx has, module `nlx`: one row each, with name, meaning, range, getter
//! and setter.

use std::time::Duration;

use lnet::FaultRule;
use lnet_api::MAX_SPIN;
use lnet_cpt::{Conflict, Estimate};

use super::{ALONE, Effect, NLX, Tunable, TunableRefusal};
use crate::{MatchOrder, NodeConfig, Stealing};

/// Tunables that LNet does not have.
pub(super) const ROWS: &[Tunable] = &[
    word(
        "stealing",
        "the messages for which other partitions are searched for a buffer, too: all, or lazy PUTs only, as in LNet today",
        &["all", "lazy-puts"],
        |config| match config.engine.stealing {
            Stealing::All => "all",
            Stealing::LazyPuts => "lazy-puts",
        },
        |config, word| {
            config.engine.stealing = if word == "all" { Stealing::All } else { Stealing::LazyPuts };
        },
    ),
    word(
        "match_order",
        "the entry that takes a message if several match: the first in the list, or one with ignore bits, as in LNet today",
        &["list", "ignore-bits-first"],
        |config| match config.engine.match_order {
            MatchOrder::List => "list",
            MatchOrder::IgnoreBitsFirst => "ignore-bits-first",
        },
        |config, word| {
            let list = word == "list";
            config.engine.match_order = if list { MatchOrder::List } else { MatchOrder::IgnoreBitsFirst };
        },
    ),
    word(
        "cpu_estimate",
        "the rule for the number of partitions if no tunable sets it: nlx's (`seed`), LNet's since 2.11 (`current`), \
         before (`classic`), or of today (`node`)",
        &["seed", "current", "classic", "node"],
        |config| match config.partitions.tunables().map_or(Estimate::Seed, |tunables| tunables.estimate) {
            Estimate::Seed => "seed",
            Estimate::Current => "current",
            Estimate::Classic => "classic",
            Estimate::PerNode => "node",
        },
        |config, word| {
            config.partitions.tunables_mut().estimate = match word {
                "current" => Estimate::Current,
                "classic" => Estimate::Classic,
                "node" => Estimate::PerNode,
                _ => Estimate::Seed,
            };
        },
    ),
    word(
        "cpu_conflict",
        "if `cpu_npartitions` and `cpu_pattern` disagree: the pattern takes precedence, or both are refused, as in LNet today",
        &["pattern", "refuse"],
        |config| match config
            .partitions
            .tunables()
            .map_or(Conflict::PatternWins, |tunables| tunables.conflict)
        {
            Conflict::PatternWins => "pattern",
            Conflict::Refused => "refuse",
        },
        |config, word| {
            let pattern = word == "pattern";
            config.partitions.tunables_mut().conflict =
                if pattern { Conflict::PatternWins } else { Conflict::Refused };
        },
    ),
    Tunable {
        module: NLX,
        name: "status",
        unit: "",
        agree: ALONE,
        meaning: "1: `nlx status` finds the node; `nlx serve` and `nlx selftest` set it",
        effect: Effect::Number {
            min: 0,
            max: 1,
            get: |config| i64::from(config.status),
            set: |config, on| config.status = on == 1,
        },
    },
    Tunable {
        module: NLX,
        name: "spin_us",
        unit: "µs",
        agree: ALONE,
        meaning: "spin limit: the time for which a waiting thread polls before it sleeps, while that shortens waits; 0 turns spinning off",
        effect: Effect::Number {
            min: 0,
            max: MAX_SPIN.as_micros() as i64,
            get: |config| i64::try_from(config.spin.as_micros()).unwrap_or(i64::MAX),
            set: |config, time| config.spin = Duration::from_micros(time.unsigned_abs()),
        },
    },
    Tunable {
        module: NLX,
        name: "held_peer_kb",
        unit: "KiB",
        agree: ALONE,
        meaning: "memory limit for one peer's messages that wait for a buffer on lazy portals",
        effect: Effect::Number {
            min: 0,
            max: 1 << 20,
            get: |config| i64::from(config.tcp.held.peer_kb),
            set: |config, kb| {
                config.tcp.held.peer_kb = kb as u32;
                config.o2ib.held.peer_kb = kb as u32;
            },
        },
    },
    Tunable {
        module: NLX,
        name: "held_kb",
        unit: "KiB",
        agree: ALONE,
        meaning: "the same for all peers together, for TCP and for o2ib each",
        effect: Effect::Number {
            min: 0,
            max: 1 << 26,
            get: |config| i64::from(config.tcp.held.all_kb),
            set: |config, kb| {
                config.tcp.held.all_kb = kb as u32;
                config.o2ib.held.all_kb = kb as u32;
            },
        },
    },
    word(
        "held_full",
        "the handling of a message beyond these limits: it waits on its connection, which TCP does not read until then, or it is dropped",
        &["wait", "drop"],
        |config| if config.tcp.held.drop_beyond { "drop" } else { "wait" },
        |config, word| {
            for held in [&mut config.tcp.held, &mut config.o2ib.held] {
                held.drop_beyond = word == "drop";
            }
        },
    ),
    Tunable {
        module: NLX,
        name: "faults",
        unit: "",
        agree: ALONE,
        meaning: "fault rules, by which received messages are dropped or delayed, for tests; empty for none",
        effect: Effect::Text {
            grammar: "as `drop 1/100 put portal 42; delay 1ms..20ms every 3 get from 10.0.0.1@tcp seed 7`",
            get: |config| config.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            set: set_faults,
        },
    },
    Tunable {
        module: NLX,
        name: "congestion_control",
        unit: "",
        agree: ALONE,
        meaning: "the congestion control algorithm of TCP connections; empty leaves it to the system",
        effect: Effect::Text {
            grammar: "as `cubic`; up to 15 letters, digits, `_` and `-`",
            get: |config| config.tcp.congestion_control.clone().unwrap_or_default(),
            set: set_congestion_control,
        },
    },
    Tunable {
        module: NLX,
        name: "epoll_busy_poll_us",
        unit: "µs",
        agree: ALONE,
        meaning: "time for which each poll of the TCP sockets busy-polls their network cards (Linux 6.9; no effect on loopback); 0 turns it off",
        effect: Effect::Number {
            min: 0,
            max: 10_000,
            get: |config| i64::from(config.tcp.epoll_busy_poll_us),
            set: |config, time| config.tcp.epoll_busy_poll_us = time as u32,
        },
    },
];

fn set_faults(config: &mut NodeConfig, text: &str) -> Result<(), TunableRefusal> {
    config.faults = FaultRule::parse_all(text).map_err(|error| TunableRefusal::from(error.to_string()))?;
    Ok(())
}

/// The system's limit on the length of the name of a congestion control, without the terminating
/// zero.
const CONGESTION_NAME_MAX: usize = 15;

fn set_congestion_control(config: &mut NodeConfig, text: &str) -> Result<(), TunableRefusal> {
    let fits = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-');
    if text.len() > CONGESTION_NAME_MAX || !text.bytes().all(fits) {
        return Err(
            format!("it must be a name of up to {CONGESTION_NAME_MAX} letters, digits, '_' and '-'").into()
        );
    }
    config.tcp.congestion_control = (!text.is_empty()).then(|| text.to_string());
    Ok(())
}

const fn word(
    name: &'static str,
    meaning: &'static str,
    words: &'static [&'static str],
    get: fn(&NodeConfig) -> &'static str,
    set: fn(&mut NodeConfig, &str),
) -> Tunable {
    Tunable { module: NLX, name, unit: "", agree: ALONE, meaning, effect: Effect::Word { words, get, set } }
}
