//! Messages with descriptors between `nlxd`, the porter and its carriers.

use std::io::{IoSlice, IoSliceMut};
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use lnet_api::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};

/// Descriptors that the kernel lets one packet carry. A smaller control buffer would make the kernel close the others.
pub(super) const DESCRIPTORS_ROOM: usize = 253;

/// Bytes of the control message that carries them.
const CONTROL_LEN: usize = {
    // SAFETY: it computes a length, and reads nothing.
    unsafe { libc::CMSG_SPACE((DESCRIPTORS_ROOM * size_of::<RawFd>()) as u32) as usize }
};

/// The alignment that the kernel expects.
#[repr(C, align(16))]
struct Control([u8; CONTROL_LEN]);

/// Bytes of a message.
const LEN: usize = 32;

/// A message. `client` is `nlxd`'s number of a connection, `user` the user that it counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::driver) enum Message {
    /// To the porter, with a socket: another channel, for a service thread.
    Channel,
    /// To the porter, with the listening socket: keep it. `own`: nobody else has it, so that it ends with `nlxd`.
    Listener { own: bool },
    /// To the porter, with a client's socket: keep it.
    Keep { client: u64 },
    /// To the porter: accept up to `count` clients, and number them from `first` on.
    Accept { first: u64, count: u32 },
    /// To the porter: receive the next packet of this client with its descriptors.
    Adopt { client: u64, user: u32, token: u64 },
    /// To the porter: `nlxd` has closed this client's socket.
    Drop { client: u64, user: u32 },
    /// To `nlxd`, with the client's socket.
    Accepted { client: u64, user: u32 },
    /// To `nlxd`: no more clients for this `Accept`; 0 or why.
    AcceptEnd { errno: i32 },
    /// To `nlxd`: the packet that `Adopt` asked for had `count` descriptors. With the memory if that was an arena's, else
    /// `errno` says why not.
    Adopted { token: u64, count: u32, errno: i32 },
    /// To `nlxd`: the client's socket and all that was in it are closed.
    Gone { client: u64 },
    /// To a carrier, with the client's socket and the channel to answer on: receive the next packet.
    Receive { token: u64 },
    /// To a carrier, with sockets: close them once `Go` has come.
    Close,
    /// To a carrier: the porter has closed its own descriptors of the sockets.
    Go,
    /// From a carrier: it has nothing of a client any more.
    Ready,
}

impl Message {
    fn to_bytes(self) -> [u8; LEN] {
        let (kind, word, first, second, third): (u32, u32, u64, u64, u64) = match self {
            Message::Channel => (1, 0, 0, 0, 0),
            Message::Listener { own } => (2, own.into(), 0, 0, 0),
            Message::Keep { client } => (3, 0, client, 0, 0),
            Message::Accept { first, count } => (4, count, first, 0, 0),
            Message::Adopt { client, user, token } => (5, user, client, token, 0),
            Message::Drop { client, user } => (6, user, client, 0, 0),
            Message::Accepted { client, user } => (7, user, client, 0, 0),
            Message::AcceptEnd { errno } => (8, errno.cast_unsigned(), 0, 0, 0),
            Message::Adopted { token, count, errno } => (9, errno.cast_unsigned(), token, count.into(), 0),
            Message::Gone { client } => (10, 0, client, 0, 0),
            Message::Receive { token } => (11, 0, token, 0, 0),
            Message::Close => (12, 0, 0, 0, 0),
            Message::Go => (13, 0, 0, 0, 0),
            Message::Ready => (14, 0, 0, 0, 0),
        };
        let mut bytes = [0; LEN];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&word.to_le_bytes());
        for (at, value) in [(8, first), (16, second), (24, third)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; LEN]) -> Option<Message> {
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let (word, first, second) = (half(4), long(8), long(16));
        Some(match half(0) {
            1 => Message::Channel,
            2 => Message::Listener { own: word != 0 },
            3 => Message::Keep { client: first },
            4 => Message::Accept { first, count: word },
            5 => Message::Adopt { client: first, user: word, token: second },
            6 => Message::Drop { client: first, user: word },
            7 => Message::Accepted { client: first, user: word },
            8 => Message::AcceptEnd { errno: word.cast_signed() },
            9 => Message::Adopted { token: first, count: second as u32, errno: word.cast_signed() },
            10 => Message::Gone { client: first },
            11 => Message::Receive { token: first },
            12 => Message::Close,
            13 => Message::Go,
            14 => Message::Ready,
            _ => return None,
        })
    }
}

