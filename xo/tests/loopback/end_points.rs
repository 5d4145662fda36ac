use super::*;

// MT-22
#[test]
fn the_sender_of_two_messages_is_one_end_point() {
    let pair = Pair::new();
    let receive = Receive { min_receive_size: 100, max_messages: 2 };
    pair.b.receive(pair.empty(4096), receive, None).unwrap();
    pair.send(b"one");
    pair.send(b"two");
    let before = pair.b.end_points();
    let senders: Vec<_> = (0..2).map(|_| next(&pair.b).sender.unwrap()).collect();
    assert_eq!(senders[0], senders[1]);
    assert_eq!((senders[0].references(), pair.b.end_points()), (2, before + 1));
    drop(senders);
    assert_eq!(pair.b.end_points(), before);
}

// MT-70
#[test]
fn an_end_point_has_a_whole_address() {
    let pair = Pair::new();
    for text in ["0@lo:12345:31:*", "0@lo:12345:31", "invalid", ""] {
        assert_eq!(pair.a.end_point(text).unwrap_err().errno(), Errno::EINVAL, "{text}");
    }
}

// MT-55 to MT-57, MT-221, MT-223
#[test]
fn addresses_that_cannot_be_started_are_refused() {
    let domain = domain();
    let first = domain.transfer_machine("0@lo:12345:31:101", TmOptions::default()).unwrap();
    assert_eq!(first.address().to_string(), "0@lo:12345:31:101");
    for (text, errno) in [
        ("invalid", Errno::EINVAL),
        ("0@lo:12345:99:*", Errno::EINVAL),
        ("0@lo:12345:0:*", Errno::EINVAL),
        ("0@lo:54321:31:*", Errno::ENOENT),
        ("10.255.255.1@tcp:12345:31:*", Errno::ENOENT),
        ("0@lo:12345:31:101", Errno::EADDRINUSE),
    ] {
        let error = domain.transfer_machine(text, TmOptions::default()).unwrap_err();
        assert_eq!(error.errno(), errno, "{text}: {error}");
    }
}

// MT-59, MT-60
#[test]
fn dynamic_ids_fall_and_come_again() {
    let domain = domain();
    let mut tms: Vec<_> = (0..3).map(|_| machine(&domain)).collect();
    assert!(tms.is_sorted_by(|one, next| one.address().tmid > next.address().tmid));
    let middle = tms.remove(1).address();
    assert_eq!(machine(&domain).address(), middle);
}
