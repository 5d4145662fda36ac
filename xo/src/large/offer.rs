//! Offers: the bytes that name a passive buffer to its peer.

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;

use nlx_core::Descriptor;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Error;
use crate::buffer::PARTS_MAX;

const MAGIC: [u8; 4] = *b"nlxL";
/// The version that is written, and the only one that is accepted.
const VERSION: u8 = 1;

/// A peer's access to a passive buffer: its [`Descriptor`], or those of its parts if it is
/// [large](crate::Buffer). Starting a passive operation returns it
/// ([`Started::offer`](crate::Started::offer)), its bytes travel in a message, and an active
/// operation uses it ([`Op::active_receive`](crate::Op::active_receive),
/// [`Op::active_send`](crate::Op::active_send)). It gives the same authority as a descriptor.
///
/// The offer of a single descriptor has the bytes of that descriptor, 48 or 56, in Motr's form or
/// in nlx's extended one. Several descriptors follow a header of [`Offer::HEADER_LEN`] bytes; the
/// length distinguishes the two cases. The descriptors are ordinary ones: a peer that does not
/// support offers can use each separately. Every part but the last has the same number of bytes.
/// All numbers are little-endian.
///
/// | at | bytes | holds |
/// | --- | --- | --- |
/// | 0 | 4 | `nlxL` |
/// | 4 | 1 | version, 1 |
/// | 5 | 1 | bytes of each descriptor, 48 or 56 |
/// | 6 | 2 | 0 |
/// | 8 | 8 | total bytes |
/// | 16 | 4 | bytes of each part but the last |
/// | 20 | 4 | CRC-32 of the header up to here, followed by the descriptors |
/// | 24 | | the descriptors |
///
/// The offer of part of a buffer ([`Op::length`](crate::Op::length)) has a header too, before its
/// one descriptor.
#[derive(Clone, PartialEq, Eq)]
pub struct Offer(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    Single(Descriptor),
    Parts(Parts),
}

/// Descriptors after a header.
#[derive(Clone, PartialEq, Eq)]
struct Parts {
    /// Header and descriptors, validated. Shared by clones: a transfer keeps its offer.
    bytes: Arc<[u8]>,
    length: u64,
    part_bytes: u32,
    descriptor_bytes: usize,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u8,
    descriptor_bytes: u8,
    zero: U16,
    length: U64,
    part_bytes: U32,
    checksum: U32,
}

const _: () = {
    assert!(size_of::<Header>() == Offer::HEADER_LEN);
    assert!(offset_of!(Header, version) == 4);
    assert!(offset_of!(Header, descriptor_bytes) == 5);
    assert!(offset_of!(Header, zero) == 6);
    assert!(offset_of!(Header, length) == 8);
    assert!(offset_of!(Header, part_bytes) == 16);
    assert!(offset_of!(Header, checksum) == 20);
    // The largest offer fits into a message.
    assert!(Offer::HEADER_LEN + PARTS_MAX * Descriptor::MAX_LEN <= nlx_core::Limits::LNET.buffer_bytes_max);
};

impl Offer {
    /// Length of the header before the descriptors.
    pub const HEADER_LEN: usize = 24;

    /// Maximum number of parts of an offer: those of a buffer of 16 GiB, whose offer still fits
    /// into one message.
    pub const PARTS_MAX: usize = PARTS_MAX;

    /// An offer that names no buffer; an operation that uses it is refused.
    pub const NONE: Offer = Offer(Form::Single(Descriptor::NONE));

