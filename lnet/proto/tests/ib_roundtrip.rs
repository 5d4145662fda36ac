//! The RDMA driver's messages: emitting and parsing gives the same value, and invalid bytes are
//! refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::ib::{any_params, any_sample, emit};
use common::{flip, rdma_items};
use lnet_proto::ProtoError;
use lnet_proto::ib::{MESSAGE_MAX, Message, Reject, RejectReason, Version, verify_checksum};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn messages_come_back_in_both_byte_orders(sample in any_sample()) {
        let message = sample.message();
        let mut bytes = emit(&message);
        prop_assert!(bytes.len() <= MESSAGE_MAX);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        let padded = [&bytes[..], &[0; 100]].concat();
        prop_assert_eq!(Message::parse(&padded), Ok(message), "the connection manager pads");
        flip(&mut bytes, &sample.fields());
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        prop_assert_eq!(emit(&Message::parse(&bytes).unwrap()), emit(&message), "little-endian is sent");
    }

    #[test]
    fn a_message_cut_short_is_refused(sample in any_sample()) {
        let bytes = emit(&sample.message());
        for length in 0..bytes.len() {
            let Err(ProtoError::Truncated { length: there, needed, .. }) = Message::parse(&bytes[..length]) else {
                panic!("{length} bytes of {} are no message", bytes.len())
            };
            prop_assert!(there == length && length < needed && needed <= bytes.len());
        }
    }

    #[test]
    fn a_message_that_admits_to_be_short_is_refused(sample in any_sample()) {
        let bytes = emit(&sample.message());
        for nob in (0..bytes.len()).rev().take(300) {
            let mut bytes = bytes.clone();
            bytes[8..12].copy_from_slice(&(nob as u32).to_le_bytes());
            let Err(ProtoError::MessageLength { kind, value, min, .. }) = Message::parse(&bytes) else {
                panic!("{nob} bytes of {} are no message", bytes.len())
            };
            prop_assert!(kind == sample.kind && value == nob && nob < min && min <= bytes.len());
        }
    }

    #[test]
    fn rejections_come_back_in_both_byte_orders(
        v1 in any::<bool>(), reason in 1..=9_u8, stamp in any::<u64>(), params in proptest::option::of(any_params())
    ) {
        let (version, params) = if v1 { (Version::V1, None) } else { (Version::V2, params) };
        let reject = Reject { version, reason: RejectReason::try_from(reason).unwrap(), stamp, params };
        let mut bytes = vec![0; reject.encoded_len()];
        prop_assert_eq!(reject.emit(&mut bytes), Ok(bytes.len()));
        prop_assert_eq!(bytes.len(), if params.is_some() { 24 } else { 16 });
        prop_assert_eq!(Reject::parse(&bytes), Ok(reject));
        for length in 0..16 {
            let parsed = Reject::parse(&bytes[..length]);
            prop_assert!(matches!(parsed, Err(ProtoError::Truncated { .. })), "{:?}", parsed);
        }
        let short = Reject { params: None, ..reject };
        for length in 16..bytes.len() {
            prop_assert_eq!(Reject::parse(&bytes[..length]), Ok(short), "lnet-wire 33: shorter than 24 bytes");
        }
        let fields = [4, 2, 1, 1, 8, 2, 2, 4];
        flip(&mut bytes, if params.is_some() { &fields } else { &fields[..5] });
        prop_assert_eq!(Reject::parse(&bytes), Ok(reject));
    }

    #[test]
    fn bytes_of_any_kind_are_parsed_or_refused(bytes in vec(any::<u8>(), 0..300), kind in any::<u8>(), nob in any::<u16>()) {
        let _ = (Message::parse(&bytes), Reject::parse(&bytes), verify_checksum(&bytes));
        // The bytes are also parsed behind a valid start.
        let mut bytes = [&[0x91, 0x1b, 0xe9, 0x0b, 0x12, 0, kind, 0][..], &bytes].concat();
        let _ = (Message::parse(&bytes), Reject::parse(&bytes), verify_checksum(&bytes));
        if bytes.len() > 12 {
            bytes[8..12].copy_from_slice(&u32::from(nob).to_le_bytes());
            let _ = (Message::parse(&bytes), verify_checksum(&bytes));
        }
    }

    #[test]
    fn mutated_recordings_are_parsed_or_refused(at in any::<prop::sample::Index>(), patch in vec(any::<u8>(), 1..9)) {
        for item in rdma_items() {
            let mut bytes = item.bytes;
            let at = at.index(bytes.len());
            for (slot, byte) in bytes[at..].iter_mut().zip(&patch) {
                *slot = *byte;
            }
            if let Ok(message) = Message::parse(&bytes) {
                let again = emit(&message);
                prop_assert_eq!(Message::parse(&again), Ok(message));
            }
        }
    }
}
