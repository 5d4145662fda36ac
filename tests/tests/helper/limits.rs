//! Limits on the number of clients, on their request rate, and on their silence.

use nix::errno::Errno;
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Reply, kind};
use nlx_tests::client::{Client, TIME_LIMIT};

use crate::scene::{Helper, Work};
use crate::support::peer::hung_unless;

/// One client more than the limit is refused with the reason, and is accepted once another one has
/// left.
// Covers: MT-237
#[test]
fn more_clients_than_there_may_be() {
    let helper = Helper::configured("[helper]\nclients_max = 3\n");
    let before = helper.number("/door/refused_clients");
    let mut clients: Vec<Client> = (0..3).map(|_| helper.client("one of three")).collect();
    for _ in 0..3 {
        let refused = Client::connect(&helper.socket(), "one too many").unwrap_err();
        assert!(refused.contains("EUSERS"), "{refused}");
    }
    assert_eq!(helper.number("/door/refused_clients"), before + 3);
    clients.iter_mut().for_each(|client| client.sync().unwrap());
    clients.pop();
    hung_unless("there is a place again", || {
        clients.extend(Client::connect(&helper.socket(), "the next one"));
        clients.len() == 3
    });
    drop(clients);
    helper.is_clean();
}

/// A client without a hello is disconnected: both one that sends nothing, and one that was
/// throttled before.
// Covers: MT-45
#[test]
fn no_hello() {
    let helper = Helper::configured("[helper.quotas]\nrequests_per_second = 1\n");
    let silent = Socket::connect(&helper.socket()).unwrap();
    let slowed = Socket::connect(&helper.socket()).unwrap();
    let mut honest = helper.client("honest");
    for id in 0..3 {
        slowed.send(&wire::packet(kind::SYNC, id, &[]), &[]).unwrap();
    }
    for id in 0..3 {
        let (packet, fds) = slowed.receive(TIME_LIMIT).unwrap().unwrap();
        let reply = Reply::read(&packet, fds).unwrap();
        assert_eq!((reply.id, reply.status < 0), (id, true), "nothing but a hello is first");
    }
    assert!(helper.number("/door/throttled") > 0);
    assert!(silent.ends(TIME_LIMIT) && slowed.ends(TIME_LIMIT));
    hung_unless("both are counted", || helper.number("/door/silent") == 2);
    honest.sync().unwrap();
    drop(honest);
    helper.is_clean();
}

/// A client that reads no reply is cut off after the timeout; others are not affected.
// Covers: MT-219
#[test]
fn replies_that_wait_too_long() {
    let helper = Helper::configured("[helper]\nreply_timeout = 1\n");
    let work = Work::start(&helper);
    let deaf = helper.client("deaf");
    let packet = wire::packet(kind::NIDS, 1, &[]);
    hung_unless("it is cut off", || match deaf.socket.try_send(&packet) {
        Ok(()) | Err(Errno::EAGAIN) => false,
        Err(errno) => {
            assert!([Errno::EPIPE, Errno::ECONNRESET].contains(&errno), "{errno}");
            true
        }
    });
    assert_eq!((helper.number("/door/unread"), helper.number("/door/cut_off")), (1, 1));
    work.advance(2);
    work.stop();
    helper.is_clean();
}

/// Requests beyond the rate wait, in order, and each is answered.
// Covers: MT-219
#[test]
fn requests_beyond_the_rate_wait() {
    const RATE: u64 = 100;
    let helper = Helper::configured(&format!("[helper.quotas]\nrequests_per_second = {RATE}\n"));
    let client = helper.client("eager");
    let last = 3 * RATE;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..last {
                client.socket.send(&wire::packet(kind::NIDS, id, &[]), &[]).unwrap();
            }
        });
        for id in 0..last {
            let (packet, fds) = client.socket.receive(TIME_LIMIT).unwrap().unwrap();
            let reply = Reply::read(&packet, fds).unwrap();
            assert_eq!((reply.id, reply.status), (id, 0));
        }
    });
    assert!(helper.number("/door/throttled") > 0);
    assert_eq!(helper.number("/door/cut_off"), 0);
    drop(client);
    helper.is_clean();
}

/// Clients of several threads work for each other, and the departure of one does not affect others.
#[test]
fn several_threads() {
    for threads in [2, 4] {
        let helper = Helper::configured(&format!("[helper]\nthreads = {threads}\n"));
        assert_eq!(helper.number("/door/threads"), threads);
        // The sides of each pair are clients of two threads: a new client is assigned to the thread
        // with the fewest.
        let works: Vec<Work> = (0..3).map(|_| Work::start(&helper)).collect();
        works.iter().for_each(|work| work.advance(5));
        let crowd: Vec<Client> = (0..2 * threads).map(|_| helper.client("idle")).collect();
        assert_eq!(helper.number("/clients"), 6 + 2 * threads);
        drop(crowd);
        works.iter().for_each(|work| work.advance(5));
        works.into_iter().for_each(Work::stop);
        helper.is_clean();
    }
}
