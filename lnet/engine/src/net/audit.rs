//! Checks of peers, NIs, and outgoing messages.

use std::collections::{HashMap, HashSet};
use std::fmt;

use lnet_nid::Nid;

use super::host::PeerHost;
use super::sending::{Awaits, PendingSend};
use super::{HEADER_BYTES, NetPartition, NetShared, NiShare};
use crate::audit::{Audit, AuditError, ListEnds, check, equal, text, walk};
use crate::names::unpack;
use crate::slab::{Key, NONE};

/// Sums over the messages to one peer.
#[derive(Debug, Default)]
struct Load {
    messages: i64,
    answers: u32,
    bytes: u64,
}

impl NetPartition {
    /// Checks that its peers, credits, queues and NIs agree with its messages.
    pub(crate) fn audit(&self, shared: &NetShared) -> Audit {
        let (net, partition) = (self, self.partition);
        let mut loads: HashMap<u32, Load> = HashMap::new();
        for index in net.messages.indices() {
            let message = &net.messages[index];
            let found = text!("message {index} of partition {partition} has peer {}", message.peer);
            check("a message's peer exists", net.peers.slab.at(message.peer).is_some(), found)?;
            let load = loads.entry(message.peer).or_default();
            load.messages += 1;
            load.answers += u32::from(message.message.op.is_answer());
            load.bytes += HEADER_BYTES + message.message.payload_bytes();
        }
        let mut queued = HashSet::new();
        let mut nids: HashMap<Nid, u32> = HashMap::new();
        for index in net.peers.slab.indices() {
            let load = loads.remove(&index).unwrap_or_default();
            self.audit_peer(shared, index, &load, &mut queued)?;
            *nids.entry(net.peers.slab[index].id.nid).or_default() += 1;
        }
        for (nid, count) in nids {
            let location = text!("{nid} in partition {partition}");
            equal("the NIDs of peers are counted", location, net.peers.nids.get(nid), Some(&count))?;
        }
        for (key, ni) in shared.nis.iter() {
            let location = text!("hosts of {} in partition {partition}", ni.id.nid);
            let mut held_back = 0;
            for (index, host) in net.peers.hosts(key) {
                held_back += audit_host(net, partition, key, index, host, &mut queued)?;
            }
            let counted = net.share(key).map_or(0, |share| share.held_back);
            equal("the messages that wait for their hosts are counted", location, held_back, counted)?;
        }
        // Queued messages hold no credit of an NI, nor await one.
        let mut of_ni: HashMap<Key, i64> = HashMap::new();
        let indices = net.messages.indices().filter(|index| !queued.contains(index));
        for index in indices {
            *of_ni.entry(net.peers.slab[net.messages[index].peer].ni).or_default() += 1;
        }
        for (key, ni) in shared.nis.iter() {
            let location = text!("NI {} in partition {partition}", ni.id.nid);
            let share = net.share(key);
            equal(
                "an NI has a part in its partitions",
                location,
                share.is_some(),
                ni.cpts.contains(partition),
            )?;
            if let Some(share) = share {
                let most = ni.credits_per_partition(&ni.limits);
                equal("an NI's most credits are its limit", location, share.max_credits, most)?;
                let messages = of_ni.get(&key).copied().unwrap_or(0);
                audit_share(net, partition, share, messages, &mut queued)?;
            }
        }
        let parts = net.shares.iter().flatten();
        for share in parts {
            let found = text!("{:?} in partition {partition}", share.ni);
            check("an NI goes from all partitions", shared.nis.get(share.ni).is_some(), found)?;
        }
        for index in net.messages.indices() {
            let waits = net.messages[index].waiting != NONE;
            let location = text!("message {index} of partition {partition}");
            equal("a message that waits is in a queue", location, waits, queued.contains(&index))?;
        }
        let location = text!("partition {partition}");
        equal("as many wait as are queued", location, net.waiting.len(), queued.len())
    }

