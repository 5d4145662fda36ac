//! The handler of faults.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use parking_lot::Mutex;

use super::list::{self, RangeCopy};
use crate::{ForkGuard, RegionError};

/// The previous action for SIGBUS, in the process that installed the handler.
static PREVIOUS: OnceLock<PreviousAction> = OnceLock::new();

struct PreviousAction {
    action: SigAction,
    fork_guard: ForkGuard,
}

/// Installs the handler that heals faults in watched ranges, for all threads of the process. All
/// other bus errors have their previous effect; so call it after any other handler of SIGBUS has
/// been installed. Further calls do nothing. Forked children have no guard.
///
/// # Errors
/// [`RegionError::System`] if the system refuses.
pub fn install() -> Result<(), RegionError> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock();
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK | SaFlags::SA_RESTART;
    let ours = SigAction::new(SigHandler::SigAction(on_fault), flags, SigSet::empty());
    // SAFETY: the handler is async-signal-safe: it reads atomics, maps memory, sets signal actions,
    // and keeps errno.
    let action = unsafe { sigaction(Signal::SIGBUS, &ours) }
        .map_err(|errno| RegionError::System { bytes: 0, errno })?;
    // A fault before this line ends the process.
    let _ = PREVIOUS.set(PreviousAction { action, fork_guard: ForkGuard::here() });
    Ok(())
}

/// Accesses all watched pages of these bytes, so that the ones that fault are healed. Returns
/// `false` if none of the pages is watched.
///
/// The bytes must be under a lease.
pub(crate) fn touch(start: *const u8, length: usize) -> bool {
    if !is_installed() {
        return false;
    }
    let (first, end) = (start.addr(), start.addr() + length);
    let mut any = false;
    for watch in list::all() {
        let (from, to) = (first.max(watch.start), end.min(watch.start + watch.length));
        let mut at = from;
        while at < to {
            // SAFETY: the byte is under a lease, so that it is mapped, and is accessed by atomics,
            // this crate's copies and the system alone; if its page faults, it is mapped anew.
            let byte = unsafe { AtomicU8::from_ptr(start.cast_mut().with_addr(at)) };
            black_box(byte.load(Relaxed));
            any = true;
            at = watch.page(at) + watch.page_bytes;
        }
    }
    any
}

fn is_installed() -> bool {
    PREVIOUS.get().is_some_and(|before| before.fork_guard.in_owner_process())
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = Errno::last_raw();
    // SAFETY: the system passes a valid record. For a bus error that it raised itself, the record
    // has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // A positive code comes from the system. A misaligned access is no fault of a page, and would
    // repeat.
    let is_fault = code > 0 && code != libc::BUS_ADRALN;
    if !(is_fault && is_installed() && heal(address)) {
        pass_on(signal, info, context, is_fault);
    }
    Errno::set_raw(errno);
}

/// Replaces the page with this address by zeros, if the page is watched.
fn heal(address: usize) -> bool {
    let Some(watch) = list::all().find(|watch| watch.contains(address)) else { return false };
    watch.node.mark_faulted();
    // If many holes have used up the process's mappings, the whole range is replaced by one
    // mapping.
    map_zeros(watch.page(address), watch.page_bytes) || map_zeros(watch.start, watch.length)
}

fn map_zeros(start: usize, bytes: usize) -> bool {
    let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED | MapFlags::MAP_NORESERVE;
    let (Some(start), Some(bytes)) = (NonZeroUsize::new(start), NonZeroUsize::new(bytes)) else {
        return false;
    };
    // SAFETY: the pages are mapped, and the caller of `guard::watch` permitted this. The faulting
    // thread is at an access to one of them, so that they still belong to the range.
    unsafe { mmap_anonymous(Some(start), bytes, rights, flags) }.is_ok()
}

/// Performs the previous action of the signal.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    match PREVIOUS.get().map(|before| before.action.handler()) {
        Some(SigHandler::Handler(handler)) => handler(signal),
        Some(SigHandler::SigAction(handler)) => handler(signal, info, context),
        // A fault ends the process even if the previous action was to ignore the signal.
        Some(SigHandler::SigIgn) if !is_fault => {}
        _ => end_process(),
    }
}

/// Ends the process: the signal is raised again once the handler returns, with its default action.
fn end_process() {
    let usual = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the action has no handler.
    let _ = unsafe { sigaction(Signal::SIGBUS, &usual) };
    let _ = raise(Signal::SIGBUS);
}

impl RangeCopy {
    /// Returns the first address of the page that holds this one.
    fn page(&self, address: usize) -> usize {
        address & !(self.page_bytes - 1)
    }
}
