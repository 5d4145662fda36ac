//! Completion channels: they report that a completion queue has completions.

use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use lnet_api::Errno;
use lnet_region::ForkGuard;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nlx_ibverbs_sys as ffi;

use super::check;
use super::context::DeviceContext;
use crate::fabric::ChannelToken;

/// The event channel of a device's completion queues.
pub(super) struct CompletionChannel {
    raw: NonNull<ffi::ibv_comp_channel>,
    /// Approximate number of armed queues without an event: if it is 0, no system call is needed.
    armed: AtomicUsize,
    fork_guard: ForkGuard,
    /// The context, kept so that the device stays open.
    _context: Arc<DeviceContext>,
}

// SAFETY: libibverbs may be called by any thread; a channel is a descriptor that is only read.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub(super) fn new(context: &Arc<DeviceContext>) -> Result<CompletionChannel, Errno> {
        // SAFETY: the context is valid, and kept.
        let raw = unsafe { ffi::ibv_create_comp_channel(context.verbs()) };
        let raw = NonNull::new(raw).ok_or_else(Errno::last)?;
        let armed = AtomicUsize::new(0);
        let channel =
            CompletionChannel { raw, armed, fork_guard: ForkGuard::here(), _context: context.clone() };
        fcntl(channel.fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has it open until it is destroyed.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_comp_channel {
        self.raw.as_ptr()
    }

    /// Counts a queue that has been armed.
    pub(super) fn note_armed(&self) {
        self.armed.fetch_add(1, Relaxed);
    }

    /// Returns whether a queue may have an event.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Relaxed) > 0
    }

    /// Reads the next event, and returns the token of its queue.
    ///
    /// The event is acknowledged at once, which costs an uncontended lock after a system call.
    /// Other threads destroy queues, and that waits until all events of the queue are acknowledged:
    /// if events were counted up for one acknowledgement of many, those threads would wait for the
    /// next call.
    pub(super) fn next(&self) -> Option<ChannelToken> {
        let (mut queue, mut token) = (null_mut(), null_mut());
        // SAFETY: the channel is valid and does not block, and there is room for its results.
        if check(unsafe { ffi::ibv_get_cq_event(self.raw(), &mut queue, &mut token) }).is_err() {
            // The count was too high: queues that were armed twice, or are gone, were counted too.
            self.armed.store(0, Relaxed);
            return None;
        }
        let _ = self.armed.fetch_update(Relaxed, Relaxed, |armed| armed.checked_sub(1));
        // SAFETY: the queue has an unacknowledged event, so that it is not destroyed before the
        // acknowledgement. It is not used afterwards: the token is a copy of the number it was made
        // with.
        unsafe { ffi::ibv_ack_cq_events(queue, 1) };
        Some(ChannelToken(token.addr() as u64))
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        if self.fork_guard.in_owner_process() {
            // SAFETY: it is destroyed once. No queue is left on it: each keeps the channel.
            unsafe { ffi::ibv_destroy_comp_channel(self.raw.as_ptr()) };
        }
    }
}

/// Returns the token as a completion queue's context pointer.
pub(super) fn as_context(token: ChannelToken) -> *mut std::ffi::c_void {
    without_provenance_mut(token.0 as usize)
}
