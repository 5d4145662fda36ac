//! Hostile peers against a running process that works with others at the same time: the node keeps
//! running, the others' traffic continues without a failure, counters show what happened, and
//! memory and descriptors are bounded and are released.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nlx_testkit::Rng;
use support::peer::{HUNG, PORT, Peer, Stream, Values, address, hung_unless};
use support::{accept, connect, greeting, join, lnet_message, nid4, put, read, write};

/// The number of concurrent handshakes that a node allows for one address.
const HANDSHAKES_PER_ADDRESS: u64 = 64;

/// The number of connections that a node accepts from one address.
const CONNECTIONS_PER_ADDRESS: u64 = 1024;

/// The limit of the memory of one connection: its receive buffer (64 KiB), and the same for
/// everything else.
const CONNECTION_BYTES: u64 = 128 << 10;

/// The memory that tables and the allocator may keep after any attack.
const SLACK_BYTES: u64 = 16 << 20;

/// The portal and match bits of the victim's memory that all peers may use.
const BOARD: (u32, u64) = (30, 77);

/// An attacked node, and another one that works with it.
struct Scene {
    victim: Peer,
    friend: Peer,
    work: Stream,
    before: Values,
    resident: u64,
    sockets: usize,
}

/// The addresses of the attacker and of its victim.
#[derive(Clone, Copy)]
struct Road {
    own: Ipv4Addr,
    to: Ipv4Addr,
}

impl Scene {
    fn new(options: &str) -> (Scene, Road) {
        let mut victim = Peer::start(address(), options);
        let mut friend = Peer::start(address(), "");
        let board = format!("bits={} bytes={}", BOARD.1, 1 << 20);
        victim.ask(0, "board", &board, "posted");
        let work = Stream::start(&mut friend, &mut victim, "lanes=4 size=4096");
        work.advance(&mut friend, 20);
        let road = Road { own: address(), to: victim.addresses[0] };
        let before = victim.counts(0);
        let (resident, sockets) = (victim.resident_bytes(), victim.descriptors("socket:"));
        (Scene { victim, friend, work, before, resident, sockets }, road)
    }

    /// Runs an attack while the friend works.
    #[track_caller]
    fn during<T: Send>(&mut self, attack: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let attack = scope.spawn(attack);
            loop {
                let over = attack.is_finished();
                self.work.advance(&mut self.friend, 5);
                if over {
                    return attack.join().unwrap();
                }
            }
        })
    }

    /// Returns the increase of a counter.
    fn grown(&mut self, counter: &str) -> u64 {
        self.victim.counts(0).number(counter) - self.before.number(counter)
    }

    /// Waits until a counter has increased by exactly this much, while the friend works.
    #[track_caller]
    fn counts(&mut self, counter: &str, wanted: u64) {
        let begun = Instant::now();
        while self.grown(counter) < wanted {
            assert!(
                begun.elapsed() < HUNG,
                "{counter} does not grow by {wanted}: {:?}",
                self.victim.counts(0)
            );
            self.work.advance(&mut self.friend, 1);
        }
        assert_eq!(self.grown(counter), wanted, "{counter}");
    }

    /// Checks that memory is bounded by the limit for this many connections.
    #[track_caller]
    fn bounded(&self, connections: u64) {
        let grown = self.victim.resident_bytes().saturating_sub(self.resident);
        let most = SLACK_BYTES + connections * CONNECTION_BYTES;
        assert!(grown <= most, "{grown} bytes more, and {most} were to be expected at most");
    }

    /// Checks after the attack that the victim has released everything, and that all work has
    /// succeeded.
    #[track_caller]
    fn ends_well(mut self) {
        hung_unless("the attacker's descriptors are given back", || {
            self.victim.answers(&mut self.friend);
            self.victim.descriptors("socket:") == self.sockets
        });
        let done = self.work.stop(&mut self.friend);
        assert_eq!((done.number("failed"), done.number("blank")), (0, 0), "{done:?}");
        let mut newcomer = Peer::start(address(), "");
        self.victim.answers(&mut newcomer);
    }
}

