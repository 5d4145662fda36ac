//! The two sides, parsed from options and a file.

use std::fmt::Display;
use std::str::FromStr;

use lnet_api::Errno;
use lnet_node::{NodeConfig, NodeError, Section};
use lnet_o2iblnd::fabric::DeviceLimits;
use lnet_o2iblnd::sizes::{Release, Side, SizeTunable, SizesError};

use super::barriers::Reach;
use crate::args::{COUNT_MAX, CalcArgs};
use crate::failure::Failure;

/// A side with its machine.
#[derive(Debug, Clone)]
pub(super) struct SideInput {
    /// `a` or `b`.
    pub(super) name: &'static str,
    pub(super) side: Side,
    pub(super) cpts: u32,
    pub(super) limits: DeviceLimits,
    pub(super) reach: Reach,
    /// Names of the settings; all others have their defaults.
    pub(super) set: Vec<String>,
}

/// A common device: 32768 work requests in a queue.
const DEVICE: DeviceLimits = DeviceLimits {
    queue_entries: 32_768,
    completions: 4_194_303,
    pieces: 30,
    transfer_bytes: 1 << 30,
    memory_bytes: u64::MAX,
};

/// Largest number of work requests and completions of a device.
const DEVICE_MAX: u32 = 1 << 24;

/// The tunables of the kernel's driver that affect no size.
const OTHERS: [Other; 16] = [
    Other::Number("service", 1, 65_535),
    Other::Number("cksum", 0, 1),
    Other::Number("timeout", 0, i32::MAX),
    Other::Number("nscheds", 0, i32::MAX),
    Other::Number("peer_buffer_credits", 0, i32::MAX),
    Other::Number("peer_timeout", 0, i32::MAX),
    Other::Name("ipif_name"),
    Other::Number("retry_count", 0, 7),
    Other::Number("rnr_retry_count", 0, 7),
    Other::Number("keepalive", 0, i32::MAX),
    Other::OneOf("ib_mtu", &MTUS),
    Other::Number("dev_failover", 0, 1),
    Other::Number("fmr_cache", 0, 1),
    Other::Number("require_privileged_port", 0, 1),
    Other::Number("use_privileged_port", 0, 1),
    Other::Number("tos", -1, 255),
];

/// The MTUs of InfiniBand, and 0 for that of the path.
const MTUS: [i32; 6] = [0, 256, 512, 1024, 2048, 4096];

/// One of these tunables, with its range.
#[derive(Clone, Copy)]
enum Other {
    Number(&'static str, i32, i32),
    OneOf(&'static str, &'static [i32]),
    Name(&'static str),
}

impl Other {
    fn named(name: &str) -> Option<Other> {
        OTHERS.into_iter().find(|other| other.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Other::Number(name, ..) | Other::OneOf(name, _) | Other::Name(name) => name,
        }
    }

    /// Returns the number that it is set to, if it is a number.
    fn number(self, word: &Word) -> Result<Option<i32>, Failure> {
        match self {
            Other::Number(_, 0, 1) => word.flag_or(|| word.number(0, 1)).map(Some),
            Other::Number(_, least, most) => word.number(least, most).map(Some),
            Other::OneOf(_, values) => word.one_of(values).map(Some),
            Other::Name(_) => Ok(None),
        }
    }
}

/// Returns both sides: the file's settings, then the options'.
pub(super) fn peers(args: &CalcArgs) -> Result<[SideInput; 2], Failure> {
    let file = args.config.as_ref().map(Section::load).transpose();
    let file = file.map_err(|error| wrong(error.to_string()))?;
    let mut words: [Vec<Word>; 2] = Default::default();
    for table in file.iter().flat_map(Section::settings) {
        let index = match table.key() {
            "a" => 0,
            "b" => 1,
            _ => return Err(wrong(table.refuse("there are tables 'a' and 'b' alone").to_string())),
        };
        let tables = table.tables().map_err(|error| wrong(error.to_string()))?;
        for setting in tables.iter().flat_map(Section::settings) {
            let value = setting.text().map_err(|error| wrong(error.to_string()))?.to_string();
            let place_of = format!("{}: ", setting.line());
            words[index].push(Word { key: setting.key().to_string(), value, place: place_of });
        }
    }
    for (index, (name, texts)) in [("--a", &args.a), ("--b", &args.b)].into_iter().enumerate() {
        for text in texts {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                wrong(format!("{name}: '{text}' must be KEY=VALUE")).hint("for instance peer_credits=16")
            })?;
            let (key, value) = (key.trim().to_string(), value.trim().to_string());
            words[index].push(Word { key, value, place: format!("{name}: ") });
        }
    }
    let [a, b] = words;
    Ok([SideInput::of("a", Release::Nlx, &a)?, SideInput::of("b", Release::V2_15, &b)?])
}

