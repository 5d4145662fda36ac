//! Lists of CPU partitions, as in `tcp(eth0)[0,2-3]`.

use std::fmt;
use std::str::FromStr;

use lnet_cpt::{CptError, CpuSet, MAX_PARTITIONS};

/// A list of CPU partitions, as `0,2-3`; the empty set means all.
///
/// ```
/// let set: lnet_node::CptSet = "0,2-3".parse()?;
/// assert_eq!(set.iter().collect::<Vec<_>>(), [0, 2, 3]);
/// # Ok::<(), lnet_node::CptListError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CptSet(
    /// Partition numbers, not CPU numbers: `CpuSet` parses the same grammar (lnet-semantics 21).
    CpuSet,
);

/// The reason why a list of CPU partitions cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}, at byte {position}")]
pub struct CptListError {
    pub(crate) position: usize,
    pub(crate) reason: String,
}

impl FromStr for CptSet {
    type Err = CptListError;

    fn from_str(list: &str) -> Result<CptSet, CptListError> {
        CptSet::read(list)
    }
}

impl CptSet {
    /// Parses `0,2-3`, without brackets. Each partition may appear once.
    pub(crate) fn read(list: &str) -> Result<CptSet, CptListError> {
        let mut all = CpuSet::new();
        let mut position = 0;
        for range in list.split(',') {
            let refuse = |reason: String| CptListError { position, reason };
            let more: CpuSet = range.parse().map_err(|error| wrong_range(position, error))?;
            let last = more.last().ok_or_else(|| refuse("expected a CPU partition".into()))?;
            if last >= MAX_PARTITIONS {
                let highest = MAX_PARTITIONS - 1;
                return Err(refuse(format!("CPU partition {last}: the highest there can be is {highest}")));
            }
            if let Some(twice) = all.intersection(&more).first() {
                return Err(refuse(format!("CPU partition {twice} is named twice")));
            }
            all = all.union(&more);
            position += range.len() + 1;
        }
        Ok(CptSet(all))
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the partitions in ascending order, as LNet numbers those of an NI (lnet-semantics
    /// 22).
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter()
    }
}

fn wrong_range(start: usize, error: CptError) -> CptListError {
    match error {
        CptError::Syntax { position, reason, .. } => {
            CptListError { position: start + position, reason: reason.to_string() }
        }
        CptError::Number { number, .. } => {
            let highest = MAX_PARTITIONS - 1;
            let reason = format!("CPU partition {number}: the highest there can be is {highest}");
            CptListError { position: start, reason }
        }
        error => CptListError { position: start, reason: error.to_string() },
    }
}

/// In brackets; empty for the empty set.
impl fmt::Display for CptSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() { Ok(()) } else { write!(f, "[{}]", self.0) }
    }
}
