//! The ring of events, tested through private items (S-407).

use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use lnet_fake::ScriptedEvent;
use nlx_core::BufferEvent;

use super::*;

// Q3: room for a burst of events is released after a while.
// Covers: S-410
#[test]
fn the_ring_of_events_shrinks_when_little_is_in_flight() {
    let rig = Rig::new();
    let burst = rig.core.limits().messages_max.min(20_000);
    let take = |max_messages| {
        let md = rig.start(OperationKind::Receive { min_receive_size: 1, max_messages });
        if !rig.lnet.inject(md, ScriptedEvent::put().length(1)).unlinked {
            rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        }
        std::iter::from_fn(|| rig.tm.event_get().unwrap()).count()
    };
    assert_eq!(take(burst), 2);
    assert_eq!(rig.tm.slots(), burst + 1, "it may be needed again");
    while rig.tm.slots() > burst / 4 {
        assert_eq!(take(1), 1);
    }
    assert_eq!(take(burst), 2, "and it grows again");
    assert_eq!((rig.tm.event_get().unwrap(), rig.tm.needed()), (None, 0));
}

/// Q3: the same with a server, which always has receive buffers posted.
// Covers: S-410
#[test]
fn the_ring_of_events_shrinks_around_what_is_posted() {
    let rig = Rig::new();
    let posted = rig.core.register(&rig.memory).unwrap();
    let kind = OperationKind::Receive { min_receive_size: 1, max_messages: 300 };
    rig.tm.submit(&Operation { buffer: posted, cookie: 1, kind }).unwrap();
    let posted = rig.lnet.last_md();
    let take = |max_messages| {
        rig.start(OperationKind::Receive { min_receive_size: 1, max_messages });
        rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        assert_eq!(std::iter::from_fn(|| rig.tm.event_get().unwrap()).count(), 1);
        rig.tm.slots()
    };
    assert_eq!(take(8000), 8301);
    while take(100) > 8301 / 4 {}
    assert!(rig.tm.slots() > 400);
    // All that was posted still has room.
    (0..300).for_each(|number| {
        assert_eq!(rig.lnet.inject(posted, ScriptedEvent::put().length(1)).unlinked, number == 299);
    });
    assert_eq!(std::iter::from_fn(|| rig.tm.event_get().unwrap()).count(), 300);
    assert_eq!((rig.tm.needed(), rig.core.faults().overruns), (0, 0));
}

/// Offset of a slot's stamp: the number of its event, and below it the index of the next slot. The
/// event lies directly before it.
const STAMP_OFFSET: usize = 120;

/// Overwrites bytes of the ring's first slot, which the first event takes.
fn overwrite(rig: &Rig, offset: usize, bytes: &[u8]) {
    let memory = std::fs::File::options().write(true).open("/proc/self/mem").unwrap();
    memory.write_all_at(bytes, (rig.tm.slots_address() + offset) as u64).unwrap();
}

/// Checks that the ring is corrupt for every call that needs it, and that no wait blocks.
fn check_corrupt(rig: &Rig) {
    let own = rig.tm.address();
    let other = rig.core.register(&rig.memory).unwrap();
    // Refused for the same reason, although there is no room for so many events.
    let kind = OperationKind::Receive { min_receive_size: 1, max_messages: u32::MAX };
    let operation = Operation { buffer: other, cookie: COOKIE, kind };
    for _ in 0..2 {
        for error in [rig.tm.event_get().unwrap_err(), rig.tm.submit(&operation).unwrap_err()] {
            assert!(matches!(&error, CoreError::QueueCorrupt { address, .. } if *address == own), "{error}");
            assert_eq!(error.errno(), Errno::EIO);
        }
    }
    rig.core.deregister(other).expect("nothing has started");
    assert!(!rig.tm.pending() && !rig.tm.event_wait(None) && rig.tm.has_ended());
}

/// A process that has overwritten its own ring gets an error from every call that takes events or
/// starts an operation, and no wait blocks.
// Covers: MT-219
#[test]
fn a_ring_that_is_overwritten_ends_every_wait_and_starts_nothing() {
    let rig = Rig::new();
    rig.start(OperationKind::PassiveReceive);
    overwrite(&rig, STAMP_OFFSET, &(1u64 << 32 | u64::from(u32::MAX)).to_ne_bytes());
    assert!(rig.tm.event_get().unwrap().is_some_and(|event| event.cookie == 0), "what stood there");
    assert!(rig.tm.pending(), "there is something to be told");
    check_corrupt(&rig);
}

/// The same when only an event is overwritten, so that it releases more room than is in use. The
/// event itself is delivered.
// Covers: MT-219
#[test]
fn an_event_that_releases_too_much_room_is_a_corrupt_ring() {
    let rig = Rig::new();
    rig.start(RECEIVE);
    rig.tm.cancel(rig.buffer, COOKIE).unwrap();
    let released = STAMP_OFFSET - size_of::<BufferEvent>() + offset_of!(BufferEvent, released);
    overwrite(&rig, released, &(MESSAGES + 1).to_ne_bytes());
    assert!(rig.tm.event_get().unwrap().is_some_and(|event| event.unlinked()));
    check_corrupt(&rig);
}
