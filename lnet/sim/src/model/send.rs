//! Messages that a node sends: queued, with an LND, complete.

use lnet_api::{Errno, EventKind};

use super::node::{Due, From, Handling, Out, OutKind};
use super::search::{Search, SearchKey};
use super::{Model, Mutant};

/// The time that a message may wait for credits beyond the limit of an attempt to send it
/// (lnet-semantics 13).
const SLACK_NS: u64 = 1_000_000_000;

impl Model {
    /// Sends a message: to an LND when there are credits, or to this node itself at once.
    pub(super) fn push(&mut self, node: usize, mut out: Out) {
        let id = self.id();
        match out.ni.and_then(|nid| self.nodes[node].ni(nid)) {
            Some(ni) => {
                out.deadline_ns = self.nodes[node].now_ns + ni.limits.timeout_ns + SLACK_NS;
                self.nodes[node].outs.insert(id, out);
            }
            None => self.loop_back(node, out),
        }
    }

    fn loop_back(&mut self, node: usize, out: Out) {
        self.seen.looped_back += 1;
        self.nodes[node].counts.sent += 1;
        let from = From { ni: None, peer: out.header.src, rx: 0 };
        let payload = self.nodes[node].payload(&out);
        match self.receive(node, from, &out.header, &payload) {
            Handling::Done | Handling::Discard => self.complete_out(node, out, Ok(())),
            Handling::Delay => {
                if let Some(waiting) = self.nodes[node].waiting.last_mut() {
                    waiting.local = Some(out);
                }
            }
            Handling::Deliver(message) => {
                self.complete_out(node, out, Ok(()));
                let length = message.payload.len();
                self.complete_in(node, *message, Ok(()), length);
            }
        }
    }

    /// Completes a message that has left or never will.
    pub(super) fn complete_out(&mut self, node: usize, out: Out, result: Result<(), Errno>) {
        if let Some(due) = self.end_out(node, out, result) {
            self.nodes[node].due.push(due);
        }
    }

    /// Completes a message as [`Model::complete_out`] does, but returns the event that is due.
    pub(super) fn end_out(&mut self, node: usize, out: Out, result: Result<(), Errno>) -> Option<Due> {
        let node = &mut self.nodes[node];
        // A message to this node itself was counted when it was begun.
        node.counts.sent += u64::from(result.is_ok() && out.ni.is_some());
        let md = out.md?;
        if matches!(out.kind, OutKind::Put | OutKind::Get | OutKind::DirectGet) {
            if result.is_err() {
                // A response that cannot come counts as received, so that the MD ends.
                if node.take_response(out.response).is_some() {
                    node.md(md).consume();
                }
            } else if let Some(response) = node.responses.iter_mut().find(|r| r.id == out.response) {
                response.sent = true;
            }
        }
        Some(Due { md, event: out.event?, status: result, content: None, last: false })
    }

    /// Retries the messages that wait on a portal, in order, with a newly posted buffer.
    pub(super) fn retry(&mut self, node: usize, portal: u32, me: u64) {
        let mut at = 0;
        while at < self.nodes[node].waiting.len() {
            let waiting = &self.nodes[node].waiting[at];
            let found = match waiting.portal == portal {
                true => self.try_me(node, me, &SearchKey::put(&waiting.header)),
                false => Search::Nothing,
            };
            if matches!(found, Search::Nothing) {
                at += 1;
                continue;
            }
            let waiting = self.nodes[node].waiting.remove(at);
            let payload = match &waiting.local {
                Some(out) => self.nodes[node].payload(out),
                None => waiting.payload,
            };
            let handling = self.take_put(node, waiting.from, &waiting.header, &payload, found);
            self.nodes[node].counts.dropped += u64::from(matches!(handling, Handling::Discard));
            self.seen.resumed += 1;
            self.go_on(node, waiting.from.rx, waiting.local, handling);
        }
    }

    /// Drops messages that wait on lazy portals.
    pub(super) fn drop_waiting(&mut self, node: usize, which: impl Fn(&super::node::Waiting) -> bool) {
        let (gone, kept) = std::mem::take(&mut self.nodes[node].waiting).into_iter().partition(which);
        self.nodes[node].waiting = kept;
        let gone: Vec<super::node::Waiting> = gone;
        for waiting in gone {
            self.nodes[node].counts.dropped += 1;
            self.seen.given_up += 1;
            self.go_on(node, waiting.from.rx, waiting.local, Handling::Discard);
        }
    }

    /// Handles the loss of a delayed message's connection: a message that still waits is dropped,
    /// without a call to an LND.
    pub(super) fn forgotten(&mut self, node: usize, rx: u64, forgotten: bool) {
        let waiting = &mut self.nodes[node].waiting;
        let place = waiting.iter().position(|waiting| waiting.from.ni.is_some() && waiting.from.rx == rx);
        if place.is_some() != forgotten {
            return self.fail(|| format!("node {node}: message {rx} is forgotten: {forgotten}, wrongly"));
        }
        let Some(place) = place.filter(|_| self.mutant != Some(Mutant::KeepsForgotten)) else { return };
        waiting.remove(place);
        self.nodes[node].counts.dropped += 1;
        self.seen.forgotten += 1;
    }

    fn go_on(&mut self, node: usize, rx: u64, local: Option<Out>, handling: Handling) {
        let Some(out) = local else {
            self.nodes[node].resumes.push((rx, handling));
            return;
        };
        self.complete_out(node, out, Ok(()));
        if let Handling::Deliver(message) = handling {
            let length = message.payload.len();
            self.complete_in(node, *message, Ok(()), length);
        }
    }

    /// Advances the time of a node: late answers end.
    pub(crate) fn advance(&mut self, node: usize, now_ns: u64) {
        let node = &mut self.nodes[node];
        node.now_ns = node.now_ns.max(now_ns);
        let now = node.now_ns;
        let is_late = |out: &Out| out.kind == OutKind::Ack && out.token.is_none() && out.deadline_ns <= now;
        let before = node.outs.len();
        node.outs.retain(|_, out| !is_late(out));
        node.late_acks += (before - node.outs.len()) as u64;
        loop {
            let late = node.responses.iter().find(|r| r.deadline_ns.is_some_and(|deadline| deadline <= now));
            let Some(late) = late.cloned() else { return };
            node.counts.timeouts += 1;
            self.seen.timeouts += 1;
            let event = node.response_event(&late);
            debug_assert!(matches!(event.kind, EventKind::Ack | EventKind::Reply));
            node.unlink(late.md, event, Err(Errno::ETIMEDOUT));
        }
    }
}