struct Word {
    key: String,
    value: String,
    place: String,
}

impl Word {
    fn refuse(&self, reason: impl std::fmt::Display) -> Failure {
        wrong(format!("{}{reason}", self.place))
    }

    fn number<N: FromStr + PartialOrd + Display>(&self, least: N, most: N) -> Result<N, Failure> {
        let number = self.value.parse().ok().filter(|number| (&least..=&most).contains(&number));
        let Word { key, value, .. } = self;
        number.ok_or_else(|| {
            self.refuse(format_args!("{key}={value}: it must be a whole number from {least} to {most}"))
        })
    }

    fn one_of(&self, values: &[i32]) -> Result<i32, Failure> {
        let number = self.value.parse().ok().filter(|number| values.contains(number));
        let Word { key, value, .. } = self;
        number.ok_or_else(|| {
            let values = values.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
            self.refuse(format_args!("{key}={value}: it must be one of {values}"))
        })
    }

    /// Parses a flag as lnetctl prints it; other values are parsed by `otherwise`.
    fn flag_or<N: From<bool>>(&self, otherwise: impl FnOnce() -> Result<N, Failure>) -> Result<N, Failure> {
        match self.value.as_str() {
            "true" => Ok(true.into()),
            "false" => Ok(false.into()),
            _ => otherwise(),
        }
    }
}

impl SideInput {
    fn of(name: &'static str, release: Release, words: &[Word]) -> Result<SideInput, Failure> {
        let named = words.iter().rfind(|word| word.key == "release");
        let parsed = named.map(|word| word.value.parse().map_err(|error: SizesError| word.refuse(error)));
        let side = Side::of(parsed.transpose()?.unwrap_or(release));
        let mut peer =
            SideInput { name, side, cpts: 1, limits: DEVICE, reach: Reach::default(), set: Vec::new() };
        words.iter().try_for_each(|word| peer.take(word))?;
        Ok(peer)
    }

    fn take(&mut self, word: &Word) -> Result<(), Failure> {
        match word.key.as_str() {
            "release" => {}
            "kernel_build" => self.side.kernel_build = word.number(1, COUNT_MAX)?,
            "mapping" => {
                self.side.mapping = word.value.parse().map_err(|error: SizesError| word.refuse(error))?
            }
            "cpts" => self.cpts = word.number(1, lnet_node::MAX_PARTITIONS as u32)?,
            "max_wr" => self.limits.queue_entries = word.number(1, DEVICE_MAX)?,
            "max_cqe" => self.limits.completions = word.number(1, DEVICE_MAX)?,
            "max_sge" => self.limits.pieces = word.number(1, 256)?,
            // As lnetctl spells it.
            "peercredits_hiw" => self.tune("peer_credits_hiw", word)?,
            key => match Other::named(key) {
                Some(other) => {
                    let number = other.number(word)?;
                    self.check(key, &word.value).map_err(|reason| word.refuse(reason))?;
                    number.into_iter().for_each(|number| self.reach.set(key, number));
                }
                None => self.tune(key, word)?,
            },
        }
        self.set.push(word.key.clone());
        Ok(())
    }

    fn tune(&mut self, key: &str, word: &Word) -> Result<(), Failure> {
        let tunable = SizeTunable::named(key).map_err(|error| word.refuse(error))?;
        let value = word.flag_or(|| word.number(tunable.least, tunable.most))?;
        self.set_to(tunable.name, value).map_err(|reason| word.refuse(reason))
    }

    /// Sets a tunable, if this side can have it.
    pub(super) fn set_to(&mut self, name: &str, value: u32) -> Result<(), String> {
        self.check(name, &value.to_string())?;
        self.side.tunables.set(name, value).map_err(|error| error.to_string())
    }

    /// Checks that a node of nlx accepts the value in its configuration, which may be stricter than
    /// a kernel's parameter.
    fn check(&self, name: &str, value: &str) -> Result<(), String> {
        if self.side.release != Release::Nlx {
            return Ok(());
        }
        NodeConfig::new().set("ko2iblnd", name, value).map_err(|error| match error {
            NodeError::Tunable { reason, .. } => format!("{name}={value}: {reason}"),
            other => other.to_string(),
        })
    }

    /// Returns whether the tunable `name` was set.
    pub(super) fn has_set(&self, name: &str) -> bool {
        self.set.iter().any(|set| set == name)
    }

    /// Returns the names that were set and that affect no size.
    pub(super) fn others(&self) -> impl Iterator<Item = &str> {
        self.set.iter().map(String::as_str).filter(|name| Other::named(name).is_some())
    }
}

pub(super) fn wrong(message: impl AsRef<str>) -> Failure {
    Failure::at("configuration", Errno::EINVAL, message)
}
