//! How much of everything a domain gives out.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::Error;

/// How much a domain gives out at the most, beside what the transport can ([`crate::Domain::limits`]). Nothing is limited
/// until it is set.
///
/// ```
/// use nlx::{Domain, Errno, NodeConfig, Quotas};
///
/// let domain = Domain::in_process(&NodeConfig::new())?;
/// domain.set_quotas(&Quotas::default().bytes(1 << 20));
/// let buffer = domain.allocate(1 << 20)?;
/// let error = domain.allocate(1).expect_err("all of it is taken");
/// assert_eq!(error.to_string(), "there are 1048576 bytes registered already: the domain allows no more");
/// assert_eq!(error.errno(), Errno::ENOMEM);
/// drop(buffer);
/// domain.allocate(1)?;
/// # Ok::<(), nlx::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas([u64; Object::COUNT]);

impl Quotas {
    /// Buffers registered at a time; each part of a large one counts.
    #[must_use]
    pub const fn buffers(self, most: u64) -> Quotas {
        self.with(Object::Buffers, most)
    }

    /// Bytes of buffers registered at a time; bytes of two buffers count twice.
    #[must_use]
    pub const fn bytes(self, most: u64) -> Quotas {
        self.with(Object::Bytes, most)
    }

    /// Transfer machines at a time, stopped ones that have not been dropped included.
    #[must_use]
    pub const fn machines(self, most: u64) -> Quotas {
        self.with(Object::Machines, most)
    }

    /// Operations of one transfer machine in flight at a time.
    #[must_use]
    pub const fn operations(self, most: u64) -> Quotas {
        self.with(Object::Operations, most)
    }

    /// End points in use at one transfer machine beyond which [`crate::Machine::end_point`] gives no new one; those of
    /// senders count, and are always given.
    #[must_use]
    pub const fn end_points(self, most: u64) -> Quotas {
        self.with(Object::EndPoints, most)
    }

    const fn with(mut self, object: Object, most: u64) -> Quotas {
        self.0[object as usize] = most;
        self
    }
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas([u64::MAX; Object::COUNT])
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Object {
    Buffers,
    Bytes,
    Machines,
    Operations,
    EndPoints,
}

impl Object {
    const COUNT: usize = 5;

    fn name(self) -> &'static str {
        match self {
            Object::Buffers => "buffers registered",
            Object::Bytes => "bytes registered",
            Object::Machines => "transfer machines",
            Object::Operations => "operations of the transfer machine in flight",
            Object::EndPoints => "end points of the transfer machine in use",
        }
    }
}

/// What a domain allows, and what it has given out.
#[derive(Debug)]
pub(crate) struct Ledger {
    most: [AtomicU64; Object::COUNT],
    given: [AtomicU64; Object::COUNT],
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger { most: Quotas::default().0.map(AtomicU64::new), given: Default::default() }
    }
}

impl Ledger {
    pub(crate) fn set(&self, quotas: &Quotas) {
        self.most.iter().zip(quotas.0).for_each(|(most, wanted)| most.store(wanted, Relaxed));
    }

    /// Whether one more is allowed where there are so many.
    pub(crate) fn check(&self, object: Object, present: u64) -> Result<(), Error> {
        let limit = self.most[object as usize].load(Relaxed);
        if present < limit { Ok(()) } else { Err(Error::Quota { object: object.name(), limit }) }
    }

    /// Whether it is limited at all.
    pub(crate) fn limits(&self, object: Object) -> bool {
        self.most[object as usize].load(Relaxed) != u64::MAX
    }

    pub(crate) fn give(&self, object: Object, amount: u64) -> Result<(), Error> {
        let (most, given) = (&self.most[object as usize], &self.given[object as usize]);
        let limit = most.load(Relaxed);
        // Added first and looked at then: of two that want the rest at once, both may be refused.
        let before = given.fetch_add(amount, Relaxed);
        if before.saturating_add(amount) <= limit {
            return Ok(());
        }
        given.fetch_sub(amount, Relaxed);
        Err(Error::Quota { object: object.name(), limit })
    }

    pub(crate) fn take_back(&self, object: Object, amount: u64) {
        self.given[object as usize].fetch_sub(amount, Relaxed);
    }
}
