//! What LNDs count: live counters, and snapshots of them with the same names ([`counters!`](crate::counters)).

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that any thread changes.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// So many more.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// One more.
    pub fn one(&self) {
        self.add(1);
    }

    /// How many there were so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that one thread at a time changes, under the lock of the shard's driver: so it needs no atomic addition, of
/// which a small message would take three.
#[derive(Debug, Default)]
pub struct DriverCounter(AtomicU64);

impl DriverCounter {
    /// So many more.
    pub fn add(&self, count: usize) {
        self.0.store(self.get().wrapping_add(count as u64), Ordering::Relaxed);
    }

    /// One more.
    pub fn one(&self) {
        self.add(1);
    }

    /// How many there were so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Two structs with the same fields: a public one of numbers, which can be added up, and one of counters, of the crate's own, whose
/// `snapshot` makes the first.
///
/// ```
/// use lnet_api::counters;
/// use lnet_api::counting::Counter;
///
/// counters! {
///     /// What was counted.
///     Counted, Live of Counter {
///         /// Messages sent.
///         messages,
///     }
/// }
/// let live = Live::default();
/// live.messages.one();
/// live.messages.add(2);
/// let mut sum = live.snapshot();
/// sum += Counted { messages: 4 };
/// assert_eq!(sum, Counted { messages: 7 });
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$doc:meta])* $snapshot:ident, $live:ident of $counter:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $snapshot { $($(#[$field_doc])* pub $field: u64,)* }

        #[derive(Default)]
        pub(crate) struct $live { $(pub(crate) $field: $counter,)* }

        impl std::ops::AddAssign for $snapshot {
            fn add_assign(&mut self, other: $snapshot) {
                $(self.$field += other.$field;)*
            }
        }

        impl $live {
            fn snapshot(&self) -> $snapshot {
                $snapshot { $($field: self.$field.get(),)* }
            }
        }
    };
}