    /// Parses an offer from the bytes of a message.
    ///
    /// # Errors
    /// [`Error::Offer`] (EINVAL) for bytes that are not an offer. The content of descriptors is
    /// checked when they are used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Offer, Error> {
        // A header with descriptors never has the length of a descriptor.
        match Descriptor::from_bytes(bytes) {
            Ok(single) => Ok(single.into()),
            Err(_) => Parts::from_bytes(bytes).map(|parts| Offer(Form::Parts(parts))),
        }
    }

    /// Returns the bytes to send to the peer.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Single(descriptor) => descriptor.as_bytes(),
            Form::Parts(parts) => &parts.bytes,
        }
    }

    /// Returns the number of bytes offered for reading or writing; 0 if a single descriptor is
    /// invalid.
    #[must_use]
    pub fn length(&self) -> u64 {
        match &self.0 {
            Form::Single(descriptor) => stated_length(descriptor),
            Form::Parts(parts) => parts.length,
        }
    }

    /// Returns the length of each part but the last; of a single descriptor, the whole length.
    #[must_use]
    pub fn part_bytes(&self) -> u64 {
        match &self.0 {
            Form::Single(descriptor) => stated_length(descriptor),
            Form::Parts(parts) => parts.part_bytes.into(),
        }
    }

    /// Returns the descriptors of the parts, in order.
    pub fn descriptors(&self) -> impl ExactSizeIterator<Item = Descriptor> {
        (0..self.parts()).map(|part| self.descriptor(part))
    }

    /// Returns the number of parts; at least 1.
    #[must_use]
    pub fn parts(&self) -> usize {
        match &self.0 {
            Form::Single(_) => 1,
            Form::Parts(parts) => (parts.bytes.len() - Offer::HEADER_LEN) / parts.descriptor_bytes,
        }
    }

    /// Returns the descriptor of a part; [`Descriptor::NONE`] beyond the last.
    #[must_use]
    pub fn descriptor(&self, part: usize) -> Descriptor {
        match &self.0 {
            Form::Single(descriptor) if part == 0 => *descriptor,
            Form::Single(_) => Descriptor::NONE,
            Form::Parts(parts) => parts.descriptor(part),
        }
    }

    /// Returns the descriptor, if the offer consists of one without a header.
    pub(crate) fn single(&self) -> Option<&Descriptor> {
        match &self.0 {
            Form::Single(descriptor) => Some(descriptor),
            Form::Parts(_) => None,
        }
    }

    /// Returns an upper bound of the bytes of an offer of `length` bytes, in parts of `part_bytes`
    /// (1 MiB over LNet): the room to reserve in a message.
    ///
    /// ```
    /// // An offer of 64 MiB fits into a page.
    /// assert_eq!(nlx::Offer::len_max(64 << 20, 1 << 20), 24 + 64 * 56);
    /// // Parts of 0 bytes do not panic.
    /// assert_eq!(nlx::Offer::len_max(usize::MAX, 0), usize::MAX);
    /// ```
    #[must_use]
    pub const fn len_max(length: usize, part_bytes: usize) -> usize {
        // At least one byte in each part.
        let part_bytes = if part_bytes == 0 { 1 } else { part_bytes };
        Offer::HEADER_LEN.saturating_add(length.div_ceil(part_bytes).saturating_mul(Descriptor::MAX_LEN))
    }

    /// Creates the offer of these parts, whose number follows from the length, 1 to [`PARTS_MAX`].
    /// A part that could not be started has [`Descriptor::NONE`], and an operation that uses the
    /// offer is refused.
    pub(super) fn new(length: u64, part_bytes: u32, descriptors: &[Descriptor]) -> Offer {
        match descriptors {
            [single] if stated_length(single) == length => (*single).into(),
            _ => Offer(Form::Parts(Parts::new(length, part_bytes, descriptors))),
        }
    }
}

/// Returns the bytes of a passive buffer, if its descriptor is valid for either direction; else 0.
fn stated_length(descriptor: &Descriptor) -> u64 {
    let passive = descriptor.for_active_receive(u64::MAX).or_else(|_| descriptor.for_active_send(1));
    passive.map_or(0, |passive| passive.length)
}

impl From<Descriptor> for Offer {
    fn from(descriptor: Descriptor) -> Offer {
        Offer(Form::Single(descriptor))
    }
}

impl From<&Descriptor> for Offer {
    fn from(descriptor: &Descriptor) -> Offer {
        (*descriptor).into()
    }
}

impl From<&Offer> for Offer {
    fn from(offer: &Offer) -> Offer {
        offer.clone()
    }
}

