//! Packets with descriptors, sent and received without allocating; the calls of `nix` allocate.

use std::io::{IoSlice, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use lnet_api::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

/// The kernel's limit of descriptors in one packet. With a smaller control buffer the kernel would
/// close the others.
pub(super) const DESCRIPTORS_MAX: usize = 253;

/// The descriptors of a packet without any.
pub(super) const NO_FDS: [BorrowedFd<'_>; 0] = [];

/// Bytes of the control message that carries the descriptors.
const CONTROL_LEN: usize = {
    // SAFETY: it computes a length, and reads nothing.
    unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) as usize }
};

/// A control buffer with the alignment that the kernel expects.
#[repr(C, align(16))]
struct Control([u8; CONTROL_LEN]);

const _: () = assert!(align_of::<libc::cmsghdr>() <= align_of::<Control>());

/// Sends a packet with descriptors; never raises SIGPIPE.
///
/// # Errors
/// EINVAL for more than [`DESCRIPTORS_MAX`]; errors of the system.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    fds: &[impl AsFd],
    flags: MsgFlags,
) -> Result<(), Errno> {
    if fds.len() > DESCRIPTORS_MAX {
        return Err(Errno::EINVAL);
    }
    let bytes = IoSlice::new(packet);
    let mut control;
    // SAFETY: a msghdr of zeros is one without anything.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = (&raw const bytes).cast_mut().cast();
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let data_len = (fds.len() * size_of::<RawFd>()) as u32;
        control = Control([0; CONTROL_LEN]);
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: it computes a length, and reads nothing. The width differs between libcs.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(data_len) } as _;
        // SAFETY: the control buffer has room for a header and this data, because there are at most
        // `DESCRIPTORS_MAX`. It is aligned for a header, and borrowed by the message. The data of a
        // header follows it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(data_len) as _;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (index, fd) in fds.iter().enumerate() {
                data.add(index).write_unaligned(fd.as_fd().as_raw_fd());
            }
        }
    }
    let flags = (flags | MsgFlags::MSG_NOSIGNAL).bits();
    // SAFETY: the message names the packet's bytes, which the call only reads, and the control
    // buffer, both borrowed for the call; an IoSlice is an iovec.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    Errno::result(sent).map(drop)
}

/// Receives a packet, or its first bytes, and passes all descriptors that came with it to `keep`.
/// Returns the number of bytes. To be called only in a process that may own a client's descriptors.
///
/// # Errors
/// Errors of the system.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    packet: &mut [u8],
    flags: MsgFlags,
    keep: impl FnMut(OwnedFd),
) -> Result<usize, Errno> {
    let mut bytes = IoSliceMut::new(packet);
    let mut control = Control([0; CONTROL_LEN]);
    // SAFETY: a msghdr of zeros is one without anything.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = (&raw mut bytes).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // The width differs between libcs.
    message.msg_controllen = CONTROL_LEN as _;
    let flags = flags.bits() | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message names the packet's bytes and the control buffer, both of this length and
    // borrowed for the call; an IoSliceMut is an iovec.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let length = Errno::result(length)?;
    take_descriptors(&message, keep);
    // Not negative: that would be an error.
    Ok(length as usize)
}

/// Takes ownership of the descriptors that came with a message.
fn take_descriptors(message: &libc::msghdr, mut keep: impl FnMut(OwnedFd)) {
    // SAFETY: the kernel has filled the message's control buffer, which is still borrowed by it,
    // and has set its length.
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
                // SAFETY: the kernel has written `count` descriptors there: new ones of this
                // process to which nothing else refers.
                keep(unsafe { OwnedFd::from_raw_fd(data.add(index).read_unaligned()) });
            }
        }
        // SAFETY: as for the first one.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use nix::sys::eventfd::EventFd;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    /// The maximum number of descriptors arrives in order, and each names the original file; one
    /// more is refused.
    #[test]
    fn descriptors_arrive_in_their_order() {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let flags = MsgFlags::MSG_DONTWAIT;
        for count in [0, 1, 2, DESCRIPTORS_MAX] {
            let sent: Vec<_> =
                (0..count).map(|value| EventFd::from_value(value as u32 + 1).unwrap()).collect();
            send(ours.as_fd(), b"packet", &sent, flags).unwrap();
            drop(sent);
            let (mut bytes, mut values) = ([0; 16], Vec::new());
            let length = receive(theirs.as_fd(), &mut bytes, flags, |fd| {
                let mut value = [0; 8];
                nix::unistd::read(&fd, &mut value).unwrap();
                values.push(u64::from_ne_bytes(value));
            });
            assert_eq!(&bytes[..length.unwrap()], b"packet");
            assert_eq!(values, (1..=count as u64).collect::<Vec<_>>());
        }
        let bells: Vec<_> = (0..=DESCRIPTORS_MAX).map(|_| ours.as_fd()).collect();
        assert_eq!(send(ours.as_fd(), b"packet", &bells, flags), Err(Errno::EINVAL));
        assert_eq!(receive(theirs.as_fd(), &mut [0], flags, drop), Err(Errno::EAGAIN));
    }
}
