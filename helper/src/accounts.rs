//! Accounts: the resources that each user's clients hold, and the limits on further ones.
//!
//! # Fair shares
//!
//! A [`Charge`] is an amount of one [`Resource`] that a user holds. An ordinary user may grow as
//! long as it holds no more than what is free afterwards (a dynamic threshold). With `C` the
//! capacity less the reserve for root:
//!
//! ```text
//! held(user) + n  <=  C - (sum of held over all ordinary users) - n
//! ```
//!
//! - One user alone can take `C / 2`; `k` users that grow at the same time get `C / (k + 1)` each.
//! - A user that holds nothing can always take half of the free amount, and some is free while
//!   fewer than `log2(C)` users have each taken all they can, one after the other.
//! - Root may take everything that is free: the reserve, and the part that ordinary users leave.
//! - Where the capacity is not known, only the caps of users and groups bound the charges.
//!
//! # Users
//!
//! A user is a uid after [`Owners`](super::owners::Owners) has replaced subordinate uids by their
//! owner's; subordinate ranges of root or of the operator, which are for containers, count as the
//! first uid of their range. The user that the helper runs as (`AccountsConfig::operator`) can end
//! the helper anyway, and counts as root.
//!
//! # Cost
//!
//! A charge takes one mutex, shared by all users, and allocates only for a user that holds nothing
//! yet. Sessions therefore charge amounts that change with each operation in chunks ([`CHUNK`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nlx_core::Errno;
use nlx_driver_proto::{Reason, Refusal};
use parking_lot::Mutex;

/// The uid that is charged for a connection: that of `SO_PEERCRED`, or its owner's if it is
/// subordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

impl UserId {
    /// Root.
    pub const ROOT: UserId = UserId(0);
}

/// Amounts that change with each operation or buffer are charged in chunks of this size. It is the
/// budget of one round of a submission ring, so that a round needs at most one charge of each kind.
/// The amount that a client can hold without use is small beside the smallest share.
pub const CHUNK: u64 = 64;

/// The capacity of an unbounded resource. Sums of a few of these do not overflow.
pub const UNBOUNDED: u64 = u64::MAX / 8;

macro_rules! resources {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $errno:ident, $reason:ident;)*) => {
        /// A kind of resource that is counted for each user.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Resource {
            $($(#[$doc])* $variant,)*
        }

        impl Resource {
            /// All kinds.
            pub const ALL: [Resource; Resource::COUNT] = [$(Resource::$variant),*];

            /// The number of kinds.
            pub const COUNT: usize = [$(stringify!($variant)),*].len();

            /// Returns the name in configurations and in the status.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Resource::$variant => $name,)*
                }
            }

            /// Returns the refusal of a charge that would bring the amount to `wanted`, where
            /// `limit` is allowed.
            #[must_use]
            pub fn refusal(self, wanted: u64, limit: u64) -> Refusal {
                match self {
                    $(Resource::$variant => Refusal::of(Errno::$errno, Reason::$reason, wanted, limit),)*
                }
            }
        }
    };
}

resources! {
    /// Admitted connections.
    Clients, "clients", EUSERS, Clients;
    /// Descriptors that the helper holds for clients: sockets, doorbells, arenas, signal sockets of
    /// event loops.
    Descriptors, "descriptors", EMFILE, System;
    /// Mappings of the helper: rings, event queues, arenas.
    Mappings, "mappings", ENOMEM, Share;
    /// Estimated bytes of the helper's heap.
    HeapBytes, "heap_bytes", ENOMEM, Share;
    /// Bytes of arenas.
    ArenaBytes, "arena_bytes", ENOMEM, Share;
    /// Bytes of rings and event queues.
    QueueBytes, "queue_bytes", ENOMEM, Share;
    /// Transfer machines, each with an event queue of LNet.
    Machines, "machines", ENOMEM, Share;
    /// Registered buffers.
    Buffers, "buffers", ENOMEM, Share;
    /// Segments of buffers beyond the first of each.
    Segments, "segments", ENOMEM, Share;
    /// Arenas.
    Arenas, "arenas", ENOMEM, Share;
    /// Operations in flight: each has an MD of LNet, and a match entry if it waits for a peer.
    Operations, "operations", ENOMEM, Share;
    /// Descriptors whose `close` has not returned yet.
    PendingCloses, "pending_closes", EMFILE, Share;
    /// Descriptors in replies that clients have not read yet.
    UnreadReplies, "unread_replies", ETOOMANYREFS, Share;
}

/// An amount for each resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Amounts([u64; Resource::COUNT]);

