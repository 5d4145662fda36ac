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

    /// Copies the bytes from `skip` on out, as a system call would; gives how many: all of `target`, or all there are.
    pub fn load(&self, skip: usize, target: &mut [u8]) -> usize {
        let count = self.len().saturating_sub(skip).min(target.len());
        // It stays within the bytes, or right behind them.
        let start = self.0.iov_base.cast::<u8>().cast_const().wrapping_add(skip);
        let head = start.align_offset(size_of::<u64>()).min(count);
        let (words, tail) = target[..count].split_at_mut(head).1.as_chunks_mut::<{ size_of::<u64>() }>();
        let words_end = head + size_of_val(words);
        for (at, word) in words.iter_mut().enumerate() {
            // SAFETY: the slice or lease behind the part keeps its bytes mapped, and unwritten by this process; those of
            // the word are among the `count` of them from `start` on, `head` bytes behind which words are aligned. A
            // volatile read says nothing to the compiler of what another process may write.
            *word = unsafe { start.add(head).cast::<u64>().add(at).read_volatile() }.to_ne_bytes();
        }
        for (at, byte) in tail.iter_mut().enumerate() {
            // SAFETY: as above; the byte is one of the last of the `count`.
            *byte = unsafe { start.add(words_end + at).read_volatile() };
        }
        for (at, byte) in target[..head].iter_mut().enumerate() {
            // SAFETY: as above; the byte is one of the first of the `count`.
            *byte = unsafe { start.add(at).read_volatile() };
        }
        count
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

    /// Copies bytes in from the byte `skip` on, as a system call would; gives how many: all of `source`, or as many as
    /// there is room for. For stand-ins of the system, which are not fast.
    pub fn store(&mut self, skip: usize, source: &[u8]) -> usize {
        let start = self.0.iov_base.cast::<u8>();
        let count = self.len().saturating_sub(skip).min(source.len());
        for (at, byte) in source[..count].iter().enumerate() {
            // SAFETY: the slice or lease behind the part keeps its bytes mapped, for nobody else in this process to touch;
            // `skip + at` is below their count. Another process may read them: hence volatile.
            unsafe { start.add(skip + at).write_volatile(*byte) };
        }
        count
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
