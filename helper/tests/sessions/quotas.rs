//! MT-237, D9: the quotas of one client, which do not affect another one.

use nlx_core::{Errno, OperationKind};
use nlx_driver_proto::{Reason, Request, Segment};
use nlx_helper::accounts::{AccountsConfig, Resource};
use nlx_helper::{Credentials, HostConfig};

use crate::client::{Client, ROOT, USER};
use crate::worlds::{quotas, scripted_with};

// Covers: MT-237
#[test]
fn each_quota_is_a_limit_and_what_is_given_back_counts_no_more() {
    let (lnet, host) = scripted_with(quotas(|quotas| {
        quotas.tms = 2;
        quotas.buffers = 3;
        quotas.segments = 4;
        quotas.arenas = 2;
        quotas.bytes = 10_000;
        quotas.operations = 2;
        quotas.events = 5;
    }));
    let mut client = Client::connect(&host, USER);
    let welcome = &client.welcome;
    assert_eq!((welcome.tms_max, welcome.operations_max, welcome.events_max), (2, 2, 5));
    assert_eq!((welcome.arenas_max, welcome.bytes_max, welcome.limits.buffers_max), (2, 10_000, 3));
    let limit = |client: &mut Client, request: Request, reason| {
        let refusal = client.refused(&request);
        assert_eq!((refusal.errno, refusal.reason), (Errno::ENOMEM, reason), "{request:?}");
    };

    let (first, second) = (client.arena(4096), client.arena(4096));
    limit(&mut client, Request::CreateArena { bytes: 1, huge: false, near: None }, Reason::Arenas);
    client.done(&Request::ReleaseArena { arena: second.handle });
    limit(&mut client, Request::CreateArena { bytes: 5905, huge: false, near: None }, Reason::Bytes);
    client.arena(5904);

    let address = "10.0.0.1@tcp:12345:40:*";
    let (mut tm, other) = (client.start(address, 1000), client.start(address, 1));
    assert_eq!(tm.events.max_slots(), 6, "cut to the quota");
    assert_eq!(client.try_start(address, 1).err().map(|refusal| refusal.reason), Some(Reason::Tms));
    client.done(&Request::StopTm { tm: other.handle });
    client.start(address, 1);

    let segments = vec![Segment { arena: first.handle, offset: 0, length: 8 }; 4];
    let register = |place: u64, segments: &[Segment]| Request::Register {
        buffer: 1 << 32 | place,
        segments: segments.to_vec(),
    };
    client.done(&register(0, &segments));
    limit(&mut client, register(1, &segments[..3]), Reason::Buffers);
    client.done(&register(1, &segments[..2]));
    client.done(&register(2, &segments[..1]));
    limit(&mut client, register(3, &segments[..1]), Reason::Buffers);

    let [a, b, c] = [0u64, 1, 2].map(|place| nlx_core::BufferHandle(1 << 32 | place));
    for (buffer, counter) in [(a, 1), (b, 2), (c, 3)] {
        client.operate(&mut tm, buffer, OperationKind::PassiveReceive, counter);
    }
    assert_eq!(tm.ended(c), Err(Errno::ENOMEM), "a third operation in flight");
    client.push(&nlx_driver_proto::Entry::Cancel { tm: tm.handle, buffer: b, cookie: b.0 });
    client.drain().unwrap();
    assert_eq!(tm.ended(b), Err(Errno::ECANCELED));
    // Room for 5 events, of which `a` has one.
    let receive = |max_messages| OperationKind::Receive { min_receive_size: 1, max_messages };
    client.operate(&mut tm, b, receive(4), 0);
    assert_eq!(host.status().clients[0].operations, 2);
    assert_eq!(client.session.check(), Ok(()));

    let totals = host.status().totals;
    assert_eq!((totals.refused_by_quota, totals.refused, totals.refused_by_policy), (6, 0, 0));
    let mut neighbour = Client::connect(&host, USER);
    neighbour.arena(10_000);
    neighbour.start(address, 5);
    drop((client, neighbour));
    lnet.assert_quiet();
}

/// A client that submits more than its quota: the helper counts the room itself.
// Covers: MT-237
#[test]
fn events_beyond_the_quota_are_refused_whatever_the_client_has_provisioned() {
    let (_lnet, host) = scripted_with(quotas(|quotas| quotas.events = 2));
    let mut client = Client::connect(&host, USER);
    let arena = client.arena(64).handle;
    let mut tm = client.start("10.0.0.1@tcp:12345:40:*", 2);
    let buffer = client.register(0, arena, 0, 64);
    tm.events.provision(2).unwrap();
    let receive = OperationKind::Receive { min_receive_size: 1, max_messages: 3 };
    client.push(&crate::client::operation(&tm, buffer, receive, 0));
    client.drain().unwrap();
    let event = tm.events.pop().unwrap();
    assert_eq!((event.status(), event.unlinked(), event.released), (Err(Errno::ENOMEM), true, 3));
}

/// D9: connections are many and descriptors few: all clients of one user share a limit, and another
/// user has a separate one.
#[test]
fn the_descriptors_of_one_user_are_limited_over_all_its_clients() {
    let accounts = AccountsConfig::default().with_per_user(Resource::Descriptors, 7);
    let (lnet, host) = scripted_with(HostConfig { accounts, ..HostConfig::default() });
    let (mut one, mut two) = (Client::connect(&host, USER), Client::connect(&host, USER));
    let tm = one.start("10.0.0.1@tcp:12345:40:*", 1).handle;
    one.done(&Request::TmDescriptor { tm });
    let (_, last) = (two.arena(64), two.arena(64).handle);
    one.done(&Request::TmDescriptor { tm });
    let create = Request::CreateArena { bytes: 64, huge: false, near: None };
    for client in [&mut one, &mut two] {
        let refusal = client.refused(&create);
        assert_eq!((refusal.errno, refusal.reason, refusal.limit), (Errno::EMFILE, Reason::System, 7));
    }
    Client::connect(&host, Credentials { uid: 1001, ..USER }).arena(64);
    Client::connect(&host, ROOT).arena(64);
    two.done(&Request::ReleaseArena { arena: last });
    one.arena(64);
    drop(two);
    one.arena(64);
    one.arena(64);
    assert_eq!(one.refused(&create).errno, Errno::EMFILE);
    drop(one);
    lnet.assert_quiet();
}
