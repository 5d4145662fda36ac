//! The error type of the crate and of every transport.

use crate::{ADDRESS_TEXT_MAX, Address, BufferHandle, Errno, Nid, Pid, Portal, Queue, RegionError, TmId};

/// An error of the Core interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The text is longer than any address.
    #[error("the address has {length} bytes: at most {ADDRESS_TEXT_MAX} are allowed")]
    AddressLength {
        /// Length of the text in bytes.
        length: usize,
    },
    /// The text is not an address.
    #[error("\"{text}\" is not nid:pid:portal:tmid: {rule}")]
    AddressText {
        /// The whole text.
        text: String,
        /// The violated rule.
        rule: &'static str,
    },
    /// The NID of an address is invalid.
    #[error("invalid address: {source}")]
    Nid {
        /// The underlying error.
        source: lnet_nid::NidError,
    },
    /// The transfer machine id is out of range.
    #[error("transfer machine id {value} is not 1 to {}", TmId::MAX)]
    TmIdRange {
        /// The number.
        value: u32,
    },
    /// The portal is LNet's own or out of range.
    #[error("portal {portal} is not 1 to {}", Portal::COUNT - 1)]
    PortalRange {
        /// The number that was given.
        portal: u32,
    },
    /// The node does not have this NID, or not with this PID.
    #[error("process {} of {nid} is not on this node", pid.0)]
    NotLocal {
        /// The NID of the requested address.
        nid: Nid,
        /// The process id of the requested address.
        pid: Pid,
    },
    /// A transfer machine with this address is running.
    #[error("transfer machine {address} has already been started")]
    AddressInUse {
        /// The requested address.
        address: Address,
    },
    /// Every transfer machine id is taken.
    #[error("all {} transfer machine ids of {nid}, process {}, portal {portal} are taken", TmId::MAX, pid.0)]
    NoFreeTmId {
        /// The NID of the requested address.
        nid: Nid,
        /// The process id of the requested address.
        pid: Pid,
        /// The portal whose ids are all in use.
        portal: u32,
    },
    /// A descriptor must have 48 or 56 bytes.
    #[error(
        "a descriptor of {length} bytes: it has {} or {}",
        crate::Descriptor::COMPATIBLE_LEN,
        crate::Descriptor::EXTENDED_LEN
    )]
    DescriptorLength {
        /// Length of the descriptor in bytes.
        length: usize,
    },
    /// The descriptor is corrupt.
    #[error("the descriptor is damaged: its checksum is {stored:#x}, that of its content is {computed:#x}")]
    DescriptorChecksum {
        /// The checksum in the descriptor.
        stored: u64,
        /// The checksum of its content.
        computed: u64,
    },
    /// The descriptor has the length of nlx's own form, but not its magic.
    #[error("not a bulk descriptor: its magic is {magic:02x?} instead of {known:02x?}")]
    DescriptorMagic {
        /// The bytes in place of the magic.
        magic: [u8; 3],
        /// The magic of nlx's own form.
        known: [u8; 3],
    },
    /// The descriptor was written by a newer nlx.
    #[error("the descriptor has version {version}: only version {known} is supported")]
    DescriptorVersion {
        /// The version in the descriptor.
        version: u8,
        /// The version that can be read.
        known: u8,
    },
    /// A field of the descriptor is invalid.
    #[error("the descriptor's {field} is {value}: it must be {rule}")]
    DescriptorContent {
        /// The name of the field.
        field: &'static str,
        /// The value found.
        value: u64,
        /// The permitted values.
        rule: &'static str,
    },
    /// The NID of a descriptor is invalid.
    #[error("the descriptor's NID is invalid: {source}")]
    DescriptorNid {
        /// The underlying error.
        source: lnet_nid::NidError,
    },
    /// Both sides would send, or both receive.
    #[error("the descriptor is for {passive}: it cannot be used for {active}")]
    DescriptorDirection {
        /// The kind of operation that the passive buffer accepts.
        passive: Queue,
        /// The operation that was requested with it.
        active: Queue,
    },
    /// The receiving side of a bulk transfer has too little room.
    #[error("{length} bytes do not fit into a buffer of {room} bytes")]
    DescriptorTooLong {
        /// Bytes to be transferred.
        length: u64,
        /// Bytes of the receiving buffer.
        room: u64,
    },
    /// A buffer or a segment of it is too long.
    #[error("the {object} has {bytes} bytes: at most {limit} are allowed")]
    TooLong {
        /// Buffer or segment.
        object: &'static str,
        /// Length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A number of an operation does not fit its buffer.
    #[error("{field} is {value}: it must be 1 to {limit}")]
    Range {
        /// The name of the field.
        field: &'static str,
        /// The value found.
        value: u64,
        /// The largest permitted value.
        limit: u64,
    },
    /// The handle does not name a registered buffer.
    #[error("buffer {:#x} is not registered", buffer.0)]
    NoSuchBuffer {
        /// The handle that was passed.
        buffer: BufferHandle,
    },
    /// The buffer has no operation with this cookie.
    #[error("buffer {:#x} has no operation {cookie:#x} in flight", buffer.0)]
    NoSuchOperation {
        /// The buffer's handle.
        buffer: BufferHandle,
        /// The operation's cookie.
        cookie: u64,
    },
    /// The buffer has an operation in flight.
    #[error("buffer {:#x} is in use by an operation in flight", buffer.0)]
    BufferBusy {
        /// The buffer of the refused call.
        buffer: BufferHandle,
    },
    /// Operations of the transfer machine are in flight, or some of their events have not been
    /// taken.
    #[error("transfer machine {address} is in use: its operations have room reserved for {needed} events")]
    TmBusy {
        /// The transfer machine.
        address: Address,
        /// Event slots still reserved.
        needed: usize,
    },
    /// The transfer machine has been stopped.
    #[error("transfer machine {address} is stopped")]
    Stopped {
        /// The transfer machine.
        address: Address,
    },
    /// A limit on the number of objects is reached.
    #[error("the limit of {limit} {objects} is reached")]
    TooMany {
        /// The kind of objects.
        objects: &'static str,
        /// The largest number of such objects.
        limit: usize,
    },
    /// The transport does not reach the memory of a buffer.
    #[error(
        "a buffer of {bytes} bytes lies in memory that the helper does not share: allocate it from the domain, or register it copying"
    )]
    Foreign {
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// The event queue of a transfer machine is corrupt, because its process has overwritten it;
    /// its events are lost.
    #[error("the event queue of {address} is corrupt: {reason}")]
    QueueCorrupt {
        /// The transfer machine.
        address: Address,
        /// The damage to the queue.
        reason: String,
    },
    /// The connection to the helper is lost, and with it all operations in flight.
    #[error("the connection to the helper at {path} is lost")]
    Disconnected {
        /// Path of its socket.
        path: String,
    },
    /// Memory is invalid or cannot be allocated.
    #[error(transparent)]
    Memory {
        /// The underlying error.
        #[from]
        source: RegionError,
    },
    /// The transport, or the system, refused an action.
    #[error("{action}: {reason}")]
    Transport {
        /// The action that failed.
        action: &'static str,
        /// The error message of the system or of the helper.
        reason: String,
        /// The errno that [`CoreError::errno`] returns.
        errno: Errno,
    },
}

