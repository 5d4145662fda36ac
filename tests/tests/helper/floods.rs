//! Floods: requests, entries, connections; and silence.

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nlx_testkit::Rng;
use nlx_tests::client::Client;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Entry, Reply, kind};

use crate::scene::{Helper, Other, Silence, Work};

/// A client sends requests as fast as it can and reads no reply. The helper stops reading requests
/// that it cannot answer, serves other clients, and answers everything, in order, once the client
/// reads.
// Covers: MT-219
#[test]
fn unread_replies() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("deaf");
    client.sync().unwrap();
    let before = helper.resident_bytes();
    let mut sent = 1000;
    let packet = |id| wire::packet(kind::NIDS, id, &[]);
    let mut refused = 0;
    // The socket is full many times in a row, while others work: the helper has stopped reading.
    while refused < 10 {
        match client.socket.try_send(&packet(sent)) {
            Ok(()) => (sent, refused) = (sent + 1, 0),
            Err(errno) => {
                assert_eq!(errno, Errno::EAGAIN);
                refused += 1;
                work.advance(1);
            }
        }
        assert!(sent < 1_000_000, "the helper keeps all replies");
    }
    let grown = helper.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for one who does not listen");
    // All of them, unless the client did not read for too long.
    let mut next = 1000;
    while next < sent {
        let Ok(Some((packet, fds))) = client.socket.receive(client.patience) else { break };
        let reply = Reply::read(&packet, fds).unwrap();
        assert_eq!((reply.id, reply.status), (next, 0));
        next += 1;
    }
    assert!(next == sent || helper.number("/door/unread") == 1);
    client = helper.client("deaf");
    // Also a client that leaves without having read anything.
    for id in 0..100 {
        client.socket.send(&packet(id), &[]).unwrap();
    }
    drop(client);
    work.stop();
    helper.is_clean();
}

/// Endless requests and entries from several clients: an honest client makes progress.
// Covers: MT-219
#[test]
fn floods_of_requests_and_entries() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut clients: Vec<Client> = (0..4).map(|_| helper.client("flood")).collect();
    let (requests, entries) = clients.split_at_mut(2);
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for client in requests {
            scope.spawn(|| {
                while !is_over() {
                    client.sync().unwrap();
                }
            });
        }
        for client in entries {
            scope.spawn(|| {
                let tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
                while !is_over() {
                    client.submit(&Entry::cancel(tm.handle, handle(1), 1)).unwrap();
                }
            });
        }
        work.advance(50);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(clients);
    work.stop();
    helper.is_clean();
}

/// Hundreds of clients connect, use all kinds of resources, and die; some do not even send a hello.
/// The helper releases all their resources.
// Covers: MT-234, MT-237
#[test]
fn hundreds_of_clients_come_and_die() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    work.advance(5);
    let before = helper.holdings();
    let mut random = Rng::new(3);
    for _ in 0..6 {
        let crowd: Vec<_> = (0..50)
            .map(|_| {
                let stranger = Socket::connect(&helper.socket()).unwrap();
                let mut client = helper.client("moth");
                let depth = random.below(4);
                if depth == 0 {
                    return (stranger, client, None, None);
                }
                let arena = client.arena(1 << 20, false).unwrap();
                client.submit(&Entry::register(handle(0), arena.number, 0, 4096)).unwrap();
                if depth == 1 {
                    return (stranger, client, Some(arena), None);
                }
                let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
                if depth == 3 {
                    let receive = Entry::receive(tm.handle, handle(0), 1, 1, 1);
                    client.operate(&mut tm, &receive).unwrap();
                }
                (stranger, client, Some(arena), Some(tm))
            })
            .collect();
        work.advance(1);
        drop(crowd);
    }
    helper.is_clean_but_for(2);
    helper.holds_again(before);
    work.stop();
}

/// A client that is stopped at any point delays no other client, continues when it may, and its
/// death leaves nothing.
#[test]
fn a_client_that_is_stopped() {
    let helper = Helper::start();
    let silence = Silence::new();
    let work = Work::start(&helper);
    let silent = silence.address.to_string();
    let mut other = Other::start("traffic", &helper, &[&silent]);
    for _ in 0..20 {
        work.advance(2);
        other.signal(Signal::SIGSTOP);
        work.advance(5);
        other.signal(Signal::SIGCONT);
    }
    other.lives();
    other.signal(Signal::SIGSTOP);
    work.advance(1);
    other.kill();
    work.stop();
    helper.is_clean();
}
