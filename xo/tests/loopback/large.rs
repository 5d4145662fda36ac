//! Bulk of any size: split into parts, with one event for the whole transfer.

use std::time::Instant;

use nlx::{CoreError, Descriptor, Error, Fragment, IoVec, Offer, Refused, Region, TmState};

use super::*;

const PART: usize = 1 << 20;

/// Takes the event of the transfer: no event of a part comes before it.
fn whole(tm: &TransferMachine, op: OpId) -> Event {
    let event = end_of(tm, op);
    assert!(tm.poll().unwrap().is_none());
    assert_eq!(tm.in_flight(), 0);
    event
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Refused>, errno: Errno, buffer_len: usize) -> Refused {
    let refused = outcome.expect_err("it is refused");
    assert_eq!(refused.error.errno(), errno, "{}", refused.error);
    assert_eq!(refused.buffer.len(), buffer_len, "the whole buffer is back");
    refused
}

// The offer of a small buffer is a descriptor that Motr's programs can use. The buffer of the other
// side may still be large.
#[test]
fn small_and_large_buffers_meet() {
    const LENGTH: usize = 1000;
    let pair = Pair::new();
    let text = pattern(0, 3 * PART);
    let small = Op::passive_send(pair.filled(&text[..LENGTH]));
    let part_of_a_large_one = Op::passive_send(pair.filled(&text)).length(LENGTH);
    for (passive, room) in [(small, 3 * PART), (part_of_a_large_one, LENGTH)] {
        let Started { op: shows, offer } = pair.b.start(passive).unwrap();
        let descriptor = Descriptor::from_bytes(offer.as_bytes()).unwrap();
        assert_eq!((offer.parts(), offer.length(), offer.descriptor(0)), (1, LENGTH as u64, descriptor));
        let reads = pair.a.start(Op::active_receive(pair.empty(room), descriptor)).unwrap().op;
        let event = whole(&pair.a, reads);
        assert_eq!((event.status, event.length), (Ok(()), LENGTH));
        let buffer = event.buffer.unwrap();
        assert_eq!((buffer.len(), &buffer.read().unwrap()[..LENGTH]), (room, &text[..LENGTH]));
        assert_eq!(whole(&pair.b, shows).length, LENGTH);
    }
    let Started { op: takes, offer } = pair.b.start(Op::passive_receive(pair.empty(LENGTH))).unwrap();
    let more = Op::active_send(pair.filled(&text), &offer).length(LENGTH + 1);
    let buffer = refused(pair.a.start(more), Errno::EFBIG, 3 * PART).buffer;
    let writes = pair.a.start(Op::active_send(buffer, &offer).length(LENGTH)).unwrap().op;
    assert_eq!(whole(&pair.a, writes).length, LENGTH);
    assert_eq!(whole(&pair.b, takes).buffer.unwrap().read().unwrap()[..], text[..LENGTH]);
}

// A descriptor has the length of its buffer, so an offer of less room has a header with the offered
// length.
#[test]
fn less_than_a_small_buffer_is_offered() {
    let pair = Pair::new();
    let Started { op: takes, offer } = pair.b.start(Op::passive_receive(pair.empty(100)).length(60)).unwrap();
    assert_eq!((offer.parts(), offer.length()), (1, 60));
    let offer = Offer::from_bytes(offer.as_bytes()).unwrap();
    refused(pair.a.start(Op::active_send(pair.empty(61), &offer)), Errno::EFBIG, 61);
    let writes = pair.a.start(Op::active_send(pair.filled(&pattern(0, 60)), &offer)).unwrap().op;
    assert_eq!(whole(&pair.a, writes).length, 60);
    assert_eq!(whole(&pair.b, takes).length, 60);
}

// The last part need not be filled; all others must.
#[test]
fn a_peer_may_send_less_than_the_last_part_has_room_for() {
    let pair = Pair::new();
    let room = 3 * PART;
    let Started { op: got, offer } = pair.b.start(Op::passive_receive(pair.empty(room))).unwrap();
    let short = refused(
        pair.a.start(Op::active_send(pair.empty(room), &offer).length(2 * PART)),
        Errno::EINVAL,
        room,
    );
    assert!(
        matches!(short.error, Error::Offer { field: "number of parts", value: 3, .. }),
        "{}",
        short.error
    );
    let text = pattern(0, 2 * PART + 1);
    let sent = pair.a.start(Op::active_send(pair.filled(&text), &offer)).unwrap().op;
    assert_eq!(whole(&pair.a, sent).length, text.len());
    let event = whole(&pair.b, got);
    assert_eq!((event.status, event.length), (Ok(()), text.len()));
    assert_eq!(event.buffer.unwrap().read().unwrap()[..text.len()], text);
}

