//! MT-51, MT-235, D6, D7, D14: objects in use are not removed.

use lnet_fake::{CallKind, ScriptedEvent};
use nlx_core::{Errno, OperationKind};
use nlx_driver_proto::{Entry, Reason, Request};

use crate::client::{ROOT, operation};
use crate::worlds::scripted_client;

// Covers: MT-51, MT-214, MT-235, MT-236
#[test]
fn a_transfer_machine_an_arena_and_a_buffer_in_use_stay() {
    let (lnet, host, mut client) = scripted_client(ROOT);
    let arena = client.arena(4096).handle;
    let mut tm = client.start("10.0.0.1@tcp:12345:40:*", 4);
    let buffer = client.register(0, arena, 0, 4096);
    client.operate(&mut tm, buffer, OperationKind::PassiveReceive, 1);
    let stop = Request::StopTm { tm: tm.handle };
    for (request, reason) in [(&stop, Reason::TmBusy), (&Request::ReleaseArena { arena }, Reason::ArenaBusy)]
    {
        let refusal = client.refused(request);
        assert_eq!((refusal.errno, refusal.reason), (Errno::EBUSY, reason));
    }
    client.push(&Entry::Deregister { buffer });
    // D14: a second operation of the same buffer is refused, by a separate event.
    client.operate(&mut tm, buffer, OperationKind::PassiveSend { length: 8 }, 2);
    assert_eq!(tm.ended(buffer), Err(Errno::EBUSY));
    assert_eq!(host.status().clients[0].buffers, 1);

    lnet.inject(lnet.last_md(), ScriptedEvent::put().bytes(*b"data"));
    assert_eq!(tm.ended(buffer), Ok(4));
    client.push(&Entry::Deregister { buffer });
    client.done(&stop);
    client.done(&Request::ReleaseArena { arena });
    assert_eq!(client.session.check(), Ok(()));
    lnet.assert_quiet();
}

/// LNet has not released the event queue: the client may repeat the request, and continues until
/// then.
// Covers: MT-51
#[test]
fn a_stop_that_lnet_refuses_can_be_asked_for_again() {
    let (lnet, _host, mut client) = scripted_client(ROOT);
    let mut tm = client.start("10.0.0.1@tcp:12345:40:*", 4);
    let stop = Request::StopTm { tm: tm.handle };
    lnet.fail(CallKind::EqFree, Errno::EBUSY);
    assert_eq!(client.refused(&stop).errno, Errno::EBUSY);
    let arena = client.arena(64).handle;
    let buffer = client.register(0, arena, 0, 64);
    client.operate(&mut tm, buffer, OperationKind::PassiveReceive, 1);
    client.push(&Entry::Cancel { tm: tm.handle, buffer, cookie: buffer.0 });
    client.drain().unwrap();
    assert_eq!(tm.ended(buffer), Err(Errno::ECANCELED));
    client.done(&stop);
    lnet.assert_quiet();
}

/// An operation that LNet refuses ends with an event, and the buffer is free again.
// Covers: MT-226
#[test]
fn an_operation_that_lnet_refuses_ends_with_an_event() {
    let (lnet, host, mut client) = scripted_client(ROOT);
    let arena = client.arena(64).handle;
    let mut tm = client.start("10.0.0.1@tcp:12345:40:*", 4);
    let buffer = client.register(0, arena, 0, 64);
    let send = OperationKind::Send { length: 8, to: "10.0.0.9@tcp:12345:40:9".parse().unwrap() };
    lnet.fail(CallKind::BindPut, Errno::ENOMEM);
    client.operate(&mut tm, buffer, send, 0);
    assert_eq!(tm.ended(buffer), Err(Errno::ENOMEM));
    assert_eq!(host.status().clients[0].operations, 0);
    client.operate(&mut tm, buffer, send, 0);
    lnet.inject(lnet.last_md(), ScriptedEvent::send());
    assert_eq!(tm.ended(buffer), Ok(8));
    assert_eq!(lnet.objects().mds, 0);
}

/// Operations that do not fit their buffer.
// Covers: MT-232
#[test]
fn numbers_that_do_not_fit_the_buffer_are_reported_by_an_event() {
    let (_lnet, _host, mut client) = scripted_client(ROOT);
    let arena = client.arena(64).handle;
    let mut tm = client.start("10.0.0.1@tcp:12345:40:*", 100);
    let buffer = client.register(0, arena, 0, 64);
    let to = "10.0.0.9@tcp:12345:40:9".parse().unwrap();
    for kind in [
        OperationKind::Send { length: 0, to },
        OperationKind::Send { length: 65, to },
        OperationKind::Send { length: u64::MAX, to },
        OperationKind::PassiveSend { length: 65 },
        OperationKind::Receive { min_receive_size: 65, max_messages: 1 },
        OperationKind::Receive { min_receive_size: 0, max_messages: 1 },
    ] {
        let counter = u64::from(kind.queue().is_passive());
        tm.events.provision(1).unwrap();
        client.push(&operation(&tm, buffer, kind, counter));
        client.drain().expect("it can be read");
        assert!(tm.ended(buffer).is_err(), "{kind:?}");
    }
}
