//! Shares by user: the load of one user, over any number of connections, delays others by one turn
//! at most. Counted in requests and in the helper's units of work, not in time.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Entry, kind};
use nlx_tests::client::{Client, TIME_LIMIT};

use crate::scene::{Helper, Work};

/// The maximum units of work in one user's turn: 64, and the most expensive request
/// (docs/operating.md).
const TURN_UNITS_MAX: u64 = 64 + 32;

/// Connections of the user that floods, and the requests that wait on each: few enough that their
/// answers fit into its socket unread.
const CONNECTIONS: usize = 200;
const WAITING: u64 = 12;

/// The number of requests of the honest user that wait at the same time: two turns.
const HONEST: u64 = 16;

/// Any uid but root's.
const FLOODER: libc::uid_t = 12_100;

/// Makes connections of another user, which do not even send a hello.
#[allow(unsafe_code, reason = "a thread of another user, which no safe call makes")]
fn connections(helper: &Helper) -> Vec<Socket> {
    let path = helper.socket();
    let connect = move || {
        // SAFETY: it names no memory. The system call changes the user only of the calling thread,
        // which ends below and only connects before.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, FLOODER, FLOODER, FLOODER) }, 0);
        (0..CONNECTIONS).map(|_| Socket::connect(&path).unwrap()).collect()
    };
    std::thread::spawn(connect).join().unwrap()
}

/// Puts requests into all sockets while the helper is stopped, lets it continue until the honest
/// user has its answers, and returns the number of answers that the other user has by then.
fn flood_answers(helper: &Helper, honest: &Client, flood: &[Socket]) -> usize {
    helper.signal(Signal::SIGSTOP);
    let ask = |socket: &Socket, id| socket.send(&wire::packet(kind::SYNC, id, &[]), &[]).unwrap();
    for socket in flood {
        (0..WAITING).for_each(|id| ask(socket, id));
    }
    (0..HONEST).for_each(|id| ask(&honest.socket, 1000 + id));
    helper.signal(Signal::SIGCONT);
    for _ in 0..HONEST {
        honest.socket.receive(TIME_LIMIT).unwrap().unwrap();
    }
    helper.signal(Signal::SIGSTOP);
    let answered = |socket: &&Socket| {
        socket.is_readable(Duration::ZERO).unwrap() && socket.receive(Duration::ZERO).unwrap().is_some()
    };
    let counts: Vec<usize> =
        flood.iter().map(|socket| std::iter::repeat(socket).take_while(answered).count()).collect();
    helper.signal(Signal::SIGCONT);
    // Receives the remaining answers, for the next call.
    for (socket, count) in flood.iter().zip(&counts) {
        (*count as u64..WAITING).for_each(|_| drop(socket.receive(TIME_LIMIT).unwrap().unwrap()));
    }
    counts.into_iter().sum()
}

/// 200 connections of one user have requests waiting, and one connection of another user: while
/// that one has two turns, the 200 have two turns together, not each. (They continue while this
/// test stops the helper; so if it is slow to do so, it tries again.)
#[test]
fn a_flood_over_many_connections_has_the_share_of_one() {
    const TRIES: usize = 50;
    if !Uid::effective().is_root() {
        nlx_skip::skipped("shares by user", "only root can be several users");
        return;
    }
    let helper = Helper::configured("[helper]\nmode = \"0666\"\n");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(helper.folder(), open).unwrap();
    let (honest, flood) = (helper.client("honest"), connections(&helper));
    // With a share per connection, each of them would have had at least one turn: 8 requests.
    let one_turn_each = CONNECTIONS * 8;
    let served: Vec<usize> = (0..TRIES)
        .map(|_| flood_answers(&helper, &honest, &flood))
        .scan(false, |over, count| (!std::mem::replace(over, count < one_turn_each / 4)).then_some(count))
        .collect();
    assert!(served.iter().any(|&count| count < one_turn_each / 4), "{served:?} requests of the flood");
    let longest = helper.number("/door/longest_turn");
    assert!((1..=TURN_UNITS_MAX).contains(&longest), "{longest} units of work in one turn");
    drop((honest, flood));
    helper.is_clean();
}

/// Ten clients that have thousands of operations and buffers leave at once: honest work continues
/// between the slices in which their sessions are closed, none of which is longer than a turn.
#[test]
fn clients_with_very_much_depart() {
    const OPERATIONS: u64 = 2048;
    const IDLE: u64 = 4096;
    let helper = Helper::start();
    let work = Work::start(&helper);
    let before = helper.holdings();
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = helper.client("rich");
            let arena = client.arena(4 << 20, false).unwrap();
            let mut tm = client.start_tm(helper.nid(), PORTAL, OPERATIONS as u32).unwrap();
            for place in 0..OPERATIONS + IDLE {
                client.submit(&Entry::register(handle(place), arena.number, 0, 64)).unwrap();
                if place < OPERATIONS {
                    let receive = Entry::receive(tm.handle, handle(place), place, 1, 1);
                    client.operate(&mut tm, &receive).unwrap();
                }
            }
            client.sync().unwrap();
            (client, arena, tm)
        })
        .collect();
    let operations = helper.number("/totals/operations");
    assert!(operations >= 10 * OPERATIONS, "{operations} operations");
    drop(clients);
    work.advance(20);
    helper.is_clean_but_for(2);
    helper.holds_again(before);
    work.stop();
    let longest = helper.number("/door/longest_turn");
    assert!((1..=TURN_UNITS_MAX).contains(&longest), "{longest} units of work in one turn");
    helper.is_clean();
}

/// The requests of all connections of one user share a rate: each connection alone is slow enough,
/// but together they wait.
#[test]
fn a_rate_for_all_connections_of_a_user() {
    if !Uid::effective().is_root() {
        nlx_skip::skipped("the rate of a user", "only root can be another user than the helper's");
        return;
    }
    let helper = Helper::configured("[helper]\nmode = \"0666\"\nuser_requests_per_second = 500\n");
    std::fs::set_permissions(helper.folder(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (mut honest, flood) = (helper.client("honest"), connections(&helper));
    assert_eq!(helper.number("/door/throttled"), 0);
    // More than all may request at once, and everything is answered.
    for socket in &flood {
        (0..WAITING).for_each(|id| socket.send(&wire::packet(kind::SYNC, id, &[]), &[]).unwrap());
    }
    honest.sync().unwrap();
    for socket in &flood {
        (0..WAITING).for_each(|_| drop(socket.receive(TIME_LIMIT).unwrap().unwrap()));
    }
    assert!(helper.number("/door/throttled") > 0);
    assert_eq!(helper.number("/door/cut_off"), 0);
    drop((honest, flood));
    helper.is_clean();
}
