//! A fault rule: the messages that it matches, and its action on them.

use std::num::NonZeroU32;
use std::time::Duration;

use lnet_nid::{Nid, Portal};
use lnet_proto::{Body, Header, MessageType};

/// Longest delay: a minute. A delayed message blocks its connection, which with the default of
/// `sock_timeout` is lost when nothing has moved for 100 s.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

bitflags::bitflags! {
    /// Kinds of messages.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct MessageKinds: u8 {
        /// PUTs.
        const PUT = 1;
        /// GETs.
        const GET = 2;
        /// Acknowledgements of PUTs.
        const ACK = 4;
        /// Replies to GETs.
        const REPLY = 8;
    }
}

impl MessageKinds {
    fn of(kind: MessageType) -> MessageKinds {
        match kind {
            MessageType::Put => MessageKinds::PUT,
            MessageType::Get => MessageKinds::GET,
            MessageType::Ack => MessageKinds::ACK,
            MessageType::Reply => MessageKinds::REPLY,
        }
    }
}

/// The action of a rule on the messages that it selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultAction {
    /// The message is lost on this node: received, counted as dropped, and ignored.
    Drop,
    /// The message is delayed by a time in this range, both ends included, which follows from the
    /// rule's seed.
    Delay {
        /// The shortest delay.
        at_least: Duration,
        /// The longest delay, at most [`DELAY_MAX`].
        at_most: Duration,
    },
}

/// The fraction of matching messages to which the action applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultRate {
    /// The last message of each group of this size.
    Every(NonZeroU32),
    /// One message of each group of this size, at a position that the rule's seed decides for each
    /// group.
    OneOf(NonZeroU32),
}

/// A rule by which arriving messages are lost or delayed; see [`crate::Engine::add_fault`].
///
/// Its text, as on a command line, has an action, a rate, and the messages to which it applies. An
/// omitted part matches everything.
///
/// | part | forms | if omitted |
/// | --- | --- | --- |
/// | action | `drop`, `delay 5ms`, `delay 100us..2s` | – |
/// | rate | `1/100`: one of each hundred, at a position that the seed decides; `every 100`: each hundredth | always |
/// | kinds | `put`, `get`, `ack`, `reply`, several with commas | all |
/// | portal | `portal 42` (only PUTs and GETs name one) | any |
/// | source, destination | `from 10.0.0.1@tcp`, `to 10.0.0.2@tcp`: NIDs as the header names them; `*` is any | any |
/// | seed | `seed 7` | 0 |
///
/// ```
/// use std::time::Duration;
///
/// use lnet::{FaultAction, FaultRule, MessageKinds};
///
/// let rule: FaultRule = "drop 1/100 put portal 42".parse()?;
/// assert_eq!((rule.action, rule.kinds), (FaultAction::Drop, MessageKinds::PUT));
/// assert_eq!(rule.to_string(), "drop 1/100 put portal 42");
///
/// let (at_least, at_most) = (Duration::from_micros(100), Duration::from_millis(2));
/// let rule: FaultRule = "delay 100us..2ms every 3 get,reply from 10.0.0.1@tcp seed 7".parse()?;
/// assert_eq!(rule.action, FaultAction::Delay { at_least, at_most });
///
/// // Several rules, as on a command line.
/// assert_eq!(FaultRule::parse_all("drop 1/10 ack; delay 5ms put")?.len(), 2);
/// # Ok::<(), lnet::FaultRuleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultRule {
    /// The action on the selected messages.
    pub action: FaultAction,
    /// The fraction of matching messages to which the action applies.
    pub rate: FaultRate,
    /// The kinds of messages that match.
    pub kinds: MessageKinds,
    /// The portal; if one is given, only PUTs and GETs match, as other messages name no portal.
    pub portal: Option<Portal>,
    /// The NID that the header names as its source; [`Nid::ANY`] is any.
    pub source: Nid,
    /// The NID that the header names as its destination; [`Nid::ANY`] is any.
    pub destination: Nid,
    /// Seed of the random choices: the same messages, in the same order, get the same faults.
    pub seed: u64,
}

/// An invalid text or rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultRuleError {
    /// An unexpected word.
    #[error("fault rule {rule:?}: {found:?} is not {expected}")]
    Word {
        /// The text of the rule that was parsed.
        rule: String,
        /// The word; empty if the text ended too early.
        found: String,
        /// The words that are valid here.
        expected: &'static str,
    },
    /// A delay whose range is reversed, or too long.
    #[error(
        "invalid delay {at_least:?} to {at_most:?}: it must be within 0 and {DELAY_MAX:?}, the shorter first"
    )]
    Delay {
        /// The lower end of the range.
        at_least: Duration,
        /// The upper end of the range.
        at_most: Duration,
    },
    /// No kind of message is named.
    #[error("a fault rule must name at least one kind of message")]
    NoKinds,
}

impl FaultRuleError {
    /// Returns EINVAL.
    #[must_use]
    pub fn errno(&self) -> lnet_api::Errno {
        lnet_api::Errno::EINVAL
    }
}

