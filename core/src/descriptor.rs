//! Bulk descriptors: the bytes that describe a passive buffer (motr-transport 4.4).
//!
//! There are two forms, distinguished by their length. [`DescriptorForm::Compatible`] is Motr's,
//! with the checksum taken over little-endian words on every host; [`DescriptorForm::Extended`] is
//! nlx's own, with room for every NID, a version and a CRC (K8). Neither authenticates its holder:
//! every holder of a descriptor can use it, once.

mod compatible;
mod extended;

#[cfg(test)]
mod tests;

use crate::{
    Address, CoreError, MatchBits, MatchCounter, Nid, Pid, Portal, Queue, TmId, match_bits, split_match_bits,
};

/// The content of a descriptor: the address of a passive buffer, its direction and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassiveBuffer {
    /// The transfer machine that owns the buffer.
    pub address: Address,
    /// Match bits of the passive buffer; the transfer machine id in them is that of `address`.
    pub match_bits: MatchBits,
    /// [`Queue::PassiveBulkReceive`] or [`Queue::PassiveBulkSend`].
    pub queue: Queue,
    /// Bytes to send, or bytes that it can receive.
    pub length: u64,
}

/// The form of a descriptor. Both forms are read, independent of which is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DescriptorForm {
    /// 48 bytes as Motr writes and reads them. A NID of more than 8 bytes (IPv6) does not fit and
    /// is described in the extended form: a Motr node could not reach it anyway.
    #[default]
    Compatible,
    /// 56 bytes that only nlx reads: every NID, a version, and a CRC instead of an exclusive or,
    /// which misses two errors in the same bit of two words.
    Extended,
}

/// A passive buffer's descriptor as it travels to the active side: 48 or 56 bytes. Any bytes of
/// these lengths are a `Descriptor`; its users check the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Descriptor {
    form: DescriptorForm,
    /// Bytes behind the end of the form are 0.
    bytes: [u8; Descriptor::MAX_LEN],
}

impl Descriptor {
    /// Bytes of a descriptor in the form compatible with Motr.
    pub const COMPATIBLE_LEN: usize = compatible::LEN;
    /// Bytes of a descriptor in nlx's own form.
    pub const EXTENDED_LEN: usize = extended::LEN;
    /// Bytes of the longest descriptor.
    pub const MAX_LEN: usize = Descriptor::EXTENDED_LEN;

    /// All zero: describes no buffer, and every use is refused.
    pub const NONE: Descriptor =
        Descriptor { form: DescriptorForm::Compatible, bytes: [0; Descriptor::MAX_LEN] };

    /// Encodes the descriptor of a passive buffer, in the form compatible with Motr if its NID
    /// fits.
    ///
    /// # Errors
    /// [`CoreError::DescriptorContent`] (EINVAL) for content that no descriptor may have.
    pub fn encode(passive: &PassiveBuffer) -> Result<Descriptor, CoreError> {
        Descriptor::encode_as(DescriptorForm::Compatible, passive)
    }

    /// Encodes the descriptor of a passive buffer in this form, or in the extended one if its NID
    /// does not fit.
    ///
    /// # Errors
    /// [`CoreError::DescriptorContent`] (EINVAL) for content that no descriptor may have.
    pub fn encode_as(form: DescriptorForm, passive: &PassiveBuffer) -> Result<Descriptor, CoreError> {
        check(passive)?;
        Ok(match (form, passive.address.nid.to_nid4()) {
            (DescriptorForm::Compatible, Some(nid4)) => {
                Descriptor::of(form, &compatible::write(passive, nid4))
            }
            _ => Descriptor::of(DescriptorForm::Extended, &extended::write(passive)),
        })
    }

    /// Returns the descriptor of an operation that a transfer machine starts with this counter;
    /// `None` unless it is passive.
    ///
    /// # Errors
    /// [`CoreError::DescriptorContent`] (EINVAL) for content that no descriptor may have.
    pub fn of_operation(
        form: DescriptorForm,
        address: Address,
        (queue, counter): (Queue, MatchCounter),
        length: u64,
    ) -> Result<Option<Descriptor>, CoreError> {
        if !queue.is_passive() {
            return Ok(None);
        }
        let match_bits = match_bits(address.tmid, counter);
        Descriptor::encode_as(form, &PassiveBuffer { address, match_bits, queue, length }).map(Some)
    }

