//! The credits of peers, hosts and NIs, and the queues of messages that wait for them
//! (lnet-semantics 13).

use lnet_api::{Errno, NiLimits};

use super::host::{self, RELEASES};
use super::sending::{Awaits, PendingSend};
use super::{NetPartition, NetShared};
use crate::slab::{Key, NONE};
use crate::work::DeferredWork;

impl NetPartition {
    /// Takes a credit of the message's peer; `false` if the message is queued for one.
    pub(super) fn take_peer_credit(&mut self, message: u32) -> bool {
        let peer = self.peers.get_mut(self.messages[message].peer);
        peer.credits -= 1;
        peer.min_credits = peer.min_credits.min(peer.credits);
        if peer.credits < 0 {
            peer.waiting += 1;
            self.messages[message].awaits = Awaits::Peer;
            peer.queue.push_back(&mut self.messages, message);
            return false;
        }
        true
    }

    /// Takes a credit of the share of the message's host; `false` if the message is queued for one.
    pub(super) fn take_host_credit(&mut self, message: u32, ni: Key) -> bool {
        let share =
            self.shares[ni.index as usize].as_mut().expect("a peer's NI has a share in its partition");
        let of_peer = self.peers[self.messages[message].peer].host;
        self.messages[message].host = of_peer;
        let host = self.peers.host_mut(ni, of_peer);
        if host.waiting > 0 || !host::may_take(host.held, share.credits, share.peer_credits) {
            host.waiting += 1;
            share.held_back += 1;
            self.messages[message].awaits = Awaits::Host;
            host.queue.push_back(&mut self.messages, message);
            return false;
        }
        host.held += 1;
        true
    }

    /// Takes a credit of the message's NI; `false` if the message is queued for one.
    pub(super) fn take_ni_credit(&mut self, message: u32, ni: Key) -> bool {
        let share =
            self.shares[ni.index as usize].as_mut().expect("a peer's NI has a share in its partition");
        share.credits -= 1;
        share.min_credits = share.min_credits.min(share.credits);
        if share.credits < 0 {
            share.waiting += 1;
            self.messages[message].awaits = Awaits::Ni;
            share.queue.push_back(&mut self.messages, message);
            return false;
        }
        true
    }

    /// Returns all credits of a message, that of the NI first (lnet-semantics 13).
    pub(super) fn give_back_credits(&mut self, peer: u32, host: u32, work: &mut DeferredWork) {
        let ni = self.peers[peer].ni;
        self.give_back_ni_credit(ni, work);
        self.give_back_host_credit(ni, host, work);
        self.give_back_peer_credit(peer, work);
    }

    /// Returns a host's credit of the NI. While messages wait for a host, the host holds credits.
    /// So each waiting message is checked again, at the latest when the last of these credits is
    /// returned.
    pub(super) fn give_back_host_credit(&mut self, ni: Key, host: u32, work: &mut DeferredWork) {
        if host == NONE {
            return;
        }
        self.peers.host_mut(ni, host).held -= 1;
        let mut releases = RELEASES;
        while releases > 0 {
            let Some(share) = self.shares[ni.index as usize].as_mut() else { return };
            let known = self.peers.host_mut(ni, host);
            if known.waiting == 0 || !host::may_take(known.held, share.credits, share.peer_credits) {
                break;
            }
            // The queue has room for one send in addition to the message that the peer's credit
            // starts. More start if there is memory.
            if releases < RELEASES && !work.sends.reserve(2) {
                break;
            }
            let Some(message) = known.queue.pop_front(&mut self.messages) else { break };
            known.waiting -= 1;
            share.held_back -= 1;
            let Some(tx) = self.stop_waiting(message) else { break };
            if tx.deadline_ns <= self.common.now_ns() {
                let peer = self.messages[message].peer;
                self.end(message, Errno::ETIMEDOUT, work);
                self.give_back_peer_credit(peer, work);
                continue;
            }
            self.peers.host_mut(ni, host).held += 1;
            releases -= 1;
            match self.take_ni_credit(message, ni) {
                true => self.queue_send(message, ni, tx, work),
                false => self.keep_waiting(message, tx),
            }
        }
        self.peers.forget_host_if_unused(ni, host);
    }

    pub(super) fn give_back_ni_credit(&mut self, ni: Key, work: &mut DeferredWork) {
        loop {
            let Some(share) = self.shares[ni.index as usize].as_mut() else { return };
            share.credits += 1;
            if !starts_message(share.credits, share.waiting) {
                return;
            }
            let Some(message) = share.queue.pop_front(&mut self.messages) else { return };
            share.waiting -= 1;
            let Some(tx) = self.stop_waiting(message) else { return };
            if tx.deadline_ns > self.common.now_ns() {
                return self.queue_send(message, ni, tx, work);
            }
            let PendingSend { peer, host, .. } = self.messages[message];
            self.end(message, Errno::ETIMEDOUT, work);
            self.give_back_host_credit(ni, host, work);
            self.give_back_peer_credit(peer, work);
        }
    }

