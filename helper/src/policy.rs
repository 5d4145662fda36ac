//! The policy of the helper: by default root may use everything, other users portals that Lustre
//! does not use.

use std::sync::Arc;

use hashbrown::HashMap;
use lnet_nid::{Nid, NidList, Portal};

use super::ClientQuotas;
use super::accounts::{GroupCaps, GroupId};

/// The process at the other end of a socket (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// The process id at the time of `connect`, as this process sees it; 0 for a process of another
    /// PID namespace.
    pub pid: i32,
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// A set of portals that transfer machines may have, 1 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortalSet(u64);

impl PortalSet {
    /// No portal.
    pub const NONE: PortalSet = PortalSet(0);
    /// All portals but LNet's portal 0.
    pub const ALL: PortalSet = PortalSet(!1);
    /// The portals above all that Lustre uses: 35 to 63.
    pub const FREE: PortalSet = PortalSet(!0 << 35);

    /// Returns the portals from one to another, both included, without portal 0.
    #[must_use]
    pub fn range(first: u32, last: u32) -> PortalSet {
        let bits = (first..=last.min(Portal::COUNT as u32 - 1)).fold(0, |bits, portal| bits | 1 << portal);
        PortalSet(bits & PortalSet::ALL.0)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, others: PortalSet) -> PortalSet {
        PortalSet(self.0 | others.0)
    }

    /// Returns the set without those of another.
    #[must_use]
    pub const fn without(self, others: PortalSet) -> PortalSet {
        PortalSet(self.0 & !others.0)
    }

    /// Returns whether the set contains a portal.
    #[must_use]
    pub const fn contains(self, portal: u32) -> bool {
        portal < Portal::COUNT as u32 && self.0 >> portal & 1 != 0
    }
}

/// The NIDs on which a user's transfer machines may be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Nids {
    /// Every NID.
    #[default]
    All,
    /// The NIDs of a list in Lustre's syntax: `10.0.0.[1-9]@tcp *@o2ib`.
    Listed(NidList),
}

impl Nids {
    /// Returns whether the set contains a NID.
    #[must_use]
    pub fn contains(&self, nid: Nid) -> bool {
        match self {
            Nids::All => true,
            Nids::Listed(list) => list.contains(nid),
        }
    }
}

/// The rights of a client. Uses beyond them are refused with EPERM, and counted.
///
/// Lustre trusts every sender at a node's NID as root. So a client that is not root there must not
/// reach Lustre's portals, its own node's included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// PortalSet on which the client may start transfer machines.
    pub own_portals: PortalSet,
    /// NIDs on which the client may start transfer machines.
    pub own_nids: Nids,
    /// PortalSet of peers that the client may send to, write to and read from.
    pub portals: PortalSet,
    /// NIDs of peers that the client may send to, write to and read from.
    pub nids: Nids,
    /// Set if the client may make a portal lazy ([`nlx_core::TmOptions::lazy`]). Messages that wait
    /// there take memory, and beyond a limit block their connection, which all clients share.
    pub lazy: bool,
    /// The client's quotas, if they differ from the host's.
    pub quotas: Option<ClientQuotas>,
    /// The group of users whose clients have common caps, and these caps. A group id has the same
    /// caps wherever it occurs.
    pub group: Option<(GroupId, GroupCaps)>,
}

impl Rights {
    /// Returns all rights: those of root.
    #[must_use]
    pub fn all() -> Rights {
        Rights {
            own_portals: PortalSet::ALL,
            own_nids: Nids::All,
            portals: PortalSet::ALL,
            nids: Nids::All,
            lazy: true,
            quotas: None,
            group: None,
        }
    }

    /// Returns the rights of ordinary users: all NIDs, and portals 35 to 63 for own transfer
    /// machines and for peers, none of which may be lazy.
    #[must_use]
    pub fn ordinary() -> Rights {
        Rights { own_portals: PortalSet::FREE, portals: PortalSet::FREE, lazy: false, ..Rights::all() }
    }
}

/// The users that may connect, and the rights of each: those of the user, else of the group, else
/// the default.
///
/// ```
/// use nlx_helper::{Credentials, Policy, Rights};
///
/// let policy = Policy::default().group(100, Some(Rights::all())).others(None);
/// let rights = |uid, gid| policy.rights_of(&Credentials { pid: 1, uid, gid });
/// assert_eq!(rights(0, 0), Some(&Rights::all()));
/// assert_eq!(rights(1000, 100), Some(&Rights::all()));
/// assert_eq!(rights(1000, 1000), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    users: HashMap<u32, Option<Arc<Rights>>, foldhash::fast::RandomState>,
    groups: HashMap<u32, Option<Arc<Rights>>, foldhash::fast::RandomState>,
    others: Option<Arc<Rights>>,
}

impl Default for Policy {
    /// Returns the policy by which root may use everything, and all others have [ordinary
    /// rights](Rights::ordinary).
    fn default() -> Policy {
        let policy = Policy {
            users: HashMap::default(),
            groups: HashMap::default(),
            others: Some(Arc::new(Rights::ordinary())),
        };
        policy.user(0, Some(Rights::all()))
    }
}

