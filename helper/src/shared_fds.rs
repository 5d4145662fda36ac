//! Descriptors that the helper shares with a client: its doorbell, and those that its event loops
//! sleep on.
//!
//! The last close of such a descriptor wakes every watcher of it, and waits for the lock of each
//! epoll set that watches it. A client can hold that lock for any length of time, by an
//! `epoll_wait` into memory whose page never arrives. So `nlxd` never performs the last close, not
//! even when it is killed: the porter gets the descriptor before the client does, and closes it in
//! a carrier once `nlxd` has closed its own ([`porter`](super::porter)). The user is charged for it
//! until then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hashbrown::HashMap;
use nlx_fallible::{NoMemory, TryArc};
use parking_lot::Mutex;

use super::accounts::Charge;
use super::porter::SHARED;

/// The descriptors that one service thread shares with its clients. Clones refer to the same set.
#[derive(Clone)]
pub(super) struct SharedFds(TryArc<Mutex<SharedFdsState>>);

#[derive(Default)]
struct SharedFdsState {
    next: u64,
    held: HashMap<u64, SharedFdEntry, foldhash::fast::RandomState>,
    /// Numbers of held descriptors that the porter does not have.
    unkept: Vec<u64>,
    /// Descriptors to be closed, with capacity for all that are held.
    ended: Vec<Ended>,
}

struct SharedFdEntry {
    fd: TryArc<OwnedFd>,
    charge: Charge,
    /// Set once a porter has had the descriptor, so that the client may have it.
    given: bool,
}

/// A descriptor that the porter is to close.
struct Ended {
    number: u64,
    fd: TryArc<OwnedFd>,
    charge: Charge,
}

impl SharedFdsState {
    fn enter(&mut self, number: u64, entry: SharedFdEntry) -> Result<(), NoMemory> {
        let SharedFdsState { held, unkept, ended, .. } = self;
        held.try_reserve(1).map_err(|_| NoMemory)?;
        let most = held.len() + 1;
        unkept.try_reserve(most - unkept.len()).map_err(|_| NoMemory)?;
        ended.try_reserve(most).map_err(|_| NoMemory)?;
        held.insert(number, entry);
        unkept.push(number);
        Ok(())
    }
}

impl SharedFds {
    /// Creates the set of the thread with this number.
    pub(super) fn try_new(thread: usize) -> Result<SharedFds, NoMemory> {
        let next = SHARED | (thread as u64) << 48;
        TryArc::try_new(Mutex::new(SharedFdsState { next, ..SharedFdsState::default() })).map(SharedFds)
    }

    /// Adds a descriptor that the client is to get. Nothing may be sent to the client before all
    /// [are kept](SharedFds::keep_all).
    pub(super) fn share(&self, fd: OwnedFd, charge: Charge) -> Result<SharedFd, NoMemory> {
        let fd = TryArc::try_new(fd)?;
        let number = self.take_number();
        // Created before it is entered: if there is no memory, nothing is left behind.
        let share = TryArc::try_new(Share { number, fd: fd.clone(), shared_fds: self.clone() })?;
        self.0.lock().enter(number, SharedFdEntry { fd, charge, given: false })?;
        Ok(SharedFd(share))
    }

    fn take_number(&self) -> u64 {
        let state = &mut *self.0.lock();
        state.next += 1;
        state.next
    }

    /// Returns the number of descriptors that are held or to be closed.
    pub(super) fn len(&self) -> usize {
        let state = self.0.lock();
        state.held.len() + state.ended.len()
    }

    /// Returns whether the porter has all of them.
    pub(super) fn is_kept(&self) -> bool {
        self.0.lock().unkept.is_empty()
    }