/// Reads until the other side closes or resets the connection; returns whether it did.
fn ends(wire: &mut TcpStream) -> bool {
    wire.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match wire.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Bytes that no LNet node sends as a handshake: each is rejected, and counted.
#[test]
fn handshakes_that_are_none() {
    let (mut scene, road) = Scene::new("");
    let good = greeting(road.own, road.to);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    let table = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        with(4, &9u32.to_le_bytes()),
        with(8, &nid4(road.own).to_le_bytes()),
        with(16, &[0xff; 4]),
        with(20, &99u32.to_le_bytes()),
        with(24, &[0xff; 8]),
        // The victim's NID, and a broadcast address.
        with(24, &nid4(road.to).to_le_bytes()),
        with(24, &nid4(Ipv4Addr::BROADCAST).to_le_bytes()),
        with(64, &7u32.to_le_bytes()),
        // A list of four billion addresses.
        with(68, &[0xff; 4]),
    ];
    scene.during(|| {
        for bytes in &table {
            let mut wire = connect(road.own, road.to, PORT);
            write(&mut wire, bytes);
            assert!(ends(&mut wire), "{bytes:02x?}");
        }
        let mut random = Rng::new(0x5eed);
        for _ in 0..200 {
            let mut wire = connect(road.own, road.to, PORT);
            // It may have been closed before everything was written.
            let _ = wire.write_all(&random.bytes((1, 300)));
            wire.shutdown(std::net::Shutdown::Write).unwrap_or_default();
            assert!(ends(&mut wire));
        }
    });
    scene.counts("refusals", table.len() as u64 + 200);
    assert_eq!(scene.grown("accepts"), 0);
    scene.bounded(0);
    scene.ends_well();
}

/// A violation of the protocol after a handshake closes that peer's connections, and is counted.
#[test]
fn connections_that_turn_into_garbage() {
    let (mut scene, road) = Scene::new("");
    let mut messages = vec![
        lnet_message(road.own, road.to, 1, (1 << 20) + 1, &put(BOARD.0, BOARD.1)),
        lnet_message(road.own, road.to, 3, u32::MAX, &[0; 16]),
        lnet_message(road.own, road.to, 77, 0, &[]),
        // The acknowledgement of a zero-copy request that was never made.
        [&0xc0u32.to_le_bytes()[..], &[0; 12], &555u64.to_le_bytes()].concat(),
    ];
    let mut random = Rng::new(0xbad);
    messages.extend((0..100).map(|_| [&0xffu32.to_le_bytes()[..], &random.bytes((1, 500))].concat()));
    messages.iter_mut().for_each(|message| message.resize(message.len().max(24), 0));
    scene.during(|| {
        for bytes in &messages {
            let mut wire = join(road.own, road.to, PORT);
            let _ = wire.write_all(bytes);
            assert!(ends(&mut wire), "{bytes:02x?}");
        }
    });
    scene.counts("protocol_errors", messages.len() as u64);
    scene.bounded(0);
    scene.ends_well();
}

/// Answers without a request: dropped and counted. The connection remains, since honest peers send
/// such answers when they are too late.
#[test]
fn answers_to_no_client() {
    let (mut scene, road) = Scene::new("");
    scene.during(|| {
        let mut wire = join(road.own, road.to, PORT);
        let mut random = Rng::new(0xacc);
        for number in 0..500 {
            let handle: Vec<u8> = (0..2).flat_map(|_| random.next_u64().to_le_bytes()).collect();
            let (kind, payload) =
                if number % 2 == 0 { (0, Vec::new()) } else { (3, random.bytes((1, 3000))) };
            let mut bytes = lnet_message(road.own, road.to, kind, payload.len() as u32, &handle);
            bytes.extend(payload);
            write(&mut wire, &bytes);
        }
        assert_eq!(read_board(&mut wire, road, 300).len(), 300);
    });
    scene.counts("dropped", 500);
    assert_eq!(scene.grown("protocol_errors"), 0);
    scene.bounded(1);
    scene.ends_well();
}

