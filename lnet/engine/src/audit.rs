//! Whether the engine's tables agree with each other: an opinion that uses none of the code it judges.

/// Text that is formatted only where it is shown, and can be kept in a variable. Before Rust 1.89 `format_args!` can not.
macro_rules! text {
    ($($parts:tt)*) => { crate::audit::Text(|f: &mut std::fmt::Formatter<'_>| write!(f, $($parts)*)) };
}
pub(crate) use text;

mod portals;
mod resources;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;

use crate::buckets::{Buckets, Hashed};
use crate::engine::Engine;
use crate::faults::HeldTable;
use crate::list::Linked;
use crate::message::{Message, Way};
use crate::names::MdName;
use crate::net::{Net, NetShared};
use crate::portal_state::Blocked;
use crate::resources::Resources;
use crate::slab::{NONE, some};

/// An invariant of an [`Engine`] that does not hold; see [`Engine::audit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditError {
    /// What must hold.
    pub rule: &'static str,
    /// Where it does not, and what is there instead.
    pub found: String,
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; but {}", self.rule, self.found)
    }
}

impl std::error::Error for AuditError {}

pub(crate) type Audit = Result<(), AuditError>;

/// What `text!` makes.
#[derive(Clone, Copy)]
pub(crate) struct Text<F>(pub(crate) F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Text<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

impl Engine {
    /// Checks what must hold whenever no thread is inside the engine: that credits are those of the messages there are,
    /// that each list and index holds exactly what belongs there, that objects name each other, that counts are right.
    ///
    /// For tests and simulators. It takes all locks of the node, and time linear in the objects and portals, so not
    /// from inside [`lnet_api::EventHandler::event`]. From inside any other callback, or while another thread is in the
    /// engine, it may find what is about to be put right.
    ///
    /// # Errors
    /// The first invariant that does not hold, and where.
    pub fn audit(&self) -> Result<(), AuditError> {
        let held = self.faults.held();
        // The queues of portals before the partitions' locks, as everywhere.
        let blocked: Vec<_> = self.portals.iter().map(|portal| portal.blocked()).collect();
        let (mut posted, mut bound, mut net) =
            (self.posted.lock_all(), self.bound.lock_all(), self.net.lock_all());
        let (net, shared) = net.split();
        let tables = Tables {
            engine: self,
            posted: posted.parts_mut().map(|part| &*part).collect(),
            bound: bound.parts_mut().map(|part| &*part).collect(),
            net: net.map(|part| &*part).collect(),
            shared,
            blocked: blocked.iter().map(|blocked| &**blocked).collect(),
            held: &held,
        };
        tables.audit()
    }
}

/// Everything that the locks protect.
struct Tables<'a> {
    engine: &'a Engine,
    posted: Vec<&'a Resources>,
    bound: Vec<&'a Resources>,
    net: Vec<&'a Net>,
    shared: &'a NetShared,
    /// By portal.
    blocked: Vec<&'a Blocked>,
    held: &'a HeldTable,
}

/// How many messages use each MD: whether it is bound, its partition, its index.
type Uses = HashMap<(bool, usize, u32), u32>;