// A peer that does not support offers uses the descriptors separately, in any order.
#[test]
fn each_descriptor_of_an_offer_is_an_ordinary_one() {
    let pair = Pair::new();
    let text = pattern(0, 3 * PART + 10);
    let Started { op: sent, offer } = pair.b.start(Op::passive_send(pair.filled(&text))).unwrap();
    for part in [2, 0, 3, 1] {
        let op = pair.a.start(Op::active_receive(pair.empty(PART), offer.descriptor(part))).unwrap().op;
        let event = end_of(&pair.a, op);
        let expected = &text[part * PART..text.len().min((part + 1) * PART)];
        assert_eq!(event.length, expected.len());
        assert_eq!(event.buffer.unwrap().read().unwrap()[..event.length], *expected);
    }
    assert_eq!(whole(&pair.b, sent).status, Ok(()));
}

// A transfer with a hole must fail, because its data would seem complete.
#[test]
fn a_part_that_is_filled_short_fails_the_whole() {
    let pair = Pair::new();
    let Started { op: got, offer } = pair.b.start(Op::passive_receive(pair.empty(3 * PART))).unwrap();
    let op =
        pair.a.start(Op::active_send(pair.empty(PART), offer.descriptor(1)).length(PART - 1)).unwrap().op;
    end_of(&pair.a, op);
    let event = whole(&pair.b, got);
    assert_eq!((event.status, event.length), (Err(Errno::EBADMSG), 0));
    assert_eq!(event.buffer.unwrap().len(), 3 * PART);
}

#[test]
fn memory_of_the_callers_own_is_split_across_its_segments() {
    let pair = Pair::new();
    let segmented = || {
        let region = Region::heap(6 * PART).unwrap();
        let part = |offset, length| Fragment::new(region.clone(), offset, length).unwrap();
        let memory =
            IoVec::new([part(1, 10), part(500, 2 * PART), part(3 * PART, PART - 3), part(5 * PART, 77)]);
        pair.domain.register_copying(memory.unwrap()).unwrap()
    };
    let source = segmented();
    let text = pattern(0, source.len());
    source.memory().write(0..text.len()).unwrap().copy_from(0, &text);
    let Started { op: sent, offer } = pair.b.start(Op::passive_send(source).length(text.len())).unwrap();
    let got = pair.a.start(Op::active_receive(segmented(), &offer)).unwrap().op;
    let target = whole(&pair.a, got).buffer.unwrap();
    assert_eq!(target.memory().read(0..text.len()).unwrap().to_vec(), text);
    assert_eq!(whole(&pair.b, sent).status, Ok(()));
}

// The memory is 4 MiB, named repeatedly.
#[test]
fn a_gibibyte_is_one_operation() {
    let pair = Pair::new();
    let repeated = || {
        let segment = pair.domain.allocate(4 * PART).unwrap().memory().fragments()[0].clone();
        pair.domain.register(IoVec::new(vec![segment; 256]).unwrap()).unwrap()
    };
    let text = pattern(0, 4 * PART);
    let (source, target) = (repeated(), repeated());
    source.memory().write(0..text.len()).unwrap().copy_from(0, &text);
    let Started { op: sent, offer } = pair.b.start(Op::passive_send(source).length(1 << 30)).unwrap();
    let got = pair.a.start(Op::active_receive(target, &offer)).unwrap().op;
    let event = whole(&pair.a, got);
    assert_eq!((event.status, event.length), (Ok(()), 1 << 30));
    assert_eq!(event.buffer.unwrap().memory().read(0..text.len()).unwrap().to_vec(), text);
    assert_eq!(whole(&pair.b, sent).length, 1 << 30);
    let [there, here] = [&pair.a, &pair.b].map(|tm| tm.statistics());
    assert_eq!(there[Queue::ActiveBulkReceive.index()].adds, 1024, "the parts are counted");
    assert_eq!(there[Queue::ActiveBulkReceive.index()].successes, 1024);
    assert_eq!(here[Queue::PassiveBulkSend.index()].bytes, 1 << 30);
}

