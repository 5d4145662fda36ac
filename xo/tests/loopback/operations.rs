use super::*;

#[test]
fn a_message_arrives_with_its_sender() {
    let pair = Pair::new();
    let op = pair.b.receive(pair.empty(4096), ONE_MESSAGE, None).unwrap();
    let text = pattern(1000);
    pair.send(&text);
    let event = end_of(&pair.b, op);
    assert_eq!((event.queue, event.status), (Queue::MessageReceive, Ok(())));
    assert_eq!((event.length, event.offset), (1000, 0));
    assert_eq!(event.sender.map(|sender| sender.address()), Some(pair.a.address()));
    assert_eq!(&event.message.unwrap()[..], &text[..]);
    assert_eq!(&event.buffer.unwrap().read().unwrap()[..1000], &text[..]);
}

// MT-20, S-403
#[test]
fn several_messages_share_a_buffer_until_it_is_full_of_them() {
    let pair = Pair::new();
    let receive = Receive { min_receive_size: 1000, max_messages: 3 };
    let op = pair.b.receive(pair.empty(8192), receive, None).unwrap();
    let mut kept = Vec::new();
    for (number, length) in [700, 1, 900].into_iter().enumerate() {
        pair.send(&pattern(length));
        let event = next(&pair.b);
        assert_eq!((event.op, event.status, event.length), (op, Ok(()), length));
        assert_eq!(event.is_last(), number == 2);
        kept.push((event.offset, event.message.unwrap()));
    }
    assert_eq!(kept.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 700, 701]);
    for (_, message) in &kept {
        assert_eq!(&message[..], &pattern(message.len())[..]);
    }
}

// S-403: the buffer is given up when less than the smallest message size is left.
#[test]
fn a_buffer_comes_back_when_little_room_is_left() {
    let pair = Pair::new();
    let receive = Receive { min_receive_size: 1000, max_messages: 100 };
    pair.b.receive(pair.empty(2500), receive, None).unwrap();
    for last in [false, true] {
        pair.send(&pattern(900));
        assert_eq!(next(&pair.b).is_last(), last);
    }
}

// MT-81
#[test]
fn an_active_receive_reads_a_passive_send() {
    for length in [1, 4095, 4096, 4097, 1 << 20] {
        let pair = Pair::new();
        let data = pattern(length);
        let (passive, descriptor) = pair.a.passive_send(pair.filled(&data), length, None).unwrap();
        let active = pair.b.active_receive(pair.empty(1 << 20), &descriptor, None).unwrap();
        let event = end_of(&pair.b, active);
        assert_eq!((event.queue, event.status, event.length), (Queue::ActiveBulkReceive, Ok(()), length));
        assert_eq!(&event.buffer.unwrap().read().unwrap()[..length], &data[..]);
        let event = end_of(&pair.a, passive);
        assert_eq!((event.queue, event.status, event.length), (Queue::PassiveBulkSend, Ok(()), length));
    }
}

// MT-82
#[test]
fn an_active_send_writes_into_a_passive_receive() {
    for length in [1, 4097, 1 << 20] {
        let pair = Pair::new();
        let data = pattern(length);
        let (passive, descriptor) = pair.a.passive_receive(pair.empty(1 << 20), None).unwrap();
        let active = pair.b.active_send(pair.filled(&data), length, &descriptor, None).unwrap();
        let event = end_of(&pair.b, active);
        assert_eq!((event.queue, event.status, event.length), (Queue::ActiveBulkSend, Ok(()), length));
        let event = end_of(&pair.a, passive);
        assert_eq!((event.queue, event.status, event.length), (Queue::PassiveBulkReceive, Ok(()), length));
        assert!(event.sender.is_none() && event.message.is_none());
        assert_eq!(&event.buffer.unwrap().read().unwrap()[..length], &data[..]);
    }
}

// MT-81, MT-82
#[test]
fn descriptors_of_the_wrong_direction_or_size_are_refused_with_the_buffer() {
    let pair = Pair::new();
    let (_, sends) = pair.a.passive_send(pair.filled(&pattern(8192)), 8192, None).unwrap();
    let (_, receives) = pair.a.passive_receive(pair.empty(8192), None).unwrap();
    let refused = |result: Result<OpId, nlx::Refused>| {
        let refused = result.expect_err("it does not fit");
        assert_eq!(refused.buffer.len(), 9000);
        refused.error.errno()
    };
    let buffer = || pair.empty(9000);
    assert_eq!(refused(pair.b.active_send(buffer(), 9000, &sends, None)), Errno::EPERM);
    assert_eq!(refused(pair.b.active_receive(buffer(), &receives, None)), Errno::EPERM);
    assert_eq!(refused(pair.b.active_send(buffer(), 8193, &receives, None)), Errno::EFBIG);
    assert_eq!(refused(pair.b.active_receive(buffer(), &Descriptor::NONE, None)), Errno::EINVAL);
    let small = pair.b.active_receive(pair.empty(8191), &sends, None).expect_err("it does not fit");
    assert_eq!(small.error.errno(), Errno::EFBIG);
    assert_eq!(pair.b.in_flight(), 0);
}

