use nlx::{Batch, Error, Offer, Refused};

use super::*;

#[test]
fn a_transfer_machine_sends_to_itself() {
    let pair = Pair::new();
    let receive = pair.a.start(Op::receive(pair.empty(4096))).unwrap().op;
    let own = pair.a.own_end_point().clone();
    let send = pair.a.start(Op::send(pair.filled(b"me"), &own)).unwrap().op;
    let (first, second) = (next(&pair.a), next(&pair.a));
    let mut ops = [first.op, second.op];
    ops.sort();
    assert_eq!(ops, [receive.min(send), receive.max(send)]);
    let received = if first.op == receive { first } else { second };
    assert_eq!(received.sender, Some(own));
    assert_eq!(&received.message.unwrap()[..], b"me");
}

// Covers: MT-68, MT-106, MT-107
#[test]
fn the_statistics_count_what_happened() {
    let pair = Pair::new();
    pair.b.start(Op::receive(pair.empty(4096)).min_receive_size(100).max_messages(2)).unwrap();
    for length in [10, 30] {
        pair.send(&pattern(0, length));
        next(&pair.b);
    }
    let all = pair.b.take_statistics();
    let received = all[Queue::MessageReceive.index()];
    assert_eq!((received.adds, received.successes, received.failures), (1, 2, 0));
    assert_eq!((received.bytes, received.bytes_max), (40, 30));
    assert!(received.time_in_queue > Duration::ZERO);
    assert_eq!(pair.b.statistics(), [nlx::QueueStatistics::default(); Queue::COUNT]);
    let sent = pair.a.statistics()[Queue::MessageSend.index()];
    assert_eq!((sent.adds, sent.successes, sent.bytes, sent.bytes_max), (2, 2, 40, 30));
}

/// Each operation with each setting: alone, in a batch, and with a large buffer. If the operation
/// does not take the setting, the error names the setting and returns the buffer.
#[test]
fn a_setting_that_an_operation_lacks_is_refused_by_name() {
    let pair = Pair::new();
    let ops = |buffer: fn(&Pair) -> Buffer| {
        [
            Op::receive(buffer(&pair)),
            Op::send(buffer(&pair), pair.a.own_end_point()),
            Op::passive_receive(buffer(&pair)),
            Op::passive_send(buffer(&pair)),
            Op::active_receive(buffer(&pair), Offer::NONE),
            Op::active_send(buffer(&pair), Offer::NONE),
        ]
    };
    type Set = fn(Op) -> Op;
    type Has = fn(Queue) -> bool;
    let settings: [(&str, Set, Has); 4] = [
        (
            "length",
            |op| op.length(8),
            |queue| !matches!(queue, Queue::MessageReceive | Queue::ActiveBulkReceive),
        ),
        ("min_receive_size", |op| op.min_receive_size(8), |queue| queue == Queue::MessageReceive),
        ("max_messages", |op| op.max_messages(8), |queue| queue == Queue::MessageReceive),
        ("timeout", |op| op.timeout(Duration::from_secs(60)), |_| true),
    ];
    for buffer in [|pair: &Pair| pair.empty(64), |pair: &Pair| pair.empty(3 << 20)] {
        for (setting, set, has) in settings {
            for (alone, together) in ops(buffer).into_iter().zip(ops(buffer)) {
                let (queue, bytes) = (alone.queue(), buffer(&pair).len());
                let mut batch = Batch::new();
                batch.push(set(together));
                let together = pair.a.submit(&mut batch).next().unwrap();
                for outcome in [pair.a.start(set(alone)), together] {
                    let refused = outcome.err().map(|Refused { buffer, error }| {
                        assert_eq!(buffer.len(), bytes);
                        error
                    });
                    let lacks = matches!(refused, Some(Error::Setting { .. }));
                    assert_eq!(lacks, !has(queue), "{queue}, {setting}: {refused:?}");
                    if let Some(error) = refused.filter(|_| lacks) {
                        assert_eq!(
                            error.to_string(),
                            format!("the {queue} operation does not take `{setting}`")
                        );
                        assert_eq!(error.errno(), Errno::EINVAL);
                    }
                }
            }
        }
    }
}

#[test]
fn of_several_settings_that_an_operation_lacks_the_first_is_named() {
    let pair = Pair::new();
    let send = || Op::send(pair.empty(64), pair.a.own_end_point());
    for (op, setting) in [
        (send().max_messages(8).min_receive_size(8), "max_messages"),
        (send().min_receive_size(8).max_messages(8), "min_receive_size"),
    ] {
        let refused = pair.a.start(op).unwrap_err();
        let is_named = matches!(refused.error, Error::Setting { setting: named, .. } if named == setting);
        assert!(is_named, "{}", refused.error);
    }
}

/// With a small and a large buffer.
#[test]
fn an_active_operation_without_an_offer_is_refused_as_such() {
    let pair = Pair::new();
    for bytes in [64, 3 << 20] {
        for op in [
            Op::active_receive(pair.empty(bytes), Offer::NONE),
            Op::active_send(pair.empty(bytes), Offer::NONE),
        ] {
            let Refused { buffer, error } = pair.a.start(op).unwrap_err();
            assert_eq!((&error, buffer.len()), (&Error::NoOffer, bytes));
            assert_eq!(error.to_string(), "the offer is NONE, which names no buffer");
            assert_eq!(error.errno(), Errno::EINVAL);
        }
    }
}

/// One side of a conversation: sends `first` if it is given, and then answers each number with
/// `answer` of it.
fn converse(
    domain: &Domain,
    [tm, peer]: [&TransferMachine; 2],
    first: Option<u64>,
    answer: fn(u64) -> Option<u64>,
) {
    let to = tm.end_point(&peer.address().to_string()).unwrap();
    tm.start(Op::receive(domain.allocate(4096).unwrap())).unwrap();
    let mut idle = Some(domain.allocate(8).unwrap());
    let (mut due, mut expects_more) = (first, true);
    while expects_more || due.is_some() || idle.is_none() {
        if let Some(number) = due
            && let Some(mut buffer) = idle.take()
        {
            buffer.write().unwrap().copy_from_slice(&number.to_le_bytes());
            tm.start(Op::send(buffer, &to).length(8)).unwrap();
            due = None;
            continue;
        }
        let event = next(tm);
        event.status.unwrap();
        let Some(message) = event.message else {
            idle = event.buffer;
            continue;
        };
        let number = u64::from_le_bytes(message[..].try_into().unwrap());
        drop(message);
        due = answer(number);
        expects_more = number < ROUNDS - 2;
        if expects_more {
            tm.start(Op::receive(event.buffer.unwrap())).unwrap();
        }
    }
}

const ROUNDS: u64 = 4000;

// The numbers are passed back and forth: one side has the even ones, the other the odd ones.
// Covers: S-5, MT-84, MT-215, MT-244
#[test]
fn two_threads_answer_each_other() {
    let Pair { domain, a, b } = &Pair::new();
    let answer = |number| Some(number + 1).filter(|number| *number < ROUNDS);
    std::thread::scope(|scope| {
        scope.spawn(|| converse(domain, [b, a], None, answer));
        // The first message must find a buffer.
        until("b has posted a buffer", || b.in_flight() > 0);
        converse(domain, [a, b], Some(0), answer);
    });
    let counters = |tm: &TransferMachine| tm.statistics().map(|queue| (queue.successes, queue.failures));
    assert_eq!(counters(a)[..2], [(ROUNDS / 2, 0), (ROUNDS / 2, 0)]);
    assert_eq!(counters(b)[..2], [(ROUNDS / 2, 0), (ROUNDS / 2, 0)]);
}
