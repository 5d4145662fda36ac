//! The record of calls, and the plan for later ones.

use std::collections::{BTreeMap, VecDeque};

use lnet_api::{LNetError, MdHandle};

use crate::{Call, CallKind, ScriptedEvent};

/// The limit for recorded calls, to bound memory: a million is more than a test can check.
pub const CALLS_MAX: usize = 1 << 20;

/// The record and the plan.
#[derive(Default)]
pub(crate) struct Script {
    calls: Vec<Call>,
    /// The number of calls made so far.
    made: u64,
    /// The number of calls of each kind.
    made_of: BTreeMap<CallKind, u64>,
    /// The calls to be refused, by their number among those of their kind.
    refusals: BTreeMap<(CallKind, u64), LNetError>,
    /// For each kind, the events to be delivered inside the next successful calls.
    inside: BTreeMap<CallKind, VecDeque<Vec<ScriptedEvent>>>,
}

impl Script {
    /// Records a call; returns its number, counting from 1, unless it is to be refused.
    pub(crate) fn enter(&mut self, call: Call) -> Result<u64, LNetError> {
        let kind = call.kind();
        self.made += 1;
        let number = self.made_of.entry(kind).or_default();
        *number += 1;
        let refusal = self.refusals.remove(&(kind, *number));
        if !self.calls.last().is_some_and(|before| call.repeats(before)) {
            assert!(self.calls.len() < CALLS_MAX, "{CALLS_MAX} calls were recorded, and none was taken");
            self.calls.push(call);
        }
        refusal.map_or(Ok(self.made), Err)
    }

    /// Records the MD made by the newest call that makes one and has none recorded.
    pub(crate) fn set_made(&mut self, md: MdHandle) {
        let _found = self.calls.iter_mut().rev().any(|call| call.set_made(md));
    }

    pub(crate) fn calls(&self) -> &[Call] {
        &self.calls
    }

    pub(crate) fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// Refuses the next call of a kind for which no refusal is planned.
    pub(crate) fn refuse_next(&mut self, kind: CallKind, error: LNetError) {
        let nth = (1..).find(|nth| !self.refusals.contains_key(&(kind, self.number(kind, *nth))));
        self.refuse(kind, nth.expect("there are more numbers than refusals"), error);
    }

    /// Refuses the `nth` call of a kind from now on.
    pub(crate) fn refuse(&mut self, kind: CallKind, nth: u64, error: LNetError) {
        assert!(nth > 0, "the next {kind:?} is number 1");
        self.refusals.insert((kind, self.number(kind, nth)), error);
    }

    fn number(&self, kind: CallKind, nth: u64) -> u64 {
        self.made_of.get(&kind).copied().unwrap_or(0) + nth
    }

    pub(crate) fn complete_inside(&mut self, kind: CallKind, scripted_events: Vec<ScriptedEvent>) {
        self.inside.entry(kind).or_default().push_back(scripted_events);
    }

    /// Removes and returns the events planned for a call that has succeeded.
    pub(crate) fn next_inside(&mut self, kind: CallKind) -> Option<Vec<ScriptedEvent>> {
        self.inside.get_mut(&kind)?.pop_front()
    }

    /// Describes each part of the plan that was not used.
    pub(crate) fn open(&self) -> impl Iterator<Item = String> {
        let refusals = self
            .refusals
            .iter()
            .map(|((kind, _), error)| format!("a {kind:?} that was to be refused ({error}) was never made"));
        let inside = self.inside.iter().flat_map(|(kind, plans)| {
            plans
                .iter()
                .map(move |plan| format!("a {kind:?} that was to bring {} events was never made", plan.len()))
        });
        refusals.chain(inside)
    }
}
