//! The ring of events, tested through private items (S-407).

use std::os::unix::fs::FileExt;

use lnet_fake::ScriptedEvent;

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

/// A process that has overwritten its own ring gets an error from every wait, and does not block.
// Covers: MT-219
#[test]
fn a_ring_that_is_overwritten_ends_every_wait() {
    /// Offset of a slot's stamp: the number of its event, and below it the index of the next slot.
    const STAMP_OFFSET: usize = 120;
    let rig = Rig::new();
    rig.start(OperationKind::PassiveReceive);
    let memory = std::fs::File::options().write(true).open("/proc/self/mem").unwrap();
    let stamp = (1u64 << 32 | u64::from(u32::MAX)).to_ne_bytes();
    memory.write_all_at(&stamp, (rig.tm.slots_address() + STAMP_OFFSET) as u64).unwrap();
    assert!(rig.tm.event_get().unwrap().is_some_and(|event| event.cookie == 0), "what stood there");
    assert!(rig.tm.pending(), "there is something to be told");
    for _ in 0..2 {
        let error = rig.tm.event_get().unwrap_err();
        assert!(
            matches!(&error, CoreError::QueueCorrupt { address, .. } if *address == rig.tm.address()),
            "{error}"
        );
        assert_eq!(error.errno(), Errno::EIO);
    }
    assert!(!rig.tm.pending() && !rig.tm.event_wait(None) && rig.tm.has_ended());
}
