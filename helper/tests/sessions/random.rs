//! Packets and entries of random bytes: every call ends, nothing panics, and no other client
//! notices.

use nlx_bev_cqueue::SharedMemory;
use nlx_core::OperationKind;
use nlx_driver_proto::{Entry, Hello, Request, Segment, StartTm, Submission};
use nlx_helper::{ReplyPacket, Session};
use proptest::prelude::*;
use zerocopy::FromBytes;

use crate::client::{Client, ROOT, USER, operation, spoil};
use crate::worlds::loopback;

/// Returns valid packets, to be corrupted.
fn packets() -> Vec<Vec<u8>> {
    let address = "0@lo:12345:40:*".parse().unwrap();
    let segment = Segment { arena: 1 << 16, offset: 0, length: 8 };
    let requests = [
        Request::Hello(Hello::new("spoilt")),
        Request::CreateArena { bytes: 4096, huge: false, near: None },
        Request::ReleaseArena { arena: 1 << 16 },
        Request::Register { buffer: 1 << 32, segments: vec![segment; 2] },
        Request::StartTm(StartTm { address, events_max: 4, lazy: true }),
        Request::StopTm { tm: 1 << 16 },
        Request::TmDescriptor { tm: 1 << 16 },
        Request::Sync,
        Request::Nids,
    ];
    let write = |request: &Request| {
        let mut packet = Vec::new();
        request.write(5, &mut packet);
        packet
    };
    requests.iter().map(write).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Covers: MT-219, MT-232
    #[test]
    fn packets_with_any_bytes_are_answered(
        spoilt in prop::collection::vec((0usize..9, prop::collection::vec((0usize..64, any::<u8>()), 0..4)), 1..40),
    ) {
        let host = loopback();
        let mut session = Session::new(&host, USER).unwrap();
        let (packets, mut answer) = (packets(), ReplyPacket::default());
        session.request(&packets[0], &mut answer).unwrap();
        let _ring = SharedMemory::attach(answer.take_fds().unwrap().remove(0)).unwrap();
        for (which, changes) in spoilt {
            let mut packet = packets[which].clone();
            for (place, byte) in changes {
                let place = place % packet.len();
                packet[place] = byte;
            }
            prop_assert_eq!(session.request(&packet, &mut answer), Ok(()));
            prop_assert!(!answer.packet.is_empty());
        }
        let _ = session.check();
        drop(session);
        prop_assert!(host.status().clients.is_empty() && !host.sweep());
    }

    /// The ring, with corrupted entries and corrupted words of its memory.
    // Covers: MT-219
    #[test]
    fn rings_with_any_bytes_harm_their_client_alone(
        entries in prop::collection::vec((0usize..4, prop::collection::vec((0usize..120, any::<u8>()), 0..3)), 1..30),
        words in prop::collection::vec((0usize..700, any::<[u8; 4]>()), 0..4),
    ) {
        let host = loopback();
        let (mut honest, mut client) = (Client::connect(&host, ROOT), Client::connect(&host, ROOT));
        let (arena, mut tm) = (client.arena(4096).handle, client.start("0@lo:12345:40:*", 4));
        tm.events.provision(4).unwrap();
        let buffer = client.register(0, arena, 0, 64);
        let send = OperationKind::Send { length: 8, to: tm.address };
        let valid = [
            operation(&tm, buffer, send, 0),
            Entry::Cancel { tm: tm.handle, buffer, cookie: 7 },
            Entry::Register { buffer, segment: Segment { arena, offset: 0, length: 8 } },
            Entry::Deregister { buffer },
        ];
        for (which, changes) in entries {
            let mut bytes = zerocopy::IntoBytes::as_bytes(&valid[which].write()).to_vec();
            changes.into_iter().for_each(|(place, byte)| bytes[place] = byte);
            client.ring.push(Submission::read_from_bytes(&bytes).unwrap()).unwrap();
        }
        for (place, word) in words {
            spoil(&client.ring_memory, place * 4, &word);
        }
        for _ in 0..5 {
            if client.drain().is_err() {
                break;
            }
        }
        let _ = client.session.check();
        client.close();
        honest.done(&Request::Sync);
        prop_assert_eq!(host.status().clients.len(), 1);
        prop_assert!(!host.sweep());
    }
}
