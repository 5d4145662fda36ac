//! The socket to the helper: packets, sent and received before a deadline. Received ones may have
//! descriptors.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect, recvmsg,
    send, setsockopt, shutdown, socket,
};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};

/// The system's limit of descriptors in one packet: with room for all of them none is lost
/// silently.
const DESCRIPTORS_AT_ONCE: usize = 253;

/// A connected socket of type `SOCK_SEQPACKET`.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// A reusable buffer for the descriptors of a packet.
#[derive(Debug)]
pub(crate) struct Control(Vec<u8>);

impl Control {
    pub(crate) fn new() -> Control {
        Control(nix::cmsg_space!([RawFd; DESCRIPTORS_AT_ONCE]))
    }
}

/// A packet with the descriptors that came with it.
pub(crate) struct ReceivedPacket {
    /// The packet's length; 0 when the other side is gone.
    pub(crate) bytes: usize,
    pub(crate) fds: Vec<OwnedFd>,
    /// Set if the packet was truncated.
    pub(crate) cut: bool,
}

impl Socket {
    /// Connects to the listener at this path.
    pub(crate) fn connect(path: &Path, timeout: Duration) -> Result<Socket, Errno> {
        let made = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        // While a listener's queue is full, `connect` blocks for up to the send timeout.
        let wait = TimeVal::microseconds(timeout.as_micros().clamp(1, i64::MAX as u128) as i64);
        setsockopt(&made, SendTimeout, &wait)?;
        let address = UnixAddr::new(path)?;
        loop {
            match connect(made.as_raw_fd(), &address) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Err(Errno::ETIMEDOUT),
                connected => return connected.map(|()| Socket(made)),
            }
        }
    }

    /// Sends a packet.
    pub(crate) fn send(&self, packet: &[u8], deadline: Instant) -> Result<(), Errno> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        loop {
            match send(self.0.as_raw_fd(), packet, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT, deadline)?,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Receives a packet.
    #[allow(unsafe_code, reason = "the system gives descriptors as numbers")]
    pub(crate) fn receive(
        &self,
        packet: &mut [u8],
        control: &mut Control,
        deadline: Instant,
    ) -> Result<ReceivedPacket, Errno> {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        loop {
            let mut parts = [IoSliceMut::new(packet)];
            match recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut control.0), flags) {
                Ok(message) => {
                    let mut fds = Vec::new();
                    for rights in message.cmsgs()? {
                        if let ControlMessageOwned::ScmRights(given) = rights {
                            // SAFETY: the system has just made these descriptors for this message:
                            // they are open, and nothing else refers to them.
                            fds.extend(given.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                        }
                    }
                    let cut = message.flags.contains(MsgFlags::MSG_TRUNC);
                    return Ok(ReceivedPacket { bytes: message.bytes, fds, cut });
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLIN, deadline)?,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Shuts down the sending direction: no further request comes. The other side closes its end
    /// when it has released everything.
    pub(crate) fn finish(&self) {
        // The socket may be closed already.
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Write);
    }

    /// Blocks until the other side has closed its end.
    pub(crate) fn wait_for_end(&self) {
        let over = PollFlags::POLLHUP | PollFlags::POLLNVAL;
        loop {
            let mut set = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
            match ppoll(&mut set, None, None) {
                Ok(_) if set[0].revents().is_some_and(|events| events.intersects(over)) => return,
                Ok(_) | Err(Errno::EINTR | Errno::EAGAIN | Errno::ENOMEM) => {}
                // Other errors cannot occur for a valid socket; return rather than loop.
                Err(_) => return,
            }
        }
    }

    fn wait(&self, events: PollFlags, deadline: Instant) -> Result<(), Errno> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::ETIMEDOUT);
            }
            let mut set = [PollFd::new(self.0.as_fd(), events)];
            match ppoll(&mut set, Some(TimeSpec::from_duration(left)), None) {
                Ok(0) | Err(Errno::EINTR) => {}
                other => return other.map(drop),
            }
        }
    }
}
