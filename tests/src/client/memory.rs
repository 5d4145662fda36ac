//! Mappings of memory that the helper made: access to words, and sleeping on one of them.

#![expect(unsafe_code, reason = "memory that two processes have mapped can be reached by pointers alone")]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::stat::fstat;

/// `F_SEAL_FUTURE_WRITE`.
const SEAL: SealFlag = SealFlag::from_bits_retain(0x10);

/// A file that is mapped whole. A clone shares the mapping.
#[derive(Debug, Clone)]
pub struct Memory(Arc<MmapRaw>);

impl Memory {
    /// Maps all memory of a descriptor, and seals it as the protocol requires of a client.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn map_and_seal(fd: impl AsFd) -> Result<Memory, Errno> {
        let memory = Memory::map(&fd)?;
        fcntl(fd, FcntlArg::F_ADD_SEALS(SEAL))?;
        Ok(memory)
    }

    /// Maps and seals all memory of a descriptor at an address that is a multiple of `alignment`.
    ///
    /// # Errors
    ///
    /// The errno of the system call; ENOMEM if the system does not put mappings directly below each
    /// other.
    pub fn map_aligned_and_seal(fd: impl AsFd, alignment: usize) -> Result<Memory, Errno> {
        let mut in_between = Vec::new();
        for _ in 0..16 {
            let memory = Memory::map(&fd)?;
            let beyond = memory.0.as_mut_ptr() as usize % alignment;
            if beyond == 0 {
                fcntl(fd, FcntlArg::F_ADD_SEALS(SEAL))?;
                return Ok(memory);
            }
            in_between.extend([memory, Memory::private(beyond)?]);
        }
        Err(Errno::ENOMEM)
    }

    /// Maps all memory of a descriptor.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn map(fd: impl AsFd) -> Result<Memory, Errno> {
        let length = fstat(&fd)?.st_size as usize;
        let failed = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        let fd = fd.as_fd().try_clone_to_owned().map_err(failed)?;
        Ok(Memory(Arc::new(MmapOptions::new().len(length).map_raw(&fd).map_err(failed)?)))
    }

    /// Maps process-private memory.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn private(length: usize) -> Result<Memory, Errno> {
        let map = MmapOptions::new().len(length).map_anon().map_err(|_| Errno::ENOMEM)?;
        Ok(Memory(Arc::new(map.into())))
    }

    /// Maps the first `length` bytes of a file, without checking its size.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn map_beginning(fd: impl AsFd, length: usize) -> Result<Memory, Errno> {
        let map = MmapOptions::new().len(length).map_raw(&fd.as_fd());
        let failed = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        Ok(Memory(Arc::new(map.map_err(failed)?)))
    }

    /// Replaces small pages by huge ones, in all mappings of the file.
    ///
    /// # Errors
    ///
    /// The errno of the system call: EINVAL before Linux 6.1, EAGAIN while a page is in use
    /// elsewhere.
    pub fn collapse(&self) -> Result<(), Errno> {
        const MADV_COLLAPSE: i32 = 25;
        // SAFETY: the range is the mapping, whose content does not change.
        let advised = unsafe { libc::madvise(self.0.as_mut_ptr().cast(), self.len(), MADV_COLLAPSE) };
        Errno::result(advised).map(drop)
    }

    /// Returns the size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "there is no mapping of nothing")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the eight bytes at `at`.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len(), "a word at {at} of {}", self.len());
        // SAFETY: the word lies in the mapping and is aligned, as was just checked and since a
        // mapping begins at a page boundary; the mapping lives as long as `self`; others may access
        // it in any way, which atomics allow.
        unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().add(at).cast()) }
    }

    /// Returns the four bytes at `at`.
    pub fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len(), "a number at {at} of {}", self.len());
        // SAFETY: as for `word`.
        unsafe { AtomicU32::from_ptr(self.0.as_mut_ptr().add(at).cast()) }
    }

    /// Writes bytes as whole words; offset and length are multiples of 8.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (number, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.word(at + 8 * number).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Reads bytes; offset and length are multiples of 8.
    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        (at..at + length)
            .step_by(8)
            .flat_map(|at| self.word(at).load(Ordering::Relaxed).to_ne_bytes())
            .collect()
    }

    /// Returns pages of the file to the system, for all processes that map it: they read as zeros,
    /// or fault if there is no memory to replace them.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn punch(&self, at: usize, length: usize) -> Result<(), Errno> {
        assert!(at + length <= self.len());
        // SAFETY: the range lies in the mapping; the caller wants its content to be lost, and all
        // accesses to it here are by atomics, for which any value is valid.
        let result = unsafe { libc::madvise(self.0.as_mut_ptr().add(at).cast(), length, libc::MADV_REMOVE) };
        Errno::result(result).map(drop)
    }

    /// Sleeps while the number at `at` is `while_it_is`, until a wake-up or for at most `longest`.
    pub fn sleep(&self, at: usize, while_it_is: u32, longest: Duration) {
        let word = self.half(at);
        let longest = libc::timespec { tv_sec: longest.as_secs() as _, tv_nsec: longest.subsec_nanos() as _ };
        // SAFETY: the word is valid and aligned for the whole call, and so is the time; FUTEX_WAIT
        // reads only these two.
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, while_it_is, &raw const longest)
        };
    }

    /// Reads from a descriptor into this memory; returns the number of bytes.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn fill_from(&self, fd: impl AsFd) -> Result<usize, Errno> {
        // SAFETY: the system may write the whole mapping during this call, and all accesses to it
        // here are by atomics.
        let read = unsafe { libc::read(fd.as_fd().as_raw_fd(), self.0.as_mut_ptr().cast(), self.len()) };
        Errno::result(read).map(isize::cast_unsigned)
    }

    /// Waits for the descriptors of an epoll set, and writes the events into this memory; returns
    /// their number.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn wait_for(&self, set: impl AsFd) -> Result<usize, Errno> {
        let most = (self.len() / size_of::<libc::epoll_event>()) as i32;
        let (set, events) = (set.as_fd().as_raw_fd(), self.0.as_mut_ptr().cast());
        // SAFETY: as for `fill_from`; the signal mask is null.
        let found = unsafe { libc::epoll_pwait(set, events, most, -1, std::ptr::null()) };
        Errno::result(found).map(i32::cast_unsigned).map(|found| found as usize)
    }

    /// Lists a folder into this memory; returns the number of bytes.
    ///
    /// # Errors
    ///
    /// The errno of the system call.
    pub fn list(&self, folder: impl AsFd) -> Result<usize, Errno> {
        let (folder, start) = (folder.as_fd().as_raw_fd(), self.0.as_mut_ptr());
        // SAFETY: as for `fill_from`.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, folder, start, self.len()) };
        Errno::result(read).map(|read| read as usize)
    }

    /// Returns the address, for system calls.
    pub fn address(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}
