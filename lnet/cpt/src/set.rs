//! Sets of small numbers: CPUs, cores and NUMA nodes.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use crate::CptError;
use crate::list::{Cursor, Range};

/// The limit on CPU numbers: that of the largest kernel configurations of today.
pub const MAX_CPUS: usize = 8192;
/// The limit on NUMA node numbers: that of the largest kernel configurations of today.
pub const MAX_NODES: usize = 1024;

const WORD_BITS: usize = u64::BITS as usize;

/// The kind of the numbers in a set: CPUs, nodes or cores. Sealed to these three.
pub trait Kind: sealed::Sealed {
    /// The name of the kind for messages.
    const WHAT: &'static str;
    /// One above the highest number.
    const LIMIT: usize;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::OfCpus {}
    impl Sealed for super::OfNodes {}
    impl Sealed for super::OfCores {}
}

/// Marks a set of CPU numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OfCpus {}
/// Marks a set of NUMA node numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OfNodes {}
/// Marks a set of core numbers relative to a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OfCores {}

impl Kind for OfCpus {
    const WHAT: &'static str = "CPU";
    const LIMIT: usize = MAX_CPUS;
}
impl Kind for OfNodes {
    const WHAT: &'static str = "node";
    const LIMIT: usize = MAX_NODES;
}
impl Kind for OfCores {
    const WHAT: &'static str = "core";
    const LIMIT: usize = MAX_CPUS;
}

/// A set of logical CPUs; each hyper-thread is one (`cpumask_t`).
pub type CpuSet = NumberSet<OfCpus>;
/// A set of NUMA nodes (`nodemask_t`).
pub type NodeSet = NumberSet<OfNodes>;
/// A set of cores counted from zero within a partition, as in `C[…]` patterns.
pub type CoreSet = NumberSet<OfCores>;

/// A set of small numbers, one bit each; its text is a list `0-3,8`.
///
/// ```
/// use lnet_cpt::CpuSet;
///
/// let cpus: CpuSet = "0-3,8,16-20/2".parse()?;
/// assert_eq!(cpus.len(), 8);
/// assert!(cpus.contains(18) && !cpus.contains(17));
/// assert_eq!(cpus.to_string(), "0-3,8,16,18,20");
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
pub struct NumberSet<K> {
    /// The bits of the numbers. There is no zero word at the end, so that equal sets have equal
    /// words.
    words: Vec<u64>,
    kind: PhantomData<K>,
}

impl<K> NumberSet<K> {
    /// Creates the empty set.
    pub const fn new() -> Self {
        NumberSet { words: Vec::new(), kind: PhantomData }
    }

    /// Returns whether `number` is in the set.
    pub fn contains(&self, number: usize) -> bool {
        self.words.get(number / WORD_BITS).is_some_and(|word| word >> (number % WORD_BITS) & 1 == 1)
    }

    /// Removes `number`; returns whether it was in the set.
    pub fn remove(&mut self, number: usize) -> bool {
        let found = self.contains(number);
        if found {
            self.words[number / WORD_BITS] &= !(1 << (number % WORD_BITS));
            self.trim();
        }
        found
    }

    /// Returns how many numbers the set contains.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the lowest number.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// Returns the highest number.
    pub fn last(&self) -> Option<usize> {
        let top = self.words.last()?;
        Some(self.words.len() * WORD_BITS - 1 - top.leading_zeros() as usize)
    }