    /// Creates a descriptor from the bytes of a message.
    ///
    /// # Errors
    /// [`CoreError::DescriptorLength`] (EINVAL) unless there are 48 or 56 bytes (MT-73).
    pub fn from_bytes(bytes: &[u8]) -> Result<Descriptor, CoreError> {
        match bytes.len() {
            Descriptor::COMPATIBLE_LEN => Ok(Descriptor::of(DescriptorForm::Compatible, bytes)),
            Descriptor::EXTENDED_LEN => Ok(Descriptor::of(DescriptorForm::Extended, bytes)),
            length => Err(CoreError::DescriptorLength { length }),
        }
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.form.len()]
    }

    /// Returns whether the descriptor has Motr's form or that of nlx.
    #[must_use]
    pub const fn form(&self) -> DescriptorForm {
        self.form
    }

    /// Decodes the descriptor for a buffer of `capacity` bytes that is to read from the passive
    /// one; the transfer has [`PassiveBuffer::length`] bytes (MT-75).
    ///
    /// # Errors
    /// In this order: EINVAL for a wrong checksum or an unknown version, EPERM if the passive
    /// buffer is itself one that receives, EFBIG if it sends more than `capacity`, EINVAL for
    /// invalid content.
    pub fn for_active_receive(&self, capacity: u64) -> Result<PassiveBuffer, CoreError> {
        self.decode(Queue::ActiveBulkReceive, capacity)
    }

    /// Decodes the descriptor for a buffer that is to write `length` bytes into the passive one
    /// (MT-77).
    ///
    /// # Errors
    /// In this order: EINVAL for a wrong checksum or an unknown version, EPERM if the passive
    /// buffer is itself one that sends, EFBIG if it has less room than `length`, EINVAL for invalid
    /// content.
    pub fn for_active_send(&self, length: u64) -> Result<PassiveBuffer, CoreError> {
        self.decode(Queue::ActiveBulkSend, length)
    }

    fn of(form: DescriptorForm, content: &[u8]) -> Descriptor {
        let mut bytes = [0; Descriptor::MAX_LEN];
        bytes[..content.len()].copy_from_slice(content);
        Descriptor { form, bytes }
    }

    /// Returns the first `LEN` bytes, the length of a form.
    fn first<const LEN: usize>(&self) -> [u8; LEN] {
        const { assert!(LEN <= Descriptor::MAX_LEN) };
        std::array::from_fn(|at| self.bytes[at])
    }

    fn decode(&self, active: Queue, active_length: u64) -> Result<PassiveBuffer, CoreError> {
        let content = match self.form {
            DescriptorForm::Compatible => compatible::read(self.first())?,
            DescriptorForm::Extended => extended::read(self.first())?,
        };
        let queue = pair(content.queue, content.length, active, active_length)?;
        let address = Address {
            nid: content.nid?,
            pid: Pid(content.pid),
            portal: content.portal,
            tmid: TmId::new(content.tmid)
                .map_err(|_| broken("transfer machine id", content.tmid, "1 to 4095"))?,
        };
        let match_bits = MatchBits(content.match_bits);
        let passive = PassiveBuffer { address, match_bits, queue, length: content.length };
        check(&passive)?;
        Ok(passive)
    }
}

impl DescriptorForm {
    /// Returns the length of a descriptor of this form in bytes.
    const fn len(self) -> usize {
        match self {
            DescriptorForm::Compatible => Descriptor::COMPATIBLE_LEN,
            DescriptorForm::Extended => Descriptor::EXTENDED_LEN,
        }
    }
}

/// The fields of a descriptor whose checksum is right, unchecked.
struct Content {
    match_bits: u64,
    /// The NID, or its error, which is reported only after the checks that come before that of the
    /// NID.
    nid: Result<Nid, CoreError>,
    pid: u32,
    portal: u32,
    tmid: u32,
    queue: u32,
    length: u64,
}

/// Returns the passive queue with this value, if it pairs with the active one and the lengths fit.
fn pair(queue: u32, passive_length: u64, active: Queue, active_length: u64) -> Result<Queue, CoreError> {
    let (passive, partner, length, room) = match Queue::from_value(queue) {
        Some(passive @ Queue::PassiveBulkSend) => {
            (passive, Queue::ActiveBulkReceive, passive_length, active_length)
        }
        Some(passive @ Queue::PassiveBulkReceive) => {
            (passive, Queue::ActiveBulkSend, active_length, passive_length)
        }
        _ => return Err(broken("queue", queue, PASSIVE_QUEUES)),
    };
    if active != partner {
        return Err(CoreError::DescriptorDirection { passive, active });
    }
    if length > room {
        return Err(CoreError::DescriptorTooLong { length, room });
    }
    Ok(passive)
}

/// Checks the rules that hold for every descriptor, written or read.
fn check(passive: &PassiveBuffer) -> Result<(), CoreError> {
    let PassiveBuffer { address, match_bits, queue, length } = passive;
    let (tmid, counter) = split_match_bits(*match_bits);
    if address.nid.is_any() {
        return Err(broken("network type", address.nid.net().net_type().0, "that of an interface"));
    }
    // Portal 0 is LNet's own, and there are 64 (motr-transport 5.3).
    if !Portal::new(address.portal).is_ok_and(|portal| portal != Portal::RESERVED) {
        return Err(broken("portal", address.portal, "1 to 63"));
    }
    if counter == MatchCounter::UNSOLICITED {
        return Err(broken("counter in the match bits", counter.get(), "1 or more"));
    }
    if tmid != address.tmid.get() {
        return Err(broken("transfer machine id in the match bits", tmid, "that of the address"));
    }
    if !queue.is_passive() {
        return Err(broken("queue", queue.value(), PASSIVE_QUEUES));
    }
    if *length == 0 {
        return Err(broken("length", *length, "1 or more"));
    }
    Ok(())
}

const PASSIVE_QUEUES: &str = "2 (passive receive) or 3 (passive send)";

fn broken(field: &'static str, value: impl Into<u64>, rule: &'static str) -> CoreError {
    CoreError::DescriptorContent { field, value: value.into(), rule }
}
