//! The search for the buffer of a message: through all entries in the order of the portal's list,
//! or partition by partition where some were posted as local (lnet-semantics 9 and 10; S-308,
//! S-309).

use lnet::{Rotor, Stealing};
use lnet_api::MdOptions;
use lnet_nid::{MatchBits, ProcessId};
use lnet_proto::{Body, Header, MAX_PAYLOAD};

use super::node::From;
use super::{Model, Mutant};

/// The time without a new buffer after which a partition is no longer searched, in nanoseconds.
const REST_NS: u64 = 1_000_000_000;

/// A buffer for a message.
pub(super) struct Found {
    pub(super) md: u64,
    pub(super) offset: u64,
    pub(super) mlength: u64,
}

pub(super) enum Search {
    Found(Found),
    TooLong,
    Nothing,
}

/// The properties of a PUT or GET by which a buffer is searched.
pub(super) struct SearchKey {
    pub(super) op: MdOptions,
    pub(super) bits: MatchBits,
    pub(super) source: ProcessId,
    pub(super) length: u64,
    pub(super) offset: u32,
}

impl SearchKey {
    pub(super) fn put(header: &Header) -> SearchKey {
        let (bits, offset) = match header.body {
            Body::Put { match_bits, offset, .. } => (match_bits, offset),
            _ => (MatchBits(0), 0),
        };
        let length = u64::from(header.payload_length);
        SearchKey { op: MdOptions::OP_PUT, bits, source: header.src, length, offset }
    }
}

impl Model {
    /// Searches the portal's list. If entries were posted as local, searches first the entries of
    /// the partition where the message begins, then, if allowed, those of other partitions that
    /// have buffers.
    pub(super) fn search(
        &mut self,
        node: usize,
        portal: u32,
        from: From,
        header: &Header,
        key: &SearchKey,
    ) -> Search {
        let index = portal as usize;
        if self.nodes[node].portals.get(index).is_none_or(|portal| portal.unique.is_none()) {
            return Search::Nothing;
        }
        let found = if self.has_local(node, index) {
            self.search_in_turn(node, index, from, header, key)
        } else {
            self.look(node, index, None, key)
        };
        let waits = self.waits(node, index, key);
        if waits && matches!(found, Search::Nothing) && self.has_local(node, index) {
            // The message searches all partitions before it waits.
            (0..self.partitions).for_each(|partition| self.looked_in_vain(node, index, partition));
        }
        found
    }

    fn waits(&self, node: usize, portal: usize, key: &SearchKey) -> bool {
        self.nodes[node].portals[portal].lazy && key.op == MdOptions::OP_PUT
    }

    fn has_local(&self, node: usize, portal: usize) -> bool {
        self.nodes[node].portals[portal].tables.iter().any(|table| table.local)
    }

    fn search_in_turn(
        &mut self,
        node: usize,
        portal: usize,
        from: From,
        header: &Header,
        key: &SearchKey,
    ) -> Search {
        let steals = self.stealing == Stealing::All || self.waits(node, portal, key);
        let first = self.first_partition(node, portal, from, header);
        for partition in (first..self.partitions).chain(0..first) {
            if !self.nodes[node].portals[portal].tables[partition].active {
                continue;
            }
            let found = self.look(node, portal, Some(partition), key);
            if !matches!(found, Search::Nothing) {
                return found;
            }
            self.looked_in_vain(node, portal, partition);
            if !steals {
                break;
            }
            self.seen.looked_on += 1;
        }
        Search::Nothing
    }

