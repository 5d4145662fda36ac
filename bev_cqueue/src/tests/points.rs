//! The named points of the code, and what happens to a process that has been told to end at one.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::OnceLock;

use nix::sys::signal::{Signal, raise};

use crate::tests::other::{Board, Word};

/// Which half comes past a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Producer,
    Consumer,
}

macro_rules! points {
    ($($half:ident { $($(#[doc = $what:literal])+ $name:ident,)+ })+) => {
        /// A place in the code at which the other side must be safe whatever becomes of this one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Point {
            $($($(#[doc = $what])+ $name,)+)+
        }

        impl Point {
            pub(crate) const ALL: &[(Point, Half)] = &[$($((Point::$name, Half::$half),)+)+];

            /// The point of this name.
            fn named(name: &str) -> Option<Point> {
                match name {
                    $($(stringify!($name) => Some(Point::$name),)+)+
                    _ => None,
                }
            }
        }
    };
}

points! {
    Producer {
        /// The link of the slot has been read; nothing is written.
        LinkRead,
        /// Filled, not yet stamped.
        Filled,
        /// Stamped by a single push, not yet noted.
        PushStamped,
        /// Stamped by a push of several, not yet noted.
        PushIterStamped,
        /// The consumer's counters are read, not yet judged.
        CountersRead,
        /// The room has been reckoned from them.
        RoomReckoned,
        /// Pushed; has not yet looked whether the consumer sleeps.
        WakeDue,
        /// The sleeper's word is cleared, the bell not yet rung.
        WakeClaimed,
        /// The bell has been rung.
        WakeRung,
    }
    Consumer {
        /// The event has been seen, not yet copied.
        StampSeen,
        /// Copied, not yet noted as taken.
        Copied,
        /// Taken, its slot not yet given back.
        Taken,
        /// The slot has been given back.
        GivenBack,
        /// The iterator is about to hand out what it took.
        Drained,
        /// New slots are strung together, not yet linked in.
        GrowStrung,
        /// Linked in, the number of slots not yet published.
        GrowLinked,
        /// The larger number of slots has been published.
        GrowPublished,
        /// The smaller ring is closed; what was cut off hangs loose.
        ShrinkClosed,
        /// What was cut off is put aside, the number of slots not yet published.
        ShrinkPutAside,
        /// The smaller number of slots has been published, the producer not yet told.
        ShrinkPublished,
        /// The memory has been given back to the system.
        ShrinkDiscarded,
        /// Sleep is announced; has not yet looked again.
        SleepAnnounced,
        /// Has looked again and found nothing; not yet asleep.
        SleepDue,
        /// Awake; sleep is still announced unless somebody cleared it.
        SleepOver,
    }
}

/// Set in a process that is to end at a point, and in no other.
static TRAP: OnceLock<Trap> = OnceLock::new();

/// Ends or stops this process.
#[derive(Debug)]
pub(crate) struct Trap {
    point: Point,
    /// So many times yet until it happens.
    left: AtomicU32,
    signal: Signal,
    board: Board,
}

impl Trap {
    /// From now on this process is stopped by `signal` when it comes to `point` for the `nth` time.
    pub(crate) fn arm(point: Point, nth: u32, signal: Signal, board: Board) {
        TRAP.set(Trap { point, left: AtomicU32::new(nth), signal, board }).expect("there is one trap");
        nlx_sync::set_points(|name| {
            let trap = TRAP.get().expect("the trap is set");
            trap.meet(Point::named(name).expect("a point that is known"));
        });
    }

    fn meet(&self, point: Point) {
        if point == self.point && self.left.fetch_sub(1, Relaxed) == 1 {
            self.board.word(Word::Hit).store(1 + point as u64, Release);
            // At this thread: it does not come back before the signal has done its work.
            raise(self.signal).expect("a signal can be sent to oneself");
        }
    }
}
