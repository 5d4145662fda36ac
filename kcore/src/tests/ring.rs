//! The room for events, seen from inside (S-407).

use lnet_fake::Happening;

use super::*;

// Q3: room for a burst of events does not stay for ever.
#[test]
fn the_ring_of_events_shrinks_when_little_is_in_flight() {
    let rig = Rig::new();
    let burst = rig.core.limits().messages_max.min(20_000);
    let take = |max_messages| {
        let md = rig.start(OperationKind::Receive { min_receive_size: 1, max_messages });
        if !rig.lnet.inject(md, Happening::put().length(1)).unlinked {
            rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        }
        std::iter::from_fn(|| rig.tm.event_get()).count()
    };
    assert_eq!(take(burst), 2);
    assert_eq!(rig.tm.slots(), burst + 1, "it may be needed again");
    while rig.tm.slots() > burst / 4 {
        assert_eq!(take(1), 1);
    }
    assert_eq!(take(burst), 2, "and it grows again");
    assert_eq!((rig.tm.event_get(), rig.tm.needed()), (None, 0));
}
