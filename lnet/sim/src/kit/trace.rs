//! The trace of events before a failure.

use std::collections::VecDeque;

/// The number of lines that are kept.
const LINES: usize = 400;

/// The number of characters kept of one line: payloads can be long.
const WIDTH: usize = 400;

/// The last events, if a trace was requested.
pub(crate) struct Trace(Option<VecDeque<String>>);

impl Trace {
    pub(crate) fn new(wanted: bool) -> Trace {
        Trace(wanted.then(VecDeque::new))
    }

    pub(crate) fn add<I: IntoIterator<Item = String>>(&mut self, new: impl FnOnce() -> I) {
        let Some(lines) = &mut self.0 else { return };
        lines.extend(new().into_iter().map(|line| line.chars().take(WIDTH).collect::<String>()));
        lines.drain(..lines.len().saturating_sub(LINES));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.iter().flatten().cloned().collect()
    }
}
