//! Packets over sockets of type `SOCK_SEQPACKET`. Descriptors are sent, and never received.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use lnet_api::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, getsockopt, listen, recv, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use nlx_driver_proto::PACKET_MAX;

use crate::{Credentials, ReplyPacket, packets};

/// Socket option of Linux 6.16: whether descriptors may be sent to a Unix socket; if not, `sendmsg`
/// fails with EPERM. An accepted socket has the option of its listener at the moment of `connect`.
/// libc does not define it yet.
const SO_PASSRIGHTS: libc::c_int = 83;

sockopt_impl!(
    /// [`SO_PASSRIGHTS`].
    PassRights,
    Both,
    libc::SOL_SOCKET,
    SO_PASSRIGHTS,
    bool
);

/// Length of the single accept queue for all users; Linux takes one more. A blocking `connect` that
/// finds the queue full waits in the kernel, so a short queue refuses no client. With a long one, a
/// single process that connects and closes in a loop would stay thousands of connections ahead of
/// all others.
const BACKLOG: i32 = 64;

nix::ioctl_read_bad!(
    /// Returns the bytes of packets that the other side has not received, as the kernel counts
    /// them.
    unread_bytes,
    libc::TIOCOUTQ,
    libc::c_int
);

/// A reusable buffer for a received packet.
pub(super) struct PacketBuffer {
    packet: Box<[u8]>,
}

/// The result of receiving from a client's socket.
pub(super) enum ReceiveResult {
    /// A packet of this length, now in the inbox; one that is too long is truncated to one byte
    /// more than the maximum.
    Packet(usize),
    /// A packet with descriptors, which has not been received.
    Attached,
    /// No packet yet.
    Nothing,
    /// The other side has closed, or sent a packet without bytes.
    End,
}

impl PacketBuffer {
    pub(super) fn new() -> PacketBuffer {
        // One byte more, so that a packet that is too long is detected.
        PacketBuffer { packet: vec![0; PACKET_MAX + 1].into_boxed_slice() }
    }

    pub(super) fn packet(&self, length: usize) -> &[u8] {
        &self.packet[..length]
    }

    /// Copies a packet into the inbox; returns its length.
    pub(super) fn put(&mut self, packet: &[u8]) -> usize {
        let length = packet.len().min(self.packet.len());
        self.packet[..length].copy_from_slice(&packet[..length]);
        length
    }

    /// Receives the next packet, unless descriptors came with it: receiving them would make this
    /// process close them.
    ///
    /// With `may_attach` false the kernel lets no descriptors pass, and one system call is enough.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, may_attach: bool) -> ReceiveResult {
        let flags = MsgFlags::MSG_DONTWAIT;
        let seen = if may_attach { flags | MsgFlags::MSG_PEEK } else { flags };
        let mut bytes = [IoSliceMut::new(&mut self.packet)];
        let (length, attached) = match recvmsg::<()>(socket.as_raw_fd(), &mut bytes, None, seen) {
            // Without room for them, descriptors are reported by this flag alone. It has no other
            // meaning here: no option asks for other control messages.
            Ok(seen) => (seen.bytes, seen.flags.contains(MsgFlags::MSG_CTRUNC)),
            Err(Errno::EAGAIN | Errno::EINTR) => return ReceiveResult::Nothing,
            Err(_) => return ReceiveResult::End,
        };
        if attached {
            return ReceiveResult::Attached;
        }
        if length == 0 {
            return ReceiveResult::End;
        }
        if may_attach {
            // The same packet: nothing else receives from this socket. Its bytes are dropped, as
            // there is no buffer for them.
            let _ = recv(socket.as_raw_fd(), &mut [], flags);
        }
        ReceiveResult::Packet(length)
    }
}

/// Sends an answer.
///
/// # Errors
/// EAGAIN if there is no room for it, ETOOMANYREFS if too many descriptors are on their way to
/// clients; any other error means that the connection has ended.
pub(super) fn send(socket: BorrowedFd<'_>, answer: &ReplyPacket) -> Result<(), Errno> {
    packets::send(socket, &answer.packet, &answer.fds, MsgFlags::MSG_DONTWAIT)
}

/// Returns whether the other side has received all packets that were sent to it, or is gone.
pub(super) fn is_all_read(socket: BorrowedFd<'_>) -> bool {
    let mut bytes = 0;
    // SAFETY: the system writes an int there, and reads nothing.
    let asked = unsafe { unread_bytes(socket.as_raw_fd(), &raw mut bytes) };
    asked.is_ok() && bytes == 0
}

/// Returns whether the other side has closed, or receives nothing more.
pub(super) fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    // POLLHUP is reported without being requested.
    let mut looked = [PollFd::new(socket, PollFlags::empty())];
    let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
    poll(&mut looked, PollTimeout::ZERO).is_ok()
        && looked[0].revents().is_some_and(|flags| flags.intersects(ended))
}

