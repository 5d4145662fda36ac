//! Clients that are cut off, or leave, while LNet still uses their memory.

use std::time::Duration;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::signal::Signal;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{self, Address, Entry, kind, queue};
use nlx_tests::client::{Client, TIME_LIMIT};

use crate::scene::{Helper, Work};
use crate::support::peer::hung_unless;

/// The size of an operation in bytes: more than fits into the sockets of [`CONFIG`].
const BULK: u64 = 1 << 20;
/// Operations of a client: one is partly sent, the others wait.
const SENDS: u64 = 48;
/// Bytes on the wire that prove that an operation has started.
const BEGUN: u64 = 32 << 10;
/// Sockets with small buffers, and timeouts that never expire.
const CONFIG: &str = "\
[helper]
quarantine = 0
[ksocklnd]
sock_timeout = 600
tx_buffer_size = 65536
rx_buffer_size = 65536
";
/// Operations per arena.
const EACH: u64 = 16;

/// Creates a client whose memory is being sent to a node that does not read, and that violates the
/// protocol.
fn cut_off(helper: &Helper, stopped: &Helper) -> Client {
    let before = helper.number("/door/cut_off");
    let sent = || helper.node_number("/tcp/wire_bytes_sent");
    let sent_before = sent();
    let mut client = helper.client("wild");
    let arenas: Vec<_> =
        (0..SENDS / EACH).map(|_| client.arena(EACH * BULK, false).unwrap().number).collect();
    let mut tm = client.start_tm(helper.nid(), PORTAL, 64).unwrap();
    let there = Address { nid: stopped.nid(), portal: PORTAL, tmid: 9 };
    let descriptor = there.descriptor(7, queue::PASSIVE_RECEIVE, BULK);
    for place in 0..SENDS {
        let (arena, offset) = (arenas[(place / EACH) as usize], place % EACH * BULK);
        client.submit(&Entry::register(handle(place), arena, offset, BULK)).unwrap();
        let send = Entry::active(queue::ACTIVE_SEND, tm.handle, handle(place), place, BULK, &descriptor);
        client.operate(&mut tm, &send).unwrap();
    }
    client.sync().unwrap();
    hung_unless("one is half sent", || sent() >= sent_before + BEGUN);
    client.socket.send(&[1], &[]).unwrap();
    hung_unless("it is cut off", || helper.number("/door/cut_off") == before + 1);
    client
}

/// The end of the stream signals a client that its memory is no longer accessed, however long that
/// takes; until then it is not served, and keeps its place. A client that hangs up releases its
/// place.
// Covers: S-404
#[test]
fn the_end_of_the_stream_comes_after_the_last_use() {
    let helper = Helper::configured(CONFIG);
    let work = Work::start(&helper);
    for hangs_up in [true, false] {
        let elsewhere = helper.another_alike();
        Work::between([&helper, &elsewhere]).stop();
        helper.is_clean_but_for(2);
        elsewhere.signal(Signal::SIGSTOP);
        let client = cut_off(&helper, &elsewhere);
        assert_eq!(helper.number("/door/connected"), 3, "it is still connected");
        assert!(!client.socket.is_readable(Duration::ZERO).unwrap(), "LNet has its memory");
        if hangs_up {
            drop(client);
            hung_unless("its place is free", || helper.number("/door/connected") == 2);
            elsewhere.signal(Signal::SIGCONT);
        } else {
            // A further packet is not read, and has no effect.
            client.socket.send(&[1], &[]).unwrap();
            assert!(!client.socket.is_readable(Duration::ZERO).unwrap());
            assert!(helper.number("/leftovers/arenas") > 0);
            elsewhere.signal(Signal::SIGCONT);
            assert!(client.socket.ends(TIME_LIMIT));
        }
        work.advance(1);
        helper.is_clean_but_for(2);
    }
    work.stop();
    helper.is_clean();
}

/// Memory that its client has protected against sealing is never unmapped. Nothing else uses it:
/// the helper does not wait for it when it ends, not even for the time it would wait for LNet.
#[test]
fn memory_that_can_never_be_sealed_keeps_no_helper_from_ending() {
    let mut helper = Helper::configured("[helper]\nquarantine = 86400\n");
    let mut client = helper.client("locks");
    let arena = client.call(kind::CREATE_ARENA, &wire::create_arena(BULK, 0, 0)).unwrap().fds.remove(0);
    let tm =
        client.call(kind::START_TM, &wire::start_tm(helper.nid(), PORTAL, 0, 64, 0)).unwrap().fds.remove(0);
    for memory in [arena, tm] {
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SEAL)).unwrap();
    }
    helper.signal(Signal::SIGTERM);
    assert!(client.socket.ends(TIME_LIMIT));
    assert!(helper.ends(), "it says that it has ended");
}