impl Amounts {
    /// Zero of every resource.
    pub const NONE: Amounts = Amounts([0; Resource::COUNT]);
    /// No bound on any resource.
    pub const ALL: Amounts = Amounts([UNBOUNDED; Resource::COUNT]);

    /// Returns the amount of one resource.
    #[must_use]
    pub const fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Returns the same amounts with `amount` for `resource`, at most [`UNBOUNDED`].
    #[must_use]
    pub fn with(mut self, resource: Resource, amount: u64) -> Amounts {
        self.0[resource as usize] = amount.min(UNBOUNDED);
        self
    }

    /// Returns whether all amounts are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|&amount| amount == 0)
    }

    /// Iterates over the resources with their amounts.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, u64)> + '_ {
        Resource::ALL.into_iter().map(|resource| (resource, self.of(resource)))
    }

    fn at(&mut self, resource: Resource) -> &mut u64 {
        &mut self.0[resource as usize]
    }
}

/// Caps of a group of users in addition to their fair shares. One entry of the policy covers a
/// group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupCaps {
    /// The cap of each user.
    pub per_user: Amounts,
    /// The cap of all users of the group together.
    pub together: Amounts,
}

impl Default for GroupCaps {
    fn default() -> GroupCaps {
        GroupCaps { per_user: Amounts::ALL, together: Amounts::ALL }
    }
}

/// A group of users with common caps: its index in [`AccountsConfig::groups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

/// The capacity, and the bounds on each user's part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountsConfig {
    /// The amounts that all users together may hold.
    pub capacity: Amounts,
    /// The part of the capacity that is reserved for root.
    pub root_reserve: Amounts,
    /// The amounts that one user may hold at most, however much is free. Root has no such cap.
    pub per_user: Amounts,
    /// Groups of users with caps.
    pub groups: Vec<GroupCaps>,
    /// The user that the helper runs as, which counts as root.
    pub operator: Option<UserId>,
}

impl Default for AccountsConfig {
    /// Returns a configuration without bounds.
    fn default() -> AccountsConfig {
        AccountsConfig {
            capacity: Amounts::ALL,
            root_reserve: Amounts::NONE,
            per_user: Amounts::ALL,
            groups: Vec::new(),
            operator: None,
        }
    }
}

impl AccountsConfig {
    /// Root's reserve is this fraction of a capacity, and at least 1.
    const ROOT_PART: u64 = 8;

    /// Sets the capacity of a resource. An eighth of it, at least 1, is reserved for root; nothing
    /// if the resource is unbounded.
    #[must_use]
    pub fn with_capacity(mut self, resource: Resource, capacity: u64) -> AccountsConfig {
        let reserve = if capacity >= UNBOUNDED { 0 } else { (capacity / Self::ROOT_PART).max(1) };
        self.capacity = self.capacity.with(resource, capacity);
        self.root_reserve = self.root_reserve.with(resource, reserve.min(capacity));
        self
    }

    /// Sets the cap of each user's amount of a resource.
    #[must_use]
    pub fn with_per_user(mut self, resource: Resource, cap: u64) -> AccountsConfig {
        self.per_user = self.per_user.with(resource, cap);
        self
    }
}

/// The account that is charged: a user, and the group of users with which it was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payer {
    /// The user that is charged.
    pub user: UserId,
    /// The group, if the policy has given it one.
    pub group: Option<GroupId>,
}

impl From<UserId> for Payer {
    fn from(user: UserId) -> Payer {
        Payer { user, group: None }
    }
}

/// The amounts that one user holds ([`Accounts::users`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserStatus {
    /// The user that holds the amounts.
    pub user: UserId,
    /// The amounts that the user holds.
    pub held: Amounts,
    /// Number of charges refused since the user last held nothing.
    pub refused: u64,
}

/// The accounts of all users.
pub struct Accounts {
    config: AccountsConfig,
    state: Mutex<AccountsState>,
    refused: AtomicU64,
}

/// The effect of a refusal on the user's counter of refusals. A refused whole chunk is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Counted,
    Silent,
}

struct AccountsState {
    /// The users that hold something, by uid.
    users: Vec<UserStatus>,
    /// Amounts by [`GroupId`].
    groups: Box<[Amounts]>,
    /// Amounts that root and the operator hold.
    privileged: Amounts,
    /// Amounts that all other users hold.
    ordinary: Amounts,
}