impl Tables<'_> {
    fn audit(&self) -> Audit {
        let nis = self.shared.count();
        let counted = self.engine.ni_count.load(Ordering::Relaxed);
        equal("the count of NIs is that of the NIs", format_args!("the node"), counted, nis)?;
        self.net.iter().try_for_each(|net| net.audit(self.shared, &self.engine.common))?;
        let uses = self.uses()?;
        for part in self.posted.iter().chain(&self.bound) {
            self.audit_resources(part, &uses)?;
        }
        (0..self.posted.len()).try_for_each(|partition| self.audit_entries(partition))?;
        (0..self.blocked.len()).try_for_each(|portal| self.audit_blocked(portal))
    }

    /// How many messages use each MD, all of which exist.
    fn uses(&self) -> Result<Uses, AuditError> {
        let mut uses = Uses::new();
        for (partition, net) in self.net.iter().enumerate() {
            for (index, message) in net.messages() {
                self.add_use(message, format_args!("message {index} of partition {partition}"), &mut uses)?;
            }
        }
        for (portal, blocked) in self.blocked.iter().enumerate() {
            for index in blocked.delayed.indices() {
                if let Some(local) = &blocked.delayed[index].local {
                    let place = text!("message {index} that waits on portal {portal}");
                    self.add_use(&local.message, place, &mut uses)?;
                }
            }
        }
        for (way, local) in self.held.ways() {
            let alive = match way {
                Way::Here => true,
                Way::Over { ni, .. } => self.shared.exists(*ni),
            };
            check("a message is delayed as long as its NI exists", alive, format_args!("{way:?}"))?;
            if let Some(local) = local {
                self.add_use(&local.message, format_args!("a delayed message"), &mut uses)?;
            }
        }
        for part in self.posted.iter().chain(&self.bound) {
            for index in part.receiving.indices() {
                let md = part.receiving[index].md;
                if md != NONE {
                    let found = text!("received message {index} of {:?} has MD {md}", part.place);
                    check("a message's MD exists", part.objects.md_at(md).is_some(), found)?;
                    *uses.entry((part.place.bound, part.place.partition, md)).or_default() += 1;
                }
            }
        }
        Ok(uses)
    }

    fn add_use(&self, message: &Message, place: impl fmt::Display, uses: &mut Uses) -> Audit {
        let Some(MdName { place: at, key }) = message.md else { return Ok(()) };
        let index = key.index;
        let table = if at.bound { &self.bound } else { &self.posted };
        let part = table.get(at.partition);
        let exists = part.is_some_and(|part| part.objects.named_md(key).is_some());
        check("a message's MD exists", exists, format_args!("{place} has MD {index} of {at:?}"))?;
        if let Some(response) = part.and_then(|part| part.responses.get(message.response)) {
            let found = text!("{place} of MD {index} has one of MD {}", response.md);
            check("a message's response is its MD's", response.md == index, found)?;
        }
        *uses.entry((at.bound, at.partition, index)).or_default() += 1;
        Ok(())
    }
}

pub(crate) fn check(rule: &'static str, holds: bool, found: impl fmt::Display) -> Audit {
    if holds { Ok(()) } else { Err(AuditError { rule, found: found.to_string() }) }
}

pub(crate) fn equal<T: PartialEq + fmt::Debug>(
    rule: &'static str,
    place: impl fmt::Display,
    is: T,
    should: T,
) -> Audit {
    check(rule, is == should, format_args!("{place}: {is:?} instead of {should:?}"))
}

/// The ends of a list.
pub(crate) type Ends = (Option<u32>, Option<u32>);

/// Looks at the objects of a list in order; gives how many there are. It comes to an end: each object has one neighbour
/// before it.
pub(crate) fn walk<'a, const L: usize, T: Linked<L> + 'a>(
    place: impl fmt::Display,
    (head, tail): Ends,
    at: impl Fn(u32) -> Option<&'a T>,
    mut each: impl FnMut(u32, &'a T) -> Audit,
) -> Result<usize, AuditError> {
    let (mut count, mut prev, mut next) = (0, NONE, head.unwrap_or(NONE));
    while next != NONE {
        let rule = "a list names objects that exist";
        let found = || AuditError { rule, found: format!("{place}: {next} after {prev}") };
        let object = at(next).ok_or_else(found)?;
        let links = object.links();
        equal("neighbours in a list name each other", format_args!("{place}, {next}"), links.prev, prev)?;
        each(next, object)?;
        (count, prev, next) = (count + 1, next, links.next);
    }
    equal("a list's tail is its last object", place, tail.unwrap_or(NONE), prev)?;
    Ok(count)
}

/// The objects, at most so many, in the chains of a hash index.
pub(crate) fn chained<'a, T: Hashed + 'a>(
    place: impl fmt::Display,
    index: &Buckets,
    most: usize,
    at: impl Fn(u32) -> Option<&'a T> + Copy,
) -> Result<Vec<(u32, &'a T)>, AuditError> {
    let mut all = Vec::new();
    for head in index.heads().filter_map(some) {
        // A chain knows no tail.
        let next = |&index: &u32| at(index).and_then(|object| some(object.links().next));
        let tail = std::iter::successors(Some(head), next).take(most + 1).last();
        walk(format_args!("a chain of {place}"), (Some(head), tail), at, |index, object| {
            all.push((index, object));
            Ok(())
        })?;
    }
    Ok(all)
}
