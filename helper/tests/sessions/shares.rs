//! The amounts that the clients of one user hold together, and their release.

use lnet_fake::ScriptedEvent;
use nlx_core::{Errno, OperationKind};
use nlx_driver_proto::{Reason, Refusal, Request};
use nlx_helper::accounts::{AccountsConfig, CHUNK, GroupCaps, GroupId, Resource, UserId};
use nlx_helper::owners::Owners;
use nlx_helper::{Credentials, Host, HostConfig, Policy, Rights};

use crate::client::{Client, ROOT, Tm, USER};
use crate::worlds::scripted_with;

const OTHER: Credentials = Credentials { pid: 3, uid: 1001, gid: 1001 };
const ADDRESS: &str = "10.0.0.1@tcp:12345:40:*";

fn capacity(resource: Resource, capacity: u64) -> HostConfig {
    let accounts = AccountsConfig::default().with_capacity(resource, capacity);
    HostConfig { accounts, ..HostConfig::default() }
}

fn held(host: &Host, credentials: Credentials, resource: Resource) -> u64 {
    host.accounts().held_by(UserId(credentials.uid)).of(resource)
}

/// Starts operations that wait, until one is refused.
fn fill(client: &mut Client, tm: &mut Tm, arena: u32) -> u64 {
    let mut count = 0;
    loop {
        let buffer = client.register(count as u32, arena, 0, 8);
        client.operate(tm, buffer, OperationKind::PassiveReceive, count + 1);
        if let Some(event) = tm.event() {
            assert_eq!((event.buffer(), event.status()), (buffer, Err(Errno::ENOMEM)));
            return count;
        }
        count += 1;
    }
}

/// Further connections do not increase a user's share: other users and root always find some room.
#[test]
fn operations_of_all_connections_of_a_user_are_one_share() {
    let (lnet, host) = scripted_with(capacity(Resource::Operations, 800));
    let mut sum = 0;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = Client::connect(&host, USER);
        let (arena, mut tm) = (client.arena(64).handle, client.start(ADDRESS, 1000));
        sum += fill(&mut client, &mut tm, arena);
        clients.push(client);
    }
    // An eighth of 800 is root's. Each further connection gets the rest of a chunk of the one
    // before.
    assert_eq!((sum, held(&host, USER, Resource::Operations)), (350, 350));
    let mut other = Client::connect(&host, OTHER);
    let (arena, mut tm) = (other.arena(64).handle, other.start(ADDRESS, 1000));
    assert_eq!(fill(&mut other, &mut tm, arena), 175);
    let mut root = Client::connect(&host, ROOT);
    let (arena, mut tm) = (root.arena(64).handle, root.start(ADDRESS, 1000));
    assert_eq!(fill(&mut root, &mut tm, arena), 800 - 350 - 175);
    let refused = host.status().users.iter().map(|user| (user.user.0, user.refused)).collect::<Vec<_>>();
    assert_eq!(refused, [(0, 1), (1000, 8), (1001, 1)]);
    drop((clients, other, root));
    // The fake's notes hold the memory, too.
    lnet.take_calls();
    assert!(host.status().users.is_empty() && host.accounts().held().is_zero());
    lnet.assert_quiet();
}

/// Each transfer machine has at most three mappings: those of the helper do not run out, whatever
/// the number of connections.
#[test]
fn mappings_are_shared_out() {
    let (lnet, host) = scripted_with(capacity(Resource::Mappings, 160));
    let mut clients = Vec::new();
    let refusal = 'full: loop {
        let mut client = Client::connect(&host, USER);
        for _ in 0..3 {
            match client.try_start(ADDRESS, 1) {
                Ok(_) => {}
                Err(refusal) => break 'full refusal,
            }
        }
        clients.push(client);
    };
    assert_eq!((refusal.errno, refusal.reason, refusal.limit), (Errno::ENOMEM, Reason::Share, 70));
    assert!(held(&host, USER, Resource::Mappings) <= 70);
    let mut other = Client::connect(&host, OTHER);
    other.start(ADDRESS, 1);
    let mut root = Client::connect(&host, ROOT);
    root.start(ADDRESS, 1);
    drop((clients, other, root));
    assert!(host.accounts().held().is_zero());
    lnet.assert_quiet();
}

/// Charges of a refused registration or start are released, and unused ones at the next trim.
#[test]
fn chunks_are_given_back() {
    let (_lnet, host) = scripted_with(capacity(Resource::HeapBytes, 4 << 20));
    let mut client = Client::connect(&host, USER);
    let (arena, mut tm) = (client.arena(64).handle, client.start(ADDRESS, 1000));
    // A high index makes the table of buffers that long.
    client.register(20_000, arena, 0, 8);
    client.drain().unwrap();
    assert_eq!(host.status().clients[0].buffers, 0, "its table would be too much of the heap");
    let near = client.register(100, arena, 0, 8);
    client.operate(&mut tm, near, OperationKind::PassiveReceive, 1);
    let count = |resource| held(&host, USER, resource);
    assert_eq!([Resource::Buffers, Resource::Operations].map(count), [CHUNK, CHUNK]);
    client.push(&nlx_driver_proto::Entry::Cancel { tm: tm.handle, buffer: near, cookie: near.0 });
    client.push(&nlx_driver_proto::Entry::Deregister { buffer: near });
    client.drain().unwrap();
    let before = count(Resource::HeapBytes);
    client.session.trim();
    assert_eq!([Resource::Buffers, Resource::Segments, Resource::Operations].map(count), [0, 0, 0]);
    assert!(count(Resource::HeapBytes) <= before && count(Resource::HeapBytes) > 0);
    client.done(&Request::StopTm { tm: tm.handle });
    assert_eq!(count(Resource::Machines), 0);
}

