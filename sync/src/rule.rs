//! Named synchronization rules.

use crate::{Ordering, fence};

/// A rule by which threads synchronize: a pair of memory orderings, a step that must not be left
/// out, the order of two steps, or the steps that one hold of a lock covers. It is a constant with
/// a comment that begins with `SYNC` and its name. Every place that the rule governs names the
/// constant: orderings by the methods here, steps by [`rule!`](crate::rule!). A model breaks each
/// rule, to show that the model detects a violation (`broken`, `weakened`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(&'static str);

/// One end of a rule about memory orderings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEnd {
    /// The side that publishes.
    Store,
    /// The side that observes.
    Load,
}

impl Rule {
    /// Creates a rule with this name, which must be unique.
    #[must_use]
    pub const fn new(name: &'static str) -> Rule {
        Rule(name)
    }

    /// Returns the ordering of the store that publishes.
    #[inline]
    #[must_use]
    pub fn release(self) -> Ordering {
        if self.holds_at(RuleEnd::Store) { Ordering::Release } else { Ordering::Relaxed }
    }

    /// Returns the ordering of the load that observes.
    #[inline]
    #[must_use]
    pub fn acquire(self) -> Ordering {
        if self.holds_at(RuleEnd::Load) { Ordering::Acquire } else { Ordering::Relaxed }
    }

    /// Returns the ordering of a read-modify-write that both observes and publishes: each such
    /// operation sees everything that earlier ones published.
    #[inline]
    #[must_use]
    pub fn chain(self) -> Ordering {
        if self.holds() { Ordering::AcqRel } else { Ordering::Relaxed }
    }

    /// Executes a fence that is in one total order with the other side's fence of the same name.
    /// `SeqCst`, because each side stores one word and then loads the other's (Dekker's pattern),
    /// which acquire and release do not order.
    #[inline]
    pub fn fence(self, end: RuleEnd) {
        if self.holds_at(end) {
            fence(Ordering::SeqCst);
        }
    }

    /// Marks where one hold of a lock covers two steps. In a model that breaks the rule, releases
    /// the lock between them and takes it again.
    #[cfg(any(feature = "std", loom))]
    #[inline]
    pub fn hold<'a, T>(
        self,
        mutex: &'a crate::Mutex<T>,
        guard: crate::MutexGuard<'a, T>,
    ) -> crate::MutexGuard<'a, T> {
        if self.holds() {
            return guard;
        }
        drop(guard);
        mutex.lock()
    }

    #[cfg(not(loom))]
    #[inline]
    const fn holds(self) -> bool {
        let Rule(_name) = self;
        true
    }

    #[cfg(not(loom))]
    #[inline]
    const fn holds_at(self, _: RuleEnd) -> bool {
        self.holds()
    }
}

/// Steps that a [`Rule`] requires. A program executes the steps alone; a model that breaks the rule
/// replaces them.
///
/// | in the code | a program | a model that breaks the rule |
/// | --- | --- | --- |
/// | `rule!(RULE, step)` | does the step | leaves it out |
/// | `rule!(RULE, step, then = next)` | does both in this order; returns the value of the second | does them in the other order |
/// | `rule!(RULE, step, broken = fault)` | does the step | does the fault instead, which programs do not compile |
///
/// ```
/// use nlx_sync::{Rule, rule};
///
/// const COUNTED: Rule = Rule::new("example.counted");
///
/// let mut count = 0;
/// let found = rule!(COUNTED, count += 1, then = count);
/// assert_eq!(found, 1);
/// ```
#[cfg(not(loom))]
#[macro_export]
macro_rules! rule {
    ($rule:path, $step:expr, then = $next:expr $(,)?) => {{
        let _: $crate::Rule = $rule;
        $step;
        $next
    }};
    ($rule:path, $step:expr $(, broken = $fault:expr)? $(,)?) => {{
        let _: $crate::Rule = $rule;
        $step
    }};
}

/// The macro in a model, where rules can be broken.
#[cfg(loom)]
#[macro_export]
macro_rules! rule {
    ($rule:path, $step:expr, then = $next:expr $(,)?) => {
        if $crate::Rule::holds($rule) {
            $step;
            $next
        } else {
            let next = $next;
            $step;
            next
        }
    };
    ($rule:path, $step:expr, broken = $fault:expr $(,)?) => {
        if $crate::Rule::holds($rule) { $step } else { $fault }
    };
    ($rule:path, $step:expr $(,)?) => {
        if $crate::Rule::holds($rule) {
            $step
        }
    };
}

#[cfg(loom)]
pub use modelled::{broken, weakened};

#[cfg(loom)]
mod modelled {
    use std::cell::Cell;

    use super::{Rule, RuleEnd};

    std::thread_local! {
        /// The rule that is broken, at one end or (`None`) at both.
        static BROKEN: Cell<Option<(Rule, Option<RuleEnd>)>> = const { Cell::new(None) };
    }

    impl Rule {
        /// Returns true unless the running model breaks the rule.
        pub fn holds(self) -> bool {
            BROKEN.get() != Some((self, None))
        }

        pub(super) fn holds_at(self, end: RuleEnd) -> bool {
            self.holds() && BROKEN.get() != Some((self, Some(end)))
        }
    }

    /// Runs a model with a rule broken. Loom runs all threads of a model on the thread that started
    /// it, so models on other threads are not affected.
    pub fn broken<R>(rule: Rule, model: impl FnOnce() -> R) -> R {
        run((rule, None), model)
    }

    /// Runs a model with one end of a rule broken.
    pub fn weakened<R>(rule: Rule, end: RuleEnd, model: impl FnOnce() -> R) -> R {
        run((rule, Some(end)), model)
    }

    fn run<R>(broken: (Rule, Option<RuleEnd>), model: impl FnOnce() -> R) -> R {
        struct Restore;
        impl Drop for Restore {
            fn drop(&mut self) {
                BROKEN.set(None);
            }
        }
        let _restore = Restore;
        BROKEN.set(Some(broken));
        model()
    }
}
