//! The table of tunables: LNet's with the names known to its users (lnet-semantics 27 to 30), and
//! nlx's own. Configurations are parsed and printed with this table, and `docs/configuration.md` is
//! a copy of it.

/// Defines a tunable that is a numeric field of an LND's configuration.
macro_rules! number {
    ($module:ident, $lnd:ident, $name:literal, $field:ident: $type:ty, $unit:literal, $min:literal..=$max:expr, $meaning:literal) => {
        Tunable {
            module: $module,
            name: $name,
            unit: $unit,
            agree: ALONE,
            meaning: $meaning,
            effect: Effect::Number {
                min: $min,
                max: $max as i64,
                get: |config| config.$lnd.$field as i64,
                set: |config: &mut NodeConfig, value| config.$lnd.$field = value as $type,
            },
        }
    };
}

/// Defines a tunable that is a switch of an LND's configuration.
macro_rules! switch {
    ($module:ident, $lnd:ident, $field:ident: $meaning:literal) => {
        Tunable {
            module: $module,
            name: stringify!($field),
            unit: "",
            agree: ALONE,
            meaning: $meaning,
            effect: Effect::Number {
                min: 0,
                max: 1,
                get: |config| config.$lnd.$field.into(),
                set: |config, value| config.$lnd.$field = value != 0,
            },
        }
    };
}

/// Defines a tunable without effect in nlx: LNet's default, equivalent values, and the reason
/// ([`Effect::None`]).
macro_rules! idle {
    ($module:ident: $name:expr, $default:expr, $like:expr, $why:expr) => {
        Tunable {
            module: $module,
            name: $name,
            unit: "",
            agree: ALONE,
            meaning: $why,
            effect: Effect::None { default: $default, like: $like },
        }
    };
}

/// Defines the tunable for the type of service of an LND's connections.
macro_rules! tos {
    ($module:ident, $lnd:ident) => {
        Tunable {
            module: $module,
            name: "tos",
            unit: "",
            agree: ALONE,
            meaning: "the type of service of connections; -1 leaves it to the system",
            effect: Effect::Number {
                min: -1,
                max: 255,
                get: |config| config.$lnd.tos.map_or(-1, i64::from),
                set: |config, value| config.$lnd.tos = u8::try_from(value).ok(),
            },
        }
    };
}

mod lnet;
mod nlx;
mod o2iblnd;
mod selftest;
mod socklnd;

use std::fmt;

use lnet_api::Errno;

use crate::{NodeConfig, NodeError};

/// The name of LNet's module.
pub(crate) const LNET: &str = "lnet";
/// The name of the TCP LND's module.
pub(crate) const SOCKLND: &str = "ksocklnd";
/// The name of the verbs LND's module.
pub(crate) const O2IBLND: &str = "ko2iblnd";
/// The name of the module of LNet's self-test.
pub(crate) const SELFTEST: &str = "lnet_selftest";
/// The module name for tunables that only nlx has.
pub(crate) const NLX: &str = "nlx";
/// The former module of the tunables of CPU partitions.
pub(crate) const LIBCFS: &str = "libcfs";

/// A setting with the name known to users.
///
/// ```
/// let port = lnet_node::Tunable::find("lnet", "accept_port").expect("it is LNet's");
/// assert_eq!((port.default(), port.range().as_str()), ("988".to_string(), "1 to 65535"));
/// assert!(port.acts());
/// ```
#[derive(Debug)]
pub struct Tunable {
    module: &'static str,
    name: &'static str,
    unit: &'static str,
    agree: &'static str,
    meaning: &'static str,
    effect: Effect,
}

/// The type and effect of a tunable.
pub(crate) enum Effect {
    /// A number within a range, or a switch: 0 or 1.
    Number { min: i64, max: i64, get: fn(&NodeConfig) -> i64, set: fn(&mut NodeConfig, i64) },
    /// One of several words.
    Word {
        words: &'static [&'static str],
        get: fn(&NodeConfig) -> &'static str,
        set: fn(&mut NodeConfig, &str),
    },
    /// A text with a grammar.
    Text {
        grammar: &'static str,
        get: fn(&NodeConfig) -> String,
        set: fn(&mut NodeConfig, &str) -> Result<(), TunableRefusal>,
    },
    /// No effect in nlx.
    None {
        /// LNet's default.
        default: &'static str,
        /// The value with which LNet behaves as nlx always does, then defaults of other recent
        /// releases of LNet, separated by `|`. Neither these nor the default cause a warning.
        like: &'static str,
    },
}

/// The reason why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TunableRefusal {
    pub(crate) reason: String,
    pub(crate) errno: Errno,
}

impl From<String> for TunableRefusal {
    fn from(reason: String) -> TunableRefusal {
        TunableRefusal { reason, errno: Errno::EINVAL }
    }
}

