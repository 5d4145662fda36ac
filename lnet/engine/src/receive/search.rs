//! The search for a buffer in the partitions of a portal (lnet-semantics 9 and 10).

use lnet_api::{MdOptions, Verdict};
use lnet_proto::Header;

use crate::config::Stealing;
use crate::drops::DropReason;
use crate::engine::Engine;
use crate::matching::{Found, Wanted};
use crate::message::Inbound;
use crate::portal::Kind;
use crate::work::Work;

/// What one partition has made of a PUT or GET.
pub(crate) enum Attempt {
    /// It is received, or at least on its way.
    Taken(Verdict),
    /// It matches here, but cannot be taken.
    Refused(DropReason),
    /// Nothing here matches.
    Nothing,
}

/// A PUT or GET in search of a buffer.
pub(crate) struct Search<'a> {
    pub(crate) inbound: &'a Inbound,
    pub(crate) header: &'a Header,
    pub(crate) wanted: &'a Wanted,
}

impl Engine {
    /// Looks for a buffer: on a unique portal in the partition of each of the source's NIDs; on a wildcard portal where
    /// the rotor says, then in the other partitions that have buffers (S-308, S-309).
    pub(super) fn search(&self, portal: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        let Some(state) = self.portals.get(portal) else { return Attempt::Nothing };
        match state.kind() {
            None => Attempt::Nothing,
            Some(Kind::Unique) => self.search_unique(portal, search, work),
            Some(Kind::Wildcard) => {
                let (partitions, here) = (self.common.partitions(), self.partition_of(search.inbound));
                let rotor = self.common.config.portal_rotor;
                let primary = search.inbound.primary(search.header);
                let first = state.first_partition(rotor, search.header, primary, here, partitions);
                let steals = self.common.config.stealing == Stealing::All
                    || (state.is_lazy() && search.wanted.op == MdOptions::OP_PUT);
                for partition in (first..partitions).chain(0..first).filter(|&at| state.is_active(at)) {
                    let attempt = self.attempt(portal, partition, search, work);
                    if !matches!(attempt, Attempt::Nothing) || !steals {
                        return attempt;
                    }
                }
                Attempt::Nothing
            }
        }
    }

    fn search_unique(&self, portal: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        for &nid in &search.wanted.nids {
            let part = &mut *self.posted.lock(self.source_partition(nid));
            let found = part.find_unique(&self.common, portal, nid, search.wanted);
            let attempt = self.take(part, search, found, work);
            if !matches!(attempt, Attempt::Nothing) {
                return attempt;
            }
        }
        Attempt::Nothing
    }

    /// Looks in one partition of a wildcard portal.
    fn attempt(&self, portal: usize, partition: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        let part = &mut *self.posted.lock(partition);
        let found = part.find_wildcard(&self.common, portal, search.wanted);
        if found == Found::Nothing {
            let table = &part.tables[portal];
            let state = &self.portals[portal];
            state.rest(partition, table.attached, table.attached_at_ns, self.common.now_ns());
        }
        self.take(part, search, found, work)
    }

    /// Looks everywhere, whether buffers are known to be there or not: for a message that is about to wait.
    pub(crate) fn search_everywhere(&self, portal: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        if self.portals[portal].kind() == Some(Kind::Unique) {
            return self.search_unique(portal, search, work);
        }
        for partition in 0..self.common.partitions() {
            let attempt = self.attempt(portal, partition, search, work);
            if !matches!(attempt, Attempt::Nothing) {
                return attempt;
            }
        }
        Attempt::Nothing
    }
}
