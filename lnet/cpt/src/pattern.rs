//! The tunable `cpu_pattern`: its grammar, parser and printer.

use std::fmt;
use std::str::FromStr;

use crate::list::{Cursor, Range};
use crate::{CoreSet, CptError, CpuSet, MAX_PARTITIONS, NodeSet, NumberSet, Topology, set::Kind};

/// A `cpu_pattern` (S-302, lnet-semantics 21).
///
/// ```text
/// pattern := [ 'N' ] [ 'X' | 'C' ] body        either case
/// body    := group { blank group }
/// group   := index '[' list ']'                '[' list ']' after X or C
/// list    := range { ',' range }
/// range   := number | low '-' high | low '-' high '/' stride
/// ```
///
/// ```
/// use lnet_cpt::Pattern;
///
/// let pattern: Pattern = "0[0-3] 1[4-7]".parse()?;
/// assert_eq!(pattern.groups(), Some(2));
/// assert_eq!("n".parse::<Pattern>()?, Pattern::PerNode);
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// `N`: one partition per NUMA node.
    PerNode,
    /// `0[0-3] 1[4-7]`: the CPUs of each partition.
    Cpus(Vec<CpuSet>),
    /// `N 0[0-1] 1[2-3]`: the NUMA nodes of each partition.
    Nodes(Vec<NodeSet>),
    /// `X[…]`, `C[…]`, `N X[…]`, `N C[…]`: the default layout without some CPUs.
    Reduced {
        /// True if the layout has one partition per node (`N`).
        per_node: bool,
        /// The number of bracket groups, usually one: without `N`, the layout has one partition per
        /// group.
        groups: usize,
        /// The CPUs or cores that all groups together remove from each partition.
        without: Without,
    },
}

/// The CPUs or cores removed from a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Without {
    /// `X`: CPUs by their numbers.
    Cpus(CpuSet),
    /// `C`: cores, counted from zero within each partition. Strides are ignored.
    Cores(CoreSet),
}

impl Without {
    /// Returns those CPUs of a partition that are removed.
    pub(crate) fn among(&self, partition: &CpuSet, topology: &Topology) -> CpuSet {
        match self {
            Without::Cpus(cpus) => partition.intersection(cpus),
            Without::Cores(cores) => {
                let members = topology.cores_of(partition);
                cores
                    .iter()
                    .filter_map(|core| members.get(core))
                    .fold(CpuSet::new(), |all, core| all.union(core))
            }
        }
    }
}

impl Pattern {
    /// Returns the number of bracket groups; `N` alone has none.
    pub fn groups(&self) -> Option<usize> {
        match self {
            Pattern::PerNode => None,
            Pattern::Cpus(groups) => Some(groups.len()),
            Pattern::Nodes(groups) => Some(groups.len()),
            Pattern::Reduced { groups, .. } => Some(*groups),
        }
    }

    /// Returns the CPUs, or NUMA nodes, of the pattern's partitions that this topology lacks, as
    /// text: `CPUs 2-99`. `None` if it has all of them. CPUs that the pattern removes need not
    /// exist.
    pub fn absent(&self, topology: &Topology) -> Option<String> {
        match self {
            Pattern::PerNode | Pattern::Reduced { .. } => None,
            Pattern::Cpus(groups) => missing("CPUs", groups, topology.cpus()),
            Pattern::Nodes(groups) => missing("NUMA nodes", groups, &topology.nodes_with_cpus()),
        }
    }
}

/// Returns the numbers of all groups that are not in `present`, as text; `None` if there are none.
fn missing<K: Kind>(kind: &str, groups: &[NumberSet<K>], present: &NumberSet<K>) -> Option<String> {
    let absent = groups
        .iter()
        .map(|group| group.difference(present))
        .reduce(|all, more| all.union(&more))
        .filter(|absent| !absent.is_empty())?;
    Some(format!("{kind} {absent}"))
}

impl FromStr for Pattern {
    type Err = CptError;