impl From<NodeError> for TunableRefusal {
    fn from(error: NodeError) -> TunableRefusal {
        TunableRefusal { reason: error.to_string(), errno: error.errno() }
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effect::Number { .. } => "Number",
            Effect::Word { .. } => "Word",
            Effect::Text { .. } => "Text",
            Effect::None { .. } => "None",
        })
    }
}

/// The value of `agree` for a tunable that may differ between nodes.
const ALONE: &str = "–";

impl Tunable {
    /// Returns all tunables by module, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = &'static Tunable> {
        [lnet::ROWS, socklnd::ROWS, o2iblnd::ROWS, nlx::ROWS, selftest::ROWS].into_iter().flatten()
    }

    /// Returns the tunable of a module: `lnet`, `ksocklnd`, `ko2iblnd`, `nlx`; those of
    /// `lnet_selftest` have no effect.
    #[must_use]
    pub fn find(module: &str, name: &str) -> Option<&'static Tunable> {
        let module = if module == LIBCFS && name.starts_with("cpu_") { LNET } else { module };
        Tunable::all().find(|tunable| tunable.module == module && tunable.name == name)
    }

    /// Returns the module of the tunable in LNet.
    #[must_use]
    pub fn module(&self) -> &'static str {
        self.module
    }

    /// Returns the name of the tunable, without the module.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the default, in the form of a configuration file.
    #[must_use]
    pub fn default(&self) -> String {
        match self.effect {
            Effect::None { default, .. } => default.to_string(),
            _ => self.value(&NodeConfig::new()),
        }
    }

    /// Returns the unit of the value; empty if there is none.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.unit
    }

    /// Returns the description of the valid values. A tunable without effect accepts any.
    #[must_use]
    pub fn range(&self) -> String {
        match &self.effect {
            Effect::Number { min: 0, max: 1, .. } => "0 or 1".into(),
            Effect::Number { min, max, .. } => format!("{min} to {max}"),
            Effect::Word { words, .. } => words.join(", "),
            Effect::Text { grammar, .. } => (*grammar).into(),
            Effect::None { .. } => "any".into(),
        }
    }

    /// Returns which nodes must have the same value.
    #[must_use]
    pub fn agree(&self) -> &'static str {
        self.agree
    }

    /// Returns the description of the tunable; for one without effect in nlx, the reason.
    #[must_use]
    pub fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// Returns whether the tunable has an effect in nlx.
    #[must_use]
    pub fn acts(&self) -> bool {
        !matches!(self.effect, Effect::None { .. })
    }

    /// Returns the tunable's value in a configuration, in the form of a configuration file.
    #[must_use]
    pub fn value(&self, config: &NodeConfig) -> String {
        match &self.effect {
            Effect::Number { get, .. } => get(config).to_string(),
            Effect::Word { get, .. } => get(config).to_string(),
            Effect::Text { get, .. } => get(config),
            Effect::None { like, .. } => like.split('|').next().unwrap_or_default().to_string(),
        }
    }

    /// Parses a value and sets the tunable. Returns whether no warning is needed.
    pub(crate) fn set(&self, config: &mut NodeConfig, text: &str) -> Result<bool, TunableRefusal> {
        match &self.effect {
            Effect::Number { set, .. } => set(config, self.number(text)?),
            Effect::Word { words, set, .. } => match words.contains(&text) {
                true => set(config, text),
                false => return Err(format!("it must be one of {}, not '{text}'", words.join(", ")).into()),
            },
            Effect::Text { set, .. } => set(config, text)?,
            Effect::None { .. } => return Ok(self.is_usual(text)),
        }
        Ok(true)
    }

    /// Returns whether a value of a tunable without effect needs no warning: nlx behaves as LNet
    /// does with that value, or the value is LNet's default and may not have been chosen.
    pub(crate) fn is_usual(&self, text: &str) -> bool {
        let Effect::None { default, like } = self.effect else { return false };
        default == text.trim() || like.split('|').any(|like| like == text.trim())
    }

    /// Parses a number in the tunable's range.
    pub(crate) fn number(&self, text: &str) -> Result<i64, String> {
        let Effect::Number { min, max, .. } = self.effect else { return Err("it is no number".into()) };
        let switch = (min, max) == (0, 1);
        let number = read_number(text).or(if switch { read_switch(text) } else { None });
        number.filter(|number| (min..=max).contains(number)).ok_or_else(|| match switch {
            true => format!("it must be 0 or 1, not '{text}'"),
            false => format!("it must be a number from {min} to {max}, not '{text}'"),
        })
    }
}

/// Parses a decimal number, or one with `0x`. Leading zeros are refused, because a kernel parses
/// such numbers as octal while users expect decimal.
fn read_number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let hex = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((digits, 10), |digits| (digits, 16));
    let leading_zero = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    if leading_zero || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(sign * i64::from_str_radix(digits, radix).ok()?)
}

fn read_switch(text: &str) -> Option<i64> {
    match text.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" | "on" => Some(1),
        "n" | "no" | "false" | "off" => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
