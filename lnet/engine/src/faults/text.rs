//! The text form of a rule.

use std::fmt;
use std::num::NonZeroU32;
use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use lnet_nid::{Nid, Portal};

use super::{FaultAction, FaultRate, FaultRule, FaultRuleError, MessageKinds};

/// Units of time, the longest first, in nanoseconds.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

const KINDS: [(&str, MessageKinds); 4] = [
    ("put", MessageKinds::PUT),
    ("get", MessageKinds::GET),
    ("ack", MessageKinds::ACK),
    ("reply", MessageKinds::REPLY),
];

const PART: &str =
    "a part of a rule: 1/N, every N, put, get, ack, reply, portal N, from NID, to NID or seed N, each once";

impl FaultRule {
    /// Parses several rules separated by semicolons; an empty text has no rules.
    pub fn parse_all(text: &str) -> Result<Vec<FaultRule>, FaultRuleError> {
        text.split(';').map(str::trim).filter(|rule| !rule.is_empty()).map(str::parse).collect()
    }
}

/// The remaining words of a rule.
struct Words<'a> {
    rule: &'a str,
    left: SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn wrong(&self, found: &str, expected: &'static str) -> FaultRuleError {
        FaultRuleError::Word { rule: self.rule.to_string(), found: found.to_string(), expected }
    }

    /// Parses the next word.
    fn next<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, FaultRuleError> {
        let word = self.left.next().unwrap_or_default();
        read(word).ok_or_else(|| self.wrong(word, expected))
    }
}

impl FromStr for FaultRule {
    type Err = FaultRuleError;

    fn from_str(rule: &str) -> Result<FaultRule, FaultRuleError> {
        let mut words = Words { rule, left: rule.split_whitespace() };
        let action = match words.left.next().unwrap_or_default() {
            "drop" => FaultAction::Drop,
            "delay" => words.next("a time such as 5ms or 1ms..2s", delay)?,
            other => return Err(words.wrong(other, "drop or delay")),
        };
        let (mut rate, mut kinds, mut portal) = (None, None, None);
        let (mut source, mut destination, mut seed) = (None, None, None);
        while let Some(word) = words.left.next() {
            let is_new = match word {
                "every" => rate.replace(FaultRate::Every(words.next("a number above 0", count)?)).is_none(),
                "portal" => portal.replace(words.next("a portal, 0 to 63", portal_of)?).is_none(),
                "from" => source.replace(words.next("a NID", nid)?).is_none(),
                "to" => destination.replace(words.next("a NID", nid)?).is_none(),
                "seed" => seed.replace(words.next("a number", |word| word.parse().ok())?).is_none(),
                other => match (other.strip_prefix("1/").and_then(count), kinds_of(other)) {
                    (Some(count), _) => rate.replace(FaultRate::OneOf(count)).is_none(),
                    (_, Some(named)) => kinds.replace(named).is_none(),
                    _ => false,
                },
            };
            if !is_new {
                return Err(words.wrong(word, PART));
            }
        }
        let any = FaultRule::always(action);
        let rule = FaultRule {
            action,
            rate: rate.unwrap_or(any.rate),
            kinds: kinds.unwrap_or(any.kinds),
            portal,
            source: source.unwrap_or(any.source),
            destination: destination.unwrap_or(any.destination),
            seed: seed.unwrap_or(any.seed),
        };
        rule.check()?;
        Ok(rule)
    }
}

fn count(word: &str) -> Option<NonZeroU32> {
    word.parse().ok()
}

fn portal_of(word: &str) -> Option<Portal> {
    Portal::new(word.parse().ok()?).ok()
}

fn nid(word: &str) -> Option<Nid> {
    word.parse().ok()
}

fn kinds_of(word: &str) -> Option<MessageKinds> {
    let kind = |name: &str| KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    word.split(',').map(kind).collect()
}

fn delay(word: &str) -> Option<FaultAction> {
    let (at_least, at_most) = word.split_once("..").unwrap_or((word, word));
    Some(FaultAction::Delay { at_least: span(at_least)?, at_most: span(at_most)? })
}

fn span(word: &str) -> Option<Duration> {
    let digits = word.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = word.split_at(digits);
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*unit_ns).map(Duration::from_nanos)
}

/// A time in the longest unit that needs no fraction.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span_ns = self.0.as_nanos();
        let whole = |(_, unit_ns): &&(&str, u64)| span_ns.is_multiple_of(u128::from(*unit_ns));
        let (name, unit_ns) = UNITS.iter().find(whole).unwrap_or(&UNITS[3]);
        write!(f, "{}{name}", span_ns / u128::from(*unit_ns))
    }
}