/// Prepares the socket of the next client. Returns its credentials, and whether descriptors may
/// come with its packets.
///
/// The system doubles the number of bytes of answers that is set here, and counts some hundred for
/// the smallest: one answer of the longest always finds room, and some twenty of the smallest.
pub(super) fn prepare(socket: &OwnedFd) -> Result<(Credentials, bool), Errno> {
    setsockopt(socket, sockopt::SndBuf, &PACKET_MAX)?;
    let who = getsockopt(socket, sockopt::PeerCredentials)?;
    // A client that connected before the listener's option was set may have sent some.
    let may_attach = passes_rights(socket);
    Ok((Credentials { pid: who.pid(), uid: who.uid(), gid: who.gid() }, may_attach))
}

/// Returns whether descriptors may come. Older kernels do not have the option, and always let them
/// pass.
fn passes_rights(socket: &OwnedFd) -> bool {
    getsockopt(socket, PassRights).unwrap_or(true)
}

/// Sets whether clients that connect from now on can send descriptors, where the kernel can refuse
/// them.
pub(super) fn let_descriptors_pass(listener: &OwnedFd, pass: bool) {
    let _ = setsockopt(listener, PassRights, &pass);
}

/// Creates a socket that listens at a path, for [`ServingThreads::start`](super::ServingThreads::start). The path
/// must not exist.
///
/// # Errors
/// EADDRINUSE if the path exists, ENAMETOOLONG beyond 107 bytes, errors of the system.
pub fn bind(path: &Path) -> Result<OwnedFd, Errno> {
    bind_with(path, || Ok(()))
}

/// Like [`bind`], but calls `prepare` before the socket listens, for instance to set the path's
/// owner and mode: no client can connect until then.
///
/// # Errors
/// Those of [`bind`] and of `prepare`. If `prepare` fails, the socket is closed and its path stays.
pub fn bind_with<E: From<Errno>>(path: &Path, prepare: impl FnOnce() -> Result<(), E>) -> Result<OwnedFd, E> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let_descriptors_pass(&listener, false);
    nix::sys::socket::bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    prepare()?;
    listen(&listener.as_fd(), Backlog::new(BACKLOG)?)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use nix::sys::eventfd::EventFd;
    use nix::sys::socket::{accept, connect};
    use std::os::fd::FromRawFd;

    use super::*;
    use crate::seal::MemoryFd;

    /// Connections that are not accepted: the queue has the same limit for connections that are
    /// closed at once.
    #[test]
    fn few_connections_wait_to_be_accepted() {
        let path = std::env::temp_dir().join(format!("nlx-backlog-{}", std::process::id()));
        let _listener = bind(&path).unwrap();
        let connections = || {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let ours = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
            connect(ours.as_raw_fd(), &UnixAddr::new(&path).unwrap())
        };
        let waiting = (0..5000).map_while(|_| connections().ok()).count();
        let refused = connections();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((waiting, refused), (BACKLOG as usize + 1, Err(Errno::EAGAIN)));
    }

    /// D9: descriptors in answers that a client does not read count against the helper, and so
    /// against all clients.
    #[test]
    fn a_client_that_does_not_read_gets_few_answers_and_the_longest_always_fits() {
        let path = std::env::temp_dir().join(format!("nlx-unread-{}", std::process::id()));
        let listener = bind(&path).unwrap();
        let ours = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        connect(ours.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        // SAFETY: the system has just made it, and nothing else uses it.
        let theirs = unsafe { OwnedFd::from_raw_fd(accept(listener.as_raw_fd()).unwrap()) };
        prepare(&theirs).unwrap();
        let longest = ReplyPacket { packet: vec![1; PACKET_MAX], fds: Vec::new() };
        send(theirs.as_fd(), &longest).unwrap();
        let mut packet = [0; PACKET_MAX];
        assert_eq!(nix::unistd::read(&ours, &mut packet).unwrap(), PACKET_MAX);

        let descriptor = || MemoryFd::try_new(EventFd::new().unwrap().into()).unwrap().into();
        let smallest = ReplyPacket { packet: vec![1; 40], fds: vec![descriptor(), descriptor()] };
        let sent = (0..1000).take_while(|_| send(theirs.as_fd(), &smallest).is_ok()).count();
        assert!((1..=32).contains(&sent), "{sent} answers");
        assert_eq!(send(theirs.as_fd(), &smallest), Err(Errno::EAGAIN));
        for left in (0..sent).rev() {
            assert!(!is_all_read(theirs.as_fd()), "{left} answers and one are unread");
            nix::unistd::read(&ours, &mut packet).unwrap();
        }
        assert!(is_all_read(theirs.as_fd()));
        send(theirs.as_fd(), &smallest).unwrap();
        assert!(!is_all_read(theirs.as_fd()));
        drop(ours);
        assert!(is_all_read(theirs.as_fd()), "what the client has not read is gone with it");
    }
}
