//! Counters of LNDs: live counters, and snapshots of them with the same names
//! ([`counters!`](crate::counters)).

use std::fmt::Debug;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::Protocol;

/// A counter that any thread changes.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count` to the counter.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Adds 1 to the counter.
    pub fn one(&self) {
        self.add(1);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that one thread at a time changes, under the lock of the shard's driver. The addition
/// is not atomic: a small message would need three atomic ones.
#[derive(Debug, Default)]
pub struct DriverCounter(AtomicU64);

impl DriverCounter {
    /// Adds `count` to the counter.
    pub fn add(&self, count: usize) {
        self.0.store(self.get().wrapping_add(count as u64), Ordering::Relaxed);
    }

    /// Adds 1 to the counter.
    pub fn one(&self) {
        self.add(1);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Live counters of which a snapshot can be taken.
pub trait Snapshot {
    /// The type of the snapshot.
    type Counts;

    /// Returns the counts; each is exact, but they are not read at one moment.
    fn snapshot(&self) -> Self::Counts;
}

/// A snapshot of an LND's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts<T, R> {
    /// The counts by senders.
    pub tx: T,
    /// The counts by drivers: receiving, and the life of connections.
    pub rx: R,
}

impl<T: AddAssign, R: AddAssign> AddAssign for Counts<T, R> {
    fn add_assign(&mut self, other: Counts<T, R>) {
        self.tx += other.tx;
        self.rx += other.rx;
    }
}

/// The counters of a shard, those of the senders and those of the driver on separate cache lines.
#[derive(Debug, Default)]
pub struct Counters<T, R> {
    /// The counters that senders change.
    pub tx: CachePadded<T>,
    /// The counters that the driver changes.
    pub rx: CachePadded<R>,
}

impl<T: Snapshot, R: Snapshot> Snapshot for Counters<T, R> {
    type Counts = Counts<T::Counts, R::Counts>;

    fn snapshot(&self) -> Self::Counts {
        Counts { tx: self.tx.snapshot(), rx: self.rx.snapshot() }
    }
}

/// Defines two structs with the same fields: a public one of numbers, which can be added up, and a
/// crate-private one of counters, whose [`Snapshot`] is the first.
///
/// ```
/// use lnet_lnd::counters;
/// use lnet_lnd::counting::{Counter, Snapshot};
///
/// counters! {
///     /// The counts.
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
    ($(#[$doc:meta])* $snapshot:ident, $live:ident of $counter:path { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $snapshot { $($(#[$field_doc])* pub $field: u64,)* }

        /// The live counters.
        #[derive(Default)]
        pub struct $live { $(pub(crate) $field: $counter,)* }

        impl std::ops::AddAssign for $snapshot {
            fn add_assign(&mut self, other: $snapshot) {
                $(self.$field += other.$field;)*
            }
        }

        impl $crate::counting::Snapshot for $live {
            type Counts = $snapshot;

            fn snapshot(&self) -> $snapshot {
                $snapshot { $($field: self.$field.get(),)* }
            }
        }
    };
}

/// The counters that the senders of all LNDs have.
pub trait CountsWakeups {
    /// Times a sleeping driver was woken.
    fn wakeups(&self) -> &Counter;
}

/// The counters of connections that the drivers of all LNDs have.
pub trait CountsLife {
    /// Attempts to open a connection that failed.
    fn connect_failures(&self) -> &DriverCounter;
    /// Connections that ended because the peer broke the protocol.
    fn protocol_errors(&self) -> &DriverCounter;
    /// Connections that ended because something took too long.
    fn timeouts(&self) -> &DriverCounter;
    /// Connections closed, except with their NI.
    fn closes(&self) -> &DriverCounter;
    /// Peers that were reported as lost.
    fn peers_lost(&self) -> &DriverCounter;
    /// Messages that waited on a lazy portal, in memory.
    fn held_in_memory(&self) -> &DriverCounter;
    /// Messages for a lazy portal that were dropped.
    fn held_dropped(&self) -> &DriverCounter;
    /// Messages that were lost while they waited on a lazy portal.
    fn held_lost(&self) -> &DriverCounter;
}

/// The counters of an LND.
pub trait Counted: 'static {
    /// The counters that senders change.
    type Tx: CountsWakeups + Snapshot<Counts: AddAssign + Debug + Default> + Default + Send + Sync;
    /// The counters that drivers change.
    type Rx: CountsLife + Snapshot<Counts: AddAssign + Debug + Default> + Default + Send + Sync;
}

/// The counters of a shard of this kind of network.
pub type CountersOf<P> =
    Counters<<<P as Protocol>::Counted as Counted>::Tx, <<P as Protocol>::Counted as Counted>::Rx>;

/// Defines the counters of an LND ([`counters!`](crate::counters)): the snapshots `TxCounters` of
/// its senders and `RxCounters` of its drivers, the live counters `LiveTx` and `LiveRx` (both
/// together are `LiveCounters`, which implements [`Counted`]), and an alias for both snapshots together.
/// The counters that all LNDs have are added to those given.
#[macro_export]
macro_rules! counters_of_lnd {
    ($both:ident { tx { $($(#[$tx_doc:meta])* $tx:ident,)* } rx { $($(#[$rx_doc:meta])* $rx:ident,)* } }) => {
        $crate::counters! {
            /// Counts by senders, in any thread.
            TxCounters, LiveTx of $crate::counting::Counter {
                $($(#[$tx_doc])* $tx,)*
                /// Times a sleeping driver was woken.
                wakeups,
            }
        }

        impl $crate::counting::CountsWakeups for LiveTx {
            fn wakeups(&self) -> &$crate::counting::Counter {
                &self.wakeups
            }
        }

        $crate::counters! {
            /// Counts by drivers: receiving, and the life of connections.
            RxCounters, LiveRx of $crate::counting::DriverCounter {
                $($(#[$rx_doc])* $rx,)*
                /// Polls of a shard.
                polls,
                /// LNet messages received.
                messages,
                /// NOOPs received.
                noops,
                /// Payload bytes copied to their sink, from a connection's buffer or from a
                /// message.
                bytes_copied,
                /// Payload bytes that the system or device wrote directly into their sink.
                bytes_direct,
                /// Connections opened.
                connects,
                /// Attempts to open a connection that failed.
                connect_failures,
                /// Connections accepted.
                accepts,
                /// Connections turned away: source port, wrong NID, garbage, race, duplicate,
                /// limits.
                refusals,
                /// Refusals for lack of room: the process has no descriptors to spare, or too many
                /// connections of that address, or of all, are accepted already.
                no_room,
                /// Connections accepted on one shard's listener for a peer of another shard.
                handed_over,
                /// Peers over TCP, connections over verbs, that were closed because the peer broke
                /// the protocol.
                protocol_errors,
                /// Peers over TCP, connections over verbs, that were closed because nothing moved,
                /// or something took too long.
                timeouts,
                /// Messages that were lost while they waited on a lazy portal: with their
                /// connection, or because their payload did not arrive.
                held_lost,
                /// Connections closed, for these and all other reasons except the end of their NI.
                closes,
                /// Messages that found no buffer on a lazy portal, and were taken into memory.
                held_in_memory,
                /// Messages that were dropped because they found no buffer on a lazy portal and no
                /// memory to wait in (`held_full`).
                held_dropped,
                /// Peers lost, for these and all other reasons.
                peers_lost,
            }
        }

        impl $crate::counting::CountsLife for LiveRx {
            fn connect_failures(&self) -> &$crate::counting::DriverCounter {
                &self.connect_failures
            }

            fn protocol_errors(&self) -> &$crate::counting::DriverCounter {
                &self.protocol_errors
            }

            fn timeouts(&self) -> &$crate::counting::DriverCounter {
                &self.timeouts
            }

            fn closes(&self) -> &$crate::counting::DriverCounter {
                &self.closes
            }

            fn peers_lost(&self) -> &$crate::counting::DriverCounter {
                &self.peers_lost
            }

            fn held_in_memory(&self) -> &$crate::counting::DriverCounter {
                &self.held_in_memory
            }

            fn held_dropped(&self) -> &$crate::counting::DriverCounter {
                &self.held_dropped
            }

            fn held_lost(&self) -> &$crate::counting::DriverCounter {
                &self.held_lost
            }
        }

        /// The counters of the LND.
        pub enum LiveCounters {}

        impl $crate::counting::Counted for LiveCounters {
            type Tx = LiveTx;
            type Rx = LiveRx;
        }

        /// A snapshot of the LND's counters; each is exact, but they are not read at one moment.
        pub type $both = $crate::counting::Counts<TxCounters, RxCounters>;
    };
}
