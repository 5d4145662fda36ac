//! Rights to portals and NIDs: a forbidden use is EPERM, and counted.

use nlx_core::{Descriptor, Errno, MatchCounter, OperationKind, PassiveBuffer, Queue, match_bits};
use nlx_driver_proto::{Hello, Reason, Request, StartTm};
use nlx_helper::{ClientQuotas, Credentials, Nids, Policy, PortalSet, Rights, Session};

use crate::client::{Client, ROOT, USER, ask};
use crate::worlds::{policy, scripted_client, scripted_with};

#[test]
fn ordinary_clients_have_neither_lustres_portals_nor_reach_them() {
    let (lnet, host, mut client) = scripted_client(USER);
    let arena = client.arena(4096).handle;
    for portal in [1, 12, 34] {
        let refused = client.try_start(&format!("10.0.0.1@tcp:12345:{portal}:*"), 4).err().unwrap();
        assert_eq!((refused.errno, refused.reason), (Errno::EPERM, Reason::Portal));
    }
    let mut tm = client.start("10.0.0.1@tcp:12345:35:*", 8);
    let buffer = client.register(0, arena, 0, 64);
    for kind in reaching("10.0.0.9@tcp:12345:12:9") {
        client.operate(&mut tm, buffer, kind, 0);
        assert_eq!(tm.ended(buffer), Err(Errno::EPERM), "{kind:?}");
    }
    assert_eq!(lnet.objects().mds, 0);
    assert_eq!(host.status().totals.refused_by_policy, 3 + 3);

    let address = "10.0.0.1@tcp:12345:36:*".parse().unwrap();
    let lazy = Request::StartTm(StartTm { address, events_max: 4, lazy: true });
    let refused = client.refused(&lazy);
    assert_eq!((refused.errno, refused.reason), (Errno::EPERM, Reason::Lazy));
    assert_eq!(host.status().totals.refused_by_policy, 3 + 3 + 1);

    let mut root = Client::connect(&host, ROOT);
    assert!(root.ask(&lazy).is_ok(), "root may");
    let arena = root.arena(4096).handle;
    let mut tm = root.start("10.0.0.1@tcp:12345:12:*", 8);
    for (place, kind) in (0..).zip(reaching("10.0.0.9@tcp:12345:12:9")) {
        let buffer = root.register(place, arena, 0, 64);
        root.operate(&mut tm, buffer, kind, 0);
    }
    assert_eq!((tm.event(), lnet.objects().mds), (None, 3), "root reaches them");
}

/// Returns a message, a write and a read to this address.
fn reaching(address: &str) -> [OperationKind; 3] {
    let to: nlx_core::Address = address.parse().unwrap();
    let describe = |queue| {
        let match_bits = match_bits(to.tmid, MatchCounter::FIRST);
        Descriptor::encode(&PassiveBuffer { address: to, match_bits, queue, length: 64 }).unwrap()
    };
    [
        OperationKind::Send { length: 8, to },
        OperationKind::ActiveSend { descriptor: describe(Queue::PassiveBulkReceive), length: 8 },
        OperationKind::ActiveReceive { descriptor: describe(Queue::PassiveBulkSend) },
    ]
}

#[test]
fn nids_portals_and_quotas_are_as_the_policy_says() {
    let only = |list: &str| Nids::Listed(list.parse().unwrap());
    let rights = Rights {
        own_portals: PortalSet::range(50, 50),
        own_nids: only("10.0.0.1@tcp"),
        portals: PortalSet::range(60, 61),
        nids: only("10.0.0.[1-9]@tcp"),
        lazy: false,
        quotas: Some(ClientQuotas { tms: 1, ..ClientQuotas::default() }),
        group: None,
    };
    let (_lnet, host) = scripted_with(policy(Policy::default().group(1000, Some(rights)).others(None)));
    let mut client = Client::connect(&host, USER);
    assert_eq!(client.welcome.tms_max, 1);
    let reason = |client: &mut Client, at: &str| client.try_start(at, 4).err().map(|refusal| refusal.reason);
    assert_eq!(reason(&mut client, "10.0.0.1@tcp:12345:51:*"), Some(Reason::Portal));
    assert_eq!(reason(&mut client, "0@lo:12345:50:*"), Some(Reason::Nid));
    let mut tm = client.start("10.0.0.1@tcp:12345:50:*", 8);
    let arena = client.arena(64).handle;
    let buffer = client.register(0, arena, 0, 64);
    for address in ["10.0.0.9@tcp:12345:50:9", "10.0.0.10@tcp:12345:60:9"] {
        for kind in reaching(address) {
            client.operate(&mut tm, buffer, kind, 0);
            assert_eq!(tm.ended(buffer), Err(Errno::EPERM), "{kind:?}");
        }
    }
    client.operate(&mut tm, buffer, reaching("10.0.0.9@tcp:12345:61:9")[0], 0);
    assert_eq!((tm.event(), host.status().clients[0].operations), (None, 1));

    let mut stranger = Session::new(&host, Credentials { pid: 9, uid: 7, gid: 7 }).unwrap();
    let refused = ask(&mut stranger, &Request::Hello(Hello::new(""))).unwrap_err();
    assert_eq!(refused.errno, Errno::EACCES);
    assert!(stranger.doorbell().is_none());
}