impl Accounts {
    /// Creates accounts in which nothing is held.
    #[must_use]
    pub fn new(config: AccountsConfig) -> Arc<Accounts> {
        let state = AccountsState {
            users: Vec::new(),
            groups: vec![Amounts::NONE; config.groups.len()].into(),
            privileged: Amounts::NONE,
            ordinary: Amounts::NONE,
        };
        Arc::new(Accounts { config, state: Mutex::new(state), refused: AtomicU64::new(0) })
    }

    /// Returns the capacity and the bounds.
    #[must_use]
    pub fn config(&self) -> &AccountsConfig {
        &self.config
    }

    /// Charges a user with `count` of a resource until the charge is dropped.
    ///
    /// # Errors
    /// The resource's refusal, with the amount that the user would hold and the amount that it may
    /// hold. ENOMEM if there is no memory for the account. Nothing is charged then.
    pub fn charge(
        self: &Arc<Accounts>,
        payer: impl Into<Payer>,
        resource: Resource,
        count: u64,
    ) -> Result<Charge, Refusal> {
        let mut charge = self.open(payer, resource);
        charge.grow(count)?;
        Ok(charge)
    }

    /// Opens a charge of 0, which can grow.
    pub fn open(self: &Arc<Accounts>, payer: impl Into<Payer>, resource: Resource) -> Charge {
        Charge { accounts: self.clone(), payer: payer.into(), resource, count: 0 }
    }

    /// Returns the users that hold something, by uid, at most `limit` of them, and their total
    /// number. If there are more, those with the most clients are returned.
    #[must_use]
    pub fn users(&self, limit: usize) -> (Vec<UserStatus>, usize) {
        let state = self.state.lock();
        let all = state.users.len();
        let mut users = state.users.clone();
        drop(state);
        if all > limit {
            users.sort_by_key(|user| std::cmp::Reverse((user.held.of(Resource::Clients), user.user)));
            users.truncate(limit);
            users.sort_by_key(|user| user.user);
        }
        (users, all)
    }

    /// Returns the amounts that all users hold together.
    #[must_use]
    pub fn held(&self) -> Amounts {
        let state = self.state.lock();
        let mut sum = state.privileged;
        Resource::ALL.into_iter().for_each(|resource| *sum.at(resource) += state.ordinary.of(resource));
        sum
    }

    /// Returns the amounts that one user holds.
    #[must_use]
    pub fn held_by(&self, user: UserId) -> Amounts {
        let state = self.state.lock();
        state.position(user).map_or(Amounts::NONE, |at| state.users[at].held)
    }

    /// Returns the number of refused charges, of all users since the start.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub(super) fn is_privileged(&self, user: UserId) -> bool {
        user == UserId::ROOT || self.config.operator == Some(user)
    }

    /// Returns the largest amount of a resource that this payer may hold now.
    fn limit(&self, state: &AccountsState, payer: Payer, resource: Resource) -> u64 {
        let held = state.position(payer.user).map_or(0, |at| state.users[at].held.of(resource));
        let capacity = self.config.capacity.of(resource);
        let (privileged, ordinary) = (state.privileged.of(resource), state.ordinary.of(resource));
        let mut limit = if self.is_privileged(payer.user) {
            held + capacity.saturating_sub(privileged + ordinary)
        } else {
            // Root's holdings beyond its reserve are unavailable to all others.
            let kept = self.config.root_reserve.of(resource).max(privileged);
            let free = capacity.saturating_sub(kept).saturating_sub(ordinary);
            let share = if capacity >= UNBOUNDED {
                UNBOUNDED
            } else {
                // The greatest h with h <= free - (h - held).
                held + free.saturating_sub(held) / 2
            };
            share.min(self.config.per_user.of(resource))
        };
        if let Some((caps, held_together)) = self.group(state, payer) {
            let together = caps.together.of(resource).saturating_sub(held_together.of(resource));
            limit = limit.min(caps.per_user.of(resource)).min(held.saturating_add(together));
        }
        limit
    }

    fn group<'a>(&'a self, state: &'a AccountsState, payer: Payer) -> Option<(&'a GroupCaps, &'a Amounts)> {
        let GroupId(index) = payer.group?;
        self.config.groups.get(usize::from(index)).zip(state.groups.get(usize::from(index)))
    }

    fn add(&self, payer: Payer, resource: Resource, count: u64, refused: Refused) -> Result<(), Refusal> {
        if count == 0 {
            return Ok(());
        }
        let mut state = self.state.lock();
        let limit = self.limit(&state, payer, resource);
        let held = state.position(payer.user).map_or(0, |at| state.users[at].held.of(resource));
        let wanted = held.saturating_add(count);
        if wanted > limit {
            if refused == Refused::Counted {
                self.refused.fetch_add(1, Relaxed);
                if let Ok(at) = state.position(payer.user) {
                    state.users[at].refused += 1;
                }
            }
            return Err(resource.refusal(wanted, limit));
        }
        let user = state.user(payer.user)?;
        *user.held.at(resource) = wanted;
        let sum = if self.is_privileged(payer.user) { &mut state.privileged } else { &mut state.ordinary };
        *sum.at(resource) += count;
        if let Some(group) = payer.group.and_then(|GroupId(index)| state.groups.get_mut(usize::from(index))) {
            *group.at(resource) += count;
        }
        Ok(())
    }

    fn sub(&self, payer: Payer, resource: Resource, count: u64) {
        if count == 0 {
            return;
        }
        let mut state = self.state.lock();
        let Ok(at) = state.position(payer.user) else {
            debug_assert!(false, "{payer:?} gives back {count} {resource:?}, and holds nothing");
            return;
        };
        less(&mut state.users[at].held, resource, count);
        if state.users[at].held.is_zero() {
            state.users.remove(at);
        }
        let sum = if self.is_privileged(payer.user) { &mut state.privileged } else { &mut state.ordinary };
        less(sum, resource, count);
        if let Some(group) = payer.group.and_then(|GroupId(index)| state.groups.get_mut(usize::from(index))) {
            less(group, resource, count);
        }
    }
}

