//! The progress of a large transfer: which part starts next, which parts to cancel, and when the
//! transfer has ended. A pure state machine: no buffers, no clock, no locks.

use nlx_core::Errno;

use crate::OpId;

/// The parts of a transfer.
#[derive(Debug)]
pub(super) struct PartsProgress {
    parts: Vec<Part>,
    /// The first part that has not been started.
    next: usize,
    /// Maximum number of parts in flight.
    window: usize,
    in_flight: usize,
    moved: usize,
    /// The first failure.
    status: Result<(), Errno>,
    over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Waiting,
    /// A thread is starting it: it counts as in flight, but cannot be cancelled yet.
    Starting,
    InFlight(OpId),
    Over,
}

impl PartsProgress {
    pub(super) fn new(parts: usize, window: usize) -> PartsProgress {
        PartsProgress {
            parts: vec![Part::Waiting; parts],
            next: 0,
            window: window.max(1),
            in_flight: 0,
            moved: 0,
            status: Ok(()),
            over: false,
        }
    }

    /// Returns the part to start now, if there is one. The caller starts it, and reports the result
    /// to `started` or `ended`.
    pub(super) fn start(&mut self) -> Option<usize> {
        let part = self.next;
        if self.status.is_err() || part == self.parts.len() || self.in_flight == self.window {
            return None;
        }
        self.next += 1;
        self.in_flight += 1;
        self.parts[part] = Part::Starting;
        Some(part)
    }

    /// Records that a part has started. Returns its operation if the transfer has failed in
    /// between: the caller cancels it.
    pub(super) fn started(&mut self, part: usize, op: OpId) -> Option<OpId> {
        // The part's last event may have come first.
        if self.parts[part] != Part::Starting {
            return None;
        }
        self.parts[part] = Part::InFlight(op);
        self.status.is_err().then_some(op)
    }

    /// Records that a part could not be started, or has ended. Returns the operations to cancel.
    pub(super) fn ended(&mut self, part: usize, outcome: Result<usize, Errno>) -> Vec<OpId> {
        debug_assert!(matches!(self.parts[part], Part::Starting | Part::InFlight(_)));
        self.parts[part] = Part::Over;
        self.in_flight -= 1;
        match outcome {
            Ok(length) => {
                self.moved += length;
                Vec::new()
            }
            Err(errno) => self.fail(errno),
        }
    }

    /// Makes the transfer fail, unless it has ended or failed before: the first error is kept.
    /// Returns the operations to cancel.
    pub(super) fn fail(&mut self, errno: Errno) -> Vec<OpId> {
        if self.over || self.status.is_err() {
            return Vec::new();
        }
        self.status = Err(errno);
        let in_flight = |part: &Part| match *part {
            Part::InFlight(op) => Some(op),
            _ => None,
        };
        self.parts.iter().filter_map(in_flight).collect()
    }

    /// Returns the transfer's result, the bytes transferred, once, when it has ended.
    pub(super) fn end(&mut self) -> Option<Result<usize, Errno>> {
        let done = self.status.is_err() || self.next == self.parts.len();
        if self.over || !done || self.in_flight > 0 {
            return None;
        }
        self.over = true;
        Some(self.status.map(|()| self.moved))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A step of the model; its number selects one of the parts that allow it.
    #[derive(Debug, Clone)]
    enum Step {
        Start,
        Started(usize),
        Ended(usize, Result<usize, Errno>),
        Cancel,
    }

    fn step() -> impl Strategy<Value = Step> {
        let outcome = prop_oneof![9 => (0usize..100).prop_map(Ok), 1 => Just(Err(Errno::EIO))];
        prop_oneof![
            6 => Just(Step::Start),
            6 => any::<usize>().prop_map(Step::Started),
            6 => (any::<usize>(), outcome).prop_map(|(which, outcome)| Step::Ended(which, outcome)),
            1 => Just(Step::Cancel),
        ]
    }

    /// The parts in flight, and for each whether its start was reported.
    #[derive(Default)]
    struct Model {
        in_flight: BTreeMap<usize, bool>,
        begun: usize,
        moved: usize,
        first_failure: Option<Errno>,
        cancelled: Vec<OpId>,
        ends: usize,
    }

    fn op(part: usize) -> OpId {
        OpId::from_cookie(part as u64)
    }

    impl Model {
        fn fails(&mut self, errno: Errno, cancels: Vec<OpId>) {
            let known = self.in_flight.iter().filter(|(_, known)| **known).map(|(part, _)| op(*part));
            let expected = if self.first_failure.is_none() { known.collect() } else { Vec::new() };
            assert_eq!(cancels, expected);
            self.cancelled.extend(cancels);
            self.first_failure.get_or_insert(errno);
        }

        fn end(&mut self, progress: &mut PartsProgress, parts: usize) {
            let over = self.in_flight.is_empty() && (self.first_failure.is_some() || self.begun == parts);
            let expected = (over && self.ends == 0).then(|| self.first_failure.map_or(Ok(self.moved), Err));
            assert_eq!(progress.end(), expected);
            self.ends += usize::from(expected.is_some());
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_model(
            parts in 1usize..12,
            window in 1usize..5,
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut progress = PartsProgress::new(parts, window);
            let mut model = Model::default();
            // At the end, all remaining steps are done.
            let rest = (0..3 * parts).flat_map(|_| {
                [Step::Start, Step::Started(0), Step::Ended(0, Ok(1))]
            });
            for step in steps.into_iter().chain(rest) {
                match step {
                    Step::Start => {
                        let may = model.first_failure.is_none() && model.begun < parts && model.in_flight.len() < window;
                        prop_assert_eq!(progress.start(), may.then_some(model.begun));
                        if may {
                            model.in_flight.insert(model.begun, false);
                            model.begun += 1;
                        }
                    }
                    Step::Started(which) => {
                        let starting: Vec<_> = model.in_flight.iter().filter(|entry| !entry.1).map(|entry| *entry.0).collect();
                        if !starting.is_empty() {
                            let part = starting[which % starting.len()];
                            let cancel = progress.started(part, op(part));
                            prop_assert_eq!(cancel, model.first_failure.map(|_| op(part)));
                            model.cancelled.extend(cancel);
                            model.in_flight.insert(part, true);
                        }
                    }
                    Step::Ended(which, outcome) => {
                        if !model.in_flight.is_empty() {
                            let at = which % model.in_flight.len();
                            let part = *model.in_flight.keys().nth(at).unwrap();
                            model.in_flight.remove(&part);
                            let cancels = progress.ended(part, outcome);
                            match outcome {
                                Ok(length) => model.moved += length,
                                Err(errno) => model.fails(errno, cancels),
                            }
                            // The thread that starts the part may report the start after the end.
                            prop_assert_eq!(progress.started(part, op(part)), None);
                        }
                    }
                    Step::Cancel => {
                        let cancels = progress.fail(Errno::ECANCELED);
                        if model.ends == 0 {
                            model.fails(Errno::ECANCELED, cancels);
                        } else {
                            prop_assert!(cancels.is_empty());
                        }
                    }
                }
                model.end(&mut progress, parts);
            }
            prop_assert_eq!(model.ends, 1);
            let mut once = model.cancelled.clone();
            once.dedup();
            prop_assert_eq!(once, model.cancelled);
        }
    }
}