impl Policy {
    /// Sets the rights of a user; with `None` it may not connect.
    #[must_use]
    pub fn user(mut self, uid: u32, rights: Option<Rights>) -> Policy {
        self.users.insert(uid, rights.map(Arc::new));
        self
    }

    /// Sets the rights of a group's members that have no rights as users.
    #[must_use]
    pub fn group(mut self, gid: u32, rights: Option<Rights>) -> Policy {
        self.groups.insert(gid, rights.map(Arc::new));
        self
    }

    /// Sets the rights of all users that are not named.
    #[must_use]
    pub fn others(mut self, rights: Option<Rights>) -> Policy {
        self.others = rights.map(Arc::new);
        self
    }

    /// Returns the caps of all groups of users, by [`GroupId`].
    #[must_use]
    pub(crate) fn groups(&self) -> Vec<GroupCaps> {
        let rights = self.users.values().chain(self.groups.values()).chain([&self.others]).flatten();
        let mut all = Vec::new();
        for (GroupId(index), caps) in rights.filter_map(|rights| rights.group) {
            let index = usize::from(index);
            if all.len() <= index {
                all.resize(index + 1, GroupCaps::default());
            }
            all[index] = caps;
        }
        all
    }

    /// Takes portals from the transfer machines of all clients: a service of the helper itself has them.
    #[must_use]
    pub fn reserve(mut self, portals: PortalSet) -> Policy {
        let all = self.users.values_mut().chain(self.groups.values_mut()).chain([&mut self.others]);
        for rights in all.flatten() {
            let rights = Arc::make_mut(rights);
            rights.own_portals = rights.own_portals.without(portals);
        }
        self
    }

    /// Returns the rights of a client; `None` if it may not connect.
    #[must_use]
    pub fn rights_of(&self, client: &Credentials) -> Option<&Rights> {
        self.shared_rights_of(client).map(|rights| &**rights)
    }

    /// Returns the rights of a client as a shared reference.
    pub(super) fn shared_rights_of(&self, client: &Credentials) -> Option<&Arc<Rights>> {
        let named = self.users.get(&client.uid).or_else(|| self.groups.get(&client.gid));
        named.unwrap_or(&self.others).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_clients_reach_no_portal_of_lustre() {
        let portals = Rights::ordinary().portals;
        assert!((0..35).all(|portal| !portals.contains(portal)));
        assert!((35..64).all(|portal| portals.contains(portal)));
        assert!([64, 65, 99, 128, u32::MAX].into_iter().all(|portal| !portals.contains(portal)));
    }

    #[test]
    fn ranges_of_portals_hold_what_they_say_and_never_portal_0() {
        let some = PortalSet::range(0, 3).and(PortalSet::range(60, 1000));
        let held: Vec<_> = (0..70).filter(|&portal| some.contains(portal)).collect();
        assert_eq!(held, [1, 2, 3, 60, 61, 62, 63]);
        assert_eq!(PortalSet::range(1, 63), PortalSet::ALL);
        assert_eq!(PortalSet::range(35, 63), PortalSet::FREE);
        assert_eq!(PortalSet::range(9, 8), PortalSet::NONE);
    }

    #[test]
    fn a_user_comes_before_its_group_and_the_group_before_all_others() {
        let policy = Policy::default().user(7, None).group(50, Some(Rights::all()));
        let rights = |uid, gid| policy.rights_of(&Credentials { pid: 1, uid, gid });
        assert_eq!(rights(7, 50), None);
        assert_eq!(rights(8, 50), Some(&Rights::all()));
        assert_eq!(rights(8, 51), Some(&Rights::ordinary()));
        assert_eq!(rights(0, 51), Some(&Rights::all()));
    }

    #[test]
    fn reserved_portals_are_those_of_no_client() {
        let policy =
            Policy::default().user(7, None).user(8, Some(Rights::ordinary())).group(50, Some(Rights::all()));
        let policy = policy.reserve(PortalSet::range(50, 52));
        for (uid, gid) in [(0, 0), (8, 8), (9, 50), (9, 9)] {
            let rights = policy.rights_of(&Credentials { pid: 1, uid, gid }).unwrap();
            let own: Vec<_> = (49..=53).map(|portal| rights.own_portals.contains(portal)).collect();
            assert_eq!(own, [true, false, false, false, true], "{uid} {gid}");
            assert!(rights.portals.contains(51), "peers have theirs");
        }
        assert_eq!(policy.rights_of(&Credentials { pid: 1, uid: 7, gid: 7 }), None);
    }

    #[test]
    fn listed_nids_are_those_of_the_list() {
        let nids = Nids::Listed("10.0.0.[1-2]@tcp *@o2ib".parse().unwrap());
        let contains = |nid: &str| nids.contains(nid.parse().unwrap());
        assert!(contains("10.0.0.2@tcp") && contains("1.2.3.4@o2ib"));
        assert!(!contains("10.0.0.3@tcp") && !contains("0@lo"));
    }
}