    /// Returns the numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(index * WORD_BITS + bit)
            })
        })
    }

    /// Returns whether every number is also in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Returns the numbers in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::of_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Returns the numbers in this set only.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        Self::of_words(self.words.iter().zip(others).map(|(a, b)| a & !b).collect())
    }

    /// Returns the numbers in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() < other.words.len() { (other, self) } else { (self, other) };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(a, b)| *a |= b);
        Self::of_words(words)
    }

    fn of_words(words: Vec<u64>) -> Self {
        let mut set = NumberSet { words, kind: PhantomData };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl<K: Kind> NumberSet<K> {
    /// Adds `number`; returns whether it is new.
    ///
    /// # Errors
    /// EINVAL above the kind's limit ([`CptError::Number`]).
    pub fn insert(&mut self, number: usize) -> Result<bool, CptError> {
        Self::check(number)?;
        let new = !self.contains(number);
        if self.words.len() <= number / WORD_BITS {
            self.words.resize(number / WORD_BITS + 1, 0);
        }
        self.words[number / WORD_BITS] |= 1 << (number % WORD_BITS);
        Ok(new)
    }

    /// Creates the set of these numbers.
    ///
    /// # Errors
    /// The errors of [`NumberSet::insert`].
    pub fn of(numbers: impl IntoIterator<Item = usize>) -> Result<Self, CptError> {
        let mut set = Self::new();
        for number in numbers {
            set.insert(number)?;
        }
        Ok(set)
    }

    pub(crate) fn of_ranges(ranges: &[Range]) -> Result<Self, CptError> {
        let mut set = Self::new();
        for range in ranges {
            // The highest number is checked first, so that a range of billions is refused at once.
            Self::check(range.high)?;
            for number in (range.low..=range.high).step_by(range.stride) {
                set.insert(number)?;
            }
        }
        Ok(set)
    }

    fn check(number: usize) -> Result<(), CptError> {
        if number < K::LIMIT {
            return Ok(());
        }
        Err(CptError::Number { what: K::WHAT, number, max: K::LIMIT - 1 })
    }
}

impl<K: Kind> FromStr for NumberSet<K> {
    type Err = CptError;

    /// Parses a list; blanks around it are allowed, and an empty text is the empty set, as the
    /// kernel prints it.
    fn from_str(text: &str) -> Result<Self, CptError> {
        let mut cursor = Cursor::new("list", text)?;
        cursor.blanks();
        if cursor.at_end() {
            return Ok(Self::new());
        }
        let ranges = cursor.ranges()?;
        cursor.blanks();
        if !cursor.at_end() {
            return Err(cursor.error("unexpected text after the list"));
        }
        Self::of_ranges(&ranges)
    }
}

impl<K> fmt::Display for NumberSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut comma = "";
        while let Some(low) = numbers.next() {
            let mut high = low;
            while let Some(next) = numbers.next_if(|&next| next == high + 1) {
                high = next;
            }
            write!(f, "{comma}{low}")?;
            if high > low {
                write!(f, "-{high}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

// Written by hand, because derives would require the same traits of `K`.
impl<K> fmt::Debug for NumberSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
impl<K> Clone for NumberSet<K> {
    fn clone(&self) -> Self {
        NumberSet { words: self.words.clone(), kind: PhantomData }
    }
}
impl<K> PartialEq for NumberSet<K> {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}
impl<K> Eq for NumberSet<K> {}
impl<K> Default for NumberSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nix::errno::Errno;
    use proptest::prelude::*;

    use super::*;

    fn sets() -> impl Strategy<Value = BTreeSet<usize>> {
        prop::collection::btree_set(0..300usize, 0..40)
    }

    proptest! {
        /// S-302. Sets, their operations and their texts agree with the standard library's sets.
        #[test]
        fn sets_agree_with_a_plain_model(a in sets(), b in sets(), out in 0..300usize) {
            let (one, two) = (CpuSet::of(a.iter().copied()).unwrap(), CpuSet::of(b.iter().copied()).unwrap());
            let list = |set: &CpuSet| set.iter().collect::<Vec<_>>();
            prop_assert_eq!(list(&one), a.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(list(&one.union(&two)), a.union(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(list(&one.intersection(&two)), a.intersection(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(list(&one.difference(&two)), a.difference(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(one.is_subset(&two), a.is_subset(&b));
            prop_assert_eq!((one.first(), one.last()), (a.first().copied(), a.last().copied()));
            prop_assert_eq!((one.len(), one.is_empty()), (a.len(), a.is_empty()));
            prop_assert_eq!(&one.to_string().parse::<CpuSet>().unwrap(), &one);
            let mut less = one.clone();
            prop_assert_eq!(less.remove(out), a.contains(&out));
            prop_assert_eq!(less == one, !a.contains(&out));
        }

        /// Parsing any text ends with a set or an error.
        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9,/ ]{0,24}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert!(set.last().is_none_or(|last| last < MAX_CPUS));
            }
        }
    }

    #[test]
    fn broken_lists_are_refused_with_their_place() {
        for (text, position) in
            [("0-", 2), ("3-1", 3), ("0,,1", 2), ("x", 0), ("0-8/0", 5), ("1 2", 2), ("99999999999", 9)]
        {
            let error = text.parse::<CpuSet>().unwrap_err();
            assert!(
                matches!(error, CptError::Syntax { position: p, .. } if p == position),
                "{text}: {error}"
            );
            assert_eq!(error.errno(), Errno::EINVAL);
        }
        let far = format!("0-{MAX_CPUS}");
        assert!(matches!(far.parse::<CpuSet>(), Err(CptError::Number { what: "CPU", number: MAX_CPUS, .. })));
        let node = MAX_NODES.to_string();
        assert!(matches!(node.parse::<NodeSet>(), Err(CptError::Number { what: "node", .. })));
        let long = "1,".repeat(crate::list::MAX_TEXT_BYTES);
        assert!(matches!(long.parse::<CpuSet>(), Err(CptError::TextLength { .. })));
    }
}