    fn from_str(text: &str) -> Result<Pattern, CptError> {
        let mut cursor = Cursor::new("cpu_pattern", text)?;
        cursor.blanks();
        let by_node = cursor.take(b'N');
        cursor.blanks();
        if by_node && cursor.at_end() {
            return Ok(Pattern::PerNode);
        }
        let (by_cpu, by_core) = (cursor.take(b'X'), cursor.take(b'C'));
        if by_cpu && by_core {
            return Err(cursor.error("X and C exclude each other"));
        }
        cursor.blanks();
        let reduced = |groups: usize, without| Pattern::Reduced { per_node: by_node, groups, without };
        if by_cpu {
            let lists = bare_groups(&mut cursor)?;
            return Ok(reduced(lists.len(), Without::Cpus(CpuSet::of_ranges(&lists.concat())?)));
        }
        if by_core {
            let lists = bare_groups(&mut cursor)?;
            let ranges: Vec<_> =
                lists.concat().into_iter().map(|range| Range { stride: 1, ..range }).collect();
            return Ok(reduced(lists.len(), Without::Cores(CoreSet::of_ranges(&ranges)?)));
        }
        match by_node {
            true => Ok(Pattern::Nodes(indexed_groups(&mut cursor)?)),
            false => Ok(Pattern::Cpus(indexed_groups(&mut cursor)?)),
        }
    }
}