#[test]
fn no_more_parts_are_in_flight_than_the_window_has() {
    let domain = domain();
    let peer = machine(&domain);
    for (window, expected) in [(1, 1), (3, 3), (0, 1), (100, 10)] {
        let tm = domain.machine().large_window(window).start("0@lo:12345:31:*").unwrap();
        let buffer = || domain.allocate(10 * PART).unwrap();
        let Started { op: sent, offer } = peer.start(Op::passive_send(buffer()).length(10 * PART)).unwrap();
        let got = tm.start(Op::active_receive(buffer(), &offer)).unwrap().op;
        // Over the loopback the parts have ended already, but the next parts start when their
        // events are taken.
        assert_eq!(tm.in_flight(), expected);
        assert_eq!(whole(&tm, got).status, Ok(()));
        assert_eq!(whole(&peer, sent).status, Ok(()));
    }
}

#[test]
fn a_large_transfer_is_cancelled_by_its_name() {
    let pair = Pair::new();
    let Started { op: waits, offer } = pair.b.start(Op::passive_receive(pair.empty(9 * PART))).unwrap();
    assert!(pair.b.cancel(waits));
    let event = whole(&pair.b, waits);
    assert_eq!((event.status, event.length), (Err(Errno::ECANCELED), 0));
    assert_eq!(event.buffer.unwrap().len(), 9 * PART);
    assert!(!pair.b.cancel(waits), "it is over");
    assert_eq!(pair.b.statistics()[Queue::PassiveBulkReceive.index()].cancels, 9);
    // The offer is no longer valid.
    let sent = pair.a.start(Op::active_send(pair.empty(9 * PART), &offer)).unwrap().op;
    assert!(pair.a.cancel(sent), "parts are still to be started");
    assert_eq!(whole(&pair.a, sent).status, Err(Errno::ECANCELED));
    assert!(pair.a.statistics()[Queue::ActiveBulkSend.index()].adds < 9);
}

// One timeout for the whole transfer, on either side.
#[test]
fn a_large_transfer_times_out_as_a_whole() {
    let pair = Pair::new();
    let span = Duration::from_millis(20);
    let soon = Some(span);
    let began = Instant::now();
    let Started { op: waits, offer } =
        pair.b.start(Op::passive_send(pair.empty(9 * PART)).timeout(soon)).unwrap();
    let event = whole(&pair.b, waits);
    assert_eq!(event.status, Err(Errno::ETIMEDOUT));
    assert!(began.elapsed() >= span && event.after >= span);
    assert_eq!(event.buffer.unwrap().len(), 9 * PART);
    // The reader of a used offer is refused.
    let reads = pair.a.start(Op::active_receive(pair.empty(9 * PART), &offer)).unwrap().op;
    assert_eq!(whole(&pair.a, reads).status, Err(Errno::ENODATA));
    assert_eq!(pair.a.statistics()[Queue::ActiveBulkReceive.index()].adds, 8, "no part is started in vain");
}

#[test]
fn what_cannot_be_is_refused_with_the_whole_buffer() {
    let (pair, other) = (Pair::new(), domain());
    let bytes = 2 * PART;
    let now = Some(Duration::ZERO);
    let reads = pair.b.start(Op::passive_send(pair.empty(bytes))).unwrap().offer;
    let writes = pair.b.start(Op::passive_receive(pair.empty(bytes))).unwrap().offer;
    let a = &pair.a;
    for length in [0, bytes + 1, usize::MAX] {
        refused(a.start(Op::passive_receive(pair.empty(bytes)).length(length)), Errno::EINVAL, bytes);
        refused(a.start(Op::passive_send(pair.empty(bytes)).length(length)), Errno::EINVAL, bytes);
        refused(a.start(Op::active_send(pair.empty(bytes), &writes).length(length)), Errno::EINVAL, bytes);
    }
    refused(a.start(Op::passive_receive(pair.empty(bytes)).timeout(now)), Errno::ETIME, bytes);
    refused(a.start(Op::passive_send(other.allocate(bytes).unwrap())), Errno::EINVAL, bytes);
    refused(a.start(Op::active_receive(pair.empty(bytes), &writes)), Errno::EPERM, bytes);
    refused(a.start(Op::active_send(pair.empty(bytes), &reads)), Errno::EPERM, bytes);
    refused(a.start(Op::active_receive(pair.empty(bytes - 1), &reads)), Errno::EFBIG, bytes - 1);
    let more = refused(
        a.start(Op::active_send(pair.empty(3 * PART), &writes).length(bytes + 1)),
        Errno::EFBIG,
        3 * PART,
    );
    let (length, room) = (bytes as u64 + 1, bytes as u64);
    assert_eq!(more.error, Error::Core(CoreError::DescriptorTooLong { length, room }));
    let lent = more.buffer.memory().read(0..1).unwrap();
    refused(a.start(Op::passive_receive(more.buffer).length(PART)), Errno::EBUSY, 3 * PART);
    drop(lent);
    assert_eq!(a.in_flight(), 0);
    a.stop(Stop::Abort, None).unwrap();
    refused(a.start(Op::passive_receive(pair.empty(bytes))), Errno::ESHUTDOWN, bytes);
}

