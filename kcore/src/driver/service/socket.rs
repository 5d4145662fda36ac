//! Packets with descriptors, over sockets of type `SOCK_SEQPACKET`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use lnet_api::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, getsockopt,
    listen, sendmsg, setsockopt, socket, sockopt,
};
use nlx_driver_proto::PACKET_MAX;

use super::super::{Answer, Credentials};
use super::closer::Closer;

/// Descriptors that the kernel lets one packet have. There is room for all of them: those without room would be closed by the
/// kernel in the thread that receives.
const DESCRIPTORS_ROOM: usize = 253;

/// Bytes of the control message that they come in.
const CONTROL_LEN: usize = {
    // SAFETY: it computes a length, and reads nothing.
    unsafe { libc::CMSG_SPACE((DESCRIPTORS_ROOM * size_of::<RawFd>()) as u32) as usize }
};

/// Room for a packet, used again and again.
pub(super) struct Inbox {
    packet: Box<[u8]>,
    control: Box<Control>,
}

/// As the kernel wants it aligned.
#[repr(C, align(16))]
struct Control([u8; CONTROL_LEN]);

/// What came.
pub(super) enum Received {
    /// A packet of so many bytes, now in the inbox; one that is too long is cut to one byte more than there may be.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other side has closed.
    End,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        // One byte more, so that a packet that is too long is seen to be.
        Inbox {
            packet: vec![0; PACKET_MAX + 1].into_boxed_slice(),
            control: Box::new(Control([0; CONTROL_LEN])),
        }
    }

    pub(super) fn packet(&self, length: usize) -> &[u8] {
        &self.packet[..length]
    }

    /// Takes the next packet. What comes with it and is no memory goes to the closer, and `other` takes its place.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        closer: &Closer,
        other: BorrowedFd<'_>,
    ) -> Received {
        let mut bytes = IoSliceMut::new(&mut self.packet);
        // SAFETY: a msghdr of zeros is one without anything.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = (&raw mut bytes).cast();
        message.msg_iovlen = 1;
        message.msg_control = self.control.0.as_mut_ptr().cast();
        // Of another width in each libc.
        message.msg_controllen = CONTROL_LEN as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message names the packet's bytes and the control buffer, both of this length and borrowed for the call;
        // an IoSliceMut is an iovec.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        match Errno::result(length) {
            Ok(0) => {
                descriptors(&message).into_iter().for_each(|fd| closer.close(fd));
                Received::End
            }
            Ok(length) => {
                let fds = descriptors(&message).into_iter().map(|fd| memory_or(fd, closer, other));
                // Not negative, or it would be an error.
                Received::Packet(length as usize, fds.collect::<Result<_, _>>().unwrap_or_default())
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
            Err(_) => Received::End,
        }
    }
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
            for place in 0..count {
                // SAFETY: the kernel has written `count` descriptors there, new ones of this process that nobody else knows.
                all.push(unsafe { OwnedFd::from_raw_fd(data.add(place).read_unaligned()) });
            }
        }
        // SAFETY: as for the first one.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    all
}

/// A descriptor if it is memory, which can be closed at once; else one that surely is none.
fn memory_or(fd: OwnedFd, closer: &Closer, other: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    if fcntl(&fd, FcntlArg::F_GET_SEALS).is_ok() {
        return Ok(fd);
    }
    closer.close(fd);
    other.try_clone_to_owned().map_err(super::errno_of)
}

/// Sends an answer.
///
/// # Errors
/// EAGAIN if there is no room for it, ETOOMANYREFS if too many descriptors are on their way to clients; anything else means
/// that nobody is there.
pub(super) fn send(socket: BorrowedFd<'_>, answer: &Answer) -> Result<(), Errno> {
    let fds: Vec<RawFd> = answer.fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let bytes = [IoSlice::new(&answer.packet)];
    sendmsg::<()>(socket.as_raw_fd(), &bytes, control, flags, None).map(drop)
}

/// Whether the other side has closed, or hears nothing more.
pub(super) fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    // A hang-up is told without being asked for.
    let mut looked = [PollFd::new(socket, PollFlags::empty())];
    let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
    poll(&mut looked, PollTimeout::ZERO).is_ok()
        && looked[0].revents().is_some_and(|flags| flags.intersects(ended))
}

/// The next client, and who it is.
///
/// The system takes twice as many bytes of answers as it is told here, and counts some hundred for the smallest: one of the
/// longest always finds room, and of the smallest some twenty. Descriptors that nobody has received count against this
/// process's user, and beyond a limit it can send none to anybody: so a client that does not read gets few.
pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<(OwnedFd, Credentials), Errno> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the system has just made it, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    setsockopt(&socket, sockopt::SndBuf, &PACKET_MAX)?;
    let who = getsockopt(&socket, sockopt::PeerCredentials)?;
    Ok((socket, Credentials { pid: who.pid(), uid: who.uid(), gid: who.gid() }))
}

/// A socket that listens at a path, for [`Service::start`](super::Service::start). There must be nothing at the path.
///
/// # Errors
/// EADDRINUSE if there is something, ENAMETOOLONG beyond 107 bytes, what the system says.
pub fn bind(path: &Path) -> Result<OwnedFd, Errno> {
    bind_with(path, || Ok(()))
}

/// As [`bind`]; what `prepare` does to the path, its owner and mode for instance, is done before the socket listens: nobody can
/// connect until then.
///
/// # Errors
/// Those of [`bind`], and of `prepare`, with which the socket is closed; its path stays.
pub fn bind_with<E: From<Errno>>(path: &Path, prepare: impl FnOnce() -> Result<(), E>) -> Result<OwnedFd, E> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    nix::sys::socket::bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    prepare()?;
    listen(&listener.as_fd(), Backlog::MAXCONN)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use nix::sys::eventfd::EventFd;
    use nix::sys::socket::connect;

    use super::*;

    /// D9: descriptors in answers that a client does not read count against the helper, and with it against all clients.
    #[test]
    fn a_client_that_does_not_read_gets_few_answers_and_the_longest_always_fits() {
        let path = std::env::temp_dir().join(format!("nlx-unread-{}", std::process::id()));
        let listener = bind(&path).unwrap();
        let ours = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        connect(ours.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (theirs, _) = accept(listener.as_fd()).unwrap();
        let longest = Answer { packet: vec![1; PACKET_MAX], fds: Vec::new() };
        send(theirs.as_fd(), &longest).unwrap();
        let mut packet = [0; PACKET_MAX];
        assert_eq!(nix::unistd::read(&ours, &mut packet).unwrap(), PACKET_MAX);

        let descriptor = || OwnedFd::from(EventFd::new().unwrap());
        let smallest = Answer { packet: vec![1; 40], fds: vec![descriptor(), descriptor()] };
        let sent = (0..1000).take_while(|_| send(theirs.as_fd(), &smallest).is_ok()).count();
        assert!((1..=32).contains(&sent), "{sent} answers");
        assert_eq!(send(theirs.as_fd(), &smallest), Err(Errno::EAGAIN));
    }
}
