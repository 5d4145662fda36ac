//! The bulk descriptor: 48 bytes that name a passive buffer (motr-transport 4.4).
//!
//! The form is Motr's, with the checksum taken over little-endian words on every host. It has no version, no magic and
//! proves no authority: who holds it may use it, once.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Address, CoreError, MatchBits, MatchCounter, Nid, Pid, Portal, Queue, TmId, split_match_bits};

/// Words of eight bytes that the checksum covers: all but itself.
const CHECKED_WORDS: usize = 5;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    match_bits: U64,
    nid: U64,
    pid: U32,
    portal: U32,
    tmid: U32,
    queue: U32,
    length: U64,
    checksum: U64,
}

const _: () = {
    assert!(size_of::<Wire>() == Descriptor::LEN);
    assert!(offset_of!(Wire, match_bits) == 0);
    assert!(offset_of!(Wire, nid) == 8);
    assert!(offset_of!(Wire, pid) == 16);
    assert!(offset_of!(Wire, portal) == 20);
    assert!(offset_of!(Wire, tmid) == 24);
    assert!(offset_of!(Wire, queue) == 28);
    assert!(offset_of!(Wire, length) == 32);
    assert!(offset_of!(Wire, checksum) == 8 * CHECKED_WORDS);
};

/// What a descriptor says: where a passive buffer waits, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassiveBuffer {
    /// The transfer machine that has it.
    pub address: Address,
    /// Its match bits; the transfer machine id in them is that of `address`.
    pub match_bits: MatchBits,
    /// [`Queue::PassiveBulkReceive`] or [`Queue::PassiveBulkSend`].
    pub queue: Queue,
    /// Bytes to send, or bytes there is room for.
    pub length: u64,
}

/// A passive buffer's descriptor as it travels to the active side. Any 48 bytes are a `Descriptor`; what they say is
/// checked where they are used.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Descriptor([u8; Descriptor::LEN]);

impl Descriptor {
    /// Bytes of a descriptor.
    pub const LEN: usize = 48;

    /// All zero: names no buffer, and is refused by whoever is to use it.
    pub const NONE: Descriptor = Descriptor([0; Descriptor::LEN]);

    /// The descriptor of a passive buffer.
    ///
    /// # Errors
    /// [`CoreError::DescriptorNid`] (EAFNOSUPPORT) for a NID of more than 8 bytes, for which the form has no room;
    /// [`CoreError::DescriptorContent`] (EINVAL) for what no descriptor may say.
    pub fn encode(passive: &PassiveBuffer) -> Result<Descriptor, CoreError> {
        check(passive)?;
        let Address { nid, pid, portal, tmid } = passive.address;
        let mut wire = Wire {
            match_bits: passive.match_bits.0.into(),
            nid: nid.to_nid4().ok_or(CoreError::DescriptorNid { nid })?.into(),
            pid: pid.0.into(),
            portal: portal.into(),
            tmid: tmid.get().into(),
            queue: passive.queue.value().into(),
            length: passive.length.into(),
            checksum: U64::ZERO,
        };
        wire.checksum = checksum(&wire).into();
        Ok(zerocopy::transmute!(wire))
    }

    /// A descriptor that came in a message.
    ///
    /// # Errors
    /// [`CoreError::DescriptorLength`] (EINVAL) unless there are 48 bytes (MT-73).
    pub fn from_bytes(bytes: &[u8]) -> Result<Descriptor, CoreError> {
        bytes.try_into().map(Descriptor).map_err(|_| CoreError::DescriptorLength { length: bytes.len() })
    }

