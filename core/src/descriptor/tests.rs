//! Both forms: written descriptors are read back, and invalid ones are refused with the errno of
//! the specification.

use proptest::prelude::*;

use super::*;
use crate::{Errno, match_bits};

const FORMS: [DescriptorForm; 2] = [DescriptorForm::Compatible, DescriptorForm::Extended];

fn passive(queue: Queue, length: u64) -> PassiveBuffer {
    let address: Address = "192.168.1.2@tcp1:12345:31:7".parse().unwrap();
    PassiveBuffer { address, match_bits: match_bits(address.tmid, MatchCounter::FIRST), queue, length }
}

fn encode(form: DescriptorForm, passive: &PassiveBuffer) -> Descriptor {
    let descriptor = Descriptor::encode_as(form, passive).unwrap();
    assert_eq!(descriptor.form(), form);
    descriptor
}

fn errno(result: Result<PassiveBuffer, CoreError>) -> Errno {
    result.expect_err("it is refused").errno()
}

/// Returns the descriptor of these bytes with its checksum recomputed.
fn mended(form: DescriptorForm, mut bytes: Vec<u8>) -> Descriptor {
    let end = bytes.len();
    match form {
        DescriptorForm::Compatible => {
            let (words, _) = bytes[..end - 8].as_chunks::<8>();
            let sum = words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
            bytes[end - 8..].copy_from_slice(&sum.to_le_bytes());
        }
        DescriptorForm::Extended => {
            let sum = crc32fast::hash(&bytes[..end - 4]);
            bytes[end - 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    Descriptor::from_bytes(&bytes).unwrap()
}

/// Returns the same descriptor with some bits flipped and its checksum recomputed.
fn turned(descriptor: Descriptor, byte: usize, bits: u8) -> Descriptor {
    let mut bytes = descriptor.as_bytes().to_vec();
    bytes[byte] ^= bits;
    mended(descriptor.form(), bytes)
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
}

// Covers: MT-73, MT-220
#[test]
fn the_bytes_are_those_of_the_table() {
    let descriptor = Descriptor::encode(&passive(Queue::PassiveBulkSend, 0x1234)).unwrap();
    let bytes = descriptor.as_bytes();
    let number = |at, length| number(bytes, at, length);
    assert_eq!(bytes.len(), 48);
    assert_eq!(number(0, 8), 7 << 52 | 1);
    assert_eq!(number(8, 8), 0x0002_0001_c0a8_0102);
    assert_eq!((number(16, 4), number(20, 4), number(24, 4), number(28, 4)), (12345, 31, 7, 3));
    assert_eq!(number(32, 8), 0x1234);
    assert_eq!(number(40, 8), (0..5).fold(0, |sum, word| sum ^ number(8 * word, 8)));
}

#[test]
fn our_own_bytes_stay_as_they_are() {
    let buffer = passive(Queue::PassiveBulkReceive, 0x1234);
    let descriptor = encode(DescriptorForm::Extended, &buffer);
    let bytes = descriptor.as_bytes();
    let number = |at, length| number(bytes, at, length);
    assert_eq!(bytes.len(), 56);
    assert_eq!((number(0, 8), number(8, 8)), (7 << 52 | 1, 0x1234));
    assert_eq!((number(16, 4), number(20, 4), number(24, 2), number(26, 2)), (12345, 31, 7, 2));
    assert_eq!(bytes[28..32], *b"nlx\x01");
    assert_eq!(bytes[32..52], buffer.address.nid.to_wire());
    assert_eq!(number(52, 4), u64::from(crc32fast::hash(&bytes[..52])));
}

// Covers: MT-73, MT-89, X-8
#[test]
fn other_lengths_than_48_and_56_are_refused() {
    for form in FORMS {
        let descriptor = encode(form, &passive(Queue::PassiveBulkSend, 1));
        assert_eq!(Descriptor::from_bytes(descriptor.as_bytes()), Ok(descriptor));
    }
    for length in (0..100).chain([4096]).filter(|length| ![48, 56].contains(length)) {
        let error = Descriptor::from_bytes(&vec![0; length]).expect_err("no descriptor");
        assert_eq!((&error, error.errno()), (&CoreError::DescriptorLength { length }, Errno::EINVAL));
        assert_eq!(error.to_string(), format!("a descriptor of {length} bytes: it has 48 or 56"));
    }
}

// Covers: MT-75, MT-76
#[test]
fn a_passive_send_is_received_whole_or_not_at_all() {
    for form in FORMS {
        let buffer = passive(Queue::PassiveBulkSend, 8192);
        let descriptor = encode(form, &buffer);
        assert_eq!(descriptor.for_active_receive(8192), Ok(buffer));
        assert_eq!(descriptor.for_active_receive(8193), Ok(buffer));
        assert_eq!(errno(descriptor.for_active_receive(8191)), Errno::EFBIG);
        assert_eq!(errno(descriptor.for_active_send(1)), Errno::EPERM);
    }
}

// Covers: MT-77, MT-78
#[test]
fn a_passive_receive_takes_what_fits() {
    for form in FORMS {
        let buffer = passive(Queue::PassiveBulkReceive, 8192);
        let descriptor = encode(form, &buffer);
        assert_eq!(descriptor.for_active_send(8192), Ok(buffer));
        assert_eq!(descriptor.for_active_send(1), Ok(buffer));
        assert_eq!(errno(descriptor.for_active_send(8193)), Errno::EFBIG);
        assert_eq!(errno(descriptor.for_active_receive(8192)), Errno::EPERM);
    }
}

/// The errors come in the order of motr-transport 4.4: direction, size, content.
#[test]
fn of_several_faults_the_first_is_reported() {
    for form in FORMS {
        // The match bits belong to another transfer machine.
        let descriptor = turned(encode(form, &passive(Queue::PassiveBulkSend, 8192)), 7, 0x80);
        assert_eq!(errno(descriptor.for_active_send(0)), Errno::EPERM);
        assert_eq!(errno(descriptor.for_active_receive(8191)), Errno::EFBIG);
        assert_eq!(errno(descriptor.for_active_receive(8192)), Errno::EINVAL);
    }
}

/// The checksum is checked first, independent of other faults.
// Covers: MT-76, MT-78
#[test]
fn every_single_turned_bit_is_noticed() {
    for form in FORMS {
        let descriptor = encode(form, &passive(Queue::PassiveBulkSend, 8192));
        for bit in 0..8 * descriptor.as_bytes().len() {
            let mut bytes = descriptor.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let turned = Descriptor::from_bytes(&bytes).unwrap();
            let error = turned.for_active_receive(0).expect_err("it is corrupt");
            assert!(matches!(error, CoreError::DescriptorChecksum { .. }), "bit {bit}: {error}");
            assert_eq!(error.errno(), Errno::EINVAL);
        }
    }
}

// Covers: MT-78
#[test]
fn content_that_cannot_be_is_refused_although_the_checksum_fits() {
    let compatible = encode(DescriptorForm::Compatible, &passive(Queue::PassiveBulkSend, 8192));
    let extended = encode(DescriptorForm::Extended, &passive(Queue::PassiveBulkSend, 8192));
    let with_nid = |nid: [u8; Nid::WIRE_LEN]| {
        let mut bytes = extended.as_bytes().to_vec();
        bytes[32..52].copy_from_slice(&nid);
        mended(DescriptorForm::Extended, bytes)
    };
    let mut almost_any = [0xff; Nid::WIRE_LEN];
    almost_any[19] = 0;
    for (descriptor, says) in [
        (Descriptor::NONE, "queue is 0"),
        (turned(compatible, 0, 1), "counter in the match bits is 0: it must be 1 or more"),
        (
            turned(compatible, 24, 1),
            "transfer machine id in the match bits is 7: it must be that of the address",
        ),
        (turned(compatible, 24, 7), "transfer machine id is 0: it must be 1 to 4095"),
        (turned(compatible, 20, 31), "portal is 0: it must be 1 to 63"),
        (turned(compatible, 21, 1), "portal is 287"),
        (turned(compatible, 28, 4), "queue is 7: it must be 2"),
        (turned(compatible, 15, 1), "bits set above bit 55"),
        (turned(compatible, 33, 0x20), "length is 0"),
        (turned(extended, 0, 1), "counter in the match bits is 0"),
        (turned(extended, 24, 1), "transfer machine id in the match bits is 7"),
        (turned(extended, 24, 7), "transfer machine id is 0"),
        (turned(extended, 25, 0x10), "transfer machine id is 4103"),
        (turned(extended, 20, 31), "portal is 0"),
        (turned(extended, 27, 1), "queue is 259"),
        (turned(extended, 28, 1), "magic is [6f, 6c, 78] instead of [6e, 6c, 78]"),
        (turned(extended, 31, 3), "version 2: only version 1"),
        (turned(extended, 32, 1), "size code is 1"),
        (turned(extended, 51, 1), "unused byte of a NID is 1: it must be 0"),
        (with_nid([0xff; Nid::WIRE_LEN]), "network type is 255: it must be that of an interface"),
        (with_nid(almost_any), "unused byte of a NID is 0: it must be 255"),
        (turned(extended, 9, 0x20), "length is 0"),
    ] {
        let error = descriptor.for_active_receive(8192).expect_err(says);
        assert!(error.to_string().contains(says), "{error}, not {says}");
        assert_eq!(error.errno(), Errno::EINVAL);
    }
}

#[test]
fn forbidden_messages_are_never_written() {
    let good = passive(Queue::PassiveBulkSend, 1);
    let address = good.address;
    for form in FORMS {
        for broken in [
            PassiveBuffer { address: Address { nid: Nid::ANY, ..address }, ..good },
            PassiveBuffer { address: Address { portal: 0, ..address }, ..good },
            PassiveBuffer { address: Address { portal: 64, ..address }, ..good },
            PassiveBuffer { address: Address { tmid: TmId::MAX, ..address }, ..good },
            PassiveBuffer { match_bits: match_bits(address.tmid, MatchCounter::UNSOLICITED), ..good },
            PassiveBuffer { queue: Queue::ActiveBulkSend, ..good },
            PassiveBuffer { length: 0, ..good },
        ] {
            let error = Descriptor::encode_as(form, &broken).expect_err("it is refused");
            assert_eq!(error.errno(), Errno::EINVAL, "{broken:?}");
        }
    }
}

#[test]
fn a_nid_that_motrs_form_has_no_room_for_is_described_in_ours() {
    let mut buffer = passive(Queue::PassiveBulkSend, 1);
    buffer.address.nid = "fd00::1@tcp".parse().unwrap();
    let descriptor = Descriptor::encode(&buffer).unwrap();
    assert_eq!(descriptor.form(), DescriptorForm::Extended);
    assert_eq!(descriptor.for_active_receive(1), Ok(buffer));
}

/// Generates passive buffers with NIDs of each kind and any address, portal and counter.
fn any_passive() -> impl Strategy<Value = PassiveBuffer> {
    let small = any::<u32>().prop_map(|low| Nid::from_nid4(0x0002_0000_0000_0000 | u64::from(low)));
    let large = (any::<u16>(), any::<u128>())
        .prop_map(|(net, ip)| Nid::new_v6(lnet_nid::Net::new(lnet_nid::NetType::TCP, net), ip.into()));
    let queue = prop_oneof![Just(Queue::PassiveBulkSend), Just(Queue::PassiveBulkReceive)];
    let numbers = (any::<u32>(), 1u32..64, 1u32..=4095, 1u64..1 << 52, 1u64..);
    (prop_oneof![small, large], queue, numbers).prop_map(
        |(nid, queue, (pid, portal, tmid, counter, length))| {
            let address = Address { nid, pid: Pid(pid), portal, tmid: TmId::new(tmid).unwrap() };
            let match_bits = match_bits(address.tmid, MatchCounter::new(counter).unwrap());
            PassiveBuffer { address, match_bits, queue, length }
        },
    )
}

fn decode(descriptor: &Descriptor, queue: Queue) -> Result<PassiveBuffer, CoreError> {
    match queue {
        Queue::PassiveBulkSend => descriptor.for_active_receive(u64::MAX),
        _ => descriptor.for_active_send(1),
    }
}

proptest! {
    // Covers: MT-74, MT-77
    #[test]
    fn what_is_encoded_is_decoded(passive in any_passive(), form in prop::sample::select(&FORMS[..])) {
        let descriptor = Descriptor::encode_as(form, &passive).unwrap();
        let fits = passive.address.nid.is_nid4() && form == DescriptorForm::Compatible;
        prop_assert_eq!(descriptor.form() == DescriptorForm::Compatible, fits);
        prop_assert_eq!(Descriptor::from_bytes(descriptor.as_bytes()), Ok(descriptor));
        prop_assert_eq!(decode(&descriptor, passive.queue), Ok(passive));
    }

    /// A flipped bit of either form is always detected.
    // Covers: MT-246
    #[test]
    fn a_turned_bit_of_any_descriptor_is_noticed(passive in any_passive(), form in prop::sample::select(&FORMS[..]), bit: u16) {
        let descriptor = Descriptor::encode_as(form, &passive).unwrap();
        let mut bytes = descriptor.as_bytes().to_vec();
        let bit = usize::from(bit) % (8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = decode(&Descriptor::from_bytes(&bytes).unwrap(), passive.queue).unwrap_err();
        prop_assert!(matches!(error, CoreError::DescriptorChecksum { .. }), "{}", error);
    }

    /// A descriptor of nlx's own form, cut to the length of Motr's, is refused even if the checksum
    /// of that form fits by chance.
    // Covers: MT-246
    #[test]
    fn a_descriptor_cut_short_is_not_taken_for_another(passive in any_passive()) {
        let descriptor = Descriptor::encode_as(DescriptorForm::Extended, &passive).unwrap();
        let cut = mended(DescriptorForm::Compatible, descriptor.as_bytes()[..48].to_vec());
        for result in [cut.for_active_receive(u64::MAX), cut.for_active_send(1)] {
            let error = result.unwrap_err();
            let queue = matches!(error, CoreError::DescriptorContent { field: "queue", .. });
            prop_assert!(queue, "{}", error);
        }
    }

    // Covers: MT-246
    #[test]
    fn any_bytes_are_decoded_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 56),
        form in prop::sample::select(&FORMS[..]),
        header: bool,
        fix: bool,
        length: u64,
    ) {
        let mut bytes = bytes[..form.len()].to_vec();
        if header && form == DescriptorForm::Extended {
            bytes[28..33].copy_from_slice(b"nlx\x01\x00");
        }
        let descriptor = if fix { mended(form, bytes) } else { Descriptor::from_bytes(&bytes).unwrap() };
        for passive in [descriptor.for_active_receive(length), descriptor.for_active_send(length)].into_iter().flatten() {
            prop_assert_eq!(Descriptor::encode_as(form, &passive), Ok(descriptor));
        }
    }
}