    /// Returns the partition where the search for a message begins.
    fn first_partition(&mut self, node: usize, portal: usize, from: From, header: &Header) -> usize {
        let partitions = self.partitions;
        let node = &mut self.nodes[node];
        let here = match from.ni.and_then(|ni| node.ni(ni)) {
            Some(ni) => ni.cpts[from.peer.nid.cpt_of(ni.cpts.len())],
            None => self.here,
        };
        let routed = header.src.nid.net() != header.dest.nid.net();
        match self.portal_rotor {
            _ if self.mutant == Some(Mutant::IgnoresRotor) => here,
            Rotor::HashRt if routed => header.src.nid.cpt_of(partitions),
            rotor if rotor == Rotor::On || (rotor == Rotor::RrRt && routed) => {
                let turn = node.portals[portal].turn;
                node.portals[portal].turn = turn + 1;
                turn % partitions
            }
            _ => here,
        }
    }

    /// Tries all entries in the order of the portal's list, or those of one partition; if entries
    /// with ignore bits come first, those are tried before the others.
    fn look(&mut self, node: usize, portal: usize, partition: Option<usize>, key: &SearchKey) -> Search {
        let node_ = &self.nodes[node];
        let is_tried = |at: usize| partition.is_none_or(|partition| at == partition);
        let mut order: Vec<(usize, u64, bool)> = node_
            .entries(portal)
            .filter(|&(at, ..)| is_tried(at))
            .map(|(at, id, me)| (at, id, me.is_masked()))
            .collect();
        if self.ignore_bits_first {
            order.sort_by_key(|&(_, _, masked)| !masked);
        }
        if self.mutant == Some(Mutant::LastFirst) {
            order.reverse();
        }
        let mut first = None;
        for (at, id, _) in order {
            let found = self.try_me(node, id, key);
            if matches!(found, Search::Nothing) {
                continue;
            }
            let &(home, _) = &*first.get_or_insert((at, found));
            if home != at {
                self.seen.chosen_among_partitions += 1;
                break;
            }
        }
        first.map_or(Search::Nothing, |(_, found)| found)
    }

    /// Handles a search without a match in a partition: if it has no buffer and none was posted for
    /// a second, the partition is no longer searched; and messages detect whether there are local
    /// entries.
    fn looked_in_vain(&mut self, node: usize, portal: usize, partition: usize) {
        let node = &mut self.nodes[node];
        node.notice_local(portal, partition);
        let empty = node.entries(portal).all(|(at, _, me)| at != partition || me.md.is_none());
        let now_ns = node.now_ns;
        let table = &mut node.portals[portal].tables[partition];
        if table.active && empty && now_ns - table.posted_ns >= REST_NS {
            table.active = false;
            self.seen.rested += 1;
        }
    }

    /// Returns the buffer if the entry takes the message, or the reason why it does not.
    pub(super) fn try_me(&self, node: usize, me: u64, key: &SearchKey) -> Search {
        let node = &self.nodes[node];
        let Some(entry) = node.mes.get(&me) else { return Search::Nothing };
        let (spec, source) = (&entry.spec, key.source);
        let Some(id) = entry.md else { return Search::Nothing };
        let md = &node.mds[&id];
        let id_fits = (spec.match_id.pid.is_any() || spec.match_id.pid == source.pid)
            && (spec.match_id.nid.is_any() || spec.match_id.nid == source.nid);
        let bits_fit = (spec.match_bits.0 ^ key.bits.0) & !spec.ignore_bits.0 == 0;
        if md.is_exhausted() || !md.options.contains(key.op) || !bits_fit || !id_fits {
            return Search::Nothing;
        }
        let remote = md.options.contains(MdOptions::MANAGE_REMOTE);
        let offset = if remote { u64::from(key.offset) } else { md.offset };
        if offset > md.len() {
            return Search::TooLong;
        }
        let most = md.max_size.unwrap_or(u64::from(MAX_PAYLOAD));
        let room = (md.len() - offset).min(most).min(u64::from(MAX_PAYLOAD));
        let cuts = md.options.contains(MdOptions::TRUNCATE) && self.mutant != Some(Mutant::NeverTruncates);
        match key.length <= room {
            true => Search::Found(Found { md: id, offset, mlength: key.length }),
            false if cuts => Search::Found(Found { md: id, offset, mlength: room }),
            false => Search::TooLong,
        }
    }
}
