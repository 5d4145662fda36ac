//! Functions that break the room on purpose, each with the rule of its audit that detects it.

use super::NetPartition;
use super::sending::Awaits;
use crate::audit::Damage;
use crate::slab::NONE;

/// Returns the peer of which two messages are with the LND and one waits.
fn first_peer(net: &NetPartition) -> u32 {
    net.peers.slab.indices().find(|&index| net.peers[index].waiting > 0).unwrap()
}

pub(crate) const NET: &[Damage<NetPartition>] = &[
    ("a message's peer exists", |net| {
        let message = net.messages.indices().next().unwrap();
        net.messages[message].peer = 1000;
    }),
    ("a peer's credits are those that its messages leave", |net| {
        let peer = first_peer(net);
        net.peers.get_mut(peer).credits += 1;
    }),
    ("a peer's most credits are its NI's limit", |net| {
        let peer = first_peer(net);
        net.peers.get_mut(peer).max_credits += 1;
    }),
    ("a peer's lowest credits are the lowest", |net| {
        let peer = first_peer(net);
        net.peers.get_mut(peer).min_credits = 1;
    }),
    ("a peer's answers are counted", |net| {
        let peer = first_peer(net);
        net.peers.get_mut(peer).answers += 1;
    }),
    ("a peer's bytes are those of its messages", |net| {
        let peer = first_peer(net);
        net.peers.get_mut(peer).queued_bytes += 1;
    }),
    ("the messages that wait for a peer are counted", |net| {
        let peer = first_peer(net);
        let queue = &mut net.peers.slab[peer].queue;
        queue.pop_front(&mut net.messages).unwrap();
    }),
    ("a peer is found by its name", |net| {
        let peer = first_peer(net);
        net.peers.get_mut(peer).id.nid = "10.0.0.9@tcp".parse().unwrap();
    }),
    ("the NIDs of peers are counted", |net| {
        let at = net.peers.nids.find(net.peers[first_peer(net)].id.nid).unwrap();
        *net.peers.nids.at_mut(at) += 1;
    }),
    ("an NI's credits are those that its messages leave", |net| {
        net.shares[0].as_mut().unwrap().credits += 1;
    }),
    ("an NI's most credits are its limit", |net| {
        net.shares[0].as_mut().unwrap().max_credits += 1;
    }),
    ("an NI's lowest credits are the lowest", |net| {
        net.shares[0].as_mut().unwrap().min_credits = 3;
    }),
    ("an NI has a part in its partitions", |net| {
        net.shares[0] = None;
    }),
    ("the messages that wait for an NI are counted", |net| {
        net.shares[0].as_mut().unwrap().queue.pop_front(&mut net.messages).unwrap();
    }),
    ("a message that waits is kept whole", |net| {
        let index = net.messages.indices().find(|&index| net.messages[index].waiting != NONE).unwrap();
        net.messages[index].waiting = NONE;
    }),
    ("a queue holds its own messages", |net| {
        let peer = first_peer(net);
        let queued = net.peers[peer].queue.head().unwrap();
        net.messages[queued].awaits = Awaits::Ni;
    }),
    ("a message that waits is in a queue", |net| {
        let index = net.messages.indices().find(|&index| net.messages[index].waiting == NONE).unwrap();
        net.messages[index].waiting = 0;
    }),
    ("a message's MD exists", |net| {
        let index = net.messages.indices().next().unwrap();
        net.messages[index].message.md.as_mut().unwrap().key.index = 1000;
    }),
];
