//! How a dropped buffer returns to its pool.

use std::fmt;
use std::sync::{Arc, Weak};

use lnet_region::ForkGuard;
use parking_lot::Mutex;

use super::Shared;
use crate::{Buffer, Colour};

/// The state that a buffer of a pool shares with its messages.
pub(crate) struct Home {
    /// Weak, so that a buffer that outlives its pool is freed.
    pool: Weak<Shared>,
    /// Checked before the lock is taken, which in a forked child may be held for ever.
    fork_guard: ForkGuard,
    stay: Mutex<Stay>,
}

#[derive(Default)]
struct Stay {
    /// The number of messages that lend bytes of the buffer out.
    messages: usize,
    /// The buffer, if it was dropped before its messages.
    parked: Option<(Buffer, Colour)>,
}

/// Set in a buffer that is outside its pool.
pub(crate) struct Member {
    home: Arc<Home>,
    /// The colour under which it will return.
    colour: Colour,
}

/// A buffer inside the pool.
pub(super) struct Resident {
    /// Has no [`Member`], so that its drop frees it.
    buffer: Buffer,
    home: Arc<Home>,
}

/// Held by a message in a buffer of a pool: keeps the buffer from becoming free.
pub(crate) struct Guest(Arc<Home>);

/// What to do with a dropped buffer.
pub(super) enum Return {
    /// Put it into its pool.
    Home(Arc<Shared>, Resident, Colour),
    /// Nothing: it waits for its messages, or its pool is gone.
    Nothing,
}

impl Home {
    fn open(self: Arc<Home>, buffer: Buffer, colour: Colour) -> Return {
        match self.pool.upgrade() {
            Some(pool) => Return::Home(pool, Resident { buffer, home: self }, colour),
            None => Return::Nothing,
        }
    }
}

impl Member {
    pub(super) fn colour(&self) -> Colour {
        self.colour
    }

    pub(super) fn pool(&self) -> Option<Arc<Shared>> {
        self.home.pool.upgrade()
    }

    pub(super) fn is_of(&self, pool: &Arc<Shared>) -> bool {
        std::ptr::eq(self.home.pool.as_ptr(), Arc::as_ptr(pool))
    }

    /// Handles the drop of the buffer.
    pub(super) fn give_back(self, buffer: Buffer, colour: Colour) -> Return {
        let mut stay = self.home.stay.lock();
        if stay.messages > 0 {
            stay.parked = Some((buffer, colour));
            return Return::Nothing;
        }
        drop(stay);
        self.home.open(buffer, colour)
    }
}

impl Resident {
    pub(super) fn new(buffer: Buffer, pool: &Arc<Shared>) -> Resident {
        let home = Home { pool: Arc::downgrade(pool), fork_guard: ForkGuard::here(), stay: Mutex::default() };
        Resident { buffer, home: Arc::new(home) }
    }

    /// Hands the buffer out, to return under this colour.
    pub(super) fn leave(self, colour: Colour) -> Buffer {
        let Resident { mut buffer, home } = self;
        buffer.join(Member { home, colour });
        buffer
    }
}

impl Guest {
    pub(crate) fn of(member: &Member) -> Guest {
        member.home.stay.lock().messages += 1;
        Guest(member.home.clone())
    }

    /// Handles the drop of the message.
    pub(super) fn go(&self) -> Return {
        if !self.0.fork_guard.in_owner_process() {
            return Return::Nothing;
        }
        let mut stay = self.0.stay.lock();
        stay.messages -= 1;
        let parked = if stay.messages == 0 { stay.parked.take() } else { None };
        drop(stay);
        match parked {
            Some((buffer, colour)) => self.0.clone().open(buffer, colour),
            None => Return::Nothing,
        }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guest")
    }
}
