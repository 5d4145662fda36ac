//! The client's end of the helper's socket.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect,
    recvmsg, sendmsg, socket,
};

use super::wire::PACKET_MAX;

/// The maximum number of descriptors received with a packet: more than any reply has.
const FDS_MAX: usize = 4;

/// A packet, and the descriptors that came with it.
pub type Packet = (Vec<u8>, Vec<OwnedFd>);

/// A connection to the helper.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Connects to the helper's socket.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn connect(path: &Path) -> Result<Socket, Errno> {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Socket(fd))
    }

    /// Sends one packet, with descriptors; blocks while the helper does not read.
    ///
    /// # Errors
    ///
    /// The errno of the system call: EPIPE once the helper has closed the connection.
    pub fn send(&self, packet: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
        self.send_with(packet, fds, MsgFlags::empty())
    }

    /// Sends one packet without blocking.
    ///
    /// # Errors
    /// EAGAIN while the helper does not read.
    pub fn try_send(&self, packet: &[u8]) -> Result<(), Errno> {
        self.send_with(packet, &[], MsgFlags::MSG_DONTWAIT)
    }

    /// Sends one packet with descriptors, without blocking.
    ///
    /// # Errors
    ///
    /// As [`Socket::try_send`]; EPERM if the receiver lets no descriptors pass (since Linux 6.16).
    pub fn try_send_with(&self, packet: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
        self.send_with(packet, fds, MsgFlags::MSG_DONTWAIT)
    }

    fn send_with(&self, packet: &[u8], fds: &[RawFd], flags: MsgFlags) -> Result<(), Errno> {
        let rights = [ControlMessage::ScmRights(fds)];
        let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(packet)], control, flags, None).map(drop)
    }

    /// Receives one packet; `None` when the helper has closed the connection.
    ///
    /// # Errors
    ///
    /// ETIMEDOUT, or the errno of the system call: ECONNRESET if the helper closed the connection
    /// with unread packets.
    pub fn receive(&self, patience: Duration) -> Result<Option<Packet>, Errno> {
        if !self.is_readable(patience)? {
            return Err(Errno::ETIMEDOUT);
        }
        let mut packet = vec![0; PACKET_MAX];
        let mut control = nix::cmsg_space!([RawFd; FDS_MAX]);
        let (length, fds) = {
            let mut parts = [IoSliceMut::new(&mut packet)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let message = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
            let mut fds = Vec::new();
            for part in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(raw) = part {
                    fds.extend(raw.into_iter().map(own));
                }
            }
            (message.bytes, fds)
        };
        packet.truncate(length);
        Ok((length > 0).then_some((packet, fds)))
    }

    /// Waits for a packet, or for the end of the connection; returns whether it came in time.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn is_readable(&self, patience: Duration) -> Result<bool, Errno> {
        self.is_ready(PollFlags::POLLIN, patience)
    }

    /// Waits for room for a packet, or for the end of the connection; returns whether it came in
    /// time.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn is_writable(&self, patience: Duration) -> Result<bool, Errno> {
        self.is_ready(PollFlags::POLLOUT, patience)
    }

    fn is_ready(&self, flags: PollFlags, patience: Duration) -> Result<bool, Errno> {
        let until = Instant::now() + patience;
        loop {
            let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now()));
            match poll(&mut [PollFd::new(self.as_fd(), flags)], left.unwrap_or(PollTimeout::MAX)) {
                Err(Errno::EINTR) => {}
                count => return Ok(count? > 0),
            }
        }
    }

    /// Waits until the helper has closed the connection, and discards packets; returns whether it
    /// has.
    pub fn ends(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            match self.receive(until.saturating_duration_since(Instant::now())) {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(errno) => return errno != Errno::ETIMEDOUT,
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[expect(unsafe_code, reason = "the descriptors that recvmsg gives are numbers")]
fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: recvmsg has just made this descriptor, for this caller only.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
