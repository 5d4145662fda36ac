//! Bulk descriptors (motr-transport 4.4), which peers send in messages of any length.

use nlx_core::{
    Address, CoreError, Descriptor, DescriptorForm, MatchCounter, PassiveBuffer, Queue, match_bits,
};

use super::{Outcome, same};

/// Reads the bytes as they are, and with a recomputed checksum (MT-246), as a malicious peer could
/// write them.
pub(super) fn descriptor(bytes: &[u8]) -> Outcome {
    Outcome::of((used(bytes), used(&mended(bytes))))
}

/// Uses a descriptor in both directions. An accepted descriptor is written back with the same
/// bytes.
fn used(bytes: &[u8]) -> [u64; 3] {
    let descriptor = match Descriptor::from_bytes(bytes) {
        Ok(descriptor) => descriptor,
        Err(error) => return [error_number(bytes, &error), 0, 0],
    };
    same(descriptor.as_bytes(), bytes, "the bytes of a descriptor");
    let length = u64::from(bytes[0]) << 12 | 1;
    let ends = [descriptor.for_active_receive(length), descriptor.for_active_send(length)];
    assert!(ends.iter().any(Result::is_err), "one passive buffer both sends and receives");
    let [receive, send] = ends.map(|end| match end {
        Ok(passive) => {
            let (room, needed) = match passive.queue {
                Queue::PassiveBulkSend => (length, passive.length),
                _ => (passive.length, length),
            };
            assert!(needed <= room, "{needed} bytes into room for {room}");
            let again = Descriptor::encode_as(descriptor.form(), &passive);
            same(again.as_ref(), Ok(&descriptor), "what was read, written again");
            0
        }
        Err(error) => error_number(bytes, &error),
    });
    [1 + bytes.len() as u64, receive, send]
}

/// Returns a number that distinguishes errors: their kind, and for invalid content the field.
fn error_number(bytes: &[u8], error: &CoreError) -> u64 {
    assert!(error.errno() as i32 > 0 && !error.to_string().is_empty(), "{error:?}");
    match error {
        CoreError::DescriptorLength { length } => {
            same(*length, bytes.len(), "the length in the error");
            Outcome::of(length.cmp(&Descriptor::COMPATIBLE_LEN)).kind
        }
        CoreError::DescriptorContent { field, .. } => Outcome::of(field).kind,
        _ => Outcome::of(std::mem::discriminant(error)).kind,
    }
}

/// Returns the same bytes with the checksum recomputed.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let end = bytes.len();
    if end == Descriptor::COMPATIBLE_LEN {
        let (words, _) = bytes[..end - 8].as_chunks::<8>();
        let sum = words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
        bytes[end - 8..].copy_from_slice(&sum.to_le_bytes());
    } else if end == Descriptor::EXTENDED_LEN {
        let sum = crc32fast::hash(&bytes[..end - 4]);
        bytes[end - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let addresses = ["10.0.0.1@tcp:12345:31:7", "192.168.5.4@o2ib2:12345:63:4095", "fd00::1@tcp:12345:1:1"];
    let queues = [Queue::PassiveBulkSend, Queue::PassiveBulkReceive];
    let forms = [DescriptorForm::Compatible, DescriptorForm::Extended];
    let mut seeds = Vec::new();
    for address in addresses.map(|text| text.parse::<Address>().expect("it is an address")) {
        for (queue, form) in queues.into_iter().flat_map(|queue| forms.map(|form| (queue, form))) {
            let match_bits = match_bits(address.tmid, MatchCounter::FIRST);
            let passive = PassiveBuffer { address, match_bits, queue, length: 8192 };
            let descriptor = Descriptor::encode_as(form, &passive).expect("it can be described");
            seeds.push(descriptor.as_bytes().to_vec());
        }
    }
    seeds
}
