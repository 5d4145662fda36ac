//! The named points of a client, and what happens to a process that has been told to end at one.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use nix::sys::signal::{Signal, raise};
use nlx_core::Queue;
use nlx_driver_proto::{Entry, Request};

macro_rules! points {
    ($($(#[doc = $what:literal])* $name:ident,)+) => {
        /// A place in the code at which a client may die, and nobody else be the worse for it.
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
    /// The socket is connected; nothing has been said.
    Connected,
    /// The hello has been sent, not yet answered. So with each request below.
    HelloAsked,
    /// The answer has come with its descriptors, not yet looked at. So with each request below.
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
    /// Nothing lies in an arena any more; the helper is about to be told.
    ArenaUnused,
    /// Memory that is given back.
    ReleaseAsked,
    ReleaseAnswered,

    /// A buffer is in this side's table; the helper does not know it.
    BufferEntered,
    /// A buffer of one segment, about to be put into the ring. So with each entry below.
    RegisterDue,
    /// It is in the ring, the helper perhaps asleep. So with each entry below.
    RegisterPushed,
    /// A buffer of several segments.
    SegmentsAsked,
    SegmentsAnswered,
    /// Gone from this side's table; its memory is still there.
    BufferForgotten,
    /// Its memory may be another's; the helper still knows it.
    BufferDropped,
    DeregisterDue,
    DeregisterPushed,

    /// A transfer machine.
    StartAsked,
    StartAnswered,
    /// Its event queue is mapped.
    EventsMapped,
    /// A socket for event loops.
    BellAsked,
    BellAnswered,
    /// The event loop's descriptor is complete.
    LookoutMade,
    /// Its sleep is announced.
    Armed,
    /// And over.
    Disarmed,

    /// Room for events is about to be made.
    RoomDue,
    /// The queue is too short for that, and is about to be made longer.
    QueueShort,
    /// It has been.
    RoomMade,
    /// The bytes of foreign memory lie where the helper sees them.
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
    /// There is no room in the ring; the helper is about to be asked to empty it.
    RingFull,
    /// It has, or is gone.
    RingDrained,
    SyncAsked,
    SyncAnswered,
    /// About to look whether the helper sleeps.
    DoorbellDue,
    /// It is awake, or has been woken.
    DoorbellDone,
    /// About to wait for the helper to carry out what stands in the ring.
    SettleBegun,
    /// It has, without being asked.
    Settled,

    /// A waiter has found nothing, and is about to sleep.
    SleepDue,
    /// It is awake.
    Awake,
    /// Somebody in this process wakes a waiter.
    AlarmDue,
    /// An event is out of the queue; what it says is not yet noted.
    EventTaken,
    /// Bytes are copied to foreign memory.
    ShadowCopied,
    /// The bytes that it tells of are the program's.
    BytesTaken,
    /// A last event: the buffer has no operation any more. The queue has not its room back.
    OperationOver,
    /// It has.
    RoomReleased,

    /// No operation can start any more.
    ClosedForOperations,
    StopAsked,
    StopAnswered,
    /// The transfer machine is stopped.
    Stopped,
    /// All operations of one that is dropped are to end.
    AllCancelled,

    /// The socket's own half is shut.
    Finished,
    /// All that waits has been woken, for the link has ended.
    AllWoken,
    /// The helper has closed its half; nobody here knows yet.
    HelperGone,
    /// Leases that were kept for it are given back.
    EndKnown,
    /// An operation that the helper has not ended has none here any more, but for its leases.
    OperationLost,
    /// These are kept.
    LeasesKept,
    /// Another link is about to be made.
    ConnectingAgain,
    /// The new link knows all buffers; this side has not begun to use it.
    BuffersKnownAgain,
    /// It has.
    ConnectedAgain,
    /// The domain is being closed.
    Closing,
}

impl Point {
    /// A request has been sent.
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

    /// Its answer is there.
    pub(crate) fn answered(request: &Request) -> Point {
        Point::asked(request).next()
    }

    /// An entry is about to be put into the ring.
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

    /// It is there.
    pub(crate) fn pushed(entry: &Entry) -> Point {
        Point::due(entry).next()
    }

    /// The one behind it in the list.
    fn next(self) -> Point {
        Point::ALL[self as usize + 1]
    }

    /// The code has come to this point.
    pub(crate) fn hit(self) {
        if let Some(trap) = TRAP.get() {
            trap.meet(self);
        }
    }
}

/// Set in a process that is to end at a point, and in no other.
static TRAP: OnceLock<Trap> = OnceLock::new();

/// Ends this process.
#[derive(Debug)]
pub(crate) struct Trap {
    point: Point,
    /// So many times yet until it happens.
    left: AtomicU32,
}

impl Trap {
    /// From now on this process kills itself when it comes to the point of this name for the `nth` time, and says so before.
    pub(crate) fn arm(name: &str, nth: u32) {
        let point =
            *Point::ALL.iter().find(|point| format!("{point:?}") == name).expect("there is such a point");
        TRAP.set(Trap { point, left: AtomicU32::new(nth) }).expect("there is one trap");
    }

    fn meet(&self, point: Point) {
        if point == self.point && self.left.fetch_sub(1, Relaxed) == 1 {
            // Not by a macro: those are caught with a test's output.
            writeln!(std::io::stderr(), "hit {point:?}").expect("somebody listens");
            raise(Signal::SIGKILL).expect("a signal can be sent to oneself");
        }
    }
}

/// Each stage that [`Point::next`] finds stands behind the one before it, of the same request or entry.
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