/// The two ends of a channel.
///
/// # Errors
/// The system's, without descriptors.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends a message with descriptors, at most [`DESCRIPTORS_ROOM`]. Blocks only without `MSG_DONTWAIT`.
///
/// # Errors
/// EAGAIN without room, ETOOMANYREFS, EPIPE or ECONNRESET if the other end is closed.
pub(in crate::driver) fn send(
    channel: BorrowedFd<'_>,
    message: Message,
    fds: &[BorrowedFd<'_>],
    flags: MsgFlags,
) -> Result<(), Errno> {
    let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    let bytes = message.to_bytes();
    loop {
        let sent = sendmsg::<()>(
            channel.as_raw_fd(),
            &[IoSlice::new(&bytes)],
            control,
            flags | MsgFlags::MSG_NOSIGNAL,
            None,
        );
        if sent != Err(Errno::EINTR) {
            return sent.map(drop);
        }
    }
}

/// Receives the next message with its descriptors. `None`: the other end is closed.
///
/// # Errors
/// EAGAIN if there is none and the flags have `MSG_DONTWAIT`; EPROTO for bytes that are no message.
pub(in crate::driver) fn receive(
    channel: BorrowedFd<'_>,
    flags: MsgFlags,
) -> Result<Option<(Message, Vec<OwnedFd>)>, Errno> {
    let mut bytes = [0; LEN];
    let received = loop {
        match receive_packet(channel, &mut bytes, flags) {
            Err(Errno::EINTR) => {}
            other => break other,
        }
    };
    match received {
        Ok((0, _)) | Err(Errno::ECONNRESET) => Ok(None),
        Ok((LEN, fds)) => {
            let message = Message::from_bytes(&bytes).ok_or(Errno::EPROTO)?;
            Ok(Some((message, fds)))
        }
        Ok(_) => Err(Errno::EPROTO),
        Err(errno) => Err(errno),
    }
}

/// Receives a packet, or its first bytes, and all descriptors that came with it. Only for a process that may own them.
pub(super) fn receive_packet(
    socket: BorrowedFd<'_>,
    packet: &mut [u8],
    flags: MsgFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut bytes = IoSliceMut::new(packet);
    let mut control = Control([0; CONTROL_LEN]);
    // SAFETY: a msghdr of zeros is one without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw mut bytes).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // The width differs between libcs.
    message.msg_controllen = CONTROL_LEN as _;
    let flags = flags.bits() | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message names the packet's bytes and the control buffer, both of this length and borrowed for the call; an
    // IoSliceMut is an iovec.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let length = Errno::result(length)?;
    // Not negative, or it would be an error.
    Ok((length as usize, descriptors(&message)))
}

/// The descriptors that came with a message, owned from here on.
fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the kernel has filled the message's control buffer, which is still borrowed by it, and has set its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: a header that is not null lies whole in the control buffer.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: it computes a length, and reads nothing.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            let length: usize = header.cmsg_len as _;
            let count = length.saturating_sub(before) / size_of::<RawFd>();
            // SAFETY: the data of a header lies behind it in the control buffer.
            let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
            for index in 0..count {
                // SAFETY: the kernel has written `count` descriptors there, new ones of this process that nothing else knows.
                all.push(unsafe { OwnedFd::from_raw_fd(data.add(index).read_unaligned()) });
            }
        }
        // SAFETY: as for the first one.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let (ours, theirs) = pair().unwrap();
        for message in [
            Message::Channel,
            Message::Listener { own: true },
            Message::Listener { own: false },
            Message::Keep { client: u64::MAX },
            Message::Accept { first: 1 << 40, count: 16 },
            Message::Adopt { client: 3, user: u32::MAX, token: 1 << 63 | 5 },
            Message::Drop { client: 3, user: 1000 },
            Message::Accepted { client: 9, user: 7 },
            Message::AcceptEnd { errno: Errno::EMFILE as i32 },
            Message::Adopted { token: 1 << 63, count: 253, errno: -1 },
            Message::Gone { client: 8 },
            Message::Receive { token: 6 },
            Message::Close,
            Message::Go,
            Message::Ready,
        ] {
            send(ours.as_fd(), message, &[theirs.as_fd()], MsgFlags::empty()).unwrap();
            let (received, fds) = receive(theirs.as_fd(), MsgFlags::empty()).unwrap().unwrap();
            assert_eq!((received, fds.len()), (message, 1));
        }
        assert_eq!(receive(theirs.as_fd(), MsgFlags::MSG_DONTWAIT).err(), Some(Errno::EAGAIN));
        drop(ours);
        assert!(receive(theirs.as_fd(), MsgFlags::empty()).unwrap().is_none());
    }
}
