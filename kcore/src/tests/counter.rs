//! Match bits when their counter wraps (MT-74, MT-79).

use super::*;

// Covers: S-2, S-409, MT-74, MT-79
#[test]
fn match_bits_count_up_and_skip_what_is_in_use_after_the_wrap() {
    let rig = Rig::new();
    let other = rig.core.register(&rig.memory).unwrap();
    let kind = OperationKind::PassiveReceive;
    let counter = |submitted: Submitted| {
        let passive = submitted.descriptor.unwrap().for_active_send(1).unwrap();
        nlx_core::split_match_bits(passive.match_bits).1.get()
    };
    assert_eq!(counter(rig.tm.submit(&Operation { buffer: other, cookie: 1, kind }).unwrap()), 1);
    rig.tm.shared().set_counter(MatchCounter::new(MatchCounter::LAST.get() - 1).unwrap());
    let last = MatchCounter::LAST.get();
    // 1 is in use when the counter wraps.
    for expected in [last - 1, last, 2] {
        assert_eq!(counter(rig.submit(kind).unwrap()), expected);
        rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        rig.tm.event_get().unwrap().expect("it was cancelled");
    }
}
