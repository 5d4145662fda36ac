//! A plain model of LNet: it computes the expected behaviour from lists that are searched from
//! front to back, and shares no code with the engine.
//!
//! It gets everything that passes between an engine and its surroundings, predicts the
//! consequences, and records the first difference.

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

/// An error in the model, to test whether the comparison detects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The model tries the entries of a portal from the end.
    LastFirst,
    /// The model ignores `TRUNCATE`.
    NeverTruncates,
    /// The model begins the search where a message arrives, whatever the rotor says.
    IgnoresRotor,
    /// The model expects no ETIMEDOUT when a busy MD is unlinked.
    ForgivesAborts,
    /// The model keeps a delayed message waiting after its connection is lost.
    KeepsForgotten,
}

/// The expected state of all nodes of a world.
pub(crate) struct Model {
    nodes: Vec<Node>,
    owners: BTreeMap<Nid, usize>,
    /// The next number expected in each lane.
    lanes: BTreeMap<(u64, usize), u64>,
    /// True if messages of a connection arrive once and in order.
    orderly: bool,
    partitions: usize,
    portal_rotor: Rotor,
    stealing: Stealing,
    /// The partition in which programs run.
    pub(crate) here: usize,
    /// The payload of each PUT in flight, by its `hdr_data`.
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

    /// Returns the first difference from the prediction, if there is one.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Records a failure, if it is the first: later ones may follow from it.
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
