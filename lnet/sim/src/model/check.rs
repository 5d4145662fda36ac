//! The checks after each step, and at the end.

use lnet::Counters;
use lnet_nid::Nid;

use super::Model;
use super::node::{Ni, Node, Out};

/// Number of peers for which each partition has credits at least (lnet-semantics 13).
const PEERS_PER_PARTITION: u64 = 8;

impl Model {
    /// Checks the state after a step: every event that was due has been delivered.
    pub(crate) fn check_step(&mut self) {
        for node in 0..self.nodes.len() {
            if let Err(what) = self.check_node(node) {
                self.fail(|| format!("node {node}: {what}"));
            }
        }
    }

    fn check_node(&mut self, node: usize) -> Result<(), String> {
        let node = &mut self.nodes[node];
        if let Some(due) = node.due.first() {
            return Err(format!("an event has not come: {due:?}"));
        }
        if !node.resumes.is_empty() || node.handling.is_some() {
            return Err(format!("delayed messages {:?} were not resumed", node.resumes));
        }
        if let Some((ni, peer, _)) = node.losing.take()
            && let Some(left) =
                node.responses.iter().find(|r| r.sent && r.ni == Some(ni) && r.target.nid == peer)
        {
            return Err(format!("the peer is lost, but an answer is still expected: {left:?}"));
        }
        for (md, memory) in std::mem::take(&mut node.ended) {
            memory.write(0..memory.len()).map_err(|error| format!("MD {md} has ended, but: {error}"))?;
        }
        node.check_memory()?;
        node.check_queues()
    }

    /// Compares the model's counts with the engine's own counters.
    pub(crate) fn check_counters(&mut self, node: usize, is: &Counters) {
        let model = &self.nodes[node];
        let most = (model.outs.len() + model.ins.len() + model.waiting.len()) as u64 + model.late_acks;
        let least = most - model.late_acks;
        let messages = least <= is.msgs_alloc && is.msgs_alloc <= most;
        let counts = model.counts;
        let counted = (is.drop_count, is.recv_count, is.send_count, is.response_timeout_count);
        let expected = (counts.dropped, counts.received, counts.sent, counts.timeouts);
        let responses = model.responses.len() as u64;
        if !messages {
            self.fail(|| format!("node {node}: {} messages in flight instead of {most}", is.msgs_alloc));
        } else if is.rst_alloc != responses {
            self.fail(|| format!("node {node}: {} answers expected instead of {responses}", is.rst_alloc));
        } else if counted != expected {
            self.fail(|| {
                format!("node {node}: dropped, received, sent, late are {counted:?} instead of {expected:?}")
            });
        }
    }

    /// Checks that no operation is in flight.
    pub(crate) fn check_quiet(&mut self, node: usize) {
        let node_ = &self.nodes[node];
        let left = format!("{:?}", (&node_.outs, &node_.ins));
        if !node_.outs.is_empty() || !node_.ins.is_empty() || !node_.waiting.is_empty() {
            let waiting = node_.waiting.len();
            self.fail(|| format!("node {node}: never ends, and {waiting} wait: {left}"));
        }
    }

    /// Checks, when a message was handed to an LND, that its credits were available.
    pub(super) fn check_credits(&mut self, node: usize, ni: Nid, peer: Nid) {
        let node_ = &self.nodes[node];
        let Some(&Ni { limits, ref cpts, .. }) = node_.ni(ni) else { return };
        let partitions = cpts.len() as u64;
        let of_ni = node_.with_lnd(|out| out.ni == Some(ni));
        let of_peer = node_.with_lnd(|out| out.ni == Some(ni) && out.peer == peer);
        let most = per_partition(limits, partitions) * partitions;
        if of_peer > u64::from(limits.peer_credits) || of_ni > most {
            self.fail(|| {
                format!("node {node}: the LND has {of_peer} messages to {peer}, {of_ni} in all: {limits:?}")
            });
        }
    }
}

fn per_partition(limits: lnet_api::NiLimits, partitions: u64) -> u64 {
    let (credits, peer) = (u64::from(limits.credits), u64::from(limits.peer_credits));
    if partitions == 1 {
        credits
    } else {
        credits.min((credits / partitions).max(PEERS_PER_PARTITION * peer))
    }
}

impl Node {
    fn with_lnd(&self, which: impl Fn(&Out) -> bool) -> u64 {
        self.outs.values().filter(|out| out.token.is_some() && which(out)).count() as u64
    }

    /// Checks that memory contains the received bytes, except where a receive is in progress.
    fn check_memory(&mut self) -> Result<(), String> {
        for id in std::mem::take(&mut self.written) {
            let Some(md) = self.mds.get(&id) else { continue };
            let Ok(memory) = md.memory.read(0..md.memory.len()) else { continue };
            if memory.to_vec() != md.shadow {
                return Err(format!("the memory of MD {id} is not as it should be"));
            }
        }
        Ok(())
    }

    /// Checks that no message waits while there are credits for it.
    fn check_queues(&self) -> Result<(), String> {
        for out in self.outs.values().filter(|out| out.token.is_none()) {
            let (Some(nid), peer) = (out.ni, out.peer) else { continue };
            let Some(ni) = self.ni(nid) else { continue };
            let of_ni = self.with_lnd(|out| out.ni == Some(nid));
            let of_peer = self.with_lnd(|out| out.ni == Some(nid) && out.peer == peer);
            let peer_full = of_peer >= u64::from(ni.limits.peer_credits);
            if !peer_full && of_ni < per_partition(ni.limits, ni.cpts.len() as u64) {
                return Err(format!("a message waits, although {of_peer} of {of_ni} are under way: {out:?}"));
            }
        }
        Ok(())
    }
}