impl Parts {
    fn from_bytes(bytes: &[u8]) -> Result<Parts, Error> {
        let Ok((header, descriptors)) = Header::read_from_prefix(bytes) else {
            return Err(broken("length", bytes.len(), "24 bytes or more"));
        };
        if header.magic != MAGIC {
            return Err(broken("magic", u32::from_be_bytes(header.magic), "that of nlx"));
        }
        if header.checksum != checksum(&header, descriptors) {
            return Err(broken("checksum", header.checksum.get(), "that of its bytes"));
        }
        if header.version != VERSION {
            return Err(broken("version", header.version, "1"));
        }
        if header.zero != 0 {
            return Err(broken("unused field", header.zero.get(), "0"));
        }
        let descriptor_bytes = usize::from(header.descriptor_bytes);
        if ![Descriptor::COMPATIBLE_LEN, Descriptor::EXTENDED_LEN].contains(&descriptor_bytes) {
            return Err(broken("descriptor length", header.descriptor_bytes, "48 or 56"));
        }
        let (length, part_bytes) = (header.length.get(), header.part_bytes.get());
        if part_bytes == 0 {
            return Err(broken("part length", part_bytes, "1 or more"));
        }
        let parts = length.div_ceil(part_bytes.into());
        if parts == 0 || parts > PARTS_MAX as u64 {
            return Err(broken("number of parts", parts, "1 to 16384"));
        }
        if descriptors.len() as u64 != parts * descriptor_bytes as u64 {
            return Err(broken("length", bytes.len(), "that of its header and a descriptor for each part"));
        }
        Ok(Parts { bytes: bytes.into(), length, part_bytes, descriptor_bytes })
    }

    fn descriptor(&self, part: usize) -> Descriptor {
        let bytes = self.bytes[Offer::HEADER_LEN..].chunks_exact(self.descriptor_bytes).nth(part);
        // 48 or 56 bytes: `from_bytes` and `new` have checked this.
        bytes.and_then(|bytes| Descriptor::from_bytes(bytes).ok()).unwrap_or(Descriptor::NONE)
    }

    fn new(length: u64, part_bytes: u32, descriptors: &[Descriptor]) -> Parts {
        // All descriptors of a transfer machine have one form, which depends on its NID;
        // `Descriptor::NONE` is all zero.
        let lengths = descriptors.iter().map(|descriptor| descriptor.as_bytes().len());
        let descriptor_bytes = lengths.max().unwrap_or(Descriptor::COMPATIBLE_LEN);
        let mut bytes = vec![0; Offer::HEADER_LEN + descriptors.len() * descriptor_bytes];
        let (head, targets) = bytes.split_at_mut(Offer::HEADER_LEN);
        for (target, descriptor) in targets.chunks_exact_mut(descriptor_bytes).zip(descriptors) {
            let content = descriptor.as_bytes();
            target[..content.len()].copy_from_slice(content);
        }
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            descriptor_bytes: descriptor_bytes as u8,
            zero: U16::ZERO,
            length: length.into(),
            part_bytes: part_bytes.into(),
            checksum: U32::ZERO,
        };
        header.checksum = checksum(&header, targets);
        head.copy_from_slice(header.as_bytes());
        Parts { bytes: bytes.into(), length, part_bytes, descriptor_bytes }
    }
}

/// Returns the CRC-32 (that of Ethernet) of the header up to the checksum, and of the descriptors.
fn checksum(header: &Header, descriptors: &[u8]) -> U32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header.as_bytes()[..offset_of!(Header, checksum)]);
    hasher.update(descriptors);
    hasher.finalize().into()
}

fn broken(field: &'static str, value: impl TryInto<u64>, rule: &'static str) -> Error {
    Error::Offer { field, value: value.try_into().unwrap_or(u64::MAX), rule }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            _ if *self == Offer::NONE => f.write_str("Offer(NONE)"),
            1 => write!(f, "Offer({} bytes)", self.length()),
            parts => write!(f, "Offer({} bytes in {parts} parts)", self.length()),
        }
    }
}

