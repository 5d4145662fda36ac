//! Messages with descriptors between `nlxd`, the porter and its carriers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lnet_api::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};

use crate::packets;

/// Bytes of a message.
const LEN: usize = 16;

/// A message. `client` is `nlxd`'s number of a connection, or of a [shared](super::SHARED)
/// descriptor; `user` is charged for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PorterMessage {
    /// To the porter, with a socket: a further channel, for a service thread.
    Channel,
    /// To the porter, with the listening socket: keep it. `own`: no other process has it, so it
    /// ends with `nlxd`.
    Listener { own: bool },
    /// To the porter, with a client's socket: keep it.
    Keep { client: u64 },
    /// To the porter: accept up to `count` clients, and number them from `first` on.
    Accept { first: u64, count: u32 },
    /// To the porter, with the client's socket if `nlxd` had it: close it; with a socket only after
    /// `Closed`.
    Drop { client: u64, user: u32 },
    /// To the porter: `nlxd` has closed its own descriptor of the socket that came with `Drop`.
    Closed { client: u64 },
    /// To `nlxd`, with the client's socket.
    Accepted { client: u64, user: u32 },
    /// To `nlxd`: no more clients for this `Accept`; 0 or the error.
    AcceptEnd { errno: i32 },
    /// To `nlxd`: the client's socket and everything in it are closed.
    Gone { client: u64 },
    /// To a carrier, with sockets: close them once `Go` has come.
    Close,
    /// To a carrier: the porter has closed its own descriptors of the sockets.
    Go,
    /// To the porter: give a sign of life.
    Ask,
    /// To `nlxd`: the sign of life.
    Here,
    /// From a carrier: it has nothing of a client any more.
    Ready,
}

impl PorterMessage {
    fn to_bytes(self) -> [u8; LEN] {
        let (kind, word, first): (u32, u32, u64) = match self {
            PorterMessage::Channel => (1, 0, 0),
            PorterMessage::Listener { own } => (2, own.into(), 0),
            PorterMessage::Keep { client } => (3, 0, client),
            PorterMessage::Accept { first, count } => (4, count, first),
            PorterMessage::Drop { client, user } => (6, user, client),
            PorterMessage::Accepted { client, user } => (7, user, client),
            PorterMessage::AcceptEnd { errno } => (8, errno.cast_unsigned(), 0),
            PorterMessage::Gone { client } => (10, 0, client),
            PorterMessage::Close => (12, 0, 0),
            PorterMessage::Go => (13, 0, 0),
            PorterMessage::Ready => (14, 0, 0),
            PorterMessage::Closed { client } => (15, 0, client),
            PorterMessage::Ask => (16, 0, 0),
            PorterMessage::Here => (17, 0, 0),
        };
        let mut bytes = [0; LEN];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..16].copy_from_slice(&first.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; LEN]) -> Option<PorterMessage> {
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let (word, first) = (half(4), long(8));
        Some(match half(0) {
            1 => PorterMessage::Channel,
            2 => PorterMessage::Listener { own: word != 0 },
            3 => PorterMessage::Keep { client: first },
            4 => PorterMessage::Accept { first, count: word },
            6 => PorterMessage::Drop { client: first, user: word },
            7 => PorterMessage::Accepted { client: first, user: word },
            8 => PorterMessage::AcceptEnd { errno: word.cast_signed() },
            10 => PorterMessage::Gone { client: first },
            12 => PorterMessage::Close,
            13 => PorterMessage::Go,
            14 => PorterMessage::Ready,
            15 => PorterMessage::Closed { client: first },
            16 => PorterMessage::Ask,
            17 => PorterMessage::Here,
            _ => return None,
        })
    }
}

/// Creates the two ends of a channel.
///
/// # Errors
/// EMFILE or ENFILE without descriptors.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends a message with descriptors, at most [`packets::DESCRIPTORS_MAX`]. Blocks only without
/// `MSG_DONTWAIT`.
///
/// # Errors
/// EAGAIN without room, ETOOMANYREFS, EPIPE or ECONNRESET if the other end is closed.
pub(crate) fn send(
    channel: BorrowedFd<'_>,
    message: PorterMessage,
    fds: &[impl AsFd],
    flags: MsgFlags,
) -> Result<(), Errno> {
    loop {
        let sent = packets::send(channel, &message.to_bytes(), fds, flags);
        if sent != Err(Errno::EINTR) {
            return sent;
        }
    }
}

/// Receives the next message, and passes its descriptors to `keep`. `None`: the other end is
/// closed.
///
/// # Errors
/// EAGAIN if there is none and the flags have `MSG_DONTWAIT`; EPROTO for bytes that are no message.
pub(crate) fn receive(
    channel: BorrowedFd<'_>,
    flags: MsgFlags,
    mut keep: impl FnMut(OwnedFd),
) -> Result<Option<PorterMessage>, Errno> {
    let mut bytes = [0; LEN];
    let received = loop {
        match packets::receive(channel, &mut bytes, flags, &mut keep) {
            // The system reports a reset once; messages that the other end sent before follow.
            Err(Errno::EINTR | Errno::ECONNRESET) => {}
            other => break other,
        }
    };
    match received {
        Ok(0) => Ok(None),
        Ok(LEN) => PorterMessage::from_bytes(&bytes).ok_or(Errno::EPROTO).map(Some),
        Ok(_) => Err(Errno::EPROTO),
        Err(errno) => Err(errno),
    }
}

/// Receives a message that has at most one descriptor.
///
/// # Errors
/// Those of [`receive`].
pub(crate) fn receive_one(
    channel: BorrowedFd<'_>,
    flags: MsgFlags,
) -> Result<Option<(PorterMessage, Option<OwnedFd>)>, Errno> {
    let mut fd = None;
    let received = receive(channel, flags, |received| fd = Some(received))?;
    Ok(received.map(|message| (message, fd)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let (ours, theirs) = pair().unwrap();
        for message in [
            PorterMessage::Channel,
            PorterMessage::Listener { own: true },
            PorterMessage::Listener { own: false },
            PorterMessage::Keep { client: u64::MAX },
            PorterMessage::Accept { first: 1 << 40, count: 16 },
            PorterMessage::Drop { client: 3, user: 1000 },
            PorterMessage::Accepted { client: 9, user: 7 },
            PorterMessage::AcceptEnd { errno: Errno::EMFILE as i32 },
            PorterMessage::Gone { client: 8 },
            PorterMessage::Close,
            PorterMessage::Go,
            PorterMessage::Ready,
            PorterMessage::Closed { client: 1 << 63 | 1 },
            PorterMessage::Ask,
            PorterMessage::Here,
        ] {
            send(ours.as_fd(), message, &[theirs.as_fd()], MsgFlags::empty()).unwrap();
            let (received, fd) = receive_one(theirs.as_fd(), MsgFlags::empty()).unwrap().unwrap();
            assert_eq!((received, fd.is_some()), (message, true));
        }
        assert_eq!(receive_one(theirs.as_fd(), MsgFlags::MSG_DONTWAIT).err(), Some(Errno::EAGAIN));
        drop(ours);
        assert!(receive_one(theirs.as_fd(), MsgFlags::empty()).unwrap().is_none());
    }
}
