//! The rules by which LNet refuses calls (lnet-semantics 2 and 10).

use lnet_api::{Distance, LNetError, MeSpec, Position};
use lnet_nid::{Nid, Pid, ProcessId};

/// The limit for event queues, for match entries and for MDs: it stops a test that makes objects in
/// a loop by mistake before memory runs out.
pub const OBJECTS_MAX: usize = 1 << 16;

pub(crate) fn check_room(objects: &'static str, there_are: usize) -> Result<(), LNetError> {
    match there_are < OBJECTS_MAX {
        true => Ok(()),
        false => Err(LNetError::TooMany { objects, limit: OBJECTS_MAX }),
    }
}

/// The type of a portal, set by its first entry (S-101).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortalType {
    Unique,
    Wildcard,
}

impl PortalType {
    pub(crate) fn of(me: &MeSpec) -> PortalType {
        let open = me.match_id.nid.is_any() || me.match_id.pid == Pid::ANY || me.ignore_bits.0 != 0;
        if open { PortalType::Wildcard } else { PortalType::Unique }
    }

    /// Checks that an entry fits a portal of the type `first`, if it has one.
    pub(crate) fn check(first: Option<PortalType>, me: &MeSpec, ordered: bool) -> Result<(), LNetError> {
        let rule = match (first, PortalType::of(me)) {
            (Some(PortalType::Unique), PortalType::Wildcard) => {
                "a unique portal takes only entries for one process and all bits"
            }
            (Some(PortalType::Wildcard), PortalType::Unique) => {
                "a wildcard portal takes only entries that leave the process or some bits open"
            }
            (_, PortalType::Unique) if ordered => {
                "entries of a unique portal have no order, so none can be put before others"
            }
            _ => return Ok(()),
        };
        Err(LNetError::PortalType { portal: me.portal.get(), rule })
    }
}

/// Checks an entry that is inserted directly before or after another one.
pub(crate) fn check_beside(beside: &MeSpec, me: &MeSpec) -> Result<(), LNetError> {
    let invalid = |field, value, rule| Err(LNetError::Invalid { field, value, rule });
    if me.portal != beside.portal {
        return invalid("portal", me.portal.get().into(), "it must be that of the entry beside it");
    }
    if me.position == Position::Local {
        return invalid("position", 2, "an entry is put before or after another");
    }
    Ok(())
}

/// Returns the process that sends to a node: the node itself, or the NI on that node's network.
pub(crate) fn sender(own: &[ProcessId], source: Option<Nid>, target: Nid) -> Result<ProcessId, LNetError> {
    let is_own = |nid: Nid| own.iter().find(|id| id.nid == nid).copied();
    if let Some(nid) = source.filter(|&nid| is_own(nid).is_none()) {
        return Err(LNetError::NotLocal { nid });
    }
    let leads = |id: &&ProcessId| id.nid.net() == target.net() && source.is_none_or(|nid| nid == id.nid);
    let found = is_own(target).or_else(|| own.iter().find(leads).copied());
    found.ok_or(LNetError::NoRoute { nid: target })
}

pub(crate) fn distance(own: &[ProcessId], nid: Nid) -> Result<Distance, LNetError> {
    let source = sender(own, None, nid)?.nid;
    let order = own.iter().position(|id| id.nid == source).unwrap_or(0) as u32;
    Ok(Distance { hops: u32::from(source != nid), order, source })
}
