//! The helper ends: killed, or on request.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::O_PATH;
use nix::sys::signal::Signal;
use nlx_tests::client::TIME_LIMIT;
use nlx_tests::client::pair::{BULK, PORTAL, Side, handle};
use nlx_tests::client::points::Points;
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Entry, kind, queue};

use crate::scene::{Helper, Other, Silence, Work, exists};
use crate::support::peer::hung_unless;

/// The helper is killed while clients wait, have all kinds of operations in flight and make
/// requests: each wait and each request ends. The next helper takes over the socket although its
/// name still exists, and all clients can start again.
// Covers: S-6, MT-234
#[test]
fn a_helper_that_is_killed() {
    let mut helper = Helper::start();
    let silence = Silence::new();
    for life in 0..3 {
        let waiting: Vec<_> = (0..4).map(|_| Other::start("wait", &helper, &[])).collect();
        let mut client = helper.client("asks");
        let arena = client.arena(1 << 20, false).unwrap();
        let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
        client.submit(&Entry::register(handle(0), arena.number, 0, 4096)).unwrap();
        let receive = Entry::receive(tm.handle, handle(0), 1, 1, 1);
        client.operate(&mut tm, &receive).unwrap();
        client.sync().unwrap();
        let hold = Other::start("hold", &helper, &[&silence.address.to_string()]);
        helper.signal(Signal::SIGKILL);
        assert!(!helper.ends());
        assert!(exists(&helper.socket()), "a helper that is killed leaves its socket's name");
        for other in waiting {
            assert_eq!(other.line(), "ended ENOTCONN");
        }
        assert_eq!(client.event(&mut tm).unwrap_err(), Errno::ENOTCONN);
        assert!(client.request(kind::SYNC, &[]).is_err());
        assert!(nlx_tests::client::Client::connect(&helper.socket(), "too early").is_err());
        // The client may use the memory for as long as it has it.
        arena.memory.write(0, &life_bytes(life));
        assert_eq!(arena.memory.read(0, 8), life_bytes(life));
        drop(hold);
        helper = helper.restart();
        let work = Work::start(&helper);
        work.advance(2);
        work.stop();
        helper.is_clean();
    }
}

fn life_bytes(life: u64) -> [u8; 8] {
    life.to_ne_bytes()
}

/// On a request to end, the helper lets outstanding operations finish, notifies its clients by
/// closing their connections, and removes its socket's name.
// Covers: S-6
#[test]
fn a_helper_that_is_asked_to_end() {
    let mut helper = Helper::start();
    let silence = Silence::new();
    let waiting = Other::start("wait", &helper, &[]);
    let hold = Other::start("hold", &helper, &[&silence.address.to_string()]);
    let mut traffic = Other::start("traffic", &helper, &[&silence.address.to_string()]);
    traffic.lives();
    helper.signal(Signal::SIGTERM);
    assert!(helper.ends(), "{}", helper.log());
    assert_eq!(waiting.line(), "ended ENOTCONN");
    let last = traffic.line();
    assert!(last.starts_with("failed"), "{last}");
    drop(hold);
    assert!(!exists(&helper.socket()));
    let helper = helper.restart();
    let work = Work::start(&helper);
    work.stop();
}

/// On a request to end during an operation, the helper waits for it: the client gets its event,
/// then the end.
// Covers: S-6
#[test]
fn an_operation_that_ends_while_the_helper_does() {
    let mut helper = Helper::configured("[helper]\ndrain = 60\n");
    let elsewhere = helper.another();
    let mut there = Side::connect(&elsewhere.socket(), elsewhere.nid(), "there", Points::harmless()).unwrap();
    let mut here = Side::connect(&helper.socket(), helper.nid(), "here", Points::harmless()).unwrap();
    let taken = Entry::passive(queue::PASSIVE_SEND, there.tm.handle, handle(0), 1, 7, BULK);
    there.client.operate(&mut there.tm, &taken).unwrap();
    there.client.sync().unwrap();
    elsewhere.signal(Signal::SIGSTOP);
    let descriptor = there.tm.address.descriptor(7, queue::PASSIVE_SEND, BULK);
    let take = Entry::active(queue::ACTIVE_RECEIVE, here.tm.handle, handle(0), 2, BULK, &descriptor);
    here.client.operate(&mut here.tm, &take).unwrap();
    here.client.sync().unwrap();
    let found = OpenOptions::new().read(true).custom_flags(O_PATH).open(helper.socket()).unwrap();
    helper.signal(Signal::SIGTERM);
    hung_unless("no client can connect", || !exists(&helper.socket()));
    let late = Socket::connect(Path::new(&format!("/proc/self/fd/{}", found.as_raw_fd())));
    assert_eq!(late.map(drop), Err(Errno::ECONNREFUSED), "who has found it before");
    assert!(!here.client.socket.is_readable(Duration::ZERO).unwrap(), "the operation is still under way");
    elsewhere.signal(Signal::SIGCONT);
    let event = here.client.event(&mut here.tm).unwrap();
    assert_eq!((event.cookie, event.status, event.length), (2, 0, BULK));
    assert!(here.client.socket.ends(TIME_LIMIT));
    assert!(helper.ends(), "{}", helper.log());
    assert_eq!(here.client.event(&mut here.tm).unwrap_err(), Errno::ENOTCONN);
}

/// There is one helper per socket: a second one is refused and does not affect the first.
// Covers: S-6
#[test]
fn a_second_helper_at_the_same_socket() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let output = helper.rival();
    assert!(!output.status.success(), "two helpers at one socket");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("nlxd.sock"), "{words}");
    work.advance(2);
    let reply = helper.client("still there").request(kind::NIDS, &[]).unwrap();
    assert_eq!(reply.body[..20], wire::nid(helper.address));
    work.stop();
}
