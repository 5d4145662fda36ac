//! A client's life, from its hello to its end.

use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nlx_bev_cqueue::QueueWord;
use nlx_core::{BufferHandle, Descriptor, MatchCounter, OperationKind, PassiveBuffer, Queue, match_bits};
use nlx_driver_proto::{Entry, Reason, Reply, Request};
use nlx_helper::{HostStatus, Leftovers};
use nlx_sync::{Bell, Sleeper, Waker};

use crate::client::{Client, ROOT, USER};
use crate::worlds::{loopback, loopback_client, scripted_client};

/// A message from one client to another, through memory that the helper has made for both.
// Covers: S-3, S-408, MT-47, MT-48, MT-214
#[test]
fn a_message_goes_from_one_client_to_another() {
    let host = loopback();
    let (mut alice, mut bob) = (Client::connect(&host, USER), Client::connect(&host, ROOT));
    let mut from = alice.start("0@lo:12345:40:*", 16);
    let mut to = bob.start("0@lo:12345:40:*", 16);
    assert_ne!(from.address, to.address);

    let (sent, got) = (alice.arena(4096), bob.arena(4096));
    let outgoing = alice.register(0, sent.handle, 100, 5);
    let incoming = bob.register(7, got.handle, 0, 4096);
    let receive = OperationKind::Receive { min_receive_size: 1024, max_messages: 1 };
    bob.operate(&mut to, incoming, receive, 0);
    sent.put(100, b"hello");
    let send = OperationKind::Send { length: 5, to: to.address };
    alice.operate(&mut from, outgoing, send, 0);

    assert_eq!(from.ended(outgoing), Ok(5));
    let event = to.event().unwrap();
    assert_eq!((event.status(), event.length, event.sender()), (Ok(()), 5, Some(from.address)));
    assert_eq!(got.bytes(0, 5), b"hello");
    for (client, tm) in [(&mut alice, from), (&mut bob, to)] {
        client.done(&Request::StopTm { tm: tm.handle });
        assert_eq!(client.session.check(), Ok(()));
    }
    let status = host.status();
    assert_eq!((status.totals.operations, status.totals.events, status.totals.refused), (2, 2, 0));
    assert!(alice.close().is_over() && bob.close().is_over());
    assert_eq!(HostStatus { totals: host.status().totals, ..HostStatus::default() }, host.status());
    assert_eq!(host.status().leftovers, Leftovers::default());
}

/// A passive buffer of one client is written and read by another.
// Covers: S-3, S-6, MT-214
#[test]
fn bulk_goes_between_clients() {
    let host = loopback();
    let (mut alice, mut bob) = (Client::connect(&host, USER), Client::connect(&host, USER));
    let (mut active, mut passive) = (alice.start("0@lo:12345:40:*", 4), bob.start("0@lo:12345:40:*", 4));
    let (ours, theirs) = (alice.arena(1 << 20), bob.arena(1 << 20));
    let describe = |counter: u64, queue| {
        // The client makes the descriptor itself, from its own counter (U1).
        let match_bits = match_bits(passive.address.tmid, MatchCounter::new(counter).unwrap());
        let buffer = PassiveBuffer { address: passive.address, match_bits, queue, length: 1000 };
        Descriptor::encode(&buffer).unwrap()
    };
    let (read, written) = (describe(7, Queue::PassiveBulkSend), describe(8, Queue::PassiveBulkReceive));
    theirs.put(0, &[1; 1000]);
    ours.put(5000, &[2; 1000]);
    let [sending, receiving] =
        [0, 1].map(|place| bob.register(place, theirs.handle, u64::from(place) * 2000, 1000));
    bob.operate(&mut passive, sending, OperationKind::PassiveSend { length: 1000 }, 7);
    bob.operate(&mut passive, receiving, OperationKind::PassiveReceive, 8);
    let [get, put] = [0, 1].map(|place| alice.register(place, ours.handle, u64::from(place) * 5000, 1000));
    alice.operate(&mut active, get, OperationKind::ActiveReceive { descriptor: read }, 0);
    alice.operate(&mut active, put, OperationKind::ActiveSend { descriptor: written, length: 1000 }, 0);

    assert_eq!((active.ended(get), active.ended(put)), (Ok(1000), Ok(1000)));
    assert!(passive.ended(sending).is_ok());
    assert_eq!(passive.ended(receiving), Ok(1000));
    assert_eq!((ours.bytes(0, 1000), theirs.bytes(2000, 1000)), (vec![1; 1000], vec![2; 1000]));
}

