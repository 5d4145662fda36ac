//! Memory for system calls: [`Part`] and [`PartMut`], and the calls that use them.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

use crate::{guard, shared};

/// Maximum number of heals per call. One is enough, unless another process removes more pages at
/// that moment.
const HEALS_MAX: usize = 8;

/// Bytes to send: a slice, or a piece of a leased buffer, which may be shared memory. Unlike
/// [`std::io::IoSlice`] it gives no access to the bytes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Part<'a>(libc::iovec, PhantomData<&'a [u8]>);

/// Room for received bytes: a slice, or a piece of a leased buffer, which may be shared memory.
#[derive(Debug)]
#[repr(transparent)]
pub struct PartMut<'a>(libc::iovec, PhantomData<&'a mut [u8]>);

impl<'a> Part<'a> {
    /// Creates a part of a slice.
    pub fn new(bytes: &'a [u8]) -> Part<'a> {
        // SAFETY: while there is a slice, its bytes are not written.
        unsafe { Part::leased(bytes.as_ptr().cast_mut(), bytes.len()) }
    }

    /// Creates a part of a leased buffer.
    ///
    /// # Safety
    /// For `'a` the bytes are mapped, and no `&mut` to them exists; this process writes to them by
    /// [`shared::copy`] or the system only.
    pub(crate) unsafe fn leased(start: *mut u8, length: usize) -> Part<'a> {
        Part(libc::iovec { iov_base: start.cast(), iov_len: length }, PhantomData)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Returns whether the part has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `skip` on, as a system call would; returns their number: all of
    /// `target`, or all bytes left.
    pub fn load(&self, skip: usize, target: &mut [u8]) -> usize {
        let count = self.len().saturating_sub(skip).min(target.len());
        if count > 0 {
            // SAFETY: the slice or lease behind the part keeps its bytes mapped, and excludes
            // `&mut` to them; `skip + count` is within them. `target` is the caller's alone.
            unsafe { shared::copy(self.0.iov_base.cast::<u8>().add(skip), target.as_mut_ptr(), count) };
        }
        count
    }
}

impl<'a> PartMut<'a> {
    /// Creates a part of a slice.
    pub fn new(bytes: &'a mut [u8]) -> PartMut<'a> {
        // SAFETY: a mutable slice is exclusive.
        unsafe { PartMut::leased(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Creates a part of a leased buffer.
    ///
    /// # Safety
    /// For `'a` the bytes are mapped, and no other reference to them exists; this process accesses
    /// them by [`shared::copy`] or the system only.
    pub(crate) unsafe fn leased(start: *mut u8, length: usize) -> PartMut<'a> {
        PartMut(libc::iovec { iov_base: start.cast(), iov_len: length }, PhantomData)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Returns whether the part has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes to the part from `skip` on, as a system call would; returns their number: all
    /// of `source`, or the room left. For simulated systems.
    pub fn store(&mut self, skip: usize, source: &[u8]) -> usize {
        let start = self.0.iov_base.cast::<u8>();
        let count = self.len().saturating_sub(skip).min(source.len());
        if count > 0 {
            // SAFETY: the slice or lease behind the part keeps its bytes mapped, and excludes other
            // references to them; `skip + count` is within them.
            unsafe { shared::copy(source.as_ptr(), start.add(skip), count) };
        }
        count
    }
}

/// Sends the parts in order by one `sendmsg`; returns the number of accepted bytes.
///
/// # Errors
/// The system's error: EAGAIN if there is no room now, EMSGSIZE for more than 1024 parts.
pub fn send(socket: BorrowedFd<'_>, parts: &[Part<'_>], flags: MsgFlags) -> Result<usize, Errno> {
    let mut message = empty_message();
    // sendmsg does not write to the list.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    let call = || {
        // SAFETY: `message` names a list of exactly `parts.len()` iovecs, as a Part is one. Each
        // names memory that a slice or a lease keeps alive for the part's lifetime, without `&mut`
        // to it. The system only reads.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags.bits()) };
        Errno::result(sent).map(|count| count as usize)
    };
    healing(call, || parts.iter().map(|part| &part.0))
}

/// Receives into the parts in order by one `recvmsg`; returns the number of received bytes, 0 at
/// the end of a stream.
///
/// # Errors
/// The system's error: EAGAIN if there are no bytes now, EMSGSIZE for more than 1024 parts.
pub fn receive(socket: BorrowedFd<'_>, parts: &mut [PartMut<'_>], flags: MsgFlags) -> Result<usize, Errno> {
    let call = || {
        let mut message = empty_message();
        // recvmsg does not write to the list.
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: as in `send`. The memory of a PartMut has no other reference in this process
        // during its lifetime, so that the system may write there; all byte values are valid.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags.bits()) };
        Errno::result(received).map(|count| count as usize)
    };
    healing(call, || parts.iter().map(|part| &part.0))
}

/// Reads the system's information on a TCP connection (TCP_INFO, tcp(7)) into `info`; returns the
/// number of written bytes: the length of `info`, or fewer on older systems.
///
/// # Errors
/// The system's error: EOPNOTSUPP or ENOPROTOOPT for a socket that is not of TCP.
pub fn tcp_info(socket: BorrowedFd<'_>, info: &mut [u8]) -> Result<usize, Errno> {
    let mut length = libc::socklen_t::try_from(info.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the system writes at most `length` bytes to `info`, which has at least that length
    // and is the caller's alone, and their number to `length`. TCP_INFO names no other memory.
    let read = unsafe {
        let target = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, target, &raw mut length)
    };
    Errno::result(read).map(|_| (length as usize).min(info.len()))
}

/// Repeats the call after EFAULT, if some of the memory may be healed ([`crate::guard`]).
fn healing<'a, P: Iterator<Item = &'a libc::iovec>>(
    call: impl Fn() -> Result<usize, Errno>,
    parts: impl Fn() -> P,
) -> Result<usize, Errno> {
    for _ in 0..HEALS_MAX {
        match call() {
            Err(Errno::EFAULT) if parts().filter(|part| touch(part)).count() > 0 => {}
            outcome => return outcome,
        }
    }
    call()
}

fn touch(part: &libc::iovec) -> bool {
    guard::touch(part.iov_base.cast(), part.iov_len)
}

/// Returns a message header without name, memory and control data.
fn empty_message() -> libc::msghdr {
    // SAFETY: all its fields are integers and pointers, for which zero bytes are valid.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_loaded_at_any_alignment() {
        let bytes: Vec<u8> = (0..100).collect();
        for (start, length) in (0..9).flat_map(|start| (0..40).map(move |length| (start, length))) {
            let (part, mut target) = (Part::new(&bytes[start..]), vec![0xff; length + 1]);
            assert_eq!(part.load(3, &mut target[..length]), length);
            assert_eq!((&target[..length], target[length]), (&bytes[start + 3..][..length], 0xff));
        }
    }

    #[test]
    fn a_part_is_loaded_and_stored_as_far_as_it_goes() {
        let mut bytes = *b"0123456789";
        let mut target = [b'.'; 4];
        let part = Part::new(&bytes);
        assert_eq!((part.load(3, &mut target), &target), (4, b"3456"));
        assert_eq!((part.load(8, &mut target), &target), (2, b"8956"));
        assert_eq!((part.load(11, &mut target), &target), (0, b"8956"));
        let mut part = PartMut::new(&mut bytes);
        assert_eq!([part.store(1, b"ab"), part.store(9, b"cd"), part.store(10, b"e")], [2, 1, 0]);
        assert_eq!(&bytes, b"0ab345678c");
    }
}
