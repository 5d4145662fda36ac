//! Packets: round trips, truncated, too long, and arbitrary bytes.

use nlx_core::Errno;
use nlx_driver_proto::{Header, Kind, PACKET_MAX, PacketError, Refusal, Reply, Request};
use proptest::prelude::*;

use crate::any;

/// Returns the packet with its real length in the header.
fn retold(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let length = (packet.len() as u32).to_le_bytes();
    if let Some(field) = packet.get_mut(4..8) {
        field.copy_from_slice(&length);
    }
    packet
}

/// Generates a packet of any kind with any body.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![0..12u16, (0..12u16).prop_map(|kind| kind | Header::REPLY), any::<u16>()];
    (kind, any::<u64>(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(kind, id, body)| {
        let header = [&kind.to_le_bytes()[..], &[0; 6], &id.to_le_bytes(), &body].concat();
        retold(&header)
    })
}

/// Generates a packet of zeros with a few other bytes, which is valid more often than arbitrary
/// bytes.
fn sparse_packet() -> impl Strategy<Value = Vec<u8>> {
    (packet(), prop::collection::vec(any::<prop::sample::Index>(), 0..4)).prop_map(|(mut packet, kept)| {
        let kept: Vec<_> = kept.iter().map(|at| at.index(packet.len())).collect();
        for (at, byte) in packet.iter_mut().enumerate().skip(Header::LEN) {
            if !kept.contains(&at) {
                *byte = 0;
            }
        }
        packet
    })
}

proptest! {
    // Covers: MT-214
    #[test]
    fn every_request_survives_a_round_trip(request in any::request(), id: u64) {
        let mut packet = Vec::new();
        request.write(id, &mut packet);
        prop_assert!(packet.len() <= PACKET_MAX);
        prop_assert_eq!(Request::read(&packet), Ok((id, request)));
    }

    // Covers: MT-214
    #[test]
    fn every_reply_survives_a_round_trip((kind, reply) in any::reply(), id: u64) {
        let mut packet = Vec::new();
        reply.write(kind, id, &mut packet);
        prop_assert!(packet.len() <= PACKET_MAX);
        prop_assert_eq!(Reply::read(&packet), Ok((id, reply)));
    }

    /// The errno is ENOTTY, with a right and with a wrong length in the header.
    // Covers: MT-46, MT-232
    #[test]
    fn a_request_of_any_other_length_is_refused(request in any::request(), more in 1..64usize) {
        let mut packet = Vec::new();
        request.write(7, &mut packet);
        let lengths = (0..packet.len()).chain([packet.len() + 1, packet.len() + more]);
        for length in lengths {
            let mut other = packet.clone();
            other.resize(length, 0);
            for other in [retold(&other), other] {
                let error = Request::read(&other).unwrap_err();
                prop_assert_eq!(error.errno(), Errno::ENOTTY, "{}", error);
            }
        }
    }

    #[test]
    fn a_reply_of_any_other_length_is_refused((kind, reply) in any::reply(), more in 1..64usize) {
        let mut packet = Vec::new();
        reply.write(kind, 7, &mut packet);
        let is_list = matches!(reply, Reply::Nids(_));
        for length in (0..packet.len()).chain([packet.len() + 1, packet.len() + more]) {
            let mut other = packet.clone();
            other.resize(length, 0);
            prop_assert_eq!(Reply::read(&other).unwrap_err().errno(), Errno::ENOTTY);
            // A list of NIDs that is shorter or longer by whole NIDs is valid.
            match Reply::read(&retold(&other)) {
                Ok((7, Reply::Nids(_))) if is_list => {}
                other => prop_assert_eq!(other.unwrap_err().errno(), Errno::ENOTTY),
            }
        }
    }

    #[test]
    fn what_a_packet_of_any_bytes_says_is_written_as_it_was(packet in prop_oneof![packet(), sparse_packet()]) {
        let mut again = Vec::new();
        if let Ok((id, request)) = Request::read(&packet) {
            request.write(id, &mut again);
            prop_assert!(again == packet || matches!(request, Request::Hello(_)));
        }
        if let Ok((id, reply)) = Reply::read(&packet) {
            reply.write(Header::peek(&packet).unwrap().kind.get(), id, &mut again);
            prop_assert!(again == packet || matches!(reply, Reply::Refused(_) | Reply::Welcome(_)));
        }
    }

    // Covers: MT-232
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        for bytes in [retold(&bytes), bytes] {
            let results = [Request::read(&bytes).map(drop), Reply::read(&bytes).map(drop)];
            for error in results.into_iter().filter_map(Result::err) {
                prop_assert!(!error.to_string().is_empty());
                prop_assert!(!Refusal::from(&error).to_string().is_empty());
            }
        }
    }

    /// Every packet that cannot be read has an answer, and the answer can be read.
    // Covers: MT-46
    #[test]
    fn a_packet_that_is_none_has_an_answer(packet in packet()) {
        if let Err(error) = Request::read(&packet) {
            let header = Header::peek(&packet).unwrap();
            let refusal = Refusal::from(&error);
            prop_assert_eq!(refusal.errno, error.errno());
            let mut answer = Vec::new();
            Reply::Refused(refusal).write(header.kind.get(), header.id.get(), &mut answer);
            prop_assert_eq!(Reply::read(&answer), Ok((header.id.get(), Reply::Refused(refusal))));
        }
    }
}

#[test]
fn a_packet_longer_than_any_is_refused() {
    let nids = PACKET_MAX / 20 + 1;
    let mut packet = Vec::new();
    Reply::Done.write(Kind::Nids as u16, 1, &mut packet);
    packet.resize(packet.len() + nids * 20, 0);
    let error = Reply::read(&retold(&packet)).unwrap_err();
    assert_eq!(error, PacketError::Length { object: "a packet", bytes: packet.len(), expected: PACKET_MAX });
}

#[test]
fn no_reply_has_more_descriptors_than_there_can_be() {
    let most = Kind::ALL.into_iter().map(Kind::reply_descriptors).max();
    assert_eq!(most, Some(nlx_driver_proto::DESCRIPTORS_MAX));
}
