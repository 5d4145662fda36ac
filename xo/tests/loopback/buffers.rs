use nlx::{Error, Fragment, IoVec, Pages, Region};

use super::*;

#[test]
fn a_message_that_is_kept_keeps_its_bytes() {
    let pair = Pair::new();
    pair.b.start(Op::receive(pair.empty(4096))).unwrap();
    pair.send(b"precious");
    let event = next(&pair.b);
    let (message, mut buffer) = (event.message.unwrap(), event.buffer.unwrap());
    assert!(matches!(buffer.write(), Err(Error::Memory(_))), "the bytes are lent out");
    let refused = pair.b.start(Op::receive(buffer)).expect_err("the bytes are lent out");
    assert_eq!(refused.error.errno(), Errno::EBUSY);
    drop(refused.buffer);
    assert_eq!(&message[..], b"precious");
}

// Covers: MT-100, MT-244
#[test]
fn a_buffer_whose_messages_are_gone_is_posted_again() {
    let pair = Pair::new();
    let mut buffer = Some(pair.empty(4096));
    for number in 0..3u8 {
        let op = pair.b.start(Op::receive(buffer.take().unwrap())).unwrap().op;
        pair.send(&[number]);
        let event = end_of(&pair.b, op);
        assert_eq!(event.message.unwrap()[..], [number]);
        buffer = event.buffer;
    }
}

// A message that crosses two segments of its buffer is copied into one slice.
// Covers: MT-65, MT-67, MT-228
#[test]
fn buffers_of_many_segments_send_and_receive() {
    let pair = Pair::new();
    let segmented = || {
        let region = Region::heap(10_000).unwrap();
        let part = |offset, length| Fragment::new(region.clone(), offset, length).unwrap();
        IoVec::new([part(1, 10), part(500, 3), part(4000, 5000)]).unwrap()
    };
    let text = pattern(0, 3000);
    let mut source = pair.domain.register_copying(segmented()).unwrap();
    assert!(matches!(source.write(), Err(Error::Segments { segments: 3 })));
    source.memory().write(0..3000).unwrap().copy_from(0, &text);
    let target = pair.domain.register_copying(segmented()).unwrap();
    pair.b.start(Op::receive(target).min_receive_size(3000)).unwrap();
    let to = pair.a.end_point(&pair.b.address().to_string()).unwrap();
    pair.a.start(Op::send(source, &to).length(3000)).unwrap();
    let event = next(&pair.b);
    assert_eq!(&event.message.unwrap()[..], &text[..]);
    assert_eq!(event.buffer.unwrap().memory().read(0..3000).unwrap().to_vec(), text);
}

/// A buffer may begin anywhere in the program's memory; several buffers of one region are in flight
/// at once.
//
#[test]
fn an_operation_begins_anywhere_in_the_programs_memory() {
    let pair = Pair::new();
    let region = Region::from_vec(pattern(0, 10_000)).unwrap();
    let range = |offset, length| {
        let fragment = Fragment::new(region.clone(), offset, length).unwrap();
        pair.domain.register_copying(IoVec::new([fragment]).unwrap()).unwrap()
    };
    let to = pair.a.end_point(&pair.b.address().to_string()).unwrap();
    let ranges = [(1, 100), (4097, 1), (7000, 3000)];
    for (_, length) in ranges {
        pair.b.start(Op::receive(pair.empty(length))).unwrap();
    }
    for (offset, length) in ranges {
        pair.a.start(Op::send(range(offset, length), &to)).unwrap();
    }
    for (offset, length) in ranges {
        let message = next(&pair.b).message.unwrap();
        assert_eq!(message[..], pattern(0, 10_000)[offset..offset + length]);
    }
}

// Covers: MT-92
#[test]
fn a_buffer_belongs_to_its_domain() {
    let (ours, theirs) = (Pair::new(), Pair::new());
    let refused = ours.a.start(Op::receive(theirs.empty(4096))).expect_err("it is not ours");
    assert_eq!(refused.error.errno(), Errno::EINVAL);
}

// Covers: MT-91
#[test]
fn buffers_beyond_the_limits_are_refused() {
    let domain = domain();
    assert_eq!(domain.allocate(0).unwrap_err().errno(), Errno::EINVAL);
    // Copies of that amount would take the same amount of memory.
    if module_path!().starts_with("helper::") {
        return;
    }
    // A buffer may name the same memory several times.
    let region = Region::memfd(1 << 30, Pages::Normal).unwrap();
    let gibibytes = |count| {
        let segment = Fragment::new(region.clone(), 0, region.len()).unwrap();
        domain.register_copying(IoVec::new(vec![segment; count]).unwrap())
    };
    assert_eq!(gibibytes(16).unwrap().len(), 16 << 30);
    assert_eq!(gibibytes(17).unwrap_err().errno(), Errno::EFBIG);
}

// More memory than one operation accepts is still one buffer; messages are not split, whatever
// their length.
#[test]
fn messages_refuse_a_large_buffer() {
    let pair = Pair::new();
    let limit = pair.domain.limits().buffer_bytes_max;
    let mut large = pair.empty(limit + 1);
    large.write().unwrap()[limit] = 7;
    let messages: [fn(&Pair, Buffer) -> Op; 3] = [
        |_, buffer| Op::receive(buffer),
        |pair, buffer| Op::send(buffer, pair.a.own_end_point()),
        |pair, buffer| Op::send(buffer, pair.a.own_end_point()).length(1),
    ];
    for message in messages {
        let refused = pair.a.start(message(&pair, large)).expect_err("it is large");
        assert_eq!(refused.error, Error::Large { bytes: limit + 1, limit });
        assert_eq!(refused.error.errno(), Errno::EFBIG);
        large = refused.buffer;
    }
    assert_eq!(large.read().unwrap()[limit], 7);
}

// Covers: MT-111
#[test]
fn what_a_transfer_machine_leaves_outlives_it() {
    let pair = Pair::new();
    pair.b.start(Op::receive(pair.empty(4096))).unwrap();
    pair.send(b"late");
    let event = next(&pair.b);
    drop(pair);
    assert_eq!(&event.message.unwrap()[..], b"late");
    assert_eq!(event.buffer.unwrap().read().unwrap()[..4], b"late"[..]);
}
