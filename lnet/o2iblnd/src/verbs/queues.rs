//! A queue pair and its completion queue.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_region::ForkGuard;
use nlx_ibverbs_sys as ffi;

use super::check;
use super::cm::CmId;
use super::completions::{CompletionChannel, as_context};
use super::context::DeviceContext;
use crate::fabric::{ChannelToken, QueueSizes};

/// The smallest inline size that is worth asking a device for.
const INLINE_MIN: u32 = 32;

/// A queue pair with its completion queue. The identifier for which it is made must outlive it.
pub(super) struct Queues {
    pair: NonNull<ffi::ibv_qp>,
    completions: CompletionQueue,
    context: Arc<DeviceContext>,
    made: QueueSizes,
    fork_guard: ForkGuard,
}

// SAFETY: libibverbs may be called by any thread, and locks each queue.
unsafe impl Send for Queues {}
// SAFETY: as above.
unsafe impl Sync for Queues {}

impl Queues {
    pub(super) fn new(
        token: ChannelToken,
        id: &CmId,
        context: &Arc<DeviceContext>,
        channel: &Arc<CompletionChannel>,
        vector: u32,
        sizes: &QueueSizes,
    ) -> Result<Queues, Errno> {
        let completions = CompletionQueue::new(token, context, channel, vector, sizes.completions)?;
        let mut inline = sizes.inline;
        loop {
            let wish = QueueSizes { inline, ..*sizes };
            match create(id, context, &completions, &wish) {
                Ok((pair, made)) => {
                    let (context, fork_guard) = (context.clone(), ForkGuard::here());
                    return Ok(Queues { pair, completions, context, made, fork_guard });
                }
                // Devices do not report the inline size that they support; it counts against the
                // queue's memory.
                Err(Errno::EINVAL | Errno::ENOMEM) if inline > 0 => {
                    inline = if inline > INLINE_MIN { inline / 2 } else { 0 };
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(super) fn made(&self) -> &QueueSizes {
        &self.made
    }

    pub(super) fn pair(&self) -> NonNull<ffi::ibv_qp> {
        self.pair
    }

    pub(super) fn completions(&self) -> NonNull<ffi::ibv_cq> {
        self.completions.raw
    }

    pub(super) fn context(&self) -> &DeviceContext {
        &self.context
    }

    pub(super) fn fork_guard(&self) -> &ForkGuard {
        &self.fork_guard
    }

    /// Returns the queue pair's number, which the peer's queue pair needs.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is valid until this is dropped, and its number stays.
        unsafe { self.pair.as_ref().qp_num }
    }

    /// Moves the queue pair to the state INIT, in which it accepts receives.
    pub(super) fn to_init(&self, id: &CmId) -> Result<(), Errno> {
        self.to(id, ffi::ibv_qp_state::IBV_QPS_INIT)
    }

    /// Moves the queue pair to the state in which it receives and sends. The connection manager
    /// must have resolved the route to the peer.
    pub(super) fn to_ready(&self, id: &CmId) -> Result<(), Errno> {
        // INIT is set again, with the access rights that the connection manager provides only now.
        self.to(id, ffi::ibv_qp_state::IBV_QPS_INIT)?;
        self.to(id, ffi::ibv_qp_state::IBV_QPS_RTR)?;
        self.to(id, ffi::ibv_qp_state::IBV_QPS_RTS)
    }

    fn to(&self, id: &CmId, state: ffi::ibv_qp_state::Type) -> Result<(), Errno> {
        let mut attributes = ffi::ibv_qp_attr { qp_state: state, ..Default::default() };
        let mut mask = 0;
        // SAFETY: the identifier is valid, and there is room for the results.
        check(unsafe { ffi::rdma_init_qp_attr(id.raw(), &mut attributes, &mut mask) })?;
        if state == ffi::ibv_qp_state::IBV_QPS_INIT {
            attributes.qp_access_flags = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
            mask |= ffi::ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0 as i32;
        }
        // SAFETY: the queue pair is valid; the attributes that the mask names are set.
        check(unsafe { ffi::ibv_modify_qp(self.pair.as_ptr(), &mut attributes, mask) })
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            return;
        }
        // SAFETY: it is destroyed once, and not used elsewhere: the owner has removed it from the
        // table of the event handlers. Events that name it are acknowledged before the call
        // returns. The completion queue, a field, is dropped afterwards.
        if let Err(errno) = check(unsafe { ffi::ibv_destroy_qp(self.pair.as_ptr()) }) {
            tracing::error!(%errno, "cannot destroy a queue pair");
        }
    }
}

/// Completes all posted work requests of a queue pair with errors, and stops its receives.
///
/// # Safety
/// The queue pair must be valid.
pub(super) unsafe fn flush(pair: NonNull<ffi::ibv_qp>) -> Result<(), Errno> {
    let mut attributes = ffi::ibv_qp_attr { qp_state: ffi::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
    // SAFETY: the caller's duty; the one attribute that the mask names is set.
    check(unsafe {
        ffi::ibv_modify_qp(pair.as_ptr(), &mut attributes, ffi::ibv_qp_attr_mask::IBV_QP_STATE.0 as i32)
    })
}

fn create(
    id: &CmId,
    context: &DeviceContext,
    completions: &CompletionQueue,
    sizes: &QueueSizes,
) -> Result<(NonNull<ffi::ibv_qp>, QueueSizes), Errno> {
    let mut attributes = ffi::ibv_qp_init_attr {
        // The identifier, which must be notified when a message arrives before the connection is
        // established.
        qp_context: id.raw().cast(),
        send_cq: completions.raw.as_ptr(),
        recv_cq: completions.raw.as_ptr(),
        srq: null_mut(),
        cap: ffi::ibv_qp_cap {
            max_send_wr: sizes.sends,
            max_recv_wr: sizes.receives,
            max_send_sge: sizes.pieces.max(1),
            max_recv_sge: 1,
            max_inline_data: sizes.inline,
        },
        qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: the domain and the completion queue are valid and of one device, and outlive the
    // queue pair.
    let pair = unsafe { ffi::ibv_create_qp(context.domain().raw(), &mut attributes) };
    let pair = NonNull::new(pair).ok_or_else(Errno::last)?;
    let made = QueueSizes {
        sends: attributes.cap.max_send_wr,
        receives: attributes.cap.max_recv_wr,
        completions: completions.entries,
        pieces: attributes.cap.max_send_sge,
        inline: attributes.cap.max_inline_data,
    };
    Ok((pair, made))
}

struct CompletionQueue {
    raw: NonNull<ffi::ibv_cq>,
    entries: u32,
    fork_guard: ForkGuard,
    /// The channel of the queue's events.
    _channel: Arc<CompletionChannel>,
}

impl CompletionQueue {
    fn new(
        token: ChannelToken,
        context: &DeviceContext,
        channel: &Arc<CompletionChannel>,
        vector: u32,
        entries: u32,
    ) -> Result<CompletionQueue, Errno> {
        let entries = i32::try_from(entries).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the context and its channel are valid and outlive the queue: the channel is kept,
        // and keeps the context. The token is a number.
        let raw = unsafe {
            ffi::ibv_create_cq(context.verbs(), entries, as_context(token), channel.raw(), vector as i32)
        };
        let raw = NonNull::new(raw).ok_or_else(Errno::last)?;
        // SAFETY: the queue is valid, and the field stays.
        let entries = u32::try_from(unsafe { raw.as_ref().cqe }).unwrap_or(0);
        Ok(CompletionQueue { raw, entries, fork_guard: ForkGuard::here(), _channel: channel.clone() })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            return;
        }
        // SAFETY: it is destroyed once; its queue pair is gone. Its events are acknowledged before
        // the call returns.
        if let Err(errno) = check(unsafe { ffi::ibv_destroy_cq(self.raw.as_ptr()) }) {
            tracing::error!(%errno, "cannot destroy a completion queue");
        }
    }
}
