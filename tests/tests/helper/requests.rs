//! Requests on the socket: random bytes, and valid requests with each field wrong.

use nix::errno::Errno;
use nlx_testkit::Rng;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Entry, Reply, kind};
use nlx_tests::client::{Arena, Client, TIME_LIMIT, Tm};

use crate::scene::{Helper, Work};

/// Sends a packet, and returns the reply; `None` if the helper closes the connection.
fn answer(socket: &Socket, packet: &[u8]) -> Option<Reply> {
    socket.send(packet, &[]).unwrap();
    match socket.receive(TIME_LIMIT) {
        Ok(Some((packet, fds))) => Some(Reply::read(&packet, fds).unwrap()),
        Ok(None) | Err(Errno::ECONNRESET) => None,
        Err(errno) => panic!("no answer: {errno}"),
    }
}

/// Any bytes, in any pieces, before a hello or after it: each packet is answered, or ends the
/// connection; an honest client is not affected.
// Covers: MT-219, MT-232
#[test]
fn random_bytes() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut random = Rng::new(1);
    for round in 0..200 {
        let welcome = (round % 2 == 0).then(|| helper.client("random"));
        let stranger;
        let socket = match &welcome {
            Some(client) => &client.socket,
            None => {
                stranger = Socket::connect(&helper.socket()).unwrap();
                &stranger
            }
        };
        for _ in 0..20 {
            let body = random.bytes((0, 200));
            let kind = [random.next_u64() as u16, random.below(12) as u16][random.below(2) as usize];
            let packet = if random.below(3) == 0 {
                let mut packet = body;
                packet.push(0);
                packet
            } else {
                wire::packet(kind, random.next_u64(), &body)
            };
            let Some(reply) = answer(socket, &packet) else { break };
            if reply.status == 0 {
                // By chance a valid request: one without a body, or whose body may have many
                // values.
                assert!(welcome.is_some() && packet.len() >= wire::HEADER, "{packet:02x?}: {reply:?}");
            }
        }
    }
    work.advance(1);
    work.stop();
    helper.is_clean();
}

/// A client with one object of each kind: an arena, a buffer in it, and a transfer machine.
struct Outfit {
    client: Client,
    arena: Arena,
    tm: Tm,
}

impl Outfit {
    fn new(helper: &Helper) -> Outfit {
        let mut client = helper.client("outfit");
        let arena = client.arena(1 << 20, false).unwrap();
        let tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
        client.submit(&Entry::register(handle(0), arena.number, 0, 4096)).unwrap();
        client.sync().unwrap();
        Outfit { client, arena, tm }
    }

    /// Checks that the request is refused with one of these errnos, and that nothing has changed.
    #[track_caller]
    fn refused(&mut self, packet: &[u8], errnos: &[Errno]) {
        let reply = answer(&self.client.socket, packet);
        let reply = reply.unwrap_or_else(|| panic!("{packet:02x?} has ended the connection"));
        let errno = Errno::from_raw(-reply.status);
        assert!(reply.status < 0 && errnos.contains(&errno), "{packet:02x?}: {reply:?}, not {errnos:?}");
        assert!(reply.reason != 0 && reply.body.is_empty() && reply.fds.is_empty(), "{reply:?}");
        assert_eq!(reply.id, wire::u64_at(packet, 8));
    }

    /// Checks that a request is refused with some bytes of its body overwritten.
    #[track_caller]
    fn refused_with(&mut self, kind: u16, body: &[u8], at: usize, bytes: &[u8], errnos: &[Errno]) {
        let mut wrong = body.to_vec();
        wrong[at..at + bytes.len()].copy_from_slice(bytes);
        self.refused(&wire::packet(kind, 0x7777, &wrong), errnos);
    }
}

