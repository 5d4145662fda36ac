//! The limits of one client, and two threads of one client.

use nix::errno::Errno;
use nlx_tests::client::events::Event;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Entry, Reply, kind};
use nlx_tests::client::{Client, TIME_LIMIT, Tm};

use crate::scene::{Helper, Work};

/// Small quotas.
const FEW: &str = "[helper.quotas]
tms = 3
buffers = 40
segments = 20
arenas = 4
bytes = 8388608
operations = 10
events = 32
";

fn cancelled(event: &Event) -> bool {
    Errno::from_raw(-event.status) == Errno::ECANCELED && event.last
}

/// Each limit in the welcome is enforced exactly, and released resources can be used again; another
/// client has separate limits.
// Covers: MT-237
#[test]
fn as_much_as_a_client_may_have() {
    let helper = Helper::configured(FEW);
    let mut client = helper.client("greedy");
    assert_eq!([52, 56, 60, 64, 68].map(|at| client.limit(at)), [40, 3, 10, 32, 4]);
    assert_eq!((client.bytes_max(), client.arena_bytes_max()), (8 << 20, 16 << 20));

    let mut tms: Vec<Tm> = (0..3).map(|_| client.start_tm(helper.nid(), PORTAL, 32).unwrap()).collect();
    assert_eq!(client.start_tm(helper.nid(), PORTAL, 1).unwrap_err(), Errno::ENOMEM);
    let last = tms.pop().unwrap();
    client.stop_tm(last.handle).unwrap();
    tms.push(client.start_tm(helper.nid(), PORTAL, 32).unwrap());

    // Bytes first, then arenas.
    let large = client.arena(8 << 20, false).unwrap();
    assert_eq!(client.arena(4096, false).unwrap_err(), Errno::ENOMEM);
    client.call(kind::RELEASE_ARENA, &wire::arena(large.number)).unwrap();
    let arenas: Vec<_> = (0..4).map(|_| client.arena(1 << 20, false).unwrap()).collect();
    assert_eq!(client.arena(4096, false).unwrap_err(), Errno::ENOMEM);

    let arena = arenas[0].number;
    let segments = |place: u64, count: u64| {
        let list: Vec<_> = (0..count).map(|number| (arena, 64 * number, 64)).collect();
        wire::register(handle(place), &list)
    };
    client.call(kind::REGISTER, &segments(39, 21)).unwrap();
    assert_eq!(client.call(kind::REGISTER, &segments(38, 2)).unwrap_err(), Errno::ENOMEM);
    client.submit(&Entry::deregister(handle(39))).unwrap();
    client.call(kind::REGISTER, &segments(39, 2)).unwrap();
    for place in 0..39 {
        client.submit(&Entry::register(handle(place), arena, 64 * place, 64)).unwrap();
    }
    client.sync().unwrap();

    // Ten operations are in flight; the eleventh is refused, on any machine.
    for number in 0..10 {
        let tm = &mut tms[number as usize % 3];
        let receive = Entry::receive(tm.handle, handle(number), number, 1, 1);
        client.operate(tm, &receive).unwrap();
    }
    let one_more = Entry::receive(tms[1].handle, handle(10), 10, 1, 1);
    client.operate(&mut tms[1], &one_more).unwrap();
    let event = client.event(&mut tms[1]).unwrap();
    assert_eq!((Errno::from_raw(-event.status), event.cookie), (Errno::ENOMEM, 10));
    client.submit(&Entry::cancel(tms[0].handle, handle(0), 0)).unwrap();
    assert!(cancelled(&client.event(&mut tms[0]).unwrap()));
    client.operate(&mut tms[1], &one_more).unwrap();
    client.sync().unwrap();
    assert_eq!(helper.number("/list/0/operations"), 10);
    let refused = helper.number("/totals/refused_by_quota");
    assert!(refused >= 5, "{refused} refusals are counted");

    let mut other = helper.client("modest");
    other.arena(8 << 20, false).unwrap();
    other.start_tm(helper.nid(), PORTAL, 32).unwrap();
    // A registration beyond the limit, which a correct client does not submit.
    client.submit(&Entry::register(handle(40), arena, 0, 64)).unwrap();
    client.sync().unwrap();
    assert_eq!(helper.number("/list/0/buffers"), 40);
    drop((client, other));
    helper.is_clean();
}