    fn audit_peer(&self, shared: &NetShared, index: u32, load: &Load, queued: &mut HashSet<u32>) -> Audit {
        let (net, partition) = (self, self.partition);
        let peer = &net.peers.slab[index];
        let location = text!("peer {index}, {}, of partition {partition}", peer.id.nid);
        let found = net.peers.find(&self.common.hasher, peer.ni, peer.id);
        equal("a peer is found by its name", location, found, Some(index))?;
        let ni = shared.nis.get(peer.ni);
        check("a peer's NI exists", ni.is_some(), format_args!("{location} has {:?}", peer.ni))?;
        if let Some(ni) = ni {
            equal("a peer is in its partition", location, partition, ni.cpts.of(peer.id.nid))?;
            let most = i64::from(ni.limits.peer_credits.max(1));
            equal("a peer's most credits are its NI's limit", location, peer.max_credits, most)?;
        }
        let free = peer.max_credits - load.messages;
        equal("a peer's credits are those that its messages leave", location, peer.credits, free)?;
        lowest("a peer's lowest credits are the lowest", location, peer.min_credits, peer.credits)?;
        equal("a peer's answers are counted", location, peer.answers, load.answers)?;
        equal("a peer's bytes are those of its messages", location, peer.queued_bytes, load.bytes)?;
        let ends = (peer.queue.head(), peer.queue.tail());
        let whose = |message: &PendingSend| message.awaits == Awaits::Peer && message.peer == index;
        let length = audit_queue(net, partition, ends, queued, whose)?;
        equal("the messages that wait for a peer are counted", location, length, peer.waiting)?;
        let lacking = peer.credits.min(0).unsigned_abs() as usize;
        let fits = length <= lacking;
        check(
            "no more messages wait for a peer than it lacks credits",
            fits,
            format_args!("{location}: {length}"),
        )
    }
}

/// Checks the peers, credits and queue of a host; returns the number of messages in the queue.
fn audit_host(
    net: &NetPartition,
    partition: usize,
    ni: Key,
    index: u32,
    host: &PeerHost,
    queued: &mut HashSet<u32>,
) -> Result<usize, AuditError> {
    let location = text!("host {index} of {ni:?} in partition {partition}");
    let peers = net.peers.slab.indices().filter(|&at| {
        let peer = &net.peers.slab[at];
        peer.ni == ni && peer.host == index
    });
    equal("a host's peers are counted", location, peers.count(), host.peers as usize)?;
    let of_host = |message: &PendingSend| message.host == index && net.peers.slab[message.peer].ni == ni;
    let held = net.messages.indices().filter(|&at| {
        let message = &net.messages[at];
        of_host(message) && (message.waiting == NONE || message.awaits != Awaits::Host)
    });
    equal("a host's credits are those of its messages", location, held.count() as i64, host.held)?;
    let ends = (host.queue.head(), host.queue.tail());
    let whose = |message: &PendingSend| message.awaits == Awaits::Host && of_host(message);
    let length = audit_queue(net, partition, ends, queued, whose)?;
    equal("the messages that wait for a host are counted", location, length, host.waiting)?;
    let moves = host.waiting == 0 || host.held > 0;
    check("a host for which messages wait holds credits", moves, format_args!("{location}: {length}"))?;
    check("a host that is kept is used", !host.is_unused(), location)?;
    Ok(length)
}

/// Checks that the lowest number of credits so far is not above the present one.
fn lowest(rule: &'static str, location: impl fmt::Display, lowest: i64, now: i64) -> Audit {
    check(rule, lowest <= now, format_args!("{location}: {lowest}"))
}

fn audit_share(
    net: &NetPartition,
    partition: usize,
    share: &NiShare,
    messages: i64,
    queued: &mut HashSet<u32>,
) -> Audit {
    let location = text!("{:?} in partition {partition}", share.ni);
    let free = share.max_credits - messages;
    equal("an NI's credits are those that its messages leave", location, share.credits, free)?;
    lowest("an NI's lowest credits are the lowest", location, share.min_credits, share.credits)?;
    let ends = (share.queue.head(), share.queue.tail());
    let whose =
        |message: &PendingSend| message.awaits == Awaits::Ni && net.peers.slab[message.peer].ni == share.ni;
    let length = audit_queue(net, partition, ends, queued, whose)?;
    equal("the messages that wait for an NI are counted", location, length, share.waiting)?;
    let lacking = share.credits.min(0).unsigned_abs() as usize;
    let fits = length <= lacking;
    check("no more messages wait for an NI than it lacks credits", fits, format_args!("{location}: {length}"))
}

/// Checks a queue of messages for which `whose` holds, and that each of them is in no other queue.
fn audit_queue(
    net: &NetPartition,
    partition: usize,
    ends: ListEnds,
    queued: &mut HashSet<u32>,
    whose: impl Fn(&PendingSend) -> bool,
) -> Result<usize, AuditError> {
    walk(
        format_args!("a queue of partition {partition}"),
        ends,
        |index| net.messages.at(index),
        |index, message| {
            let location = text!("message {index} of partition {partition}");
            check("a message is in one queue", queued.insert(index), location)?;
            check("a queue holds its own messages", whose(message), location)?;
            let token = net.waiting.at(message.waiting).map(|tx| unpack(tx.token.0));
            let name = Some((partition, net.messages.key(index)));
            equal("a message that waits is kept whole", location, token, name)
        },
    )
}