    pub(super) fn give_back_peer_credit(&mut self, index: u32, work: &mut DeferredWork) {
        loop {
            let peer = self.peers.get_mut(index);
            peer.credits += 1;
            if !starts_message(peer.credits, peer.waiting) {
                return;
            }
            let Some(message) = peer.queue.pop_front(&mut self.messages) else { return };
            peer.waiting -= 1;
            let ni = peer.ni;
            let Some(tx) = self.stop_waiting(message) else { return };
            if tx.deadline_ns > self.common.now_ns() {
                if self.take_host_credit(message, ni) && self.take_ni_credit(message, ni) {
                    return self.queue_send(message, ni, tx, work);
                }
                return self.keep_waiting(message, tx);
            }
            self.end(message, Errno::ETIMEDOUT, work);
        }
    }

    /// Replaces the assumed limits of an NI by those of its LND, which has started it.
    pub(super) fn change_limits(
        &mut self,
        shared: &NetShared,
        ni: Key,
        from: &NiLimits,
        to: &NiLimits,
        work: &mut DeferredWork,
    ) {
        let more = i64::from(to.peer_credits.max(1)) - i64::from(from.peer_credits.max(1));
        for index in self.peers.of_ni(ni) {
            let peer = self.peers.get_mut(index);
            peer.max_credits += more;
            peer.min_credits += more;
            peer.credits += more.min(0);
            // Credits are returned one by one while messages wait for them.
            let mut left = more.max(0);
            while left > 0 && self.peers[index].credits < 0 {
                self.give_back_peer_credit(index, work);
                left -= 1;
            }
            self.peers.get_mut(index).credits += left;
        }
        let Some(known) = shared.nis.get(ni) else { return };
        let more = known.credits_per_partition(to) - known.credits_per_partition(from);
        let Some(share) = self.share_mut(ni) else { return };
        share.peer_credits = i64::from(to.peer_credits.max(1));
        share.max_credits += more;
        share.min_credits += more;
        share.credits += more.min(0);
        let mut left = more.max(0);
        while left > 0 && self.share(ni).is_some_and(|share| share.credits < 0) {
            self.give_back_ni_credit(ni, work);
            left -= 1;
        }
        if let Some(share) = self.share_mut(ni) {
            share.credits += left;
        }
    }

    /// Ends all messages that wait for credits of an NI or of its peers.
    pub(super) fn flush_queues(&mut self, ni: Key, errno: Errno, work: &mut DeferredWork) {
        while let Some(Some(share)) = self.shares.get_mut(ni.index as usize)
            && share.ni == ni
            && let Some(message) = share.queue.pop_front(&mut self.messages)
        {
            share.waiting -= 1;
            share.credits += 1;
            let PendingSend { peer, host, .. } = self.messages[message];
            self.peers.get_mut(peer).credits += 1;
            self.peers.host_mut(ni, host).held -= 1;
            self.peers.forget_host_if_unused(ni, host);
            let _tx = self.stop_waiting(message);
            self.end(message, errno, work);
        }
        for peer in self.peers.of_ni(ni) {
            // Each message in the queue of a host belongs to one of its peers.
            let host = self.peers[peer].host;
            while let Some(message) = self.peers.host_mut(ni, host).queue.pop_front(&mut self.messages) {
                self.peers.host_mut(ni, host).waiting -= 1;
                if let Some(share) = self.share_mut(ni) {
                    share.held_back -= 1;
                }
                self.peers.get_mut(self.messages[message].peer).credits += 1;
                let _tx = self.stop_waiting(message);
                self.end(message, errno, work);
            }
        }
        for peer in self.peers.of_ni(ni) {
            while let Some(message) = self.peers.get_mut(peer).queue.pop_front(&mut self.messages) {
                let known = self.peers.get_mut(peer);
                (known.credits, known.waiting) = (known.credits + 1, known.waiting - 1);
                let _tx = self.stop_waiting(message);
                self.end(message, errno, work);
            }
        }
    }
}

/// Returns whether a returned credit starts a message. Normally the number of waiting messages
/// equals the credits below 0. After an LND has lowered its limits, more messages than allowed may
/// be in flight, and the first returned credits start none.
fn starts_message(credits: i64, waiting: usize) -> bool {
    (credits.min(0).unsigned_abs() as usize) < waiting
}