fn four(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn eight(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// A wrong value of a field: its offset in the body, its bytes, and the errno of the refusal.
type Wrong = (usize, Vec<u8>, Errno);

fn wrong_in_create_arena(bytes_max: u64) -> [Wrong; 6] {
    [
        (0, eight(0), Errno::EBADR),
        (0, eight((1 << 40) + 1), Errno::EBADR),
        (0, eight(u64::MAX), Errno::EBADR),
        (0, eight(bytes_max + 1), Errno::ENOMEM),
        (8, four(2), Errno::EBADR),
        (8, four(u32::MAX), Errno::EBADR),
    ]
}

fn wrong_in_release_arena(arena: u32) -> [Wrong; 4] {
    [
        (0, four(arena + 1), Errno::ENOENT),
        (0, four(u32::MAX), Errno::ENOENT),
        (0, four(arena), Errno::EBUSY),
        (4, four(1), Errno::EBADR),
    ]
}

/// The request has two segments in an arena; `places` is the limit of buffers.
fn wrong_in_register(arena: u32, places: u32) -> [Wrong; 17] {
    use Errno::{EBADR, EEXIST, EINVAL, ENOENT, ENOMEM};
    [
        (0, eight(1), EBADR),
        (0, eight(1 << 32 | 1 << 20), EBADR),
        (0, eight(1 << 32 | u64::from(places)), ENOMEM),
        (0, eight(handle(0)), EEXIST),
        (8, four(0), EBADR),
        (8, four(257), EBADR),
        (8, four(u32::MAX), EBADR),
        (12, four(1), EBADR),
        (16, four(arena + 1), ENOENT),
        (20, four(1), EBADR),
        (24, eight(1 << 20), EINVAL),
        (24, eight(1 << 40), EBADR),
        (24, eight(u64::MAX), EBADR),
        (32, eight(0), EBADR),
        (32, eight(u64::MAX), EBADR),
        (48, eight((1 << 20) - 1), EINVAL),
        (56, eight(1 << 39), EINVAL),
    ]
}

fn wrong_in_start_tm() -> [Wrong; 14] {
    use Errno::{EBADR, EINVAL, ENOENT};
    [
        // A size code, a network's type, its number, an address, and bytes that must be 0.
        (0, vec![7], EBADR),
        (1, vec![0xff], EBADR),
        (1, vec![5], ENOENT),
        (3, vec![1], ENOENT),
        (4, vec![9], ENOENT),
        (20, four(1), ENOENT),
        (24, four(0), EINVAL),
        (24, four(64), EINVAL),
        (24, four(u32::MAX), EINVAL),
        (28, four(4096), EBADR),
        (28, four(u32::MAX), EBADR),
        (32, four(0), EBADR),
        (32, four(1 << 20), EBADR),
        (36, four(2), EBADR),
    ]
}

/// Every field of every request is invalid in turn. Each is refused with its errno, nothing
/// changes, and the same request is executed when it is valid.
// Covers: MT-232
#[test]
fn every_field_wrong() {
    let helper = Helper::start();
    let mut outfit = Outfit::new(&helper);
    let before = outfit_of(&helper);
    let (arena, tm) = (outfit.arena.number, outfit.tm.handle);

    let hello = wire::hello("again", wire::VERSION);
    outfit.refused(&wire::packet(kind::HELLO, 2, &hello), &[Errno::EPROTO]);

    let create = wire::create_arena(4096, 0, 0);
    for (at, bytes, errno) in wrong_in_create_arena(outfit.client.arena_bytes_max()) {
        outfit.refused_with(kind::CREATE_ARENA, &create, at, &bytes, &[errno]);
    }
    for (at, bytes, errno) in wrong_in_release_arena(arena) {
        outfit.refused_with(kind::RELEASE_ARENA, &wire::arena(arena), at, &bytes, &[errno]);
    }

    let register = wire::register(handle(1), &[(arena, 0, 64), (arena, 64, 64)]);
    for (at, bytes, errno) in wrong_in_register(arena, outfit.client.limit(52)) {
        outfit.refused_with(kind::REGISTER, &register, at, &bytes, &[errno, Errno::EFBIG]);
    }
    for count in [1, 3, 256] {
        outfit.refused_with(kind::REGISTER, &register, 8, &four(count), &[Errno::ENOTTY]);
    }

    let start = wire::start_tm(helper.nid(), PORTAL + 1, 0, 16, 0);
    for (at, bytes, errno) in wrong_in_start_tm() {
        outfit.refused_with(kind::START_TM, &start, at, &bytes, &[errno]);
    }
    let taken = wire::start_tm(helper.nid(), PORTAL, outfit.tm.address.tmid, 16, 0);
    outfit.refused(&wire::packet(kind::START_TM, 5, &taken), &[Errno::EADDRINUSE]);

    for kind in [kind::STOP_TM, kind::TM_DESCRIPTOR] {
        for wrong in [0, tm + 1, tm ^ 1 << 32, tm ^ 1 << 63, u64::MAX] {
            outfit.refused(&wire::packet(kind, 6, &eight(wrong)), &[Errno::ENOENT]);
        }
    }
    assert_eq!(outfit_of(&helper), before, "something has changed");

    // The same requests succeed when they are valid.
    let right = [
        (kind::CREATE_ARENA, create),
        (kind::CREATE_ARENA, wire::create_arena(4096, 0, u32::MAX)),
        (kind::REGISTER, register),
        (kind::START_TM, start),
        (kind::TM_DESCRIPTOR, eight(tm)),
        (kind::SYNC, Vec::new()),
        (kind::NIDS, Vec::new()),
        (kind::STOP_TM, eight(tm)),
    ];
    for (kind, body) in right {
        outfit.client.call(kind, &body).unwrap_or_else(|errno| panic!("{kind}: {errno}"));
    }
    drop(outfit);
    helper.is_clean();
}

/// Returns the numbers of objects of the helper's only client.
fn outfit_of(helper: &Helper) -> [u64; 4] {
    let number = |name: &str| helper.number(&format!("/list/0/{name}"));
    let tms = helper.status().pointer("/list/0/tms").unwrap().as_array().unwrap().len();
    [tms as u64, number("buffers"), number("arenas"), number("bytes")]
}

/// The fields of every packet: its kind, its flags, its length; and bodies and descriptors that are
/// too long and too short.
// Covers: MT-232
#[test]
fn every_header_wrong() {
    use Errno::{EBADR, ENOTTY};
    let helper = Helper::start();
    let mut outfit = Outfit::new(&helper);
    let tm = outfit.tm.handle;
    let bodies = [
        (kind::HELLO, wire::hello("again", wire::VERSION)),
        (kind::CREATE_ARENA, wire::create_arena(4096, 0, 0)),
        (kind::RELEASE_ARENA, wire::arena(0)),
        (kind::REGISTER, wire::register(handle(1), &[(0, 0, 64), (0, 64, 64)])),
        (kind::START_TM, wire::start_tm(helper.nid(), PORTAL, 0, 16, 0)),
        (kind::STOP_TM, eight(tm)),
        (kind::TM_DESCRIPTOR, eight(tm)),
        (kind::SYNC, Vec::new()),
        (kind::NIDS, Vec::new()),
    ];
    assert_eq!(kind::ALL, bodies.each_ref().map(|(kind, _)| *kind));
    for (kind, body) in &bodies {
        let longer = [body.as_slice(), &[0]].concat();
        // A second hello is refused, whatever it contains.
        outfit.refused(&wire::packet(*kind, 8, &longer), &[ENOTTY, EBADR]);
        if let Some(shorter) = body.len().checked_sub(1) {
            outfit.refused(&wire::packet(*kind, 8, &body[..shorter]), &[ENOTTY, EBADR]);
        }
        let packet = wire::packet(*kind, 9, body);
        for (at, byte, errnos) in
            [(2, 1, &[EBADR][..]), (3, 0x80, &[EBADR]), (4, packet[4] ^ 1, &[ENOTTY]), (6, 1, &[ENOTTY])]
        {
            let mut wrong = packet.clone();
            wrong[at] = byte;
            outfit.refused(&wrong, errnos);
        }
    }
    for unknown in [0, 3, 11, 0x7fff, 0x8001, 0xffff] {
        outfit.refused(&wire::packet(unknown, 10, &[]), &[ENOTTY]);
    }
    outfit.client.sync().unwrap();
    drop(outfit);
    // A packet that cannot be answered ends the connection: too short for a number, or too long to
    // be read whole.
    let short = wire::packet(kind::SYNC, 12, &[])[..wire::HEADER - 1].to_vec();
    for packet in [short, wire::packet(kind::SYNC, 11, &vec![0; wire::PACKET_MAX])] {
        let client = helper.client("header");
        assert!(answer(&client.socket, &packet).is_none());
    }
    helper.is_clean();
}

/// No request is executed before a valid hello.
// Covers: MT-232
#[test]
fn hellos_that_are_none() {
    let helper = Helper::start();
    let hello = wire::hello("hello", wire::VERSION);
    for (at, byte, errno) in [
        (0, b'N', Errno::EBADR),
        (8, wire::VERSION as u8 + 1, Errno::EPROTONOSUPPORT),
        (10, wire::VERSION as u8 - 1, Errno::EPROTONOSUPPORT),
        (12, 1, Errno::EBADR),
        // After the end of the name.
        (24 + 31, 1, Errno::EBADR),
    ] {
        let socket = Socket::connect(&helper.socket()).unwrap();
        let mut wrong = hello.clone();
        wrong[at] = byte;
        let reply = answer(&socket, &wire::packet(kind::HELLO, 1, &wrong)).unwrap();
        assert_eq!(Errno::from_raw(-reply.status), errno, "byte {at}: {reply:?}");
    }
    let socket = Socket::connect(&helper.socket()).unwrap();
    for early in kind::ALL.into_iter().skip(1) {
        let reply = answer(&socket, &wire::packet(early, 1, &[0; 16])).unwrap();
        assert!(reply.status < 0 && reply.fds.is_empty(), "{early}: {reply:?}");
    }
    // It may still send a hello; it may announce future versions.
    let mut newer = hello;
    newer[10] = 9;
    let reply = answer(&socket, &wire::packet(kind::HELLO, 2, &newer)).unwrap();
    assert_eq!((reply.status, reply.fds.len()), (0, 2), "{reply:?}");
}