    /// The bytes, to be sent.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Descriptor::LEN] {
        &self.0
    }

    /// What it says, for a buffer with room for `capacity` bytes that is to read from the passive one; as many bytes will
    /// come as [`PassiveBuffer::length`] says (MT-75).
    ///
    /// # Errors
    /// In this order: EINVAL for a wrong checksum, EPERM if the passive buffer receives too, EFBIG if it sends more than
    /// there is room for, EINVAL for content that cannot be.
    pub fn for_active_receive(&self, capacity: u64) -> Result<PassiveBuffer, CoreError> {
        self.decode(Queue::ActiveBulkReceive, capacity)
    }

    /// What it says, for a buffer that is to write `length` bytes into the passive one (MT-77).
    ///
    /// # Errors
    /// In this order: EINVAL for a wrong checksum, EPERM if the passive buffer sends too, EFBIG if it has room for less,
    /// EINVAL for content that cannot be.
    pub fn for_active_send(&self, length: u64) -> Result<PassiveBuffer, CoreError> {
        self.decode(Queue::ActiveBulkSend, length)
    }

    fn decode(&self, active: Queue, active_length: u64) -> Result<PassiveBuffer, CoreError> {
        let wire: Wire = zerocopy::transmute!(*self);
        if wire.checksum.get() != checksum(&wire) {
            return Err(CoreError::DescriptorChecksum {
                stored: wire.checksum.get(),
                computed: checksum(&wire),
            });
        }
        let passive_length = wire.length.get();
        let (queue, partner, from, room) = match Queue::from_value(wire.queue.get()) {
            Some(queue @ Queue::PassiveBulkSend) => {
                (queue, Queue::ActiveBulkReceive, passive_length, active_length)
            }
            Some(queue @ Queue::PassiveBulkReceive) => {
                (queue, Queue::ActiveBulkSend, active_length, passive_length)
            }
            _ => {
                return Err(CoreError::DescriptorContent {
                    rule: "its queue is neither passive receive nor passive send",
                });
            }
        };
        if active != partner {
            return Err(CoreError::DescriptorDirection { passive: queue, active });
        }
        if from > room {
            return Err(CoreError::DescriptorTooLong { length: from, room });
        }
        let content = CoreError::DescriptorContent { rule: "its address cannot be" };
        let address = Address {
            nid: Nid::try_from_nid4(wire.nid.get()).map_err(|_| content.clone())?,
            pid: Pid(wire.pid.get()),
            portal: wire.portal.get(),
            tmid: TmId::new(wire.tmid.get()).map_err(|_| content.clone())?,
        };
        let match_bits = MatchBits(wire.match_bits.get());
        let passive = PassiveBuffer { address, match_bits, queue, length: passive_length };
        check(&passive)?;
        Ok(passive)
    }
}

/// What every descriptor must say, whoever wrote it.
fn check(passive: &PassiveBuffer) -> Result<(), CoreError> {
    let (tmid, counter) = split_match_bits(passive.match_bits);
    let broken = [
        (passive.address.nid.is_any(), "its NID is a wildcard"),
        (!is_usable(passive.address.portal), "its portal is not 1 to 63"),
        (counter == MatchCounter::UNSOLICITED, "its match bits name no buffer"),
        (tmid != passive.address.tmid.get(), "its match bits belong to another transfer machine"),
        (!passive.queue.is_passive(), "its queue is neither passive receive nor passive send"),
        (passive.length == 0, "its length is 0"),
    ];
    match broken.into_iter().find(|(is_broken, _)| *is_broken) {
        Some((_, rule)) => Err(CoreError::DescriptorContent { rule }),
        None => Ok(()),
    }
}

/// Portal 0 is LNet's own, and there are 64 (motr-transport 5.3).
fn is_usable(portal: u32) -> bool {
    Portal::new(portal).is_ok_and(|portal| portal != Portal::RESERVED)
}

