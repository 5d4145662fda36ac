//! Helpers of the audit, which checks that the engine's tables agree with each other. Each room
//! (state owner) has an audit function beside its private fields, which uses none of the code that
//! it checks; `engine::audit` calls them all.

/// Text that is formatted only where it is displayed, and can be kept in a variable. The result of
/// `format_args!` cannot be kept in a variable before Rust 1.89.
macro_rules! text {
    ($($parts:tt)*) => { crate::audit::AuditText(|f: &mut std::fmt::Formatter<'_>| write!(f, $($parts)*)) };
}
pub(crate) use text;

use std::fmt;

use crate::buckets::{Buckets, Hashed};
use crate::list::Linked;
use crate::slab::{NONE, some};

/// A violated invariant of an [`crate::Engine`]; see [`crate::Engine::audit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditError {
    /// Name of the violated invariant, as in the audit's code.
    pub rule: &'static str,
    /// The place of the violation, and the state found there.
    pub found: String,
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; but {}", self.rule, self.found)
    }
}

impl std::error::Error for AuditError {}

/// The name of an invariant, and a function that breaks it in a room on purpose: a test that the
/// room's audit detects the damage.
#[cfg(test)]
pub(crate) type Damage<T> = (&'static str, fn(&mut T));

pub(crate) type Audit = Result<(), AuditError>;

/// The result of `text!`: the closure that formats the text.
#[derive(Clone, Copy)]
pub(crate) struct AuditText<F>(pub(crate) F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for AuditText<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

pub(crate) fn check(rule: &'static str, holds: bool, found: impl fmt::Display) -> Audit {
    if holds { Ok(()) } else { Err(AuditError { rule, found: found.to_string() }) }
}

pub(crate) fn equal<T: PartialEq + fmt::Debug>(
    rule: &'static str,
    location: impl fmt::Display,
    is: T,
    should: T,
) -> Audit {
    check(rule, is == should, format_args!("{location}: {is:?} instead of {should:?}"))
}

/// The first and the last object of a list; `None` if it is empty.
pub(crate) type ListEnds = (Option<u32>, Option<u32>);

/// Visits the objects of a list in order; returns their number. It ends even for a damaged list,
/// because it checks that each object links back to its predecessor.
pub(crate) fn walk<'a, const L: usize, T: Linked<L> + 'a>(
    location: impl fmt::Display,
    (head, tail): ListEnds,
    at: impl Fn(u32) -> Option<&'a T>,
    mut each: impl FnMut(u32, &'a T) -> Audit,
) -> Result<usize, AuditError> {
    let (mut count, mut prev, mut next) = (0, NONE, head.unwrap_or(NONE));
    while next != NONE {
        let rule = "a list names objects that exist";
        let found = || AuditError { rule, found: format!("{location}: {next} after {prev}") };
        let object = at(next).ok_or_else(found)?;
        let links = object.links();
        equal("neighbours in a list name each other", format_args!("{location}, {next}"), links.prev, prev)?;
        each(next, object)?;
        (count, prev, next) = (count + 1, next, links.next);
    }
    equal("a list's tail is its last object", location, tail.unwrap_or(NONE), prev)?;
    Ok(count)
}

/// Returns the objects in the chains of a hash index: at most `most`, so that a cycle is detected.
pub(crate) fn chained<'a, T: Hashed + 'a>(
    location: impl fmt::Display,
    index: &Buckets,
    most: usize,
    at: impl Fn(u32) -> Option<&'a T> + Copy,
) -> Result<Vec<(u32, &'a T)>, AuditError> {
    let mut all = Vec::new();
    for head in index.heads().filter_map(some) {
        // A chain stores no tail: it is found by following the links.
        let next = |&index: &u32| at(index).and_then(|object| some(object.links().next));
        let tail = std::iter::successors(Some(head), next).take(most + 1).last();
        walk(format_args!("a chain of {location}"), (Some(head), tail), at, |index, object| {
            all.push((index, object));
            Ok(())
        })?;
    }
    Ok(all)
}
