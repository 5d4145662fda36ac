//! The completion event of an operation, as it travels through the event queue.

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Address, BufferHandle, Errno, Nid, Pid, TmId};

/// The bits of [`BufferEvent::flags`].
pub struct EventFlags;

impl EventFlags {
    /// The operation's last event: its buffer is free again.
    pub const UNLINKED: u32 = 1;
    /// The sender's fields are valid.
    pub const HAS_SENDER: u32 = 2;
}

/// One event of an operation: 88 bytes of plain numbers in the host's byte order, without a
/// pointer, so that it can lie in memory that two processes have mapped (S-408; Motr's has 120, of
/// which 48 are links). Every bit pattern is a valid value; the methods refuse contradictory
/// fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BufferEvent {
    /// The buffer's handle; use [`BufferEvent::buffer`].
    pub buffer: u64,
    /// The cookie of the operation.
    pub cookie: u64,
    /// Nanoseconds from the start of the operation to the event.
    pub time_ns: u64,
    /// Bytes moved.
    pub length: u64,
    /// Offset of these bytes in the buffer.
    pub offset: u64,
    /// 0 or a negative errno; use [`BufferEvent::status`].
    pub status: i32,
    /// Bits of [`EventFlags`].
    pub flags: u32,
    /// The sender's NID in its 20-byte form; only for unsolicited messages. See
    /// [`BufferEvent::sender`].
    pub sender_nid: [u8; Nid::WIRE_LEN],
    /// The sender's PID.
    pub sender_pid: u32,
    /// The sender's portal.
    pub sender_portal: u32,
    /// The sender's transfer machine id.
    pub sender_tmid: u32,
    /// Event slots that the end of the operation releases: all that it had reserved if this is the
    /// last event, else 0.
    pub released: u32,
    /// Always 0.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<BufferEvent>() == 88);
    assert!(align_of::<BufferEvent>() == 8);
    assert!(offset_of!(BufferEvent, buffer) == 0);
    assert!(offset_of!(BufferEvent, cookie) == 8);
    assert!(offset_of!(BufferEvent, time_ns) == 16);
    assert!(offset_of!(BufferEvent, length) == 24);
    assert!(offset_of!(BufferEvent, offset) == 32);
    assert!(offset_of!(BufferEvent, status) == 40);
    assert!(offset_of!(BufferEvent, flags) == 44);
    assert!(offset_of!(BufferEvent, sender_nid) == 48);
    assert!(offset_of!(BufferEvent, sender_pid) == 68);
    assert!(offset_of!(BufferEvent, sender_portal) == 72);
    assert!(offset_of!(BufferEvent, sender_tmid) == 76);
    assert!(offset_of!(BufferEvent, released) == 80);
    assert!(offset_of!(BufferEvent, reserved) == 84);
};

impl BufferEvent {
    /// An event with every field 0: a success of no bytes that is not the last.
    pub const ZERO: BufferEvent = BufferEvent {
        buffer: 0,
        cookie: 0,
        time_ns: 0,
        length: 0,
        offset: 0,
        status: 0,
        flags: 0,
        sender_nid: [0; Nid::WIRE_LEN],
        sender_pid: 0,
        sender_portal: 0,
        sender_tmid: 0,
        released: 0,
        reserved: 0,
    };

    /// Returns the last event of an operation that failed with this error and had reserved this
    /// number of event slots.
    #[must_use]
    pub fn failed(buffer: BufferHandle, cookie: u64, released: u32, errno: Errno) -> BufferEvent {
        let status = -(errno as i32);
        BufferEvent {
            buffer: buffer.0,
            cookie,
            status,
            flags: EventFlags::UNLINKED,
            released,
            ..BufferEvent::ZERO
        }
    }

    /// Returns the buffer of the operation.
    #[must_use]
    pub const fn buffer(&self) -> BufferHandle {
        BufferHandle(self.buffer)
    }

    /// Returns whether the operation succeeded, as far as this event shows.
    ///
    /// # Errors
    /// The errno of the failure; EIO for one that the system does not know.
    pub fn status(&self) -> Result<(), Errno> {
        match self.status {
            0 => Ok(()),
            status => match Errno::from_raw(status.wrapping_neg()) {
                Errno::UnknownErrno => Err(Errno::EIO),
                errno => Err(errno),
            },
        }
    }

    /// Sets the status: 0 for success, or the negative errno.
    pub fn set_status(&mut self, status: Result<(), Errno>) {
        self.status = status.map_or_else(|errno| -(errno as i32), |()| 0);
    }

    /// Returns whether this is the operation's last event.
    #[must_use]
    pub const fn unlinked(&self) -> bool {
        self.flags & EventFlags::UNLINKED != 0
    }

    /// Returns the sender of the message; `None` for other operations, and for a message without a
    /// sender address that could be answered (MT-245).
    #[must_use]
    pub fn sender(&self) -> Option<Address> {
        if self.flags & EventFlags::HAS_SENDER == 0 {
            return None;
        }
        Some(Address {
            nid: Nid::from_wire(&self.sender_nid).ok().filter(|nid| !nid.is_any())?,
            pid: Pid(self.sender_pid),
            portal: self.sender_portal,
            tmid: TmId::new(self.sender_tmid).ok()?,
        })
    }

    /// Sets the sender of the message, and the flag that the event has one.
    pub fn set_sender(&mut self, sender: &Address) {
        self.flags |= EventFlags::HAS_SENDER;
        self.sender_nid = sender.nid.to_wire();
        self.sender_pid = sender.pid.0;
        self.sender_portal = sender.portal;
        self.sender_tmid = sender.tmid.get();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn status_and_sender_survive_a_round_trip() {
        let sender: Address = "fd00::1@tcp3:12345:31:4095".parse().unwrap();
        let mut event = BufferEvent::ZERO;
        assert_eq!((event.status(), event.sender(), event.unlinked()), (Ok(()), None, false));
        event.set_sender(&sender);
        event.set_status(Err(Errno::ECANCELED));
        event.flags |= EventFlags::UNLINKED;
        assert_eq!((event.status(), event.sender()), (Err(Errno::ECANCELED), Some(sender)));
        assert!(event.unlinked());
    }

    #[test]
    fn an_unknown_errno_is_still_an_error() {
        for status in [i32::MIN, -100_000, 1, i32::MAX] {
            assert_eq!(BufferEvent { status, ..BufferEvent::ZERO }.status(), Err(Errno::EIO));
        }
    }

    proptest! {
        // Covers: MT-220
        #[test]
        fn any_bytes_are_an_event(bytes in prop::collection::vec(any::<u8>(), size_of::<BufferEvent>())) {
            let event = BufferEvent::read_from_bytes(&bytes).unwrap();
            let _ = (event.status(), event.unlinked());
            if let Some(sender) = event.sender() {
                prop_assert_eq!(sender.to_string().parse::<Address>().is_ok(), true);
            }
        }
    }
}