/// Parses `group { blank group }` up to the end, each group with `one`.
fn groups<T>(
    cursor: &mut Cursor<'_>,
    mut one: impl FnMut(&mut Cursor<'_>) -> Result<T, CptError>,
) -> Result<Vec<T>, CptError> {
    let mut found = Vec::new();
    loop {
        found.push(one(cursor)?);
        if found.len() > MAX_PARTITIONS {
            return Err(CptError::PartitionCount { wanted: found.len(), max: MAX_PARTITIONS });
        }
        let blank = cursor.blanks();
        if cursor.at_end() {
            return Ok(found);
        }
        if !blank {
            return Err(cursor.error("expected a blank between groups"));
        }
    }
}

/// Parses groups without indices, as after `X` or `C`.
fn bare_groups(cursor: &mut Cursor<'_>) -> Result<Vec<Vec<Range>>, CptError> {
    groups(cursor, bracket)
}

/// Parses groups with indices. Returns their sets in the order of the indices, which must be 0 to
/// the number of groups minus 1, each once.
fn indexed_groups<K: Kind>(cursor: &mut Cursor<'_>) -> Result<Vec<NumberSet<K>>, CptError> {
    let found = groups(cursor, |cursor| {
        let position = cursor.position();
        Ok((position, cursor.number()?, NumberSet::of_ranges(&bracket(cursor)?)?))
    })?;
    let mut sets: Vec<Option<NumberSet<K>>> = vec![None; found.len()];
    for (position, index, set) in found {
        let groups = sets.len();
        let slot = sets.get_mut(index).ok_or(CptError::GroupIndex { position, index, groups })?;
        if slot.replace(set).is_some() {
            return Err(CptError::GroupTwice { position, index });
        }
    }
    // There are equal numbers of indices and groups, and no index is duplicate or out of range, so
    // the set is complete.
    Ok(sets.into_iter().flatten().collect())
}

/// Parses a list in brackets.
fn bracket(cursor: &mut Cursor<'_>) -> Result<Vec<Range>, CptError> {
    cursor.expect(b'[', "a bracket [ must open the list")?;
    let ranges = cursor.ranges()?;
    cursor.expect(b']', "a bracket ] must close the list")?;
    Ok(ranges)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn indexed<K>(f: &mut fmt::Formatter<'_>, start: &str, sets: &[NumberSet<K>]) -> fmt::Result {
            sets.iter().enumerate().try_for_each(|(index, set)| {
                write!(f, "{}{index}[{set}]", if index == 0 { start } else { " " })
            })
        }
        match self {
            Pattern::PerNode => f.write_str("N"),
            Pattern::Cpus(sets) => indexed(f, "", sets),
            Pattern::Nodes(sets) => indexed(f, "N ", sets),
            Pattern::Reduced { per_node, groups, without } => {
                f.write_str(if *per_node { "N " } else { "" })?;
                let (letter, list) = match without {
                    Without::Cpus(cpus) => ("X", cpus.to_string()),
                    Without::Cores(cores) => ("C", cores.to_string()),
                };
                write!(f, "{letter}[{list}]")?;
                (1..*groups).try_for_each(|_| write!(f, " [{list}]"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use proptest::prelude::*;

    use super::*;

    fn cpus(lists: &[&str]) -> Pattern {
        Pattern::Cpus(lists.iter().map(|list| list.parse().unwrap()).collect())
    }

    /// The examples of the design and every form of lnet-semantics 21.
    // Covers: S-302
    #[test]
    fn every_form_is_read() {
        let four = ["0-3", "4-7", "8-11", "12-15"];
        let parse = |text: &str| text.parse::<Pattern>().unwrap();
        assert_eq!(parse("0[0-3] 1[4-7] 2[8-11] 3[12-15]"), cpus(&four));
        assert_eq!(parse("3[12-15] 1[4-7] 2[8-11] 0[0-3]"), cpus(&four));
        assert_eq!(parse("0[0,4] 1[1,5]  2[2,6] 3[3,7]\n"), cpus(&["0,4", "1,5", "2,6", "3,7"]));
        assert_eq!(parse("0[0-7/2] 1[1-7/2]"), cpus(&["0,2,4,6", "1,3,5,7"]));
        let nodes = Pattern::Nodes(vec!["0-1".parse().unwrap(), "2-3".parse().unwrap()]);
        assert_eq!(parse("N 0[0-1] 1[2-3]"), nodes);
        assert_eq!(parse("n0[0-1] 1[2-3]"), nodes);
        assert_eq!(parse(" N "), Pattern::PerNode);
        let without = |per_node, groups, without| Pattern::Reduced { per_node, groups, without };
        let few = Without::Cpus("0-1".parse().unwrap());
        assert_eq!(parse("X[0,1]"), without(false, 1, few.clone()));
        assert_eq!(parse("x[0] [1]"), without(false, 2, few.clone()));
        assert_eq!(parse("N X[0-1]"), without(true, 1, few));
        assert_eq!(parse("C[0-3/2]"), without(false, 1, Without::Cores("0-3".parse().unwrap())));
        assert_eq!(parse("n c[0]"), without(true, 1, Without::Cores("0".parse().unwrap())));
    }

    /// lnet-semantics 21: an error has its position, and is `EINVAL`.
    // Covers: S-302
    #[test]
    fn broken_patterns_are_refused_with_their_place() {
        for (text, place) in [
            ("", 0),
            ("0", 1),
            ("0[", 2),
            ("0[]", 2),
            ("0[0", 3),
            ("0[0-3", 5),
            ("0[0] x", 5),
            ("0[0]1[1]", 4),
            ("0 [0]", 1),
            ("[0]", 0),
            ("X", 1),
            ("X0[0]", 1),
            ("XC[0]", 2),
            ("Z[0]", 0),
            ("NN", 1),
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            assert!(
                matches!(error, CptError::Syntax { position, .. } if position == place),
                "{text:?}: {error}"
            );
            assert_eq!(error.errno(), Errno::EINVAL);
        }
        let error = |text: &str| text.parse::<Pattern>().unwrap_err();
        assert_eq!(error("0[0] 2[1]"), CptError::GroupIndex { position: 5, index: 2, groups: 2 });
        assert_eq!(error("0[0] 0[1]"), CptError::GroupTwice { position: 5, index: 0 });
        let many: Vec<_> = (0..=MAX_PARTITIONS).map(|index| format!("{index}[{index}]")).collect();
        assert!(matches!(error(&many.join(" ")), CptError::PartitionCount { .. }));
    }

    /// CPUs in a pattern that the machine lacks are reported.
    // Covers: S-302
    #[test]
    fn what_is_absent_is_named() {
        let topology = Topology::flat(&"0-3".parse().unwrap()).unwrap();
        let absent = |text: &str| text.parse::<Pattern>().unwrap().absent(&topology);
        assert_eq!(absent("0[0-99]").as_deref(), Some("CPUs 4-99"));
        assert_eq!(absent("0[0,7] 1[1-5]").as_deref(), Some("CPUs 4-5,7"));
        assert_eq!(absent("N 0[0] 1[1,3]").as_deref(), Some("NUMA nodes 1,3"));
        for all in ["0[0-3]", "0[0] 1[3]", "N", "N 0[0]", "X[0,99]", "C[99]"] {
            assert_eq!(absent(all), None, "{all}");
        }
    }

    proptest! {
        /// A parsed pattern prints as a text that parses to the same pattern.
        // Covers: S-302
        #[test]
        fn what_is_read_prints_and_reads_again(text in "[NnXxCc]{0,2} ?([0-2]?\\[[0-9](-[0-9](/[0-3])?)?(,[0-9])?\\] ?){0,3}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                prop_assert_eq!(pattern.to_string().parse::<Pattern>().unwrap(), pattern);
            }
        }
    }
}
