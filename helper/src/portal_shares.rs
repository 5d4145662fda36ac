//! Transfer machine ids of each address group (NID, PID, portal), shared by the users.
//!
//! A portal of a NID has 4,095 ids for all transfer machines of the host. Without shares one user
//! could take all of them, and no other user could start a machine there. The rule is that of
//! [accounts](super::accounts): an ordinary user may take ids while it has no more of a group
//! than are free afterwards.

use std::sync::Arc;

use lnet_nid::{Nid, Pid};
use nlx_core::{Errno, StartAddress, TmId};
use nlx_driver_proto::{Reason, Refusal};
use parking_lot::Mutex;

use super::accounts::{Accounts, UserId};

/// Ids of a group that are reserved for root.
const ROOT_IDS: u64 = 256;

/// Number of ids of a group. There is no id 0.
const IDS: u64 = TmId::MAX.get() as u64;

/// An address group: (NID, PID, portal).
type Group = (Nid, Pid, u32);

/// Number of ids that each user has in each group.
#[derive(Default)]
pub(super) struct PortalShares {
    /// Sorted by group and user; no count is 0.
    entries: Mutex<Vec<PortalShare>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortalShare {
    group: Group,
    user: UserId,
    /// Set for ids of root, which do not reduce the shares.
    privileged: bool,
    count: u64,
}

/// One id of a group; dropping it releases the id.
pub(super) struct IdCharge {
    shares: Arc<PortalShares>,
    group: Group,
    user: UserId,
}

impl PortalShares {
    /// Takes one id of the group in which a transfer machine is to start.
    pub(super) fn take(
        self: &Arc<PortalShares>,
        accounts: &Accounts,
        user: UserId,
        wanted: &StartAddress,
    ) -> Result<IdCharge, Refusal> {
        let (group, privileged) = ((wanted.nid, wanted.pid, wanted.portal), accounts.is_privileged(user));
        let mut entries = self.entries.lock();
        let of_group = group_of(&entries, group);
        let ordinary: u64 = of_group.iter().filter(|share| !share.privileged).map(|share| share.count).sum();
        let held = of_group.iter().find(|share| share.user == user).map_or(0, |share| share.count);
        let limit = held + (IDS - ROOT_IDS).saturating_sub(ordinary).saturating_sub(held) / 2;
        if !privileged && held + 1 > limit {
            return Err(Refusal::of(Errno::ENOMEM, Reason::Share, held + 1, limit));
        }
        match entries.binary_search_by_key(&(group, user), |share| (share.group, share.user)) {
            Ok(at) => entries[at].count += 1,
            Err(at) => {
                entries.try_reserve(1).map_err(|_| Refusal::new(Errno::ENOMEM, Reason::System))?;
                entries.insert(at, PortalShare { group, user, privileged, count: 1 });
            }
        }
        drop(entries);
        Ok(IdCharge { shares: self.clone(), group, user })
    }
}

/// Returns the entries of one group, which are adjacent.
fn group_of(entries: &[PortalShare], group: Group) -> &[PortalShare] {
    let start = entries.partition_point(|share| share.group < group);
    let count = entries[start..].partition_point(|share| share.group == group);
    &entries[start..start + count]
}

impl Drop for IdCharge {
    fn drop(&mut self) {
        let mut entries = self.shares.entries.lock();
        let found = entries.binary_search_by_key(&(self.group, self.user), |share| (share.group, share.user));
        // The entry exists while one of its charges does.
        let Ok(at) = found else { return };
        entries[at].count -= 1;
        if entries[at].count == 0 {
            entries.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::AccountsConfig;

    #[test]
    fn no_user_takes_all_ids_of_a_portal() {
        let (shares, accounts) = (Arc::<PortalShares>::default(), Accounts::new(AccountsConfig::default()));
        let wanted = |portal| StartAddress { nid: Nid::LOOPBACK, pid: Pid::LNET, portal, tmid: None };
        let take_all = |user, portal| -> Vec<IdCharge> {
            std::iter::from_fn(|| shares.take(&accounts, UserId(user), &wanted(portal)).ok())
                .take(4096)
                .collect()
        };
        let (first, second) = (take_all(1, 40), take_all(2, 40));
        // 4,095 less 256: half, then half of the rest.
        assert_eq!((first.len(), second.len()), (1919, 960));
        assert_eq!(take_all(1, 41).len(), 1919, "another portal is another group");
        assert_eq!(take_all(0, 40).len(), 4096, "what there is at all, LNet's addresses bound");
        drop(first);
        assert_eq!(take_all(1, 40).len(), (3839 - 960) / 2);
        drop(second);
        assert!(shares.entries.lock().is_empty());
    }
}
