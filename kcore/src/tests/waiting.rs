//! Waiting for events, and the account of the room for them (MT-19, MT-23, MT-212, MT-230, MT-231).

use proptest::prelude::*;

use super::*;

/// Operations in flight, and how many events each can still give.
type InFlight = Vec<(MdHandle, BufferHandle, u32)>;

// MT-230
#[test]
fn a_wait_looks_whatever_its_deadline() {
    let rig = Rig::new();
    rig.drive.clock().set_now_ns(1_000);
    for deadline_ns in [Some(0), Some(999), Some(1_000)] {
        assert!(!rig.tm.event_wait(deadline_ns));
    }
    let md = rig.start(RECEIVE);
    rig.lnet.inject(md, Happening::put().length(1));
    for deadline_ns in [Some(0), Some(999), Some(1_000), Some(u64::MAX), None] {
        assert!(rig.tm.event_wait(deadline_ns));
    }
}

// MT-230, MT-231, S-412: one wake-up for many events, and none is consumed by being waited for.
#[test]
fn waiting_and_asking_take_nothing() {
    let rig = Rig::new();
    let md = rig.start(RECEIVE);
    for _ in 0..3 {
        rig.lnet.inject(md, Happening::put().length(1));
    }
    for taken in 0..3 {
        for _ in 0..2 {
            assert!(rig.tm.pending(), "{taken} of 3 are taken");
            assert!(rig.tm.event_wait(None));
        }
        assert!(rig.tm.event_get().is_some());
    }
    assert!(!rig.tm.pending());
    assert!(!rig.tm.event_wait(Some(0)));
}

#[test]
fn an_event_wakes_a_sleeping_waiter() {
    let rig = Rig::new();
    let md = rig.start(OperationKind::PassiveReceive);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.tm.event_wait(None));
        rig.lnet.inject(md, Happening::put());
        assert!(waiter.join().unwrap());
    });
    rig.only_event();
}

#[test]
fn a_waiter_can_be_woken_without_an_event() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.tm.event_wait(None));
        rig.tm.wake();
        assert!(!waiter.join().unwrap());
    });
    // The one wake-up is used up.
    assert!(!rig.tm.event_wait(Some(0)));
}

#[test]
fn polling_does_not_sleep() {
    let rig = Rig::new();
    rig.tm.poll();
    assert!(!rig.tm.pending());
}

// S-311, S-411: LNet calls back from several threads at once; nothing is lost, and each buffer's events keep their order.
#[test]
fn callbacks_of_many_threads_make_one_stream_of_events() {
    const THREADS: u64 = 4;
    const EVENTS: u32 = 2000;
    let rig = Rig::new();
    let receive = OperationKind::Receive { min_receive_size: 1, max_messages: EVENTS };
    let start = |cookie| {
        let buffer = rig.core.register(&rig.memory).unwrap();
        rig.tm.submit(&Operation { buffer, cookie, kind: receive }).unwrap();
        rig.lnet.last_md()
    };
    let mds: Vec<MdHandle> = (0..THREADS).map(start).collect();
    std::thread::scope(|scope| {
        for md in mds {
            let lnet = &rig.lnet;
            scope.spawn(move || {
                for number in 1..=EVENTS {
                    let event = lnet.inject(md, Happening::put().length(1));
                    assert_eq!(event.unlinked, number == EVENTS);
                }
            });
        }
        let mut next = [0; THREADS as usize];
        while rig.tm.needed() > 0 {
            assert!(rig.tm.event_wait(None));
            while let Some(event) = rig.tm.event_get() {
                let expected = &mut next[event.cookie as usize];
                assert_eq!((event.offset, event.unlinked()), (*expected, *expected == u64::from(EVENTS - 1)));
                *expected += 1;
            }
        }
        assert_eq!(next, [u64::from(EVENTS); THREADS as usize]);
    });
    assert_eq!(rig.core.faults(), crate::Faults::default());
}

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
    rig.assert_idle();
}

proptest! {
    // MT-19, MT-23, MT-212: the needed count is at every moment what the operations reserved whose end was not taken.
    #[test]
    fn room_is_reserved_from_the_start_to_the_last_event(steps in prop::collection::vec((0u8..4, 1u32..6, any::<usize>()), 1..120)) {
        let rig = Rig::new();
        let mut in_flight: InFlight = Vec::new();
        let mut reserved = std::collections::HashMap::new();
        let mut waiting = 0;
        for (action, messages, choice) in steps {
            match action {
                0 => {
                    let buffer = rig.core.register(&rig.memory).unwrap();
                    let kind = OperationKind::Receive { min_receive_size: 1, max_messages: messages };
                    rig.tm.submit(&Operation { buffer, cookie: buffer.0, kind }).unwrap();
                    in_flight.push((rig.lnet.last_md(), buffer, messages));
                    reserved.insert(buffer.0, messages as usize);
                }
                1 | 2 if !in_flight.is_empty() => {
                    let index = choice % in_flight.len();
                    let (md, _, left) = &mut in_flight[index];
                    *left -= 1;
                    let event = rig.lnet.inject(*md, Happening::put().length(1));
                    prop_assert_eq!(event.unlinked, *left == 0);
                    waiting += 1;
                    if *left == 0 {
                        in_flight.swap_remove(index);
                    }
                }
                _ => {
                    let event = rig.tm.event_get();
                    prop_assert_eq!(event.is_some(), waiting > 0);
                    if let Some(event) = event {
                        waiting -= 1;
                        if event.unlinked() {
                            let released = reserved.remove(&event.cookie);
                            prop_assert_eq!(released, Some(event.released as usize));
                            rig.core.deregister(event.buffer()).unwrap();
                        }
                    }
                }
            }
            prop_assert_eq!(rig.tm.needed(), reserved.values().sum::<usize>());
            prop_assert_eq!(rig.tm.pending(), waiting > 0);
        }
        prop_assert_eq!(rig.core.faults(), crate::Faults::default());
    }
}