#[cfg(test)]
mod tests {
    use nlx_core::{DescriptorForm, Errno, MatchBits, PassiveBuffer, Queue};
    use proptest::prelude::*;

    use super::*;

    /// Length in each descriptor: longer than the offers here, so that all of them have a header.
    const LENGTH: u64 = 1 << 30;

    fn descriptor(number: u64, form: DescriptorForm) -> Descriptor {
        let address = "10.0.0.1@tcp:12345:31:7".parse().unwrap();
        let match_bits = MatchBits(7 << 52 | (number + 1));
        let passive = PassiveBuffer { address, match_bits, queue: Queue::PassiveBulkSend, length: LENGTH };
        Descriptor::encode_as(form, &passive).unwrap()
    }

    fn offer(length: u64, part_bytes: u32, form: DescriptorForm) -> Offer {
        let parts = length.div_ceil(part_bytes.into());
        let descriptors: Vec<_> = (0..parts).map(|number| descriptor(number, form)).collect();
        Offer::new(length, part_bytes, &descriptors)
    }

    /// Recomputes the checksum after a change.
    fn reseal(bytes: &mut [u8]) {
        let (header, descriptors) = Header::read_from_prefix(bytes).unwrap();
        let checksum = checksum(&header, descriptors);
        bytes[offset_of!(Header, checksum)..Offer::HEADER_LEN].copy_from_slice(checksum.as_bytes());
    }

    fn form() -> impl Strategy<Value = DescriptorForm> {
        prop_oneof![Just(DescriptorForm::Compatible), Just(DescriptorForm::Extended)]
    }

    proptest! {
        #[test]
        fn what_is_offered_is_read(length in 1u64..100 << 20, part_bytes in 1u32 << 18..1 << 21, form in form()) {
            let offer = offer(length, part_bytes, form);
            let read = Offer::from_bytes(offer.as_bytes()).unwrap();
            prop_assert_eq!(&read, &offer);
            prop_assert_eq!((read.length(), read.part_bytes()), (length, part_bytes.into()));
            for (number, read) in read.descriptors().enumerate() {
                prop_assert_eq!(read, descriptor(number as u64, form));
            }
            prop_assert!(offer.as_bytes().len() <= Offer::len_max(length as usize, part_bytes as usize));
        }

        #[test]
        fn no_bit_of_an_offer_may_change(at in any::<prop::sample::Index>(), bit in 0..8, form in form()) {
            let mut bytes = offer(5 << 20, 1 << 20, form).as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            let error = Offer::from_bytes(&bytes).unwrap_err();
            prop_assert_eq!(error.errno(), Errno::EINVAL);
        }

        // A peer that can compute a checksum can produce only offers whose parts match their
        // descriptors.
        #[test]
        fn hostile_headers_make_no_more_parts_than_there_are(
            mut bytes in prop::collection::vec(any::<u8>(), Offer::HEADER_LEN..400),
            sane in any::<[bool; 4]>(),
            length in 0u64..1000,
            part_bytes in 0u32..100,
        ) {
            bytes[..8].copy_from_slice(b"nlxL\x01\x30\0\0");
            if sane[0] { bytes[5] = 56; }
            if sane[1] { bytes[8..16].copy_from_slice(&length.to_le_bytes()); }
            if sane[2] { bytes[16..20].copy_from_slice(&part_bytes.to_le_bytes()); }
            if sane[3] {
                let parts = (bytes.len() - Offer::HEADER_LEN) / usize::from(bytes[5]);
                bytes.truncate(Offer::HEADER_LEN + parts * usize::from(bytes[5]));
            }
            reseal(&mut bytes);
            if let Ok(offer) = Offer::from_bytes(&bytes)
                && offer.single().is_none()
            {
                let parts = offer.descriptors().len() as u64;
                prop_assert_eq!(parts, offer.length().div_ceil(offer.part_bytes()));
                prop_assert!(parts >= 1);
                prop_assert_eq!(offer.as_bytes(), &bytes[..]);
            }
        }
    }

