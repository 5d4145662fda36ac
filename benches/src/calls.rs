//! Counts the system calls of this thread with a tracepoint of the kernel.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

use nix::libc;

use crate::error::{BenchError, Result};

/// The file with the id of the tracepoint for system calls.
const TRACEPOINT: &str = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id";

/// A counter of the thread that created it.
#[derive(Debug)]
pub(crate) struct Calls(File);

/// `perf_event_attr` in its first version; fields without a name here are 0.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    others: [u64; 6],
}

impl Calls {
    pub(crate) fn counted() -> Result<Calls> {
        /// An event of a tracepoint, whose number is its configuration.
        const OF_TRACEPOINT: u32 = 2;
        const THIS_THREAD: libc::pid_t = 0;
        const ANY_PROCESSOR: libc::c_int = -1;
        const NO_GROUP: libc::c_int = -1;
        let number =
            std::fs::read_to_string(TRACEPOINT).map_err(BenchError::system("find the tracepoint"))?;
        let config = number.trim().parse().unwrap_or(0);
        let size = size_of::<Attributes>() as u32;
        let attributes = Attributes { kind: OF_TRACEPOINT, size, config, ..Attributes::default() };
        let flags: libc::c_ulong = 8; // Closed on exec.
        // SAFETY: the call reads the attributes, whose length is in them, and takes plain numbers
        // besides.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                THIS_THREAD,
                ANY_PROCESSOR,
                NO_GROUP,
                flags,
            )
        };
        let fd = nix::errno::Errno::result(fd).map_err(BenchError::system("count system calls"))?;
        // SAFETY: the system has just created this descriptor, for this caller alone.
        Ok(Calls(unsafe { File::from_raw_fd(fd as i32) }))
    }

    /// Runs `work`; returns its result and its number of system calls.
    pub(crate) fn of<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<(R, u64)> {
        let before = self.read()?;
        let done = work()?;
        // The call that reads the counter counts as well.
        Ok((done, self.read()? - before - 1))
    }

    fn read(&mut self) -> Result<u64> {
        let mut count = [0; 8];
        self.0.read_exact(&mut count).map_err(BenchError::system("read a counter"))?;
        Ok(u64::from_ne_bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_counts_once() {
        // Counting needs privileges.
        let Ok(mut calls) = Calls::counted() else { return };
        for wanted in [0, 1, 7] {
            let work = || {
                for _ in 0..wanted {
                    let _ = nix::unistd::getppid();
                }
                Ok(())
            };
            assert_eq!(calls.of(work).unwrap(), ((), wanted));
        }
    }
}