impl fmt::Display for FaultRule {
    /// Prints the text from which [`FaultRule`] is parsed, without the default parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            FaultAction::Drop => f.write_str("drop")?,
            FaultAction::Delay { at_least, at_most } => {
                write!(f, "delay {}", Span(at_least))?;
                if at_least != at_most {
                    write!(f, "..{}", Span(at_most))?;
                }
            }
        }
        match self.rate {
            FaultRate::Every(NonZeroU32::MIN) => {}
            FaultRate::Every(count) => write!(f, " every {count}")?,
            FaultRate::OneOf(count) => write!(f, " 1/{count}")?,
        }
        if self.kinds != MessageKinds::all() {
            let named = KINDS.iter().filter(|(_, kind)| self.kinds.contains(*kind)).map(|(name, _)| *name);
            write!(f, " {}", named.collect::<Vec<_>>().join(","))?;
        }
        if let Some(portal) = self.portal {
            write!(f, " portal {portal}")?;
        }
        for (word, nid) in [("from", self.source), ("to", self.destination)] {
            if !nid.is_any() {
                write!(f, " {word} {nid}")?;
            }
        }
        if self.seed != 0 {
            write!(f, " seed {}", self.seed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nids() -> impl Strategy<Value = Nid> {
        prop_oneof![
            Just(Nid::ANY),
            (1u8..255).prop_map(|last| format!("10.0.0.{last}@tcp1").parse().unwrap())
        ]
    }

    fn rules() -> impl Strategy<Value = FaultRule> {
        let span =
            || (0u64..60_000, 0usize..4).prop_map(|(n, unit)| Duration::from_nanos(n * UNITS[unit].1 / 1000));
        let delay =
            (span(), span()).prop_map(|(a, b)| FaultAction::Delay { at_least: a.min(b), at_most: a.max(b) });
        let rate = (1..=u32::MAX, any::<bool>()).prop_map(|(n, every)| {
            let count = NonZeroU32::new(n).unwrap();
            if every { FaultRate::Every(count) } else { FaultRate::OneOf(count) }
        });
        let portal = prop::option::of((0u32..64).prop_map(|index| Portal::new(index).unwrap()));
        let kinds = (1u8..16).prop_map(MessageKinds::from_bits_truncate);
        let action = prop_oneof![Just(FaultAction::Drop), delay];
        (action, rate, kinds, portal, nids(), nids(), any::<u64>()).prop_map(
            |(action, rate, kinds, portal, source, destination, seed)| FaultRule {
                action,
                rate,
                kinds,
                portal,
                source,
                destination,
                seed,
            },
        )
    }

    proptest! {
        #[test]
        fn a_rule_is_what_its_text_says(rule in rules()) {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
        }

        /// Arbitrary texts, more or less similar to rules.
        #[test]
        fn no_text_panics(words in prop::collection::vec(prop_oneof![
            Just("drop"), Just("delay"), Just("1ms..1s"), Just("18446744073709551615s"), Just("1/0"), Just("1/9"), Just("every"),
            Just("put,get"), Just("put,"), Just("portal"), Just("64"), Just("from"), Just("*"), Just("seed"), Just("-1"), Just("\u{b5}s"),
        ], 0..8)) {
            let text = words.join(" ");
            if let Ok(rule) = text.parse::<FaultRule>() {
                prop_assert_eq!(rule.to_string().parse(), Ok(rule));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("", "\"\""),
            ("lose put", "\"lose\""),
            ("delay", "\"\""),
            ("delay 5", "\"5\""),
            ("delay 5m", "\"5m\""),
            ("drop 2/3", "\"2/3\""),
            ("drop 1/0", "\"1/0\""),
            ("drop every 0", "\"0\""),
            ("drop put get", "\"get\""),
            ("drop put,fetch", "\"put,fetch\""),
            ("drop portal 64", "\"64\""),
            ("drop from nowhere", "\"nowhere\""),
            ("drop seed", "\"\""),
            ("drop 1/2 every 2", "\"every\""),
        ] {
            let error = text.parse::<FaultRule>().unwrap_err();
            assert!(error.to_string().contains(word), "{text:?}: {error}");
            assert_eq!(error.errno(), lnet_api::Errno::EINVAL);
        }
        assert!(matches!("delay 2s..1s".parse::<FaultRule>(), Err(FaultRuleError::Delay { .. })));
        assert!(matches!("delay 11s..61s".parse::<FaultRule>(), Err(FaultRuleError::Delay { .. })));
    }
}
