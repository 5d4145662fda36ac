//! MT-46, MT-232: a request with any invalid field is refused, nothing has changed, and the client
//! continues.

use nlx_core::{Errno, Pid, StartAddress, TmId};
use nlx_driver_proto::{Header, Hello, Reason, Refusal, Reply, Request, Segment, StartTm};
use nlx_helper::{ClientStatus, Host, ReplyPacket, Session};

use crate::client::{ROOT, ask};
use crate::worlds::{loopback, loopback_client};

/// Returns the host's state, without the counters of requests and refusals.
fn state(host: &Host) -> (Vec<ClientStatus>, nlx_helper::Leftovers) {
    let status = host.status();
    let mut clients = status.clients;
    clients.iter_mut().for_each(|client| client.totals = Default::default());
    (clients, status.leftovers)
}

fn start(portal: u32) -> StartTm {
    let address: StartAddress = "0@lo:12345:40:*".parse().unwrap();
    StartTm { address: StartAddress { portal, ..address }, events_max: 4, lazy: false }
}

fn register(buffer: u64, segments: &[(u32, u64, u64)]) -> Request {
    let segment = |&(arena, offset, length)| Segment { arena, offset, length };
    Request::Register { buffer, segments: segments.iter().map(segment).collect() }
}

/// Each field of each request, with invalid values.
// Covers: MT-232
#[test]
fn every_wrong_field_is_refused_without_a_trace() {
    let (host, mut client) = loopback_client(ROOT);
    let (arena, bytes) = (client.arena(2 << 20).handle, 2 << 20);
    let tm = client.start("0@lo:12345:41:7", 4);
    let taken = 5 << 32 | 3;
    client.done(&register(taken, &[(arena, 0, 8)]));
    let elsewhere = |nid: &str, pid| {
        let address = StartAddress { nid: nid.parse().unwrap(), pid: Pid(pid), ..start(40).address };
        Request::StartTm(StartTm { address, ..start(40) })
    };
    let twice = StartAddress { tmid: Some(TmId::new(7).unwrap()), portal: 41, ..start(40).address };
    let cases = [
        (Request::Hello(Hello::new("again")), Errno::EPROTO, Reason::Order),
        (Request::CreateArena { bytes: 0, huge: false, near: None }, Errno::EBADR, Reason::Malformed),
        (Request::CreateArena { bytes: u64::MAX, huge: true, near: None }, Errno::EBADR, Reason::Malformed),
        (Request::CreateArena { bytes: 1 << 40, huge: false, near: None }, Errno::ENOMEM, Reason::Bytes),
        (Request::ReleaseArena { arena: 0 }, Errno::ENOENT, Reason::NoArena),
        (Request::ReleaseArena { arena: arena + 1 }, Errno::ENOENT, Reason::NoArena),
        (Request::ReleaseArena { arena: u32::MAX }, Errno::ENOENT, Reason::NoArena),
        (register(3, &[(arena, 0, 8)]), Errno::EBADR, Reason::Malformed),
        (register(u64::MAX, &[(arena, 0, 8)]), Errno::EBADR, Reason::Malformed),
        (register(1 << 32 | 0xf_ffff, &[(arena, 0, 8)]), Errno::ENOMEM, Reason::Buffers),
        (register(taken, &[(arena, 0, 8)]), Errno::EEXIST, Reason::BufferExists),
        (register(6 << 32 | 3, &[(arena, 0, 8)]), Errno::EEXIST, Reason::BufferExists),
        (register(1 << 32, &[(arena + 1, 0, 8)]), Errno::ENOENT, Reason::NoArena),
        (register(1 << 32, &[(arena, 0, 0)]), Errno::EBADR, Reason::Malformed),
        (register(1 << 32, &[(arena, bytes, 1)]), Errno::EINVAL, Reason::Segment),
        (register(1 << 32, &[(arena, bytes - 1, 2)]), Errno::EINVAL, Reason::Segment),
        (register(1 << 32, &[(arena, u64::MAX, 2)]), Errno::EBADR, Reason::Malformed),
        (register(1 << 32, &[(arena, 0, 8), (arena, 8, bytes)]), Errno::EINVAL, Reason::Segment),
        (register(1 << 32, &[(arena, 0, 1 + (1 << 20))]), Errno::EFBIG, Reason::Segment),
        (Request::StartTm(start(0)), Errno::EINVAL, Reason::PortalRange),
        (Request::StartTm(start(64)), Errno::EINVAL, Reason::PortalRange),
        (Request::StartTm(start(u32::MAX)), Errno::EINVAL, Reason::PortalRange),
        (elsewhere("1.2.3.4@tcp", 12345), Errno::ENOENT, Reason::NotLocal),
        (elsewhere("0@lo", 12346), Errno::ENOENT, Reason::NotLocal),
        (Request::StartTm(StartTm { events_max: 0, ..start(40) }), Errno::EBADR, Reason::Malformed),
        (Request::StartTm(StartTm { address: twice, ..start(40) }), Errno::EADDRINUSE, Reason::AddressInUse),
        (Request::StopTm { tm: 0 }, Errno::ENOENT, Reason::NoTm),
        (Request::StopTm { tm: tm.handle + 1 }, Errno::ENOENT, Reason::NoTm),
        (Request::StopTm { tm: u64::MAX }, Errno::ENOENT, Reason::NoTm),
        (Request::TmDescriptor { tm: tm.handle ^ 1 << 20 }, Errno::ENOENT, Reason::NoTm),
    ];
    let before = state(&host);
    let count = cases.len() as u64;
    for (request, errno, reason) in cases {
        let Refusal { errno: found, reason: found_reason, .. } = client.refused(&request);
        assert_eq!((found, found_reason), (errno, reason), "{request:?}");
        assert_eq!(state(&host), before, "{request:?}");
        client.done(&Request::Sync);
    }
    let totals = host.status().totals;
    assert_eq!(totals.refused + totals.refused_by_quota + totals.refused_by_policy, count);
    assert_eq!(client.session.check(), Ok(()));
    client.done(&Request::StopTm { tm: tm.handle });
}

