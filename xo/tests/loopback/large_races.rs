//! Large transfers that several threads drive, cancel and stop at once; and the largest one.

use nlx::{Fragment, IoVec, Offer, Pages, Region};

use super::*;

const PART: usize = 1 << 20;
const PARTS: usize = 6;

/// A transfer with two parts in flight, and its other side.
struct Course {
    pair: Pair,
    tm: TransferMachine,
    op: OpId,
    other: OpId,
}

impl Course {
    fn start() -> Course {
        let pair = Pair::new();
        let tm = pair.domain.machine().large_window(2).start("0@lo:12345:31:*").unwrap();
        let Started { op: other, offer } = pair.b.start(Op::passive_send(pair.empty(PARTS * PART))).unwrap();
        let op = tm.start(Op::active_receive(pair.empty(PARTS * PART), &offer)).unwrap().op;
        Course { pair, tm, op, other }
    }
}

/// In any interleaving there is one event, and it returns the whole buffer.
#[track_caller]
fn one_event(events: Vec<Event>, op: OpId) -> Event {
    let [event] = <[Event; 1]>::try_from(events).expect("one event");
    assert_eq!((event.op, event.buffer.as_ref().map(Buffer::len)), (op, Some(PARTS * PART)));
    event
}

#[test]
fn a_cancel_meets_the_parts_at_any_point() {
    for round in 0..100 {
        let course = Course::start();
        let tm = &course.tm;
        let events = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| vec![tm.wait(None).unwrap().expect("it ends")]);
            let canceller = scope.spawn(|| {
                for _ in 0..round * 50 {
                    std::hint::spin_loop();
                }
                tm.cancel(course.op)
            });
            canceller.join().unwrap();
            waiter.join().unwrap()
        });
        let event = one_event(events, course.op);
        assert!(matches!(event.status, Ok(()) | Err(Errno::ECANCELED)), "{:?}", event.status);
        assert!(tm.poll().unwrap().is_none());
        assert_eq!(tm.in_flight(), 0);
        assert!(!tm.cancel(course.op), "it is over");
        // Some parts of the other side may have been read.
        course.pair.b.cancel(course.other);
        assert_eq!(next(&course.pair.b).op, course.other);
        assert_eq!(course.pair.b.in_flight(), 0);
    }
}

// An aborted transfer ends early, unless it has already completed; a drained one completes.
#[test]
fn a_stop_meets_the_parts_at_any_point() {
    for round in 0..100 {
        let course = Course::start();
        let tm = &course.tm;
        let how = if round % 2 == 0 { Stop::Abort } else { Stop::Drain };
        let events = std::thread::scope(|scope| {
            let take_all = || {
                let mut events = Vec::new();
                while let Ok(event) = tm.wait(None) {
                    events.extend(event);
                }
                events
            };
            let waiter = scope.spawn(take_all);
            for _ in 0..round * 50 {
                std::hint::spin_loop();
            }
            tm.stop(how, None).unwrap();
            waiter.join().unwrap()
        });
        let event = one_event(events, course.op);
        assert!(
            event.status.is_ok() || how == Stop::Abort && event.status == Err(Errno::ECANCELED),
            "{:?}",
            event.status
        );
    }
}

// A buffer of the maximum number of parts is offered and cancelled; the offer is one message.
#[test]
fn the_largest_buffer_is_offered_and_cancelled() {
    let pair = Pair::new();
    if pair.domain.node().is_none() {
        // The memory is named sixteen times; a copy would need sixteen times the memory.
        return;
    }
    let region = Region::memfd(1 << 30, Pages::Normal).unwrap();
    let segment = Fragment::new(region, 0, 1 << 30).unwrap();
    let buffer = pair.domain.register(IoVec::new(vec![segment; 16]).unwrap()).unwrap();
    let Started { op, offer } = pair.b.start(Op::passive_receive(buffer).length(16 << 30)).unwrap();
    assert_eq!((offer.parts(), pair.b.in_flight()), (Offer::PARTS_MAX, Offer::PARTS_MAX));
    assert!(offer.as_bytes().len() <= pair.domain.limits().buffer_bytes_max);
    assert_eq!(Offer::from_bytes(offer.as_bytes()).unwrap(), offer);
    assert!(pair.b.cancel(op));
    let event = end_of(&pair.b, op);
    assert_eq!((event.status, event.buffer.unwrap().len()), (Err(Errno::ECANCELED), 16 << 30));
}

/// Two stops at once: whichever takes the last part, its event comes before a wait reports that
/// there are no more.
#[test]
fn two_stops_lose_no_event() {
    let domain = domain();
    for _ in 0..2_000 {
        let tm = machine(&domain);
        let op = tm.start(Op::passive_send(domain.allocate(64).unwrap())).unwrap().op;
        let events = std::thread::scope(|scope| {
            let stops = [0, 1].map(|_| scope.spawn(|| tm.stop(Stop::Abort, None).unwrap()));
            let mut events = Vec::new();
            while let Ok(event) = tm.wait(None) {
                events.extend(event);
            }
            stops.into_iter().for_each(|stop| stop.join().unwrap());
            events
        });
        let ops: Vec<_> = events.iter().map(|event| event.op).collect();
        assert_eq!(ops, [op]);
    }
}