/// Resources that LNet holds of a departed client stay charged to its user until LNet releases
/// them.
#[test]
fn what_is_left_over_stays_charged() {
    let (lnet, host) = scripted_with(HostConfig::default());
    let mut client = Client::connect(&host, USER);
    let (arena, mut tm) = (client.arena(64).handle, client.start(ADDRESS, 10));
    let buffer = client.register(0, arena, 0, 8);
    client.operate(&mut tm, buffer, OperationKind::PassiveReceive, 1);
    lnet.set_busy(true);
    let departure = client.close();
    lnet.set_busy(false);
    assert!(!departure.is_over());
    let count = |resource| held(&host, USER, resource);
    let of_machine =
        [Resource::Machines, Resource::Arenas, Resource::Operations, Resource::Mappings].map(count);
    assert_eq!(of_machine, [1, 1, 1, 4]);
    assert!(count(Resource::QueueBytes) > 0 && count(Resource::ArenaBytes) == 64);
    let md = lnet.last_md();
    // The fake's notes hold the memory, too.
    lnet.take_calls();
    lnet.inject(md, ScriptedEvent::put().last());
    assert!(departure.is_over() && host.status().users.is_empty());
}

/// Uids that a user may take in its own namespaces are not separate users, and have no rights of
/// their own.
#[test]
fn subordinate_uids_count_for_their_owner() {
    let owners = Owners::parse("1000:200000:65536\n", UserId::ROOT, |_| None);
    let config = HostConfig { owners, ..capacity(Resource::Machines, 80) };
    let policy = Policy::default().user(USER.uid, Some(Rights { lazy: true, ..Rights::ordinary() }));
    let (_lnet, host) = scripted_with(HostConfig { policy, ..config });
    let mut clients = Vec::new();
    let mut started = 0;
    for uid in [USER.uid, 200_000, 265_535] {
        let mut client = Client::connect(&host, Credentials { uid, ..USER });
        while client.try_start(ADDRESS, 1).is_ok() {
            started += 1;
        }
        clients.push(client);
    }
    assert_eq!((started, held(&host, USER, Resource::Machines)), (35, 35));
    let mut other = Client::connect(&host, Credentials { uid: 265_536, ..USER });
    assert!(other.try_start(ADDRESS, 1).is_ok());
    let rights = |uid| host.policy().rights_of(&Credentials { uid, ..USER }).map(|rights| rights.lazy);
    assert_eq!([USER.uid, 200_000].map(rights), [Some(true), Some(false)]);
}

/// A container that root has started: its users share one part of the amounts for ordinary users.
#[test]
fn subordinate_uids_of_root_are_not_root() {
    let owners = Owners::parse("root:1000000:65536\n", UserId::ROOT, |_| Some(0));
    let (_lnet, host) = scripted_with(HostConfig { owners, ..capacity(Resource::Machines, 80) });
    let inside = [1_000_000, 1_000_999].map(|uid| Credentials { uid, ..USER });
    let mut clients = inside.map(|credentials| Client::connect(&host, credentials));
    let mut started = 0;
    for client in &mut clients {
        while client.try_start(ADDRESS, 1).is_ok() {
            started += 1;
        }
    }
    assert_eq!((started, held(&host, inside[0], Resource::Machines)), (35, 35));
    assert_eq!(held(&host, ROOT, Resource::Machines), 0);
    let mut root = Client::connect(&host, ROOT);
    (0..45).for_each(|_| drop(root.start(ADDRESS, 1)));
}

/// The users that one entry of the policy covers can have a common cap.
#[test]
fn a_group_of_users_has_its_own_caps() {
    let mut caps = GroupCaps::default();
    caps.together = caps.together.with(Resource::Machines, 3);
    let rights = Rights { group: Some((GroupId(0), caps)), ..Rights::ordinary() };
    let policy = Policy::default().group(USER.gid, Some(rights));
    let (_lnet, host) = scripted_with(HostConfig { policy, ..HostConfig::default() });
    let mut one = Client::connect(&host, USER);
    let mut two = Client::connect(&host, Credentials { uid: 1005, ..USER });
    let mut outside = Client::connect(&host, OTHER);
    (0..2).for_each(|_| drop(one.start(ADDRESS, 1)));
    two.start(ADDRESS, 1);
    let refused = |client: &mut Client| client.try_start(ADDRESS, 1).err();
    assert_eq!(refused(&mut two), Some(Refusal::of(Errno::ENOMEM, Reason::Share, 2, 1)));
    assert_eq!(refused(&mut one), Some(Refusal::of(Errno::ENOMEM, Reason::Share, 3, 2)));
    assert_eq!(refused(&mut outside), None);
}
