//! MT-233, D3, D5: handles of other clients, stale ones, and unknown ones name nothing.

use nlx_core::{BufferHandle, Errno, OperationKind};
use nlx_driver_proto::{Entry, Reason, Request, Segment};

use crate::client::{Client, ROOT, USER, operation};
use crate::worlds::{loopback, loopback_client};

/// A client that uses another one's handles. It has no objects itself: with the same numbers it
/// would reach its own.
// Covers: MT-233
#[test]
fn another_clients_handles_name_nothing() {
    let host = loopback();
    let (mut owner, mut thief) = (Client::connect(&host, ROOT), Client::connect(&host, USER));
    let arena = owner.arena(4096).handle;
    let mut tm = owner.start("0@lo:12345:40:*", 4);
    let buffer = owner.register(0, arena, 0, 4096);
    let wait = OperationKind::PassiveReceive;
    owner.operate(&mut tm, buffer, wait, 1);
    for (request, reason) in [
        (Request::StopTm { tm: tm.handle }, Reason::NoTm),
        (Request::TmDescriptor { tm: tm.handle }, Reason::NoTm),
        (Request::ReleaseArena { arena }, Reason::NoArena),
        (
            Request::Register { buffer: 1 << 32, segments: vec![Segment { arena, offset: 0, length: 1 }] },
            Reason::NoArena,
        ),
    ] {
        let refusal = thief.refused(&request);
        assert_eq!((refusal.errno, refusal.reason), (Errno::ENOENT, reason));
    }
    thief.push(&Entry::Cancel { tm: tm.handle, buffer, cookie: buffer.0 });
    thief.push(&Entry::Deregister { buffer });
    thief.push(&operation(&tm, buffer, wait, 2));
    assert_eq!(thief.drain(), Ok(3));
    assert!(tm.event().is_none(), "the owner notices nothing");
    let status = host.status();
    assert_eq!((status.clients[0].operations, status.clients[1].operations), (1, 0));

    // In its own transfer machine, the buffer of the other does not exist either.
    let mut own = thief.start("0@lo:12345:40:*", 4);
    thief.operate(&mut own, buffer, wait, 2);
    assert_eq!(own.ended(buffer), Err(Errno::ENOENT));
}

/// A handle names nothing after its object was stopped, deregistered or released.
// Covers: MT-233
#[test]
fn handles_of_old_name_nothing() {
    let (host, mut client) = loopback_client(ROOT);
    let arena = client.arena(4096).handle;
    let old = client.start("0@lo:12345:40:*", 4);
    client.done(&Request::StopTm { tm: old.handle });
    let mut tm = client.start("0@lo:12345:40:*", 4);
    assert_ne!(old.handle, tm.handle, "the same place, another generation");
    for request in [Request::StopTm { tm: old.handle }, Request::TmDescriptor { tm: old.handle }] {
        assert_eq!(client.refused(&request).errno, Errno::ENOENT);
    }
    let gone = client.register(0, arena, 0, 64);
    client.push(&Entry::Deregister { buffer: gone });
    let buffer = client.register(0, arena, 0, 64);
    client.push(&Entry::Deregister { buffer: gone });
    client.push(&operation(&old, buffer, OperationKind::PassiveReceive, 1));
    assert_eq!(client.drain(), Ok(5));
    assert_eq!(host.status().clients[0].buffers, 1, "only the old one is gone");
    client.operate(&mut tm, gone, OperationKind::PassiveReceive, 1);
    assert_eq!(tm.ended(gone), Err(Errno::ENOENT));
    client.operate(&mut tm, BufferHandle(u64::MAX), OperationKind::PassiveReceive, 1);
    assert_eq!(tm.ended(BufferHandle(u64::MAX)), Err(Errno::ENOENT));

    client.push(&Entry::Deregister { buffer });
    client.done(&Request::ReleaseArena { arena });
    assert_eq!(client.refused(&Request::ReleaseArena { arena }).errno, Errno::ENOENT);
    assert_ne!(client.arena(4096).handle, arena);
    client.register(0, arena, 0, 64);
    assert_eq!(client.drain(), Ok(1));
    assert_eq!(host.status().clients[0].buffers, 0, "it lies in an arena that is gone");
}