/// Reads `length` bytes of the victim's board: sends a GET byte by byte, and reads its REPLY.
fn read_board(wire: &mut TcpStream, road: Road, length: u32) -> Vec<u8> {
    wire.set_nodelay(true).unwrap();
    get(road, length).iter().for_each(|byte| write(wire, &[*byte]));
    let header = read(wire, 96);
    assert_eq!(header[24 + 24..24 + 28], 3u32.to_le_bytes(), "a REPLY");
    assert_eq!(header[24 + 28..24 + 32], length.to_le_bytes());
    read(wire, length as usize)
}

/// Returns a GET of the board (lnet-wire 6.2).
fn get(road: Road, length: u32) -> Vec<u8> {
    let mut rest = vec![7; 16];
    rest.extend(BOARD.1.to_le_bytes());
    rest.extend(BOARD.0.to_le_bytes());
    rest.extend([0; 4]);
    rest.extend(length.to_le_bytes());
    lnet_message(road.own, road.to, 2, 0, &rest)
}

/// A handshake and a message are accepted one byte at a time.
#[test]
fn one_byte_at_a_time() {
    let (mut scene, road) = Scene::new("");
    scene.during(|| {
        let mut wire = connect(road.own, road.to, PORT);
        wire.set_nodelay(true).unwrap();
        greeting(road.own, road.to).iter().for_each(|byte| write(&mut wire, &[*byte]));
        read(&mut wire, 56);
        assert!(read_board(&mut wire, road, 1000).iter().all(|byte| *byte == 0));
    });
    scene.counts("accepts", 1);
    scene.ends_well();
}

/// A handshake that stalls at any byte ends after `accept_timeout`, a message after `sock_timeout`.
#[test]
fn what_stalls_is_given_up_in_time() {
    let (mut scene, road) = Scene::new("accept_timeout=1 sock_timeout=1");
    let stalled = HANDSHAKES_PER_ADDRESS / 2;
    scene.during(|| {
        let good = greeting(road.own, road.to);
        let mut wires: Vec<TcpStream> = (0..stalled as usize)
            .map(|number| {
                let mut wire = connect(road.own, road.to, PORT);
                write(&mut wire, &good[..number * good.len() / stalled as usize]);
                wire
            })
            .collect();
        let mut wire = join(road.own, road.to, PORT);
        write(&mut wire, &lnet_message(road.own, road.to, 1, 1 << 20, &put(BOARD.0, BOARD.1)));
        wires.push(wire);
        wires.iter_mut().for_each(|wire| assert!(ends(wire)));
    });
    scene.counts("handshake_timeouts", stalled);
    scene.counts("timeouts", 1);
    scene.ends_well();
}

/// A peer requests a mebibyte ten thousand times and reads nothing: at most 2048 answers wait for
/// it, and after `sock_timeout` its connections are closed.
#[test]
fn a_flood_of_gets_with_unread_replies() {
    let (mut scene, road) = Scene::new("sock_timeout=1");
    let wire = scene.during(|| {
        let mut wire = join(road.own, road.to, PORT);
        let flood: Vec<u8> = (0..10_000).flat_map(|_| get(road, 1 << 20)).collect();
        // It is closed before or after everything is written.
        let _ = wire.write_all(&flood);
        wire
    });
    scene.counts("peers_lost", 1);
    drop(wire);
    assert!(scene.grown("dropped") > 0);
    scene.bounded(1);
    scene.ends_well();
}