/// Clients behind one NID get different ids, and each reaches only its own match bits.
// Covers: S-404, MT-49, MT-224
#[test]
fn ids_of_clients_are_unique() {
    let host = loopback();
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(&host, USER)).collect();
    let tms: Vec<_> = clients.iter_mut().map(|client| client.start("0@lo:12345:40:*", 1)).collect();
    let mut ids: Vec<_> = tms.iter().map(|tm| tm.address.tmid.get()).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(4095 - 19..=4095));
    let taken = tms[3].address.to_string();
    assert_eq!(clients[0].try_start(&taken, 1).err().unwrap().reason, Reason::AddressInUse);
    drop(clients.remove(3));
    clients[0].start(&taken, 1);
}

/// An event wakes the thread that sleeps on the queue, and an event loop through a socket once it
/// has asked for one.
// Covers: MT-230
#[test]
fn events_wake_an_event_loop() {
    let (host, mut client) = loopback_client(USER);
    let arena = client.arena(64).handle;
    let mut tm = client.start("0@lo:12345:40:*", 4);
    let ask = Request::TmDescriptor { tm: tm.handle };
    let mut bells =
        [client.ask(&ask).unwrap(), client.ask(&ask).unwrap()].map(|(_, mut fds)| fds.pop().unwrap());
    let word = QueueWord::event_loop(tm.events.memory().clone());
    let sleeper = Sleeper::ringing(word, Bell::socket(bells[0].try_clone().unwrap()));
    let is_readable = |bell: &OwnedFd| {
        let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    };
    let buffer = client.register(0, arena, 0, 64);
    // Sent to an unknown machine: the message is lost, and not reported.
    let send = OperationKind::Send { length: 8, to: "0@lo:12345:40:9".parse().unwrap() };
    client.operate(&mut tm, buffer, send, 0);
    assert!(!is_readable(&bells[0]), "nobody has announced sleep");
    assert!(tm.event().is_some());
    sleeper.prepare();
    client.operate(&mut tm, buffer, send, 0);
    assert!(bells.iter().all(is_readable), "both are the same socket");
    sleeper.finish();
    assert!(!bells.iter().any(is_readable));
    // A message without a buffer: counted, and reported.
    assert_eq!(tm.events.producer_word(), 0);
    sleeper.prepare();
    assert!(tm.event().is_some());
    let to_itself = OperationKind::Send { length: 8, to: tm.address };
    client.operate(&mut tm, buffer, to_itself, 0);
    assert_eq!((tm.events.producer_word(), host.status().clients[0].tms[0].dropped), (1, 1));
    assert!(is_readable(&bells[1]));
    bells.reverse();
}

/// The helper announces its sleep on the ring's word; the client's waker rings the doorbell then
/// and only then.
#[test]
fn the_doorbell_rings_when_the_helper_sleeps() {
    let (_host, mut client) = loopback_client(USER);
    let waker = Waker::ringing(
        QueueWord::consumer(client.ring.memory().clone()),
        Bell::eventfd(client.doorbell.try_clone().unwrap()),
    );
    // The helper polls the ring from the first request on.
    client.done(&Request::Sync);
    client.push(&Entry::Cancel { tm: 1, buffer: BufferHandle(1 << 32), cookie: 0 });
    assert_eq!(waker.wake(), Ok(false), "it is awake");
    assert!(!client.session.prepare_sleep(), "something stands in the ring");
    assert_eq!(client.drain(), Ok(1));
    assert!(client.session.prepare_sleep());
    client.push(&Entry::Cancel { tm: 1, buffer: BufferHandle(1 << 32), cookie: 0 });
    assert_eq!(waker.wake(), Ok(true));
    let mut fds = [PollFd::new(client.session.doorbell().unwrap(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::ZERO), Ok(1));
    client.session.finish_sleep();
    assert_eq!(client.drain(), Ok(1));
}

/// The limits are the client's quotas; the node's NIDs have `0@lo` last.
// Covers: MT-47
#[test]
fn a_welcome_tells_the_limits() {
    let (_lnet, _host, mut client) = scripted_client(USER);
    let (quotas, welcome) = (client.session.quotas(), &client.welcome);
    assert_eq!(welcome.limits.buffers_max, quotas.buffers as usize);
    assert_eq!((welcome.tms_max, welcome.arenas_max), (quotas.tms, quotas.arenas));
    assert_eq!(welcome.client, client.session.client());
    let (reply, _) = client.ask(&Request::Nids).unwrap();
    assert_eq!(reply, Reply::Nids(vec!["10.0.0.1@tcp".parse().unwrap(), "0@lo".parse().unwrap()]));
}