/// Every request truncated anywhere, or too long, or with a wrong header.
// Covers: MT-232
#[test]
fn a_packet_of_any_other_length_is_refused_and_one_without_a_header_is_garbage() {
    let (host, mut client) = loopback_client(ROOT);
    let mut answer = ReplyPacket::default();
    let mut packet = Vec::new();
    for request in [
        Request::CreateArena { bytes: 4096, huge: false, near: None },
        Request::ReleaseArena { arena: 1 },
        register(1 << 32, &[(1, 0, 8), (1, 8, 8)]),
        Request::StartTm(start(40)),
        Request::StopTm { tm: 1 },
        Request::Sync,
    ] {
        request.write(9, &mut packet);
        packet.extend([0; 8]);
        let whole = packet.len() - 8;
        for length in (0..=packet.len()).filter(|&length| length != whole) {
            let before = state(&host);
            let outcome = client.session.request(&packet[..length], &mut answer);
            assert_eq!(outcome.is_err(), length < Header::LEN, "{length} bytes of {request:?}");
            if outcome.is_ok() {
                let (id, reply) = Reply::read(&answer.packet).unwrap();
                let Reply::Refused(refusal) = reply else { panic!("{reply:?}") };
                assert_eq!((id, refusal.errno), (9, Errno::ENOTTY));
            }
            assert_eq!(state(&host), before);
        }
    }
}

/// Nothing is accepted before the hello.
// Covers: MT-45, MT-232
#[test]
fn a_hello_comes_first_and_once() {
    let host = loopback();
    let mut session = Session::new(&host, ROOT).unwrap();
    for request in [Request::Sync, Request::Nids, Request::CreateArena { bytes: 1, huge: false, near: None }]
    {
        assert_eq!(ask(&mut session, &request).unwrap_err().reason, Reason::Order);
    }
    assert!(session.doorbell().is_none() && !session.is_welcome() && session.prepare_sleep());
    let hello = Request::Hello(Hello::new("late\u{7}"));
    let (_, fds) = ask(&mut session, &hello).unwrap();
    assert_eq!((fds.len(), session.is_welcome()), (2, true));
    assert_eq!(host.status().clients[0].name, "late?");
    assert_eq!(ask(&mut session, &hello).unwrap_err().reason, Reason::Order);
}