/// A host that falls silent after normal operation: it neither reads nor writes nor closes. After
/// `sock_timeout` the messages for it end with an error, and its connections are closed.
#[test]
fn a_host_that_falls_silent() {
    let (mut scene, road) = Scene::new("sock_timeout=1 keepalive=1");
    let wire = scene.during(|| {
        let mut wire = join(road.own, road.to, PORT);
        assert_eq!(read_board(&mut wire, road, 300).len(), 300);
        // More than the buffers of both sockets hold, but fewer than would be dropped.
        (0..64).for_each(|_| write(&mut wire, &get(road, 1 << 20)));
        wire
    });
    scene.counts("timeouts", 1);
    scene.counts("peers_lost", 1);
    assert_eq!(scene.grown("dropped"), 0);
    scene.bounded(1);
    // The host itself still has its end open.
    scene.ends_well();
    drop(wire);
}

/// A host that closes only its direction: between messages, inside one, and with unread answers.
/// The whole connection ends at once, and is not kept for outgoing messages.
#[test]
fn a_host_that_closes_half() {
    let (mut scene, road) = Scene::new("sock_timeout=1");
    let inside = lnet_message(road.own, road.to, 1, 1 << 20, &put(BOARD.0, BOARD.1));
    let unread: Vec<u8> = (0..64).flat_map(|_| get(road, 1 << 20)).collect();
    let (mut lost, mut cut) = (0, 0);
    for (last, whole) in [(vec![], true), (inside[..10].to_vec(), false), (inside, false), (unread, true)] {
        let mut wire = scene.during(|| {
            let mut wire = join(road.own, road.to, PORT);
            assert_eq!(read_board(&mut wire, road, 300).len(), 300);
            write(&mut wire, &last);
            wire.shutdown(std::net::Shutdown::Write).unwrap();
            wire
        });
        lost += 1;
        cut += u64::from(!whole);
        scene.counts("peers_lost", lost);
        assert!(scene.during(|| ends(&mut wire)));
        assert_eq!((scene.grown("protocol_errors"), scene.grown("timeouts")), (cut, 0));
    }
    scene.bounded(1);
    scene.ends_well();
}

/// A node to which the victim sends, and which accepts but never reads: operations end at their
/// timeout.
#[test]
fn a_target_that_never_reads() {
    let (mut scene, road) = Scene::new("sock_timeout=1 transaction_timeout=2 tx_buffer_size=4096");
    let listener = TcpListener::bind((road.own, PORT)).unwrap();
    let job = scene.victim.tell(
        0,
        "stream",
        &format!("to={}@tcp bits=1 bytes={} size=1048576 lanes=16 seed=1", road.own, 64 << 20),
    );
    let (wire, _) = accept(&listener, road.own);
    scene.victim.wait(0, "started", job);
    scene.counts("peers_lost", 1);
    drop(listener);
    scene.victim.tell_job(0, "stop", job, "");
    let done = scene.victim.wait(0, "done", job);
    assert_eq!(done.number("rounds"), 0, "{done:?}");
    assert!(done.number("failed") >= 16, "{done:?}");
    drop(wire);
    // The sixteen buffers of a mebibyte are the victim's.
    scene.bounded(2 * 16 * 8);
    scene.ends_well();
}

/// Ten thousand silent connections from one address: at most 64 are accepted at a time.
#[test]
fn ten_thousand_connections_from_one_address() {
    const COUNT: u64 = 10_000;
    let most = getrlimit(Resource::RLIMIT_NOFILE).unwrap().1;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let (mut scene, road) = Scene::new("accept_timeout=1");
    let sockets = scene.sockets;
    let answered = |scene: &mut Scene| scene.grown("refusals") + scene.grown("handshake_timeouts");
    let mut wires = Vec::new();
    // Fewer at a time than the backlog, because a connection that does not fit there is retried
    // after a second.
    while (wires.len() as u64) < COUNT {
        wires.extend((0..100).map(|_| connect(road.own, road.to, PORT)));
        hung_unless("all but those that are let in are turned away", || {
            scene.work.advance(&mut scene.friend, 1);
            answered(&mut scene) + HANDSHAKES_PER_ADDRESS >= wires.len() as u64
        });
    }
    let open = scene.victim.descriptors("socket:") - sockets;
    assert!(open as u64 <= HANDSHAKES_PER_ADDRESS, "{open} connections");
    scene.bounded(HANDSHAKES_PER_ADDRESS);
    scene.during(|| wires.iter_mut().for_each(|wire| assert!(ends(wire))));
    assert_eq!((answered(&mut scene), scene.grown("accepts")), (COUNT, 0));
    scene.ends_well();
}

