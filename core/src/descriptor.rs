//! Bulk descriptors: the bytes that name a passive buffer (motr-transport 4.4).
//!
//! There are two forms, told apart by their length. [`DescriptorForm::Compatible`] is Motr's, with the checksum taken over
//! little-endian words on every host; [`DescriptorForm::Extended`] is ours, with room for every NID, a version and a CRC
//! (K8). Neither proves authority: who holds a descriptor may use it, once.

mod compatible;
mod extended;

#[cfg(test)]
mod tests;

use crate::{
    Address, CoreError, MatchBits, MatchCounter, Nid, Pid, Portal, Queue, TmId, match_bits, split_match_bits,
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

/// How a passive buffer is described. Both forms are read, whichever is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DescriptorForm {
    /// 48 bytes as Motr writes and reads them. A NID of more than 8 bytes (IPv6) has no room there and is described in the
    /// extended form: a Motr node could not reach it anyway.
    #[default]
    Compatible,
    /// 56 bytes that only nlx reads: every NID, a version, and a CRC instead of an exclusive or, which misses two errors in
    /// the same bit of two words.
    Extended,
}

/// A passive buffer's descriptor as it travels to the active side: 48 or 56 bytes. Any bytes of these lengths are a
/// `Descriptor`; what they say is checked where they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Descriptor {
    form: DescriptorForm,
    /// Those behind the end of the form are 0.
    bytes: [u8; Descriptor::MAX_LEN],
}

impl Descriptor {
    /// Bytes of a descriptor in the form compatible with Motr.
    pub const COMPATIBLE_LEN: usize = compatible::LEN;
    /// Bytes of a descriptor in our own form.
    pub const EXTENDED_LEN: usize = extended::LEN;
    /// Bytes of the longest descriptor.
    pub const MAX_LEN: usize = Descriptor::EXTENDED_LEN;

    /// All zero: names no buffer, and is refused by whoever is to use it.
    pub const NONE: Descriptor =
        Descriptor { form: DescriptorForm::Compatible, bytes: [0; Descriptor::MAX_LEN] };

    /// The descriptor of a passive buffer, in the form compatible with Motr if its NID fits that.
    ///
    /// # Errors
    /// [`CoreError::DescriptorContent`] (EINVAL) for what no descriptor may say.
    pub fn encode(passive: &PassiveBuffer) -> Result<Descriptor, CoreError> {
        Descriptor::encode_as(DescriptorForm::Compatible, passive)
    }

    /// The descriptor of a passive buffer, in the form that is wanted and has room for its NID.
    ///
    /// # Errors
    /// [`CoreError::DescriptorContent`] (EINVAL) for what no descriptor may say.
    pub fn encode_as(form: DescriptorForm, passive: &PassiveBuffer) -> Result<Descriptor, CoreError> {
        check(passive)?;
        Ok(match (form, passive.address.nid.to_nid4()) {
            (DescriptorForm::Compatible, Some(nid4)) => {
                Descriptor::of(form, &compatible::write(passive, nid4))
            }
            _ => Descriptor::of(DescriptorForm::Extended, &extended::write(passive)),
        })
    }

    /// The descriptor of an operation that a transfer machine starts under this counter; `None` unless it is passive.
    ///
    /// # Errors
    /// [`CoreError::DescriptorContent`] (EINVAL) for what no descriptor may say.
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

    /// A descriptor that came in a message.
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

    /// The bytes, to be sent.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.form.len()]
    }

    /// Its form.
    #[must_use]
    pub const fn form(&self) -> DescriptorForm {
        self.form
    }

    /// What it says, for a buffer with room for `capacity` bytes that is to read from the passive one; as many bytes will
    /// come as [`PassiveBuffer::length`] says (MT-75).
    ///
    /// # Errors
    /// In this order: EINVAL for a wrong checksum or an unknown version, EPERM if the passive buffer receives too, EFBIG if
    /// it sends more than there is room for, EINVAL for content that cannot be.
    pub fn for_active_receive(&self, capacity: u64) -> Result<PassiveBuffer, CoreError> {
        self.decode(Queue::ActiveBulkReceive, capacity)
    }

    /// What it says, for a buffer that is to write `length` bytes into the passive one (MT-77).
    ///
    /// # Errors
    /// In this order: EINVAL for a wrong checksum or an unknown version, EPERM if the passive buffer sends too, EFBIG if it
    /// has room for less, EINVAL for content that cannot be.
    pub fn for_active_send(&self, length: u64) -> Result<PassiveBuffer, CoreError> {
        self.decode(Queue::ActiveBulkSend, length)
    }

    fn of(form: DescriptorForm, content: &[u8]) -> Descriptor {
        let mut bytes = [0; Descriptor::MAX_LEN];
        bytes[..content.len()].copy_from_slice(content);
        Descriptor { form, bytes }
    }

    /// The first bytes, as many as a form has.
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
    /// Bytes of a descriptor of this form.
    const fn len(self) -> usize {
        match self {
            DescriptorForm::Compatible => Descriptor::COMPATIBLE_LEN,
            DescriptorForm::Extended => Descriptor::EXTENDED_LEN,
        }
    }
}

/// What the bytes of a descriptor say, whose checksum is right. Nothing of it has been looked at.
struct Content {
    match_bits: u64,
    /// Refused in its turn.
    nid: Result<Nid, CoreError>,
    pid: u32,
    portal: u32,
    tmid: u32,
    queue: u32,
    length: u64,
}

/// The passive queue with this value, if it is the partner of the active one and the lengths go together.
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

/// What every descriptor must say, whoever wrote it.
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
