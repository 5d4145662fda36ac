//! Memory named to the system: pieces for one call, and the calls.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::MsgFlags;

/// Bytes to send: a slice, or a piece of a leased buffer, which may be shared memory. Unlike [`std::io::IoSlice`] it does not let
/// anybody look at them.
#[derive(Debug)]
#[repr(transparent)]
pub struct Part<'a>(libc::iovec, PhantomData<&'a [u8]>);

/// Room to receive into: a slice, or a piece of a leased buffer, which may be shared memory.
#[derive(Debug)]
#[repr(transparent)]
pub struct PartMut<'a>(libc::iovec, PhantomData<&'a mut [u8]>);

impl<'a> Part<'a> {
    /// The bytes of a slice.
    pub fn new(bytes: &'a [u8]) -> Part<'a> {
        // SAFETY: a slice is as good as a read lease.
        unsafe { Part::leased(bytes.as_ptr().cast_mut(), bytes.len()) }
    }

    /// Bytes of a leased buffer.
    ///
    /// # Safety
    /// For `'a` they are mapped, and nobody in this process writes to them.
    pub(crate) unsafe fn leased(start: *mut u8, length: usize) -> Part<'a> {
        Part(libc::iovec { iov_base: start.cast(), iov_len: length }, PhantomData)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> PartMut<'a> {
    /// The bytes of a slice.
    pub fn new(bytes: &'a mut [u8]) -> PartMut<'a> {
        // SAFETY: a mutable slice is as good as a write lease.
        unsafe { PartMut::leased(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Bytes of a leased buffer.
    ///
    /// # Safety
    /// For `'a` they are mapped, and nobody else in this process reads or writes them.
    pub(crate) unsafe fn leased(start: *mut u8, length: usize) -> PartMut<'a> {
        PartMut(libc::iovec { iov_base: start.cast(), iov_len: length }, PhantomData)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sends the parts in order by one `sendmsg`; gives how many bytes found room.
///
/// # Errors
/// What the system says: EAGAIN if there is no room now, EMSGSIZE for more than 1024 parts.
pub fn send(socket: BorrowedFd<'_>, parts: &[Part<'_>], flags: MsgFlags) -> Result<usize, Errno> {
    let mut message = empty_message();
    // sendmsg does not write to the list.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: `message` names a list of as many iovecs as `parts` has, for a Part is one, and no more. Each names memory
    // that a slice or a lease keeps alive and unwritten by this process for the part's lifetime. The system only reads.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags.bits()) };
    Errno::result(sent).map(|count| count as usize)
}

/// Receives into the parts in order by one `recvmsg`; gives how many bytes came, 0 at the end of a stream.
///
/// # Errors
/// What the system says: EAGAIN if nothing is there now, EMSGSIZE for more than 1024 parts.
pub fn receive(socket: BorrowedFd<'_>, parts: &mut [PartMut<'_>], flags: MsgFlags) -> Result<usize, Errno> {
    let mut message = empty_message();
    message.msg_iov = parts.as_mut_ptr().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: as in `send`. What a PartMut names is for nobody else in this process to read or write during its
    // lifetime, so that the system may write there; whatever it writes is valid bytes.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags.bits()) };
    Errno::result(received).map(|count| count as usize)
}

/// A message without name, memory and control data.
fn empty_message() -> libc::msghdr {
    // SAFETY: all of it are integers and pointers, for which zero bytes are valid.
    unsafe { std::mem::zeroed() }
}
