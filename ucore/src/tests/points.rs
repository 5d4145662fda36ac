//! The named points of a client, and the trap that ends a process at one.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use nix::sys::signal::{Signal, raise};
use nlx_core::Queue;
use nlx_driver_proto::{Entry, Request};

macro_rules! points {
    ($($(#[doc = $what:literal])* $name:ident,)+) => {
        /// A place in the code at which a client may die without harm to other clients.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Point {
            $($(#[doc = $what])* $name,)+
        }

        impl Point {
            pub(crate) const ALL: &[Point] = &[$(Point::$name,)+];
        }
    };
}

points! {
    /// The socket is connected; nothing has been sent.
    Connected,
    /// The hello has been sent, not yet answered. Likewise for each request below.
    HelloAsked,
    /// The answer has come with its descriptors, and has not been checked. Likewise for each
    /// request below.
    HelloAnswered,
    /// The submission ring is mapped.
    RingMapped,
    /// The node's NIDs.
    NidsAsked,
    NidsAnswered,
    /// The domain is open, and its watching thread runs.
    Attached,

    /// Memory for buffers.
    ArenaAsked,
    ArenaAnswered,
    /// Mapped, not yet in the table of arenas.
    ArenaMapped,
    /// An arena is unused; the helper is about to be notified.
    ArenaUnused,
    /// An arena is released.
    ReleaseAsked,
    ReleaseAnswered,

    /// A buffer is in this side's table, and not yet in the helper's.
    BufferEntered,
    /// A buffer of one segment, about to be pushed into the ring. Likewise for each entry below.
    RegisterDue,
    /// The entry is in the ring, the helper perhaps asleep. Likewise for each entry below.
    RegisterPushed,
    /// A buffer of several segments.
    SegmentsAsked,
    SegmentsAnswered,
    /// Removed from this side's table; its memory still exists.
    BufferForgotten,
    /// The buffer's memory may be reused; the helper still has the buffer.
    BufferDropped,
    DeregisterDue,
    DeregisterPushed,

    /// A transfer machine.
    StartAsked,
    StartAnswered,
    /// The event queue of the transfer machine is mapped.
    EventsMapped,
    /// A socket for event loops.
    BellAsked,
    BellAnswered,
    /// The event loop's descriptor is complete.
    LookoutMade,
    /// The event loop's sleep is announced.
    Armed,
    /// The announced sleep is over.
    Disarmed,

    /// Room for events is about to be made.
    RoomDue,
    /// The queue is too short for that, and is about to grow.
    QueueShort,
    /// The queue has grown.
    RoomMade,
    /// The bytes of foreign memory are copied to the shadow.
    ShadowFilled,
    /// The operation has its leases and its buffer.
    Leased,
    ReceiveDue,
    ReceivePushed,
    SendDue,
    SendPushed,
    PassiveReceiveDue,
    PassiveReceivePushed,
    PassiveSendDue,
    PassiveSendPushed,
    ActiveReceiveDue,
    ActiveReceivePushed,
    ActiveSendDue,
    ActiveSendPushed,
    CancelDue,
    CancelPushed,
    /// There is no room in the ring; a request is about to make room.
    RingFull,
    /// The request has been answered, or the helper is gone.
    RingDrained,
    SyncAsked,
    SyncAnswered,
    /// About to check whether the helper sleeps.
    DoorbellDue,
    /// The helper is awake, or has been woken.
    DoorbellDone,
    /// About to wait for the helper to carry out the entries of the ring.
    SettleBegun,
    /// The helper has carried out the entries, without a request.
    Settled,

    /// A waiter has found nothing, and is about to sleep.
    SleepDue,
    /// The waiter is awake.
    Awake,
    /// A thread of this process wakes a waiter.
    AlarmDue,
    /// An event has been taken from the queue, and is not yet applied.
    EventTaken,
    /// Bytes are copied to foreign memory.
    ShadowCopied,
    /// The received bytes belong to the program.
    BytesTaken,
    /// A last event: the buffer has no operation any more. The queue's room is not yet released.
    OperationOver,
    /// Room in the event queue has been released.
    RoomReleased,

    /// No operation can start any more.
    ClosedForOperations,
    StopAsked,
    StopAnswered,
    /// The transfer machine is stopped.
    Stopped,
    /// All operations of a dropped machine are being cancelled.
    AllCancelled,

    /// The socket's own direction is shut down.
    Finished,
    /// All waits have been ended, because the link has ended.
    AllWoken,
    /// The helper has closed its end; this side has not recorded it yet.
    HelperGone,
    /// The kept leases are released.
    EndKnown,
    /// An operation that the helper has not ended is over on this side, except for its leases.
    OperationLost,
    /// The leases of the lost operation are kept.
    LeasesKept,
    /// Another link is about to be made.
    ConnectingAgain,
    /// The new link has all buffers; this side does not use it yet.
    BuffersKnownAgain,
    /// The client uses the new link.
    ConnectedAgain,
    /// The domain is being closed.
    Closing,
}

impl Point {
    /// Returns the point after a request has been sent.
    pub(crate) fn asked(request: &Request) -> Point {
        match request {
            Request::Hello(_) => Point::HelloAsked,
            Request::CreateArena { .. } => Point::ArenaAsked,
            Request::ReleaseArena { .. } => Point::ReleaseAsked,
            Request::Register { .. } => Point::SegmentsAsked,
            Request::StartTm(_) => Point::StartAsked,
            Request::StopTm { .. } => Point::StopAsked,
            Request::TmDescriptor { .. } => Point::BellAsked,
            Request::Sync => Point::SyncAsked,
            Request::Nids => Point::NidsAsked,
        }
    }

    /// Returns the point after its answer has come.
    pub(crate) fn answered(request: &Request) -> Point {
        Point::asked(request).next()
    }

    /// Returns the point before an entry is pushed into the ring.
    pub(crate) fn due(entry: &Entry) -> Point {
        match entry {
            Entry::Operate { operation, .. } => match operation.kind.queue() {
                Queue::MessageReceive => Point::ReceiveDue,
                Queue::MessageSend => Point::SendDue,
                Queue::PassiveBulkReceive => Point::PassiveReceiveDue,
                Queue::PassiveBulkSend => Point::PassiveSendDue,
                Queue::ActiveBulkReceive => Point::ActiveReceiveDue,
                Queue::ActiveBulkSend => Point::ActiveSendDue,
            },
            Entry::Cancel { .. } => Point::CancelDue,
            Entry::Register { .. } => Point::RegisterDue,
            Entry::Deregister { .. } => Point::DeregisterDue,
        }
    }

    /// Returns the point after it is pushed.
    pub(crate) fn pushed(entry: &Entry) -> Point {
        Point::due(entry).next()
    }

    /// Returns the next point of the list.
    fn next(self) -> Point {
        Point::ALL[self as usize + 1]
    }

    /// Kills the process if it is to end at this point. Called when the code reaches the point.
    pub(crate) fn hit(self) {
        if let Some(trap) = TRAP.get() {
            trap.meet(self);
        }
    }
}

/// Set only in a process that is to end at a point.
static TRAP: OnceLock<Trap> = OnceLock::new();

/// Ends this process at a point.
#[derive(Debug)]
pub(crate) struct Trap {
    point: Point,
    /// Remaining times that the point is reached.
    left: AtomicU32,
}

impl Trap {
    /// Makes this process kill itself when it reaches the named point for the `nth` time, after
    /// reporting that.
    pub(crate) fn arm(name: &str, nth: u32) {
        let point =
            *Point::ALL.iter().find(|point| format!("{point:?}") == name).expect("there is such a point");
        TRAP.set(Trap { point, left: AtomicU32::new(nth) }).expect("there is one trap");
    }

    fn meet(&self, point: Point) {
        if point == self.point && self.left.fetch_sub(1, Relaxed) == 1 {
            // Not by a macro, whose output the test harness captures.
            writeln!(std::io::stderr(), "hit {point:?}").expect("somebody listens");
            raise(Signal::SIGKILL).expect("a signal can be sent to oneself");
        }
    }
}

/// Each stage that [`Point::next`] returns follows the previous stage of the same request or entry.
#[test]
fn stages_stand_in_order() {
    let names: Vec<_> = Point::ALL.iter().map(|point| format!("{point:?}")).collect();
    for (first, second) in [("Asked", "Answered"), ("Due", "Pushed")] {
        let seconds = (1..names.len()).filter(|&at| names[at].ends_with(second));
        let stems = seconds.map(|at| (names[at].strip_suffix(second), names[at - 1].strip_suffix(first)));
        let stems: Vec<_> = stems.collect();
        assert!(!stems.is_empty() && stems.iter().all(|(later, earlier)| later == earlier), "{stems:?}");
    }
}