impl FaultRule {
    /// Creates a rule for every message.
    #[must_use]
    pub fn always(action: FaultAction) -> FaultRule {
        FaultRule {
            action,
            rate: FaultRate::Every(NonZeroU32::MIN),
            kinds: MessageKinds::all(),
            portal: None,
            source: Nid::ANY,
            destination: Nid::ANY,
            seed: 0,
        }
    }

    /// Checks the rule.
    ///
    /// # Errors
    /// [`FaultRuleError`], except those of a text.
    pub fn check(&self) -> Result<(), FaultRuleError> {
        match self.action {
            FaultAction::Delay { at_least, at_most } if at_least > at_most || at_most > DELAY_MAX => {
                Err(FaultRuleError::Delay { at_least, at_most })
            }
            _ if self.kinds.is_empty() => Err(FaultRuleError::NoKinds),
            _ => Ok(()),
        }
    }

    /// Returns whether the rule matches a message.
    pub(super) fn is_for(&self, header: &Header) -> bool {
        let portal = match header.body {
            Body::Put { portal, .. } | Body::Get { portal, .. } => Some(portal),
            Body::Ack { .. } | Body::Reply { .. } => None,
        };
        let meant = |nid: Nid, named: Nid| nid.is_any() || nid == named;
        self.kinds.contains(MessageKinds::of(header.message_type()))
            && self.portal.is_none_or(|wanted| portal == Some(wanted.get()))
            && meant(self.source, header.src.nid)
            && meant(self.destination, header.dest.nid)
    }

    /// Returns whether the action applies to the matching message with this number. The first has
    /// 0.
    pub(super) fn happens_to(&self, number: u64) -> bool {
        match self.rate {
            FaultRate::Every(count) => (number + 1).is_multiple_of(u64::from(count.get())),
            FaultRate::OneOf(count) => {
                let count = u64::from(count.get());
                number % count == random(self.seed, number / count) % count
            }
        }
    }

    /// Returns the delay of the matching message with this number, in nanoseconds; `None` if the
    /// message is lost.
    pub(super) fn delay_ns(&self, number: u64) -> Option<u64> {
        let FaultAction::Delay { at_least, at_most } = self.action else { return None };
        // A minute has 2^36 nanoseconds.
        let [low, high] = [at_least, at_most].map(|span| span.as_nanos() as u64);
        Some(low + random(!self.seed, number) % (high - low + 1))
    }
}

/// Returns the number at an index of the random sequence of a seed (SplitMix64), in any order of
/// calls.
fn random(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add((index.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(rate: FaultRate, seed: u64) -> FaultRule {
        FaultRule { rate, seed, ..FaultRule::always(FaultAction::Drop) }
    }

    proptest! {
        /// A rate selects exactly one message of each group, for any seed: the last one, or one at
        /// varying positions.
        #[test]
        fn a_rate_is_exact(count in 1u32..50, seed: u64, from in 0u64..1000) {
            let count = NonZeroU32::new(count).unwrap();
            let wide = u64::from(count.get());
            let window = from * wide..(from + 1) * wide;
            for rate in [FaultRate::Every(count), FaultRate::OneOf(count)] {
                let rule = rule(rate, seed);
                prop_assert_eq!(window.clone().filter(|&number| rule.happens_to(number)).count(), 1);
            }
            prop_assert!(rule(FaultRate::Every(count), seed).happens_to(window.end - 1));
        }

        #[test]
        fn a_delay_is_within_its_span(low in 0u64..1 << 30, wide in 0u64..1 << 30, seed: u64, number: u64) {
            let [at_least, at_most] = [low, low + wide].map(Duration::from_nanos);
            let rule = FaultRule { seed, ..FaultRule::always(FaultAction::Delay { at_least, at_most }) };
            prop_assert!(rule.check().is_ok());
            let delay_ns = rule.delay_ns(number).unwrap();
            prop_assert!((low..=low + wide).contains(&delay_ns));
        }
    }

    /// Over a hundred groups of ten, each of the ten positions occurs.
    #[test]
    fn the_seed_decides_the_place() {
        let ten = NonZeroU32::new(10).unwrap();
        let places = |seed| -> Vec<u64> {
            let rule = rule(FaultRate::OneOf(ten), seed);
            (0..1000).filter(|&number| rule.happens_to(number)).map(|number| number % 10).collect()
        };
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
        assert!((0..10).all(|index| places(3).contains(&index)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let second = Duration::from_secs(1);
        for (at_least, at_most) in [(second, Duration::ZERO), (second, DELAY_MAX + Duration::from_nanos(1))] {
            let rule = FaultRule::always(FaultAction::Delay { at_least, at_most });
            assert_eq!(rule.check(), Err(FaultRuleError::Delay { at_least, at_most }));
        }
        let nothing = FaultRule { kinds: MessageKinds::empty(), ..FaultRule::always(FaultAction::Drop) };
        assert_eq!(nothing.check(), Err(FaultRuleError::NoKinds));
    }
}
