//! Memory that the client has not sealed, which the helper does not touch.

use std::os::fd::{AsFd, OwnedFd};

use lnet_region::Region;
use nlx_bev_cqueue::SharedMemory;
use nlx_core::{Errno, OperationKind, StartAddress};
use nlx_driver_proto::{Hello, Reason, Reply, Request, Segment, StartTm};
use nlx_helper::Session;

use crate::client::{Client, ROOT, Tm, USER, ask, operation_of};
use crate::worlds::{loopback, loopback_client, loopback_with, quotas};

// Covers: MT-219
#[test]
fn nothing_is_asked_of_a_helper_before_the_ring_is_sealed() {
    let mut session = Session::new(&loopback(), USER).unwrap();
    let (_, fds) = ask(&mut session, &Request::Hello(Hello::new("test"))).unwrap();
    let [ring, _doorbell] = <[OwnedFd; 2]>::try_from(fds).unwrap();
    for request in
        [Request::Sync, Request::Nids, Request::CreateArena { bytes: 4096, huge: false, near: None }]
    {
        let refusal = ask(&mut session, &request).unwrap_err();
        assert_eq!((refusal.errno, refusal.reason), (Errno::EPERM, Reason::Unsealed));
    }
    // The helper's sleep is announced from the start.
    assert!(session.prepare_sleep());
    session.finish_sleep();
    assert_eq!(session.drain(64), Ok(0));
    let _memory = SharedMemory::attach(ring).unwrap();
    assert_eq!(ask(&mut session, &Request::Sync).unwrap().0, Reply::Done);
}

// Covers: MT-219
#[test]
fn no_buffer_lies_in_an_arena_that_is_not_sealed() {
    let (_host, mut client) = loopback_client(USER);
    let (reply, fds) = client.ask(&Request::CreateArena { bytes: 4096, huge: false, near: None }).unwrap();
    let Reply::Arena { arena, .. } = reply else { panic!("{reply:?}") };
    let buffer = client.name(0);
    let segments = vec![Segment { arena, offset: 0, length: 64 }; 2];
    let register = Request::Register { buffer: buffer.0, segments };
    let refusal = client.refused(&register);
    assert_eq!(
        (refusal.errno, refusal.reason, refusal.value),
        (Errno::EPERM, Reason::Unsealed, arena.into())
    );
    let _memory = Region::attach(fds[0].try_clone().unwrap()).unwrap();
    assert_eq!(client.refused(&register).reason, Reason::Unsealed, "to map it is not enough");
    lnet_region::seal(fds[0].as_fd()).unwrap();
    client.done(&register);
}

// Covers: MT-219
#[test]
fn no_operation_starts_whose_events_have_no_sealed_queue() {
    let (host, mut client) = loopback_client(USER);
    let arena = client.arena(4096);
    let buffer = client.register(0, arena.handle, 0, 64);
    let address: StartAddress = "0@lo:12345:40:*".parse().unwrap();
    let (reply, fds) =
        client.ask(&Request::StartTm(StartTm { address, events_max: 8, lazy: false })).unwrap();
    let Reply::Started { tm, address, .. } = reply else { panic!("{reply:?}") };
    let receive = OperationKind::Receive { min_receive_size: 64, max_messages: 1 };
    client.push(&operation_of(tm, buffer, receive, 0));
    client.drain().unwrap();
    let status = &host.status().clients[0];
    assert_eq!((status.operations, status.totals.refused), (0, 1));
    let mut tm = Tm::attach(tm, address, fds);
    client.operate(&mut tm, buffer, receive, 0);
    assert_eq!(host.status().clients[0].operations, 1);
}

/// Only helpers that survive the loss of huge pages give them; arenas count together.
#[test]
fn huge_pages_and_too_much_memory_are_refused() {
    let mut client = Client::connect(&loopback_with(quotas(|quotas| quotas.bytes = 10_000)), ROOT);
    client.arena(4096);
    let refusal = client.refused(&Request::CreateArena { bytes: 5905, huge: false, near: None });
    assert_eq!((refusal.errno, refusal.reason), (Errno::ENOMEM, Reason::Bytes));
    let (reply, _) = client.ask(&Request::CreateArena { bytes: 4096, huge: true, near: None }).unwrap();
    assert!(matches!(reply, Reply::Arena { huge: false, .. }), "asked for, but not to be had: {reply:?}");
}