// Operations in flight go on while the machine stops with `Drain`, including those of their parts
// that have not been started.
#[test]
fn a_stop_without_abort_waits_for_all_parts() {
    let domain = domain();
    let peer = machine(&domain);
    let tm = domain.machine().large_window(1).start("0@lo:12345:31:*").unwrap();
    let text = pattern(0, 5 * PART);
    let mut source = domain.allocate(5 * PART).unwrap();
    source.write().unwrap().copy_from_slice(&text);
    let offer = peer.start(Op::passive_send(source).length(5 * PART)).unwrap().offer;
    let got = tm.start(Op::active_receive(domain.allocate(5 * PART).unwrap(), &offer)).unwrap().op;
    tm.stop(Stop::Drain, None).unwrap();
    assert_eq!(tm.state(), TmState::Stopped);
    let event = next(&tm);
    assert_eq!((event.op, event.status), (got, Ok(())));
    assert_eq!(event.buffer.unwrap().read().unwrap()[..], text);
}

#[test]
fn a_stop_with_abort_ends_large_transfers() {
    let pair = Pair::new();
    let waits = pair.b.start(Op::passive_send(pair.empty(20 * PART))).unwrap().op;
    pair.b.stop(Stop::Abort, None).unwrap();
    let event = next(&pair.b);
    assert_eq!((event.op, event.status), (waits, Err(Errno::ECANCELED)));
    assert_eq!(event.buffer.unwrap().len(), 20 * PART);
    assert!(pair.b.wait(None).is_err(), "no other event comes");
}

// With callbacks, the event thread starts the parts.
#[test]
fn a_callback_hears_of_the_whole_only() {
    let pair = Pair::new();
    let (events, arrived) = std::sync::mpsc::channel();
    let tm =
        pair.domain.machine().callbacks(move |_, event| drop(events.send(event))).start("0@lo:12345:31:*");
    let tm = tm.unwrap();
    let text = pattern(0, 30 * PART + 1);
    let Started { op: sent, offer } = pair.b.start(Op::passive_send(pair.filled(&text))).unwrap();
    let got = tm.start(Op::active_receive(pair.empty(text.len()), &offer)).unwrap().op;
    let event = arrived.recv().unwrap();
    assert_eq!((event.op, event.status, event.length), (got, Ok(()), text.len()));
    assert_eq!(event.buffer.unwrap().read().unwrap()[..], text);
    assert_eq!(whole(&pair.b, sent).status, Ok(()));
    drop(tm);
    assert!(arrived.recv().is_err(), "no other event came");
}

// Several threads take the events of one transfer.
#[test]
fn several_threads_move_a_large_transfer() {
    let pair = Pair::new();
    let text = pattern(0, 64 * PART);
    for _ in 0..4 {
        let Started { op: sent, offer } = pair.b.start(Op::passive_send(pair.filled(&text))).unwrap();
        let got = pair.a.start(Op::active_receive(pair.empty(text.len()), &offer)).unwrap().op;
        let takers = || loop {
            match pair.a.wait(Some(Duration::from_millis(1))).unwrap() {
                None if pair.a.in_flight() == 0 => break None,
                None => {}
                some => break some,
            }
        };
        let events: Vec<Event> = std::thread::scope(|scope| {
            let threads = [0; 3].map(|_| scope.spawn(takers));
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        let [event] = <[Event; 1]>::try_from(events).unwrap();
        assert_eq!((event.op, event.status), (got, Ok(())));
        assert_eq!(event.buffer.unwrap().read().unwrap()[..], text);
        assert_eq!(whole(&pair.b, sent).status, Ok(()));
    }
}
