use super::*;

#[test]
fn messages_before_the_cancel_are_not_lost() {
    let pair = Pair::new();
    let op = pair.b.start(Op::receive(pair.empty(4096)).min_receive_size(100).max_messages(10)).unwrap().op;
    pair.send(b"first");
    assert!(pair.b.cancel(op));
    let event = next(&pair.b);
    assert_eq!((event.status, event.is_last()), (Ok(()), false));
    assert_eq!(&event.message.unwrap()[..], b"first");
    assert_eq!(end_of(&pair.b, op).status, Err(Errno::ECANCELED));
}

// Whichever wins, the operation ends once.
// Covers: S-414
#[test]
fn a_cancel_races_with_the_message_and_one_of_them_wins() {
    let pair = Pair::new();
    let to = pair.a.end_point(&pair.b.address().to_string()).unwrap();
    let (mut buffer, mut message) = (Some(pair.empty(4096)), Some(pair.filled(b"now")));
    for _ in 0..500 {
        let op = pair.b.start(Op::receive(buffer.take().unwrap())).unwrap().op;
        std::thread::scope(|scope| {
            scope.spawn(|| pair.b.cancel(op));
            pair.a.start(Op::send(message.take().unwrap(), &to).length(3)).unwrap();
            message = next(&pair.a).buffer;
        });
        let event = end_of(&pair.b, op);
        match event.status {
            Ok(()) => assert_eq!(&event.message.expect("it came")[..], b"now"),
            Err(errno) => assert_eq!(errno, Errno::ECANCELED),
        }
        assert!(pair.b.poll().unwrap().is_none());
        buffer = event.buffer;
    }
}
