//! Which buffer takes a message: all entries in the order of the portal's list, partition by partition
//! (lnet-semantics 9 and 10; S-308, S-309).

use lnet::{Rotor, Stealing};
use lnet_api::MdOptions;
use lnet_nid::{MatchBits, ProcessId};
use lnet_proto::{Body, Header, MAX_PAYLOAD};

use super::node::From;
use super::{Model, Mutant};

/// How long a partition must have had no new buffer before it is not looked at any more, in nanoseconds.
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

/// What a PUT or GET looks for.
pub(super) struct Wanted {
    pub(super) op: MdOptions,
    pub(super) bits: MatchBits,
    pub(super) source: ProcessId,
    pub(super) length: u64,
    pub(super) offset: u32,
}

impl Wanted {
    pub(super) fn put(header: &Header) -> Wanted {
        let (bits, offset) = match header.body {
            Body::Put { match_bits, offset, .. } => (match_bits, offset),
            _ => (MatchBits(0), 0),
        };
        let length = u64::from(header.payload_length);
        Wanted { op: MdOptions::OP_PUT, bits, source: header.src, length, offset }
    }
}

impl Model {
    /// Looks where the message begins, then in the other partitions that have buffers, if it may.
    pub(super) fn search(
        &mut self,
        node: usize,
        portal: u32,
        from: From,
        header: &Header,
        wanted: &Wanted,
    ) -> Search {
        let index = portal as usize;
        let Some(unique) = self.nodes[node].portals.get(index).and_then(|portal| portal.unique) else {
            return Search::Nothing;
        };
        if unique {
            return self.look(node, index, 0, wanted);
        }
        let waits = self.nodes[node].portals[index].lazy && wanted.op == MdOptions::OP_PUT;
        let steals = self.stealing == Stealing::All || waits;
        let first = self.first_partition(node, index, from, header);
        for partition in (first..self.partitions).chain(0..first) {
            if !self.nodes[node].portals[index].tables[partition].active {
                continue;
            }
            let found = self.look(node, index, partition, wanted);
            if !matches!(found, Search::Nothing) || !steals {
                return found;
            }
            self.seen.looked_on += 1;
        }
        if waits {
            // It looks everywhere before it waits.
            (0..self.partitions).for_each(|partition| self.rest(node, index, partition));
        }
        Search::Nothing
    }

    /// Where a message begins to look.
    fn first_partition(&mut self, node: usize, portal: usize, from: From, header: &Header) -> usize {
        let partitions = self.partitions;
        let node = &mut self.nodes[node];
        let here = match from.ni.and_then(|ni| node.ni(ni)) {
            Some(ni) => ni.cpts[from.peer.nid.cpt_of(ni.cpts.len())],
            None => self.here,
        };
        let routed = header.src.nid.net() != header.dest.nid.net();
        match self.portal_rotor {
            _ if partitions == 1 => 0,
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

    /// All entries of one partition in the order of the portal's list; or all that ignore bits, then the others.
    fn look(&mut self, node: usize, portal: usize, partition: usize, wanted: &Wanted) -> Search {
        let node_ = &self.nodes[node];
        let mut order: Vec<u64> = node_.portals[portal].tables[partition].entries.clone();
        if self.ignore_bits_first {
            order.sort_by_key(|me| node_.mes[me].spec.ignore_bits.0 == 0);
        }
        if self.mutant == Some(Mutant::LastFirst) {
            order.reverse();
        }
        let tries = order.into_iter().map(|me| self.try_me(node, me, wanted));
        let found = { tries }.find(|found| !matches!(found, Search::Nothing));
        if found.is_none() && node_.portals[portal].unique == Some(false) {
            self.rest(node, portal, partition);
        }
        found.unwrap_or(Search::Nothing)
    }

    /// Nothing was found there: if there has been no buffer for long, it is not looked at any more.
    fn rest(&mut self, node: usize, portal: usize, partition: usize) {
        let node = &mut self.nodes[node];
        let table = &mut node.portals[portal].tables[partition];
        let empty = table.entries.iter().all(|me| node.mes[me].md.is_none());
        if table.active && empty && node.now_ns - table.posted_ns >= REST_NS {
            table.active = false;
            self.seen.rested += 1;
        }
    }

    /// Whether an entry takes a message.
    pub(super) fn try_me(&self, node: usize, me: u64, wanted: &Wanted) -> Search {
        let node = &self.nodes[node];
        let Some(entry) = node.mes.get(&me) else { return Search::Nothing };
        let (spec, source) = (&entry.spec, wanted.source);
        let Some(id) = entry.md else { return Search::Nothing };
        let md = &node.mds[&id];
        let id_fits = (spec.match_id.pid.is_any() || spec.match_id.pid == source.pid)
            && (spec.match_id.nid.is_any() || spec.match_id.nid == source.nid);
        let bits_fit = (spec.match_bits.0 ^ wanted.bits.0) & !spec.ignore_bits.0 == 0;
        if md.is_exhausted() || !md.options.contains(wanted.op) || !bits_fit || !id_fits {
            return Search::Nothing;
        }
        let remote = md.options.contains(MdOptions::MANAGE_REMOTE);
        let offset = if remote { u64::from(wanted.offset) } else { md.offset };
        if offset > md.len() {
            return Search::TooLong;
        }
        let most = md.max_size.unwrap_or(u64::from(MAX_PAYLOAD));
        let room = (md.len() - offset).min(most).min(u64::from(MAX_PAYLOAD));
        let cuts = md.options.contains(MdOptions::TRUNCATE) && self.mutant != Some(Mutant::NeverTruncates);
        match wanted.length <= room {
            true => Search::Found(Found { md: id, offset, mlength: wanted.length }),
            false if cuts => Search::Found(Found { md: id, offset, mlength: room }),
            false => Search::TooLong,
        }
    }
}
