//! The tunables of CPU partitions, and the table that they describe.

use std::str::FromStr;
use std::sync::Arc;

use crate::list::MAX_TEXT_BYTES;
use crate::{CptError, CptTable, Estimate, Pattern, Topology};

/// The tunables of CPU partitions (S-315), with the names known to users.
///
/// Parsed from text in the form of module options: `cpu_npartitions=4`, `cpu_pattern="N 0[0-1]
/// 1[2-3]"`. The design's names `npartitions` and `cpu_patterns` mean the same; `estimate` and
/// `conflict` choose between its rules and those of today's LNet.
///
/// ```
/// use lnet_cpt::{CptConfig, Topology};
///
/// let config: CptConfig = r#"cpu_pattern="0[0-3] 1[4-7]""#.parse()?;
/// let table = config.create(Topology::flat(&"0-7".parse()?)?)?;
/// assert_eq!(table.to_string(), "0\t: 0 1 2 3\n1\t: 4 5 6 7\n");
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CptConfig {
    /// `cpu_npartitions`: the number of partitions; 0 leaves it to the pattern or the estimate, 1
    /// switches affinity off.
    pub npartitions: usize,
    /// `cpu_pattern`: the CPUs of each partition.
    pub pattern: Option<Pattern>,
    /// `estimate=seed|current|classic|node`: the rule for the number if neither of the above sets
    /// it.
    pub estimate: Estimate,
    /// `conflict=pattern|refuse`: the rule if both are set.
    pub conflict: Conflict,
}

/// The rule if both a number of partitions and a pattern are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conflict {
    /// The pattern decides; the number is ignored (S-303).
    #[default]
    PatternWins,
    /// The configuration is refused, as in today's LNet: the number must be that of the pattern's
    /// groups. With the pattern `N` the number takes precedence (lnet-semantics 20).
    Refused,
}

/// A number of partitions above this multiple of the estimate causes a warning (lnet-semantics 20).
const EXCESS: usize = 4;

impl CptConfig {
    /// Creates the table for a machine.
    ///
    /// # Errors
    /// EINVAL for more partitions than CPUs or than the limit ([`CptError::MoreThanCpus`],
    /// [`CptError::PartitionCount`]), for a pattern that names a CPU twice ([`CptError::Overlap`]),
    /// and under [`Conflict::Refused`] if number and pattern disagree ([`CptError::GroupCount`]);
    /// ENODEV for a partition without a usable CPU ([`CptError::Empty`]).
    pub fn create(&self, topology: impl Into<Arc<Topology>>) -> Result<CptTable, CptError> {
        let topology = topology.into();
        match (&self.pattern, self.npartitions) {
            (None, 0) => CptTable::create_default(topology, self.estimate),
            (None, number) => CptTable::create(topology, number),
            // A pattern that reduces a layout contradicts no number.
            (Some(pattern @ Pattern::Reduced { groups, .. }), number) => {
                CptTable::create_reduced(topology, pattern, if number == 0 { *groups } else { number })
            }
            (Some(pattern), number) if number > 0 && self.conflict == Conflict::Refused => {
                match pattern.groups() {
                    None => CptTable::create(topology, number),
                    Some(groups) if groups != number => {
                        Err(CptError::GroupCount { groups, npartitions: number })
                    }
                    Some(_) => CptTable::create_pattern(topology, pattern),
                }
            }
            (Some(pattern), _) => CptTable::create_pattern(topology, pattern),
        }
    }

    /// Returns whether the number of partitions deserves a warning: more than four times the
    /// estimate.
    pub fn is_excessive(&self, topology: &Topology) -> bool {
        self.pattern.is_none() && self.npartitions > EXCESS * self.estimate.partitions(topology)
    }

    /// Sets one tunable by its name.
    ///
    /// # Errors
    /// EINVAL for an unknown name ([`CptError::UnknownTunable`]), an invalid value
    /// ([`CptError::TunableValue`]), and a pattern that violates the grammar, as its `FromStr`
    /// reports. The configuration is unchanged in these cases.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), CptError> {
        let wrong = |name, reason| CptError::TunableValue { name, value: value.to_owned(), reason };
        match name {
            "cpu_npartitions" | "npartitions" => {
                let number = value.parse().ok().filter(|&number| number <= crate::MAX_PARTITIONS);
                self.npartitions =
                    number.ok_or(wrong("cpu_npartitions", "it must be a number from 0 to 256"))?;
            }
            "cpu_pattern" | "cpu_patterns" => {
                self.pattern = (!value.trim().is_empty()).then(|| value.parse()).transpose()?;
            }
            "estimate" => {
                self.estimate = match value {
                    "seed" => Estimate::Seed,
                    "current" => Estimate::Current,
                    "classic" => Estimate::Classic,
                    "node" => Estimate::PerNode,
                    _ => return Err(wrong("estimate", "it must be seed, current, classic or node")),
                }
            }
            "conflict" => {
                self.conflict = match value {
                    "pattern" => Conflict::PatternWins,
                    "refuse" => Conflict::Refused,
                    _ => return Err(wrong("conflict", "it must be pattern or refuse")),
                }
            }
            _ => return Err(CptError::UnknownTunable { name: name.to_owned() }),
        }
        Ok(())
    }
}

impl FromStr for CptConfig {
    type Err = CptError;

    /// Parses `name=value` pairs separated by blanks; a value with blanks is in double quotes.
    fn from_str(text: &str) -> Result<CptConfig, CptError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(CptError::TextLength { what: "tunables", bytes: text.len(), max: MAX_TEXT_BYTES });
        }
        let mut config = CptConfig::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let position = text.len() - rest.len();
            let syntax = |reason| CptError::Syntax { what: "tunables", position, reason };
            let (name, after) = rest.split_once('=').ok_or(syntax("expected name=value"))?;
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => {
                    quoted.split_once('"').ok_or(syntax("the value's closing quote is missing"))?
                }
                None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
            };
            if !after.is_empty() && !after.starts_with(char::is_whitespace) {
                return Err(syntax("expected a blank after the value"));
            }
            config.set(name, value)?;
            rest = after.trim_start();
        }
        Ok(config)
    }
}