/// An operation that may produce more events than its machine was started for is refused, or its
/// client cut off, before it starts.
// Covers: MT-237
#[test]
fn more_events_than_a_machine_was_started_for() {
    let helper = Helper::configured(FEW);
    let elsewhere = helper.another();
    let work = Work::start(&elsewhere);
    let mut client = helper.client("events");
    let arena = client.arena(1 << 20, false).unwrap();
    let mut tm = client.start_tm(helper.nid(), PORTAL, 8).unwrap();
    for place in 0..2 {
        client.submit(&Entry::register(handle(place), arena.number, 4096 * place, 4096)).unwrap();
    }
    let receive = Entry::receive(tm.handle, handle(0), 1, 1, 8);
    client.operate(&mut tm, &receive).unwrap();
    client.sync().unwrap();
    for count in [0, 1, 0xffff, u32::MAX] {
        // Without room in the queue: a correct client would have refused this itself.
        client.submit(&Entry::receive(tm.handle, handle(1), 2, 1, count)).unwrap();
        if client.sync().is_err() {
            client = helper.client("events");
            let arena = client.arena(1 << 20, false).unwrap();
            tm = client.start_tm(helper.nid(), PORTAL, 8).unwrap();
            client.submit(&Entry::register(handle(1), arena.number, 0, 4096)).unwrap();
            let receive = Entry::receive(tm.handle, handle(1), 1, 1, 8);
            client.submit(&Entry::register(handle(0), arena.number, 4096, 4096)).unwrap();
            client.operate(&mut tm, &Entry { buffer: handle(0), ..receive }).unwrap();
            client.sync().unwrap();
        }
        assert_eq!(helper.number("/list/0/operations"), 1, "an operation of {count} messages has started");
    }
    work.stop();
}

/// Two threads of one client make the same requests at the same time on one connection: each
/// request has its reply, in order, and the result is that of some order.
// Covers: MT-236
#[test]
fn two_threads_on_one_object() {
    const ROUNDS: u64 = 200;
    let helper = Helper::start();
    let mut client = helper.client("two threads");
    let arena = client.arena(1 << 20, false).unwrap().number;
    for round in 0..ROUNDS {
        let tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
        let register = wire::register(handle(round), &[(arena, 0, 64), (arena, 64, 64)]);
        let packets = [
            wire::packet(kind::STOP_TM, 1, &tm.handle.to_le_bytes()),
            wire::packet(kind::REGISTER, 2, &register),
            wire::packet(kind::TM_DESCRIPTOR, 3, &tm.handle.to_le_bytes()),
        ];
        let socket = &client.socket;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| packets.iter().for_each(|packet| socket.send(packet, &[]).unwrap()));
            }
        });
        let replies: Vec<Reply> = (0..6).map(|_| reply(socket)).collect();
        let of = |id: u64| replies.iter().filter(move |reply| reply.id == id).map(|reply| -reply.status);
        let outcomes = |id| of(id).map(Errno::from_raw).collect::<Vec<_>>();
        assert_eq!(of(1).next(), Some(0), "{replies:?}");
        assert_eq!(outcomes(1)[1], Errno::ENOENT);
        assert_eq!((of(2).next(), outcomes(2)[1]), (Some(0), Errno::EEXIST));
        assert!(of(3).all(|status| status == 0 || status == Errno::ENOENT as i32));
    }
    assert_eq!(helper.number("/list/0/buffers"), ROUNDS);
}

fn reply(socket: &Socket) -> Reply {
    let (packet, fds) = socket.receive(TIME_LIMIT).unwrap().unwrap();
    Reply::read(&packet, fds).unwrap()
}

/// While one thread registers, operates and deregisters through the ring, another one makes
/// requests on the socket for objects in use: nothing is freed under an operation.
// Covers: MT-236
#[test]
fn requests_beside_the_ring() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client: Client = helper.client("beside");
    let arena = client.arena(1 << 20, false).unwrap().number;
    let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
    let release = wire::packet(kind::RELEASE_ARENA, 1, &wire::arena(arena));
    let stop = wire::packet(kind::STOP_TM, 2, &tm.handle.to_le_bytes());
    client.submit(&Entry::register(handle(0), arena, 0, 4096)).unwrap();
    for cookie in 0..200 {
        // Both requests find the operation in flight: it is in the ring before they are sent.
        let receive = Entry::receive(tm.handle, handle(0), cookie, 1, 1);
        client.operate(&mut tm, &receive).unwrap();
        let socket = &client.socket;
        std::thread::scope(|scope| {
            for packet in [&release, &stop] {
                scope.spawn(move || socket.send(packet, &[]).unwrap());
            }
        });
        for _ in 0..2 {
            assert_eq!(Errno::from_raw(-reply(socket).status), Errno::EBUSY);
        }
        client.submit(&Entry::cancel(tm.handle, handle(0), cookie)).unwrap();
        assert!(cancelled(&client.event(&mut tm).unwrap()));
    }
    work.stop();
}
