//! Data transfers over connections.

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use lnet_region::{IoVec, Pages, Region};
use nix::fcntl::{FallocateFlags, fallocate};

use crate::common::*;

/// The length of a receive is that of all its pieces together, in their order.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn sends_of_several_pieces() {
    let host = new_host();
    let (active, passive) = pair(&host);
    let memory = active.node.memory(4096);
    memory.fill(0, &[1; 16]);
    memory.fill(100, &[2; 32]);
    memory.fill(4080, &[3; 16]);
    active.send(7, &[memory.piece(4080, 16), memory.piece(0, 16), memory.piece(100, 32)], false);
    assert_eq!(active.completions(1), [WorkCompletion { id: 7, length: 0, status: Ok(()) }]);
    assert_eq!(passive.completions(1), [WorkCompletion { id: 0, length: 64, status: Ok(()) }]);
    assert_eq!(passive.slab.bytes(0, 64), [vec![3; 16], vec![1; 16], vec![2; 32]].concat());
}

/// The memory of an inline send is free as soon as the call returns. It must still be registered:
/// this process reads it itself, and reads nothing else.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn inline_sends_are_copied_at_once() {
    let host = new_host();
    let (active, passive) = pair(&host);
    let memory = active.node.memory(4096);
    memory.fill(4032, &[1; 64]);
    active.send(7, &[memory.piece(4032, 32), memory.piece(4064, 32)], true);
    memory.fill(4032, &[2; 64]);
    assert_eq!(passive.completions(1), [WorkCompletion { id: 0, length: 64, status: Ok(()) }]);
    assert_eq!(passive.slab.bytes(0, 64), [1; 64]);

    let good = memory.piece(4032, 64);
    let wrong = [
        Piece { length: 65, ..good },
        Piece { key: good.key.wrapping_add(1), ..good },
        Piece { address: 0, ..good },
        Piece { address: u64::MAX, ..good },
    ];
    for piece in wrong {
        let work = |pieces| SendWork { id: 8, pieces, kind: SendKind::Send, signalled: false, inline: true };
        let (good, wrong) = ([good], [piece]);
        let posted = active.endpoint.post_sends(&[work(&good), work(&wrong)]);
        assert_eq!(posted, Err(PostError { index: 1, errno: Errno::EFAULT }), "{piece:?}");
    }
    drop(memory);
    let gone = SendWork { id: 9, pieces: &[good], kind: SendKind::Send, signalled: false, inline: true };
    assert_eq!(active.endpoint.post_sends(&[gone]), Err(PostError { index: 0, errno: Errno::EFAULT }));
}

/// A process with a descriptor of shared memory can punch holes into it while it is registered. The
/// device keeps the old pages: its writes go to those and nowhere else, and the program reads the
/// zeros of the new pages.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn holes_under_registered_memory() {
    const BYTES: usize = 4 * 4096;
    let host = new_host();
    let (active, passive) = pair(&host);
    let region = Region::memfd(BYTES, Pages::Normal).expect("shared memory");
    let memory = passive.node.device.register(&region, true).expect("a registration");
    let buffer = IoVec::whole(region.clone());
    buffer.write(0..BYTES).expect("a lease").copy_from(0, &[9; BYTES]);
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(region.share().expect("its descriptor"), hole, 4096, 8192).expect("a hole");

    let source = active.node.memory(BYTES);
    source.fill(0, &[5; BYTES]);
    let target = SendKind::Write { address: region.address_of(0), key: memory.remote_key() };
    let pieces = [source.piece(0, BYTES)];
    let work = SendWork { id: 7, pieces: &pieces, kind: target, signalled: true, inline: false };
    active.endpoint.post_sends(&[work]).expect("a write");
    assert_eq!(active.completions(1), [WorkCompletion { id: 7, length: 0, status: Ok(()) }]);
    let expected = [vec![5; 4096], vec![0; 8192], vec![5; 4096]].concat();
    assert_eq!(buffer.read(0..BYTES).expect("a lease").to_vec(), expected);
}