/// The exclusive or of the words before the checksum.
fn checksum(wire: &Wire) -> u64 {
    let (words, _) = wire.as_bytes().as_chunks::<8>();
    words[..CHECKED_WORDS].iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Errno, match_bits};

    fn passive(queue: Queue, length: u64) -> PassiveBuffer {
        let address: Address = "192.168.1.2@tcp1:12345:31:7".parse().unwrap();
        PassiveBuffer { address, match_bits: match_bits(address.tmid, MatchCounter::FIRST), queue, length }
    }

    fn errno(result: Result<PassiveBuffer, CoreError>) -> Errno {
        result.expect_err("it is refused").errno()
    }

    /// The same descriptor with some bits turned over, and a checksum that fits again.
    fn turned(descriptor: Descriptor, byte: usize, bits: u8) -> Descriptor {
        let mut bytes = descriptor.0;
        bytes[byte] ^= bits;
        bytes[8 * CHECKED_WORDS + byte % 8] ^= bits;
        Descriptor(bytes)
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let buffer = passive(Queue::PassiveBulkSend, 0x1234);
        let bytes = Descriptor::encode(&buffer).unwrap().0;
        let number = |at: usize, length: usize| {
            bytes[at..at + length].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
        };
        assert_eq!(number(0, 8), 7 << 52 | 1);
        assert_eq!(number(8, 8), 0x0002_0001_c0a8_0102);
        assert_eq!((number(16, 4), number(20, 4), number(24, 4), number(28, 4)), (12345, 31, 7, 3));
        assert_eq!(number(32, 8), 0x1234);
        assert_eq!(number(40, 8), (0..5).fold(0, |sum, word| sum ^ number(8 * word, 8)));
    }

    // MT-73
    #[test]
    fn other_lengths_than_48_are_refused() {
        let descriptor = Descriptor::encode(&passive(Queue::PassiveBulkSend, 1)).unwrap();
        assert_eq!(Descriptor::from_bytes(descriptor.as_bytes()), Ok(descriptor));
        for length in [0, 47, 49, 4096] {
            let error = Descriptor::from_bytes(&vec![0; length]).expect_err("no descriptor");
            assert_eq!((&error, error.errno()), (&CoreError::DescriptorLength { length }, Errno::EINVAL));
        }
    }

    // MT-75, MT-76
    #[test]
    fn a_passive_send_is_received_whole_or_not_at_all() {
        let buffer = passive(Queue::PassiveBulkSend, 8192);
        let descriptor = Descriptor::encode(&buffer).unwrap();
        assert_eq!(descriptor.for_active_receive(8192), Ok(buffer));
        assert_eq!(descriptor.for_active_receive(8193), Ok(buffer));
        assert_eq!(errno(descriptor.for_active_receive(8191)), Errno::EFBIG);
        assert_eq!(errno(descriptor.for_active_send(1)), Errno::EPERM);
    }

    // MT-77, MT-78
    #[test]
    fn a_passive_receive_takes_what_fits() {
        let buffer = passive(Queue::PassiveBulkReceive, 8192);
        let descriptor = Descriptor::encode(&buffer).unwrap();
        assert_eq!(descriptor.for_active_send(8192), Ok(buffer));
        assert_eq!(descriptor.for_active_send(1), Ok(buffer));
        assert_eq!(errno(descriptor.for_active_send(8193)), Errno::EFBIG);
        assert_eq!(errno(descriptor.for_active_receive(8192)), Errno::EPERM);
    }

    // MT-76, MT-78: the checksum is looked at first, whatever else is wrong.
    #[test]
    fn every_single_turned_bit_is_noticed() {
        let descriptor = Descriptor::encode(&passive(Queue::PassiveBulkSend, 8192)).unwrap();
        for bit in 0..8 * Descriptor::LEN {
            let mut bytes = descriptor.0;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = Descriptor(bytes).for_active_receive(0).expect_err("it is corrupt");
            assert!(matches!(error, CoreError::DescriptorChecksum { .. }), "bit {bit}: {error}");
            assert_eq!(error.errno(), Errno::EINVAL);
        }
    }

    #[test]
    fn content_that_cannot_be_is_refused_although_the_checksum_fits() {
        let descriptor = Descriptor::encode(&passive(Queue::PassiveBulkSend, 8192)).unwrap();
        let counter_zero = turned(descriptor, 0, 1);
        let other_tmid = turned(descriptor, 24, 1);
        let tmid_zero = turned(descriptor, 24, 7);
        let portal_zero = turned(descriptor, 20, 31);
        let portal_high = turned(descriptor, 21, 1);
        let unknown_queue = turned(descriptor, 28, 4);
        let nid_bits = turned(descriptor, 15, 1);
        let length_zero = turned(descriptor, 33, 0x20);
        for descriptor in [
            Descriptor::NONE,
            counter_zero,
            other_tmid,
            tmid_zero,
            portal_zero,
            portal_high,
            unknown_queue,
            nid_bits,
            length_zero,
        ] {
            assert_eq!(errno(descriptor.for_active_receive(8192)), Errno::EINVAL);
        }
    }

    #[test]
    fn a_nid_that_has_no_room_is_refused() {
        let mut buffer = passive(Queue::PassiveBulkSend, 1);
        buffer.address.nid = "fd00::1@tcp".parse().unwrap();
        let error = Descriptor::encode(&buffer).expect_err("16 bytes do not fit");
        assert_eq!(error.errno(), Errno::EAFNOSUPPORT);
    }

    proptest! {
        // MT-246
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 48), fix: bool, length: u64) {
            let mut descriptor = Descriptor::from_bytes(&bytes).unwrap();
            if fix {
                let wire: Wire = zerocopy::transmute!(descriptor);
                descriptor.0[40..].copy_from_slice(&checksum(&wire).to_le_bytes());
            }
            let decoded = [descriptor.for_active_receive(length), descriptor.for_active_send(length)];
            for passive in decoded.into_iter().flatten() {
                prop_assert_eq!(Descriptor::encode(&passive), Ok(descriptor));
            }
        }

        #[test]
        fn what_is_encoded_is_decoded(
            nid4 in any::<u32>(), pid: u32, portal in 1u32..64, tmid in 1u32..=4095, counter in 1u64..1 << 52, length in 1u64..,
        ) {
            let nid = Nid::from_nid4(0x0002_0000_0000_0000 | u64::from(nid4));
            let address = Address { nid, pid: Pid(pid), portal, tmid: TmId::new(tmid).unwrap() };
            let bits = match_bits(address.tmid, MatchCounter::new(counter).unwrap());
            let passive = PassiveBuffer { address, match_bits: bits, queue: Queue::PassiveBulkSend, length };
            let descriptor = Descriptor::encode(&passive).unwrap();
            prop_assert_eq!(descriptor.for_active_receive(u64::MAX), Ok(passive));
        }
    }
}
