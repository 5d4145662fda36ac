//! Limits on the objects of a domain.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::Error;

/// Limits on a domain's objects, in addition to the transport's ([`crate::Domain::limits`]). By
/// default nothing is limited.
///
/// ```
/// use nlx::{Domain, Errno, NodeConfig, Quotas};
///
/// let domain = Domain::in_process(&NodeConfig::new())?;
/// domain.set_quotas(&Quotas::default().bytes(1 << 20));
/// let buffer = domain.allocate(1 << 20)?;
/// let error = domain.allocate(1).expect_err("all of it is taken");
/// assert_eq!(error.to_string(), "the domain's limit of 1048576 registered bytes is reached");
/// assert_eq!(error.errno(), Errno::ENOMEM);
/// drop(buffer);
/// domain.allocate(1)?;
/// # Ok::<(), nlx::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas([u64; LimitedObject::COUNT]);

impl Quotas {
    /// Limits the number of registered buffers; each part of a large buffer counts.
    #[must_use]
    pub const fn buffers(self, limit: u64) -> Quotas {
        self.with(LimitedObject::Buffers, limit)
    }

    /// Limits the bytes of registered buffers; bytes that are registered twice count twice.
    #[must_use]
    pub const fn bytes(self, limit: u64) -> Quotas {
        self.with(LimitedObject::Bytes, limit)
    }

    /// Limits the number of transfer machines; stopped machines count until they are dropped.
    #[must_use]
    pub const fn machines(self, limit: u64) -> Quotas {
        self.with(LimitedObject::Machines, limit)
    }

    /// Limits the number of operations in flight at one transfer machine.
    #[must_use]
    pub const fn operations(self, limit: u64) -> Quotas {
        self.with(LimitedObject::Operations, limit)
    }

    /// Limits the number of end points in use at one transfer machine, beyond which
    /// [`crate::Machine::end_point`] returns no new one. End points of senders count, but are never
    /// refused.
    #[must_use]
    pub const fn end_points(self, limit: u64) -> Quotas {
        self.with(LimitedObject::EndPoints, limit)
    }

    const fn with(mut self, object: LimitedObject, limit: u64) -> Quotas {
        self.0[object as usize] = limit;
        self
    }
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas([u64::MAX; LimitedObject::COUNT])
    }
}

/// The kinds of objects that have limits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LimitedObject {
    Buffers,
    Bytes,
    Machines,
    Operations,
    EndPoints,
}

impl LimitedObject {
    const COUNT: usize = 5;

    fn name(self) -> &'static str {
        match self {
            LimitedObject::Buffers => "registered buffers",
            LimitedObject::Bytes => "registered bytes",
            LimitedObject::Machines => "transfer machines",
            LimitedObject::Operations => "operations in flight at the transfer machine",
            LimitedObject::EndPoints => "end points in use at the transfer machine",
        }
    }
}

/// The limits of a domain, and its current usage.
#[derive(Debug)]
pub(crate) struct QuotaUsage {
    limit: [AtomicU64; LimitedObject::COUNT],
    in_use: [AtomicU64; LimitedObject::COUNT],
}

impl Default for QuotaUsage {
    fn default() -> QuotaUsage {
        QuotaUsage { limit: Quotas::default().0.map(AtomicU64::new), in_use: Default::default() }
    }
}

impl QuotaUsage {
    pub(crate) fn set(&self, quotas: &Quotas) {
        self.limit.iter().zip(quotas.0).for_each(|(limit, wanted)| limit.store(wanted, Relaxed));
    }

    /// Refuses one more object if the limit is reached with `present` objects.
    pub(crate) fn check(&self, object: LimitedObject, present: u64) -> Result<(), Error> {
        let limit = self.limit[object as usize].load(Relaxed);
        if present < limit { Ok(()) } else { Err(Error::Quota { object: object.name(), limit }) }
    }

    /// Returns whether this kind of object is limited.
    pub(crate) fn is_limited(&self, object: LimitedObject) -> bool {
        self.limit[object as usize].load(Relaxed) != u64::MAX
    }

    pub(crate) fn reserve(&self, object: LimitedObject, amount: u64) -> Result<(), Error> {
        let (limit, in_use) = (&self.limit[object as usize], &self.in_use[object as usize]);
        let limit = limit.load(Relaxed);
        // Added first and compared afterwards: if two threads reserve the last units at the same
        // time, both may be refused.
        let before = in_use.fetch_add(amount, Relaxed);
        if before.saturating_add(amount) <= limit {
            return Ok(());
        }
        in_use.fetch_sub(amount, Relaxed);
        Err(Error::Quota { object: object.name(), limit })
    }

    pub(crate) fn release(&self, object: LimitedObject, amount: u64) {
        self.in_use[object as usize].fetch_sub(amount, Relaxed);
    }
}