    /// Passes each descriptor that the porter lacks to `keep`, until it returns false. Returns
    /// whether the porter has all of them then.
    pub(super) fn keep_all(&self, mut keep: impl FnMut(u64, BorrowedFd<'_>) -> bool) -> bool {
        let SharedFdsState { held, unkept, .. } = &mut *self.0.lock();
        while let Some(number) = unkept.last() {
            if let Some(entry) = held.get_mut(number) {
                if !keep(*number, entry.fd.as_fd()) {
                    return false;
                }
                entry.given = true;
            }
            unkept.pop();
        }
        true
    }

    /// Records that the porter is gone, and with it all its descriptors.
    pub(super) fn porter_has_none(&self) {
        let SharedFdsState { held, unkept, .. } = &mut *self.0.lock();
        unkept.clear();
        unkept.extend(held.keys());
    }

    /// Removes a descriptor to be closed. Returns its number, the descriptor, which is this
    /// process's only one for the file, and the charge for it.
    pub(super) fn pop_ended(&self) -> Option<(u64, OwnedFd, Charge)> {
        let Ended { number, fd, charge } = self.0.lock().ended.pop()?;
        Some((number, TryArc::try_unwrap(fd).ok()?, charge))
    }
}

/// A descriptor that the client has as well, held by the session and by the answer that carries it.
/// Clones refer to the same file, and no other descriptor of this process does: dropping the last
/// clone hands it to the porter.
#[derive(Clone)]
pub(super) struct SharedFd(TryArc<Share>);

struct Share {
    number: u64,
    fd: TryArc<OwnedFd>,
    shared_fds: SharedFds,
}

impl AsFd for SharedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let SharedFdsState { held, unkept, ended, .. } = &mut *self.shared_fds.0.lock();
        let Some(SharedFdEntry { fd, charge, given }) = held.remove(&self.number) else { return };
        unkept.retain(|number| *number != self.number);
        // A descriptor that the client never got is closed here.
        if given {
            ended.push(Ended { number: self.number, fd, charge });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use lnet_api::Errno;
    use nix::sys::eventfd::EventFd;
    use proptest::prelude::*;

    use super::*;
    use crate::accounts::{Accounts, AccountsConfig, Payer, Resource, UserId};

    #[derive(Debug, Clone)]
    enum Step {
        Share,
        End(usize),
        Keep(usize),
        PorterEnds,
        PopEnded,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Share),
            2 => any::<usize>().prop_map(Step::End),
            2 => (0usize..4).prop_map(Step::Keep),
            1 => Just(Step::PorterEnds),
            2 => Just(Step::PopEnded),
        ]
    }

    proptest! {
        /// Compared with plain sets: a descriptor that a porter has had goes back to a porter, and
        /// is charged until it is taken; all others are closed.
        #[test]
        fn what_a_client_may_have_is_closed_by_the_porter(steps in prop::collection::vec(step(), 1..60)) {
            let accounts = Accounts::new(AccountsConfig::default());
            let payer = Payer { user: UserId(7), group: None };
            let shared_fds = SharedFds::try_new(3).unwrap();
            let mut held: Vec<SharedFd> = Vec::new();
            let (mut kept, mut given) = (BTreeSet::new(), BTreeSet::new());
            let mut ended = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Share => {
                        let charge = accounts.charge(payer, Resource::Descriptors, 1).unwrap();
                        let fd = OwnedFd::from(EventFd::new().map_err(|errno: Errno| errno).unwrap());
                        let shared = shared_fds.share(fd, charge).unwrap();
                        prop_assert!(shared.0.number >= SHARED);
                        prop_assert!(held.iter().all(|other| other.0.number != shared.0.number));
                        held.push(shared.clone());
                    }
                    Step::End(which) if !held.is_empty() => {
                        let number = held.swap_remove(which % held.len()).0.number;
                        kept.remove(&number);
                        if given.remove(&number) {
                            ended.insert(number);
                        }
                    }
                    Step::End(_) => {}
                    Step::Keep(most) => {
                        let mut left = most;
                        let all = shared_fds.keep_all(|number, _| {
                            if left == 0 {
                                return false;
                            }
                            left -= 1;
                            given.insert(number);
                            kept.insert(number)
                        });
                        prop_assert_eq!(all, kept.len() == held.len());
                    }
                    Step::PorterEnds => {
                        kept.clear();
                        shared_fds.porter_has_none();
                    }
                    Step::PopEnded => {
                        let one = shared_fds.pop_ended();
                        prop_assert_eq!(one.is_some(), !ended.is_empty());
                        if let Some((number, ..)) = one {
                            prop_assert!(ended.remove(&number));
                        }
                    }
                }
                prop_assert_eq!(shared_fds.is_kept(), kept.len() == held.len());
                prop_assert_eq!(shared_fds.len(), held.len() + ended.len());
                let charged = accounts.held_by(payer.user).of(Resource::Descriptors);
                prop_assert_eq!(charged as usize, held.len() + ended.len());
            }
        }
    }
}
