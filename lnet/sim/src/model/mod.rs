//! A plain model of LNet: what must happen, worked out from lists that are looked through from front to back, sharing
//! nothing with the engine.
//!
//! It is told of everything that passes between an engine and its surroundings, predicts what follows from it, and
//! remembers the first thing that is otherwise.

mod calls;
mod check;
mod event;
mod node;
mod notes;
mod receive;
mod search;
mod send;

use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::{Rotor, Stealing};
use lnet_nid::Nid;

use crate::Scenario;
use crate::net::Seen;
pub(crate) use calls::{NewMd, NewMe};
use node::Node;

/// A wrong opinion of the model's, to see whether the comparison notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// It tries the entries of a portal from the end.
    LastFirst,
    /// It knows nothing of `TRUNCATE`.
    NeverTruncates,
    /// It begins to look where a message arrives, whatever the rotor says.
    IgnoresRotor,
    /// It expects no ETIMEDOUT when a busy MD is unlinked.
    ForgivesAborts,
    /// It lets a delayed message wait whose connection is lost.
    KeepsForgotten,
}

/// All nodes of a world, as they should be.
pub(crate) struct Model {
    nodes: Vec<Node>,
    owners: BTreeMap<Nid, usize>,
    /// The next number expected of each lane.
    lanes: BTreeMap<(u64, usize), u64>,
    /// Whether messages of a connection arrive once and in order.
    orderly: bool,
    partitions: usize,
    portal_rotor: Rotor,
    stealing: Stealing,
    /// The partition that programs run on.
    pub(crate) here: usize,
    /// The content of each PUT that is under way, by its `hdr_data`.
    puts: BTreeMap<u64, Arc<[u8]>>,
    next_id: u64,
    ignore_bits_first: bool,
    mutant: Option<Mutant>,
    failure: Option<String>,
    pub(crate) seen: Seen,
}

impl Model {
    pub(crate) fn new(orderly: bool, scenario: &Scenario) -> Model {
        Model {
            nodes: Vec::new(),
            owners: BTreeMap::new(),
            lanes: BTreeMap::new(),
            orderly,
            partitions: scenario.partitions,
            portal_rotor: scenario.portal_rotor,
            stealing: scenario.stealing,
            here: 0,
            puts: BTreeMap::new(),
            next_id: 1,
            ignore_bits_first: scenario.ignore_bits_first,
            mutant: scenario.mutant,
            failure: None,
            seen: Seen::default(),
        }
    }

    /// What was not as predicted, if anything was.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Remembers the first failure: the others may follow from it.
    pub(crate) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(what());
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