/// One address that claims thousands of NIDs: its connections are bounded, and so is their cost.
#[test]
fn a_host_of_many_names() {
    const NAMES: u32 = 1500;
    let (mut scene, road) = Scene::new("");
    let wires = scene.during(|| {
        let mut wires = Vec::new();
        for name in 0..NAMES {
            let claimed = Ipv4Addr::from(0x0a00_0001 + name);
            let mut wire = connect(road.own, road.to, PORT);
            let _ = wire.write_all(&greeting(claimed, road.to));
            if wire.read(&mut [0; 56]).is_ok_and(|count| count > 0) {
                wires.push(wire);
            }
        }
        wires
    });
    assert_eq!(wires.len() as u64, CONNECTIONS_PER_ADDRESS);
    scene.counts("accepts", CONNECTIONS_PER_ADDRESS);
    scene.counts("refusals", u64::from(NAMES) - CONNECTIONS_PER_ADDRESS);
    scene.bounded(CONNECTIONS_PER_ADDRESS);
    drop(wires);
    scene.ends_well();
}

/// Forty NIDs at one address request more than all credits of the NI pay for, and read nothing:
/// they hold their address's share of the credits, and others get their answers all the time,
/// including newcomers.
#[test]
fn a_host_of_many_names_that_does_not_read() {
    const NAMES: u8 = 40;
    const GETS: usize = 32;
    // Blocked messages remain blocked for the whole test.
    let (mut scene, road) = Scene::new("sock_timeout=600 tx_buffer_size=65536");
    let wires: Vec<TcpStream> = scene.during(|| {
        let names = (1..=NAMES).map(|name| Ipv4Addr::new(10, 99, 0, name));
        let flood = |name| {
            let mut wire = connect(road.own, road.to, PORT);
            write(&mut wire, &greeting(name, road.to));
            read(&mut wire, 56);
            let gets: Vec<u8> = (0..GETS).flat_map(|_| get(Road { own: name, ..road }, 1 << 20)).collect();
            write(&mut wire, &gets);
            wire
        };
        names.map(flood).collect()
    });
    let mut newcomer = Peer::start(address(), "");
    for _ in 0..20 {
        scene.victim.answers(&mut newcomer);
        scene.work.advance(&mut scene.friend, 20);
    }
    assert_eq!(scene.grown("peers_lost"), 0, "the attack was on all the while");
    drop(newcomer);
    scene.bounded(u64::from(NAMES));
    drop(wires);
    scene.ends_well();
}

/// A process without free descriptors: connected peers continue, and others can connect once
/// descriptors are free.
#[test]
fn no_descriptors_left() {
    let (mut scene, road) = Scene::new("descriptors=20 accept_timeout=1");
    scene.during(|| {
        let mut wires: Vec<TcpStream> = (0..50).map(|_| connect(road.own, road.to, PORT)).collect();
        wires.iter_mut().for_each(|wire| assert!(ends(wire)));
    });
    scene.counts("handshake_timeouts", 50);
    scene.ends_well();
}

/// Connections that are aborted at once, with a reset, at any byte of the handshake or after it.
#[test]
fn a_storm_of_connections_that_are_aborted() {
    let (mut scene, road) = Scene::new("");
    scene.during(|| {
        let bytes = [greeting(road.own, road.to), get(road, 100)].concat();
        for number in 0..1000 {
            let mut wire = connect(road.own, road.to, PORT);
            let _ = wire.write_all(&bytes[..number % bytes.len()]);
            let _ = socket2::SockRef::from(&wire).set_linger(Some(Duration::ZERO));
        }
    });
    scene.bounded(0);
    scene.ends_well();
}
