//! The warnings logged on a thread.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static RECORDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The warnings of this thread since this was created.
#[derive(Debug)]
pub struct Warnings;

impl Warnings {
    /// Starts to record this thread's warnings.
    ///
    /// # Panics
    /// If the process has another subscriber.
    pub fn heard() -> Warnings {
        static ONCE: Once = Once::new();
        // One subscriber for all threads: with one per thread, a callsite that one thread reaches
        // first may stay disabled for the others.
        ONCE.call_once(|| set_global_default(WarningRecorder).unwrap());
        RECORDED.with_borrow_mut(Vec::clear);
        Warnings
    }

    /// Returns the warnings that contain these words.
    pub fn with(&self, words: &str) -> Vec<String> {
        RECORDED.with_borrow(|warnings| {
            warnings.iter().filter(|warnings| warnings.contains(words)).cloned().collect()
        })
    }
}

struct WarningRecorder;

/// All fields, concatenated.
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for WarningRecorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        RECORDED.with_borrow_mut(|warnings| warnings.push(words.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
