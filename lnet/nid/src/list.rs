//! Lists of NIDs: `192.168.[1-10].*@tcp 0@lo`.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use crate::range::Expression;
use crate::{Nid, NidError, NidRange, text};

/// A list of NIDs and NID ranges, for tools and rules (lnet-wire 4). Never on the wire.
///
/// | expression | NIDs |
/// | --- | --- |
/// | `*`, `*@tcp` | every NID; every NID of that network |
/// | `10.0.0.1@tcp`, `fd00::1@tcp`, `17@gni` | that NID |
/// | `192.168.[1-10].*@tcp` | IPv4 addresses, each of whose octets is a number, a bracket list or `*` |
/// | `[1-100]@gni` | addresses of a driver with numbers for addresses, decimal or hexadecimal |
/// | `10.0.0.0/16@tcp`, `fd00::/64@tcp` | addresses with this prefix |
///
/// A bracket list is `[a,b-c,d-e/s]`: the number a, those from b to c, every s-th from d to e.
/// Blanks are valid only between expressions. Without `@` the network is `tcp`, except for a single
/// `*`. A list without expressions contains no NID.
///
/// It prints in a canonical form, which parses to an equal list.
///
/// ```
/// use lnet_nid::NidList;
///
/// let list: NidList = "10.0.[0,4-6/2].*@tcp 10.1.0.9/30 [3,1,2]@gni".parse()?;
/// assert!(list.contains("10.0.4.200@tcp".parse()?));
/// assert!(!list.contains("10.0.5.200@tcp".parse()?));
/// assert_eq!(list.to_string(), "10.0.[0,4-6/2].*@tcp 10.1.0.8/30@tcp [1-3]@gni");
///
/// let group: NidList = "10.0.0.[1-3]@tcp 0@lo".parse()?;
/// assert_eq!(group.members(100)?.len(), 4);
/// # Ok::<(), lnet_nid::NidError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct NidList(Vec<NidRange>);

impl NidList {
    /// The maximum number of expressions in a list. A rule is compared with every message: use
    /// prefixes instead of a longer list.
    pub const EXPRESSIONS_MAX: usize = 1024;
    /// The maximum number of NIDs that [`NidList::members`] lists: a cluster with many interfaces
    /// per node, and a megabyte of NIDs.
    pub const MEMBERS_MAX: usize = 1 << 16;

    /// Returns the expressions, in their order.
    #[must_use]
    pub fn ranges(&self) -> &[NidRange] {
        &self.0
    }

    /// Returns whether the list has no expressions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether one of the ranges contains the NID. [`Nid::ANY`] is never contained: it
    /// names no interface.
    #[must_use]
    pub fn contains(&self, nid: Nid) -> bool {
        self.0.iter().any(|range| range.contains(nid))
    }

    /// Returns the NIDs one by one, in the order of the expressions and each once.
    ///
    /// # Errors
    /// [`NidError::Members`] if their number, including duplicates, is above `limit` or
    /// [`NidList::MEMBERS_MAX`], as it always is for `*` and `*@tcp`.
    pub fn members(&self, limit: usize) -> Result<Vec<Nid>, NidError> {
        let limit = limit.min(NidList::MEMBERS_MAX);
        let (mut members, mut seen, mut left) = (Vec::new(), HashSet::new(), limit);
        for range in &self.0 {
            let too_many = || NidError::Members { text: text::truncate(&range.to_string()), limit };
            for nid in range.members().ok_or_else(too_many)? {
                left = left.checked_sub(1).ok_or_else(too_many)?;
                if seen.insert(nid) {
                    members.push(nid);
                }
            }
        }
        Ok(members)
    }
}

impl FromStr for NidList {
    type Err = NidError;

    fn from_str(text: &str) -> Result<NidList, NidError> {
        let mut ranges = Vec::new();
        let mut rest = text.trim_ascii_start();
        while !rest.is_empty() {
            let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
            let expression = Expression { text: &rest[..end], position: text.len() - rest.len() };
            if ranges.len() == NidList::EXPRESSIONS_MAX {
                return Err(expression.too_long("expressions", expression.text, NidList::EXPRESSIONS_MAX));
            }
            ranges.push(NidRange::parse(expression)?);
            rest = rest[end..].trim_ascii_start();
        }
        Ok(NidList(ranges))
    }
}

impl FromStr for NidRange {
    type Err = NidError;

    fn from_str(text: &str) -> Result<NidRange, NidError> {
        NidRange::parse(Expression { text, position: 0 })
    }
}

impl From<NidRange> for NidList {
    fn from(range: NidRange) -> NidList {
        NidList(vec![range])
    }
}

impl fmt::Display for NidList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            let blank = if at == 0 { "" } else { " " };
            write!(f, "{blank}{range}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for NidList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