// MT-71
#[test]
fn a_message_to_nobody_has_left_all_the_same() {
    let pair = Pair::new();
    let nobody = pair.a.end_point(&format!("0@lo:12345:{PORTAL}:1")).unwrap();
    let op = pair.a.send(pair.filled(b"hello"), 5, &nobody, None).unwrap();
    assert_eq!(nobody.references(), 2);
    assert_eq!(end_of(&pair.a, op).status, Ok(()));
    assert_eq!(nobody.references(), 1);
    let sends = pair.a.statistics()[Queue::MessageSend.index()];
    assert_eq!((sends.adds, sends.cancels, sends.successes, sends.failures), (1, 0, 1, 0));
}

// MT-69
#[test]
fn a_message_that_nobody_waits_for_has_left_all_the_same() {
    let pair = Pair::new();
    pair.send(b"hello");
    let sends = pair.a.statistics()[Queue::MessageSend.index()];
    assert_eq!((sends.adds, sends.cancels, sends.successes, sends.failures), (1, 0, 1, 0));
    assert!(!pair.b.pending());
    assert_eq!(pair.b.statistics()[Queue::MessageReceive.index()].failures, 0);
}

// MT-65, MT-67: by count, and by the room that is left.
#[test]
fn a_second_buffer_takes_over_when_the_first_is_used_up() {
    for (length, room, max_messages) in [(300, 4096, 2), (900, 2500, 100)] {
        let pair = Pair::new();
        let receive = Receive { min_receive_size: 1000, max_messages };
        let buffers = [(); 2].map(|()| pair.b.receive(pair.empty(room), receive, None).unwrap());
        for (buffer, offset, last) in [(0, 0, false), (0, length, true), (1, 0, false), (1, length, true)] {
            let data = pattern(length);
            pair.send(&data);
            let event = next(&pair.b);
            assert_eq!((event.op, event.offset, event.is_last()), (buffers[buffer], offset, last));
            assert_eq!(&event.message.unwrap()[..], &data[..]);
        }
    }
}

#[test]
fn a_transfer_machine_sends_to_itself() {
    let pair = Pair::new();
    let receive = pair.a.receive(pair.empty(4096), ONE_MESSAGE, None).unwrap();
    let own = pair.a.own_end_point().clone();
    let send = pair.a.send(pair.filled(b"me"), 2, &own, None).unwrap();
    let (first, second) = (next(&pair.a), next(&pair.a));
    let mut ops = [first.op, second.op];
    ops.sort();
    assert_eq!(ops, [receive.min(send), receive.max(send)]);
    let received = if first.op == receive { first } else { second };
    assert_eq!(received.sender, Some(own));
    assert_eq!(&received.message.unwrap()[..], b"me");
}

#[test]
fn the_statistics_count_what_happened() {
    let pair = Pair::new();
    let receive = Receive { min_receive_size: 100, max_messages: 2 };
    pair.b.receive(pair.empty(4096), receive, None).unwrap();
    for length in [10, 30] {
        pair.send(&pattern(length));
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

/// One side of a conversation: sends `first` if it has one, and then answers each number with `answer` of it.
fn converse(
    domain: &Domain,
    [tm, peer]: [&TransferMachine; 2],
    first: Option<u64>,
    answer: fn(u64) -> Option<u64>,
) {
    let to = tm.end_point(&peer.address().to_string()).unwrap();
    tm.receive(domain.allocate(4096).unwrap(), ONE_MESSAGE, None).unwrap();
    let mut idle = Some(domain.allocate(8).unwrap());
    let (mut due, mut hears) = (first, true);
    while hears || due.is_some() || idle.is_none() {
        if let Some(number) = due
            && let Some(mut buffer) = idle.take()
        {
            buffer.write().unwrap().copy_from_slice(&number.to_le_bytes());
            tm.send(buffer, 8, &to, None).unwrap();
            due = None;
            continue;
        }
        let event = next(tm);
        event.status.unwrap();
        let Some(message) = event.message else {
            idle = event.buffer;
            continue;
        };
        let heard = u64::from_le_bytes(message[..].try_into().unwrap());
        drop(message);
        due = answer(heard);
        hears = heard < ROUNDS - 2;
        if hears {
            tm.receive(event.buffer.unwrap(), ONE_MESSAGE, None).unwrap();
        }
    }
}

const ROUNDS: u64 = 4000;

// The numbers go to and fro: one side has the even ones, the other the odd ones.
#[test]
fn two_threads_answer_each_other() {
    let Pair { domain, a, b } = &Pair::new();
    let answer = |heard| Some(heard + 1).filter(|number| *number < ROUNDS);
    std::thread::scope(|scope| {
        scope.spawn(|| converse(domain, [b, a], None, answer));
        // The first message must find a buffer.
        while b.in_flight() == 0 {
            std::thread::yield_now();
        }
        converse(domain, [a, b], Some(0), answer);
    });
    let counters = |tm: &TransferMachine| tm.statistics().map(|queue| (queue.successes, queue.failures));
    assert_eq!(counters(a)[..2], [(ROUNDS / 2, 0), (ROUNDS / 2, 0)]);
    assert_eq!(counters(b)[..2], [(ROUNDS / 2, 0), (ROUNDS / 2, 0)]);
}
