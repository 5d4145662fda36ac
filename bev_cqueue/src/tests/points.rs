//! The named points of the code at which tests end a process, and the trap that does so.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::OnceLock;

use nix::sys::signal::{Signal, raise};

use crate::tests::other::{Board, Word};

/// The half whose code contains a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Producer,
    Consumer,
}

macro_rules! points {
    ($($half:ident { $($(#[doc = $what:literal])+ $name:ident,)+ })+) => {
        /// A place in the code at which this process may end or stop without harm to the other
        /// side.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Point {
            $($($(#[doc = $what])+ $name,)+)+
        }

        impl Point {
            pub(crate) const ALL: &[(Point, Half)] = &[$($((Point::$name, Half::$half),)+)+];

            /// Returns the point with this name.
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
        /// The link of the slot has been read; nothing has been written.
        LinkRead,
        /// The slot is filled, not yet stamped.
        Filled,
        /// A single push has stamped the slot, and has not updated its position.
        PushStamped,
        /// A push of several events has stamped the slot, and has not updated its position.
        PushIterStamped,
        /// The consumer's counters are read, not yet checked.
        CountersRead,
        /// The room has been computed from the counters.
        RoomUpdated,
        /// The event is pushed; the producer has not yet read whether the consumer sleeps.
        WakeDue,
        /// The sleeper's word is cleared, the bell not yet rung.
        WakeClaimed,
        /// The bell has been rung.
        WakeRung,
    }
    Consumer {
        /// The event has been seen, not yet copied.
        StampSeen,
        /// The event is copied, not yet counted as taken.
        Copied,
        /// The event is taken, its slot not yet returned.
        Taken,
        /// The slot has been returned.
        GivenBack,
        /// The iterator is about to return the event it took.
        Drained,
        /// New slots are chained, not yet linked in.
        GrowStrung,
        /// The slots are linked in, their number not yet published.
        GrowLinked,
        /// The larger number of slots has been published.
        GrowPublished,
        /// The smaller ring is closed; the slots cut off are not spare yet.
        ShrinkClosed,
        /// The slots cut off are spare, the number of slots not yet published.
        ShrinkPutAside,
        /// The smaller number of slots has been published, the producer not yet notified.
        ShrinkPublished,
        /// The memory has been returned to the system.
        ShrinkDiscarded,
        /// Sleep is announced; the sleeper has not yet checked again.
        SleepAnnounced,
        /// The sleeper has checked again and found nothing; it does not sleep yet.
        SleepDue,
        /// The sleeper is awake; sleep is still announced unless a waker cleared it.
        SleepOver,
    }
}

/// The trap; set only in a process that is to end at a point.
static TRAP: OnceLock<Trap> = OnceLock::new();

/// Ends or stops this process at a point.
#[derive(Debug)]
pub(crate) struct Trap {
    point: Point,
    /// The number of visits to the point before the signal is sent.
    left: AtomicU32,
    signal: Signal,
    board: Board,
}

impl Trap {
    /// Makes `signal` stop or kill this process when it reaches `point` for the `nth` time.
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
            // The signal goes to this thread, so that `raise` does not return before the signal has
            // had its effect.
            raise(self.signal).expect("a signal can be sent to oneself");
        }
    }
}