    #[test]
    fn each_rule_of_the_header_is_held() {
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = offer(3 << 20, 1 << 20, DescriptorForm::Compatible).as_bytes().to_vec();
            change(&mut bytes);
            if bytes.len() >= Offer::HEADER_LEN {
                reseal(&mut bytes);
            }
            match Offer::from_bytes(&bytes) {
                Err(Error::Offer { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&|bytes| bytes.truncate(Offer::HEADER_LEN - 1)), "length");
        assert_eq!(refused(&|bytes| bytes.truncate(Offer::HEADER_LEN)), "length");
        assert_eq!(refused(&|bytes| bytes.push(0)), "length");
        assert_eq!(refused(&|bytes| bytes[0] = b'N'), "magic");
        assert_eq!(refused(&|bytes| bytes[4] = 2), "version");
        assert_eq!(refused(&|bytes| bytes[5] = 49), "descriptor length");
        assert_eq!(refused(&|bytes| bytes[7] = 1), "unused field");
        assert_eq!(refused(&|bytes| bytes[8..16].fill(0)), "number of parts");
        assert_eq!(refused(&|bytes| bytes[8..16].fill(0xFF)), "number of parts");
        assert_eq!(refused(&|bytes| bytes[16..20].fill(0)), "part length");
        assert_eq!(refused(&|bytes| bytes[16..20].copy_from_slice(&[1, 0, 0, 0])), "number of parts");
    }

    #[test]
    fn a_descriptor_that_says_all_is_an_offer() {
        for form in [DescriptorForm::Compatible, DescriptorForm::Extended] {
            let descriptor = descriptor(0, form);
            let offer = Offer::new(LENGTH, 1 << 30, &[descriptor]);
            assert_eq!(offer.as_bytes(), descriptor.as_bytes());
            assert_eq!(Offer::from_bytes(descriptor.as_bytes()).unwrap(), offer);
            assert_eq!((offer.length(), offer.part_bytes(), offer.parts()), (LENGTH, LENGTH, 1));
            assert_eq!((offer.descriptor(0), offer.descriptor(1)), (descriptor, Descriptor::NONE));
            let less = Offer::new(LENGTH - 1, 1 << 30, &[descriptor]);
            assert_eq!(less.as_bytes().len(), Offer::HEADER_LEN + descriptor.as_bytes().len());
        }
        // The content of a descriptor is checked when it is used.
        let nonsense = Offer::from_bytes(&[0xA5; Descriptor::COMPATIBLE_LEN]).unwrap();
        assert_eq!((nonsense.length(), Offer::NONE.length()), (0, 0));
        // An offer with a header never has the length of a descriptor.
        for parts in 1..=PARTS_MAX {
            for (form, other) in [(48, 56), (56, 48)] {
                assert!(![form, other].contains(&(Offer::HEADER_LEN + parts * form)));
            }
        }
    }

    #[test]
    fn an_offer_shows_its_bytes_and_parts() {
        let parts = |length| format!("{:?}", offer(length, 1 << 20, DescriptorForm::Compatible));
        assert_eq!(parts(3 << 20), "Offer(3145728 bytes in 3 parts)");
        assert_eq!(parts(1 << 20), "Offer(1048576 bytes)");
        assert_eq!(format!("{:?}", Offer::NONE), "Offer(NONE)");
    }

    #[test]
    fn a_part_that_was_not_started_has_no_descriptor() {
        let parts = [descriptor(0, DescriptorForm::Extended), Descriptor::NONE];
        let offer = Offer::new(2000, 1000, &parts);
        let read = Offer::from_bytes(offer.as_bytes()).unwrap();
        let [first, second] = [0, 1].map(|at| read.descriptors().nth(at).unwrap());
        assert_eq!(first, parts[0]);
        assert!(second.as_bytes().iter().all(|byte| *byte == 0));
        assert!(second.for_active_receive(1000).is_err());
        assert_eq!(Offer::from_bytes(Offer::new(1, 1, &[Descriptor::NONE]).as_bytes()).unwrap().length(), 1);
    }
}