/// 1 MiB in 40 unsignalled writes of four pieces each, more than one call takes, and a send behind
/// them: when the send arrives, the writes have arrived, and nothing else has completed.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn a_chain_of_writes_with_a_send_behind_it() {
    const BYTES: usize = 1 << 20;
    const WRITES: usize = 40;
    let host = new_host();
    let (active, passive) = pair_with(&host, QueueSizes { sends: WRITES as u32 + 1, ..SIZES });
    let (source, sink) = (active.node.memory(BYTES), passive.node.memory(BYTES));
    let payload: Vec<u8> = (0..BYTES).map(|place| (place * 31 + place / 4096) as u8).collect();
    source.fill(0, &payload);

    let cut = |part: usize| part * BYTES / (4 * WRITES);
    let pieces: Vec<Piece> =
        (0..4 * WRITES).map(|part| source.piece(cut(part), cut(part + 1) - cut(part))).collect();
    let write = |(number, pieces)| SendWork {
        id: 1000 + number as u64,
        pieces,
        kind: sink.target(cut(4 * number)),
        signalled: false,
        inline: false,
    };
    let mut chain: Vec<SendWork<'_>> = pieces.chunks(4).enumerate().map(write).collect();
    active.slab.fill(0, b"done");
    let done = [active.slab.piece(0, 4)];
    chain.push(SendWork { id: 7, pieces: &done, kind: SendKind::Send, signalled: true, inline: false });
    active.endpoint.post_sends(&chain).expect("a chain");

    assert_eq!(passive.completions(1), [WorkCompletion { id: 0, length: 4, status: Ok(()) }]);
    assert!(sink.bytes(0, BYTES) == payload, "the payload differs");
    assert_eq!(active.completions(1), [WorkCompletion { id: 7, length: 0, status: Ok(()) }]);

    // If a chain is too long for the queue, the error names the first work request of the rest.
    let work = SendWork { id: 7, pieces: &done, kind: SendKind::Send, signalled: false, inline: false };
    let made = active.endpoint.post_sends(&vec![work; 5000]).expect_err("5000 sends");
    assert!((WRITES..5000).contains(&made.index), "{made}");
}

/// A write to memory that is not registered, or not for peers, ends the connection, and its sender
/// gets an error.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn writes_that_the_peer_does_not_allow() {
    let host = new_host();
    let (active, passive) = pair(&host);
    let sink = passive.node.memory(4096);
    let SendKind::Write { address, key } = sink.target(0) else { unreachable!("a write") };
    let kind = SendKind::Write { address: address + 4096, key };
    let work = SendWork { id: 7, pieces: &[active.slab.piece(0, 64)], kind, signalled: true, inline: false };
    active.endpoint.post_sends(&[work]).expect("a write");
    let done = active.completions(1);
    assert_eq!(done[0], WorkCompletion { id: 7, length: 0, status: Err(WorkError::RemoteAccess) });
    assert!(done[1..].iter().all(|done| done.status == Err(WorkError::Flushed)), "{done:?}");
}

/// An armed endpoint notifies by its channel, once, without polling of its queue.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn armed_endpoints_tell() {
    let host = new_host();
    let (active, passive) = pair(&host);
    for round in 0..3 {
        passive.endpoint.arm().expect("arming");
        assert!(passive.node.next_event().is_none(), "nothing has come");
        active.send(7, &[active.slab.piece(0, 8)], false);
        passive.expect_ready();
        let mut done = Completions::new();
        passive.endpoint.poll(&mut done).expect("completions");
        assert_eq!(done[..], [WorkCompletion { id: round, length: 8, status: Ok(()) }]);
        // The endpoint is not armed again: the completion arrives without a notification.
        active.completions(1);
    }
    assert!(passive.node.next_event().is_none());
}

/// A ring wakes a thread that sleeps on the channel, and a poll silences it.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn the_bell_wakes() {
    let host = new_host();
    let node = node(&host, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| node.channel.ring());
        wait(&*node.channel);
    });
    assert!(node.next_event().is_none());
    let mut fds = [nix::poll::PollFd::new(node.channel.fd(), nix::poll::PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut fds, 0u8), Ok(0), "it is silent");
}
