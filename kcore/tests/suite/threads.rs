//! Callbacks of many threads at once.

use lnet_api::MdHandle;
use lnet_fake::ScriptedEvent;
use lnet_nid::ProcessId;
use nlx_core::{Core, OperationKind};

use super::bed;
use crate::bed::*;

/// Nothing is lost, and each buffer's events keep their order.
// Covers: S-311, S-411, S-415
#[test]
fn callbacks_of_many_threads_make_one_stream_of_events() {
    const THREADS: u64 = 4;
    const EVENTS: u32 = 500;
    let bed = bed();
    let receive = OperationKind::Receive { min_receive_size: 1, max_messages: EVENTS };
    let begin = |cookie| {
        let buffer = bed.core.register(&bed.memory).unwrap();
        bed.submit_on(buffer, cookie, receive).unwrap();
        bed.spy.last_md()
    };
    let mds: Vec<MdHandle> = (0..THREADS).map(begin).collect();
    std::thread::scope(|scope| {
        for (peer, md) in (0..).map(peer_of).zip(mds) {
            let fake = &bed.world.fake;
            let put = ScriptedEvent::put().length(1).from(ProcessId::new(peer.nid, peer.pid));
            scope.spawn(move || {
                for number in 1..=EVENTS {
                    assert_eq!(fake.inject(md, &put).unlinked, number == EVENTS);
                }
            });
        }
        let mut next = [0; THREADS as usize];
        while bed.tm.needed() > 0 {
            assert!(bed.tm.event_wait(None));
            while let Some(event) = bed.tm.event_get().unwrap() {
                let expected = &mut next[event.cookie as usize];
                assert_eq!((event.offset, event.unlinked()), (*expected, *expected == u64::from(EVENTS - 1)));
                *expected += 1;
            }
        }
        assert_eq!(next, [u64::from(EVENTS); THREADS as usize]);
    });
    bed.assert_no_faults();
}
