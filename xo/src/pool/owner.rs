//! The return of a dropped buffer to its pool.

use std::fmt;
use std::sync::{Arc, Weak};

use lnet_region::ForkGuard;
use parking_lot::Mutex;

use super::PoolShared;
use crate::{Buffer, Colour};

/// The state that a buffer of a pool shares with its messages.
pub(crate) struct BufferOwner {
    /// Weak, so that a buffer that outlives its pool is freed.
    pool: Weak<PoolShared>,
    /// Checked before the lock is taken, which in a forked child may be held for ever.
    fork_guard: ForkGuard,
    use_state: Mutex<BufferUse>,
}

#[derive(Default)]
struct BufferUse {
    /// The number of messages that lend bytes of the buffer out.
    messages: usize,
    /// The buffer, if it was dropped before its messages.
    parked: Option<(Buffer, Colour)>,
}

/// Set in a buffer that is outside its pool.
pub(crate) struct PoolMember {
    owner: Arc<BufferOwner>,
    /// The colour under which it will return.
    colour: Colour,
}

/// A buffer inside the pool.
pub(super) struct FreeBuffer {
    /// Has no [`PoolMember`], so that its drop frees it.
    buffer: Buffer,
    owner: Arc<BufferOwner>,
}

/// Held by a message in a buffer of a pool: keeps the buffer from becoming free.
pub(crate) struct BufferHold(Arc<BufferOwner>);

/// The fate of a dropped buffer, decided when it is dropped.
pub(super) enum Return {
    /// Put it into its pool.
    Free(Arc<PoolShared>, FreeBuffer, Colour),
    /// Nothing: it waits for its messages, or its pool is gone.
    Nothing,
}

impl BufferOwner {
    fn return_to_pool(self: Arc<BufferOwner>, buffer: Buffer, colour: Colour) -> Return {
        match self.pool.upgrade() {
            Some(pool) => Return::Free(pool, FreeBuffer { buffer, owner: self }, colour),
            None => Return::Nothing,
        }
    }
}

impl PoolMember {
    pub(super) fn colour(&self) -> Colour {
        self.colour
    }

    pub(super) fn pool(&self) -> Option<Arc<PoolShared>> {
        self.owner.pool.upgrade()
    }

    pub(super) fn is_of(&self, pool: &Arc<PoolShared>) -> bool {
        std::ptr::eq(self.owner.pool.as_ptr(), Arc::as_ptr(pool))
    }

    /// Handles the drop of the buffer.
    pub(super) fn give_back(self, buffer: Buffer, colour: Colour) -> Return {
        let mut use_state = self.owner.use_state.lock();
        if use_state.messages > 0 {
            use_state.parked = Some((buffer, colour));
            return Return::Nothing;
        }
        drop(use_state);
        self.owner.return_to_pool(buffer, colour)
    }
}

impl FreeBuffer {
    pub(super) fn new(buffer: Buffer, pool: &Arc<PoolShared>) -> FreeBuffer {
        let owner = BufferOwner {
            pool: Arc::downgrade(pool),
            fork_guard: ForkGuard::here(),
            use_state: Mutex::default(),
        };
        FreeBuffer { buffer, owner: Arc::new(owner) }
    }

    /// Hands the buffer out, to return under this colour.
    pub(super) fn leave(self, colour: Colour) -> Buffer {
        let FreeBuffer { mut buffer, owner } = self;
        buffer.set_member(PoolMember { owner, colour });
        buffer
    }
}

impl BufferHold {
    pub(crate) fn of(member: &PoolMember) -> BufferHold {
        member.owner.use_state.lock().messages += 1;
        BufferHold(member.owner.clone())
    }

    /// Handles the drop of the message.
    pub(super) fn release(&self) -> Return {
        if !self.0.fork_guard.in_owner_process() {
            return Return::Nothing;
        }
        let mut use_state = self.0.use_state.lock();
        use_state.messages -= 1;
        let parked = if use_state.messages == 0 { use_state.parked.take() } else { None };
        drop(use_state);
        match parked {
            Some((buffer, colour)) => self.0.clone().return_to_pool(buffer, colour),
            None => Return::Nothing,
        }
    }
}

impl fmt::Debug for BufferHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BufferHold")
    }
}