impl CoreError {
    /// Returns the error of a system call that was made for `action`.
    #[must_use]
    pub fn system(action: &'static str, errno: Errno) -> CoreError {
        CoreError::Transport { action, reason: errno.desc().to_string(), errno }
    }

    /// Returns the errno of the error, as Motr has it (motr-transport 2.13).
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            CoreError::AddressLength { .. }
            | CoreError::AddressText { .. }
            | CoreError::Nid { .. }
            | CoreError::TmIdRange { .. }
            | CoreError::PortalRange { .. }
            | CoreError::DescriptorLength { .. }
            | CoreError::DescriptorChecksum { .. }
            | CoreError::DescriptorMagic { .. }
            | CoreError::DescriptorVersion { .. }
            | CoreError::DescriptorContent { .. }
            | CoreError::DescriptorNid { .. }
            | CoreError::Range { .. } => Errno::EINVAL,
            CoreError::NotLocal { .. }
            | CoreError::NoSuchBuffer { .. }
            | CoreError::NoSuchOperation { .. } => Errno::ENOENT,
            CoreError::AddressInUse { .. } => Errno::EADDRINUSE,
            CoreError::NoFreeTmId { .. } => Errno::EADDRNOTAVAIL,
            CoreError::DescriptorDirection { .. } => Errno::EPERM,
            CoreError::DescriptorTooLong { .. } | CoreError::TooLong { .. } => Errno::EFBIG,
            CoreError::BufferBusy { .. } | CoreError::TmBusy { .. } => Errno::EBUSY,
            CoreError::Stopped { .. } => Errno::ESHUTDOWN,
            CoreError::TooMany { .. } => Errno::ENOMEM,
            CoreError::Foreign { .. } => Errno::EFAULT,
            CoreError::QueueCorrupt { .. } => Errno::EIO,
            CoreError::Disconnected { .. } => Errno::ENOTCONN,
            CoreError::Memory { source } => source.errno(),
            CoreError::Transport { errno, .. } => *errno,
        }
    }
}
