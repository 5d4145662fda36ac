//! Programs of two sides: pings of messages and of bulk data.

use nlx::{Buffer, Descriptor, Errno, Op, Queue, Started};

use super::{pair, world};
use crate::bed::*;

/// A message back and forth, in sizes from 4096 down by 511; the answer is the sent data, and was
/// not in the buffer before.
// Covers: MT-153
#[test]
fn pings_of_falling_sizes_come_back() {
    let world = world();
    let [a, b] = [(0, "1000"), (1, "1001")].map(|(place, id)| Side::on(&world, place, id));
    for length in (1..=4096).rev().step_by(511) {
        let data = pattern(0, length);
        b.receive_one(length);
        let op = a.send(&b, &data);
        assert_eq!(a.end_of(op).status, Ok(()));
        let event = b.next();
        assert_eq!(event.sender.as_ref(), Some(&b.knows(&a)));
        let answers = a.receive_one(length);
        let message = event.message.unwrap();
        assert_eq!(message[..], data[..]);
        let op = b.send(&a, &message);
        assert_eq!(b.end_of(op).status, Ok(()));
        let event = a.end_of(answers);
        assert_eq!((event.length, event.message.as_deref()), (length, Some(&data[..])));
    }
    for side in [&a, &b] {
        assert_eq!(
            (side.counts(Queue::MessageSend), side.counts(Queue::MessageReceive)),
            ((9, 0, 9, 0), (9, 0, 9, 0))
        );
    }
}

/// The client offers a buffer for reading and one for writing, two descriptors in one message; the
/// server reads the first, and writes the data into the second.
// Covers: MT-154, MT-168
#[test]
fn bulk_comes_back_by_two_descriptors_of_one_message() {
    let Pair { a: client, b: server, world: _world } = &pair();
    let data = pattern(0, 100_000);
    server.receive_one(2 * Descriptor::MAX_LEN);
    let Started { op: sends_op, offer: sends } =
        client.tm.start(Op::passive_send(client.filled(&data)).timeout(HUNG)).unwrap();
    let Started { op: receives_op, offer: receives } =
        client.tm.start(Op::passive_receive(client.empty(data.len())).timeout(HUNG)).unwrap();
    let offers = [sends.as_bytes(), receives.as_bytes()].concat();
    let offer_op = client.send(server, &offers);

    let event = server.next();
    let message = event.message.unwrap();
    let (sends, receives) = message.split_at(message.len() / 2);
    let (sends, receives) = (parsed(sends), parsed(receives));
    let reads =
        server.tm.start(Op::active_receive(server.empty(data.len()), sends).timeout(HUNG)).unwrap().op;
    let read = server.end_of(reads).buffer.unwrap();
    let writes =
        server.tm.start(Op::active_send(read, receives).length(data.len()).timeout(HUNG)).unwrap().op;
    assert_eq!(server.end_of(writes).status, Ok(()));

    let (mut sent, mut received) = (None, None);
    for _ in 0..3 {
        let event = client.next();
        assert_eq!((event.status, event.offset), (Ok(()), 0));
        match event.queue {
            Queue::MessageSend => assert_eq!(event.op, offer_op),
            Queue::PassiveBulkSend if event.op == sends_op => sent = event.buffer,
            Queue::PassiveBulkReceive if event.op == receives_op => received = event.buffer,
            queue => panic!("an event of {queue:?}"),
        }
    }
    let bytes = |buffer: Option<Buffer>| buffer.unwrap().read().unwrap().to_vec();
    let (sent, received) = (bytes(sent), bytes(received));
    assert!(sent == data && received == data);
}

/// A ping without a server: the message leaves, the answer times out; once the server runs, the
/// next try is answered, with a full buffer.
// Covers: MT-199
#[test]
fn a_ping_without_a_server_times_out_and_is_answered_later() {
    let world = world();
    let client = Side::on(&world, 0, "1000");
    let server = client.tm.end_point(&wanted(&world, 1, "1001")).unwrap();
    let ask = |data: &[u8], timeout| {
        let answers = client.tm.start(Op::receive(client.empty(data.len())).timeout(timeout)).unwrap().op;
        client.tm.start(Op::send(client.filled(data), &server).timeout(HUNG)).unwrap();
        answers
    };
    let answers = ask(b"anybody?", SOON);
    let mut events = [client.next(), client.next()];
    events.sort_by_key(|event| event.queue != Queue::MessageSend);
    assert_eq!((events[0].queue, events[0].status), (Queue::MessageSend, Ok(())));
    assert_eq!((events[1].op, events[1].status), (answers, Err(Errno::ETIMEDOUT)));
    // A message that has left may still be in transit; it must not reach a server that starts
    // later.
    client.settle(&world);

    let there = Side::on(&world, 1, "1001");
    let data = pattern(0, 1 << 20);
    there.receive_one(data.len());
    let answers = ask(&data, HUNG);
    assert_eq!(client.next().queue, Queue::MessageSend);
    let event = there.next();
    let sender = event.sender.unwrap();
    drop(event.message);
    there.tm.start(Op::send(event.buffer.unwrap(), &sender).length(data.len()).timeout(HUNG)).unwrap();
    assert_eq!(there.next().status, Ok(()));
    assert_eq!(client.end_of(answers).message.as_deref(), Some(&data[..]));
}