/// Subtracts an amount. Each [`Charge`] releases its amount once.
fn less(held: &mut Amounts, resource: Resource, count: u64) {
    let held = held.at(resource);
    debug_assert!(*held >= count, "{held} {resource:?} less {count}");
    *held = held.saturating_sub(count);
}

impl AccountsState {
    fn position(&self, user: UserId) -> Result<usize, usize> {
        self.users.binary_search_by_key(&user, |entry| entry.user)
    }

    /// Returns the account of a user, and creates it if there is none.
    fn user(&mut self, user: UserId) -> Result<&mut UserStatus, Refusal> {
        let at = match self.position(user) {
            Ok(at) => at,
            Err(at) => {
                let reserved = self.users.try_reserve(1);
                reserved.map_err(|_| Refusal::new(Errno::ENOMEM, Reason::System))?;
                self.users.insert(at, UserStatus { user, held: Amounts::NONE, refused: 0 });
                at
            }
        };
        Ok(&mut self.users[at])
    }
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts").field("held", &self.held()).finish_non_exhaustive()
    }
}

/// An amount that a user holds; dropping it releases the amount.
pub struct Charge {
    accounts: Arc<Accounts>,
    payer: Payer,
    resource: Resource,
    count: u64,
}

impl Charge {
    /// Returns the amount.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the account that is charged.
    #[must_use]
    pub fn payer(&self) -> Payer {
        self.payer
    }

    /// Charges `more` in addition.
    ///
    /// # Errors
    /// Those of [`Accounts::charge`]; the charge is unchanged then.
    pub fn grow(&mut self, more: u64) -> Result<(), Refusal> {
        self.accounts.add(self.payer, self.resource, more, Refused::Counted)?;
        self.count += more;
        Ok(())
    }

    /// Releases `less`, at most all of the charge.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.count);
        self.accounts.sub(self.payer, self.resource, less);
        self.count -= less;
    }

    /// Ensures that at least `needed` are charged: grows by whole chunks if the user's share has
    /// room for them, else by the missing amount. Takes no lock if enough is charged.
    ///
    /// # Errors
    /// Those of [`Accounts::charge`]; the charge is unchanged then.
    pub fn cover(&mut self, needed: u64, chunk: u64) -> Result<(), Refusal> {
        if needed <= self.count {
            return Ok(());
        }
        let missing = needed - self.count;
        let chunks = missing.next_multiple_of(chunk);
        if chunks > missing && self.accounts.add(self.payer, self.resource, chunks, Refused::Silent).is_ok() {
            self.count += chunks;
            return Ok(());
        }
        self.grow(missing)
    }

    /// Releases the part of the charge beyond the chunks that `needed` takes. Takes no lock if
    /// there is none.
    pub fn trim(&mut self, needed: u64, chunk: u64) {
        let kept = needed.next_multiple_of(chunk);
        if self.count > kept {
            self.shrink(self.count - kept);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.count);
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Charge { payer, resource, count, .. } = self;
        write!(f, "{count} {} of user {}", resource.name(), payer.user.0)
    }
}

#[cfg(test)]
mod tests;
