//! How the model handles the notes of the network.

use std::sync::Arc;

use lnet_api::{Errno, Event, Sent, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Body, Header};

use super::Model;
use super::node::{Due, From, Handling, Out, OutKind};
use crate::net::{Judgement, Lane, Note};

impl Model {
    pub(crate) fn note(&mut self, note: &Note) {
        let ni = match note {
            Note::Sent { ni, .. }
            | Note::Taken { ni, .. }
            | Note::FinalizeTx { ni, .. }
            | Note::Arriving { ni, .. }
            | Note::Judged { ni, .. }
            | Note::FinalizeRx { ni, .. }
            | Note::Sink { ni, .. }
            | Note::FinalizeGet { ni, .. }
            | Note::Resumed { ni, .. }
            | Note::Forgotten { ni, .. }
            | Note::PeerLost { ni, .. } => *ni,
        };
        let Some(&node) = self.owners.get(&ni) else {
            return self.fail(|| format!("no node has {ni}: {note:?}"));
        };
        match note {
            Note::Sent { peer, header, payload, token, deadline_ns, .. } => {
                self.sent(node, ni, *peer, header, payload, *token, *deadline_ns);
            }
            Note::Taken { token, answer, .. } => {
                if let Sent::Now(result) = answer {
                    self.finalize_tx(node, *token, *result);
                }
            }
            Note::FinalizeTx { token, result, .. } => self.finalize_tx(node, *token, *result),
            Note::Arriving { from, header, payload, rx, lane, .. } => {
                self.check_lane(*lane);
                self.check_content(header, payload);
                let from = From { ni: Some(ni), peer: *from, rx: rx.0 };
                let handling = self.receive(node, from, header, payload);
                self.nodes[node].handling = Some((rx.0, handling));
            }
            Note::Judged { rx, judgement, .. } => self.judged(node, rx.0, *judgement),
            Note::FinalizeRx { token, result, written, .. } => match self.nodes[node].ins.remove(&token.0) {
                Some(message) => self.complete_in(node, message, *result, *written),
                None => self.fail(|| format!("node {node}: finalised, but not being received: {note:?}")),
            },
            Note::Sink { token, sink, .. } => self.sink(node, *token, *sink),
            Note::FinalizeGet { token, result, .. } => self.finalize_get(node, *token, result.clone()),
            Note::Resumed { rx, delivery, .. } => {
                let resumes = &mut self.nodes[node].resumes;
                let Some(place) = resumes.iter().position(|(waiting, _)| *waiting == rx.0) else {
                    return self.fail(|| format!("node {node}: resumed without reason: {note:?}"));
                };
                let (_, handling) = resumes.remove(place);
                let judgement =
                    delivery.map_or(Judgement::Discard, |(token, sink)| Judgement::Deliver(token, sink));
                let handling = if matches!(handling, Handling::Done) { Handling::Discard } else { handling };
                self.compare(node, handling, judgement);
            }
            Note::Forgotten { rx, forgotten, .. } => self.forgotten(node, rx.0, *forgotten),
            Note::PeerLost { peer, reason, .. } => {
                self.nodes[node].losing = Some((ni, *peer, *reason));
                let of_peer = |from: &From| from.ni == Some(ni) && from.peer.nid == *peer;
                if self.nodes[node].waiting.iter().any(|waiting| of_peer(&waiting.from)) {
                    self.fail(|| format!("node {node}: {peer} is lost, but a message of it still waits"));
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the note's own fields")]
    fn sent(
        &mut self,
        node: usize,
        ni: Nid,
        peer: ProcessId,
        header: &Header,
        payload: &Arc<[u8]>,
        token: TxToken,
        deadline_ns: u64,
    ) {
        let node_ = &self.nodes[node];
        let mine = |out: &Out| {
            let waits = out.token.is_none() && out.ni == Some(ni) && out.peer == peer.nid;
            waits && out.header == *header
        };
        // Answers to equal GETs have equal headers, so the payload decides.
        let same = |out: &Out| node_.payload(out) == *payload && out.deadline_ns == deadline_ns;
        let exact = node_.outs.iter().find(|(_, out)| mine(out) && same(out));
        let next = exact.or_else(|| node_.outs.iter().find(|(_, out)| mine(out)));
        let Some((&id, out)) = next else {
            return self.fail(|| format!("node {node} sends an unexpected message: {header:?}"));
        };
        let (same, due) = (node_.payload(out) == *payload, out.deadline_ns);
        if !same {
            self.fail(|| format!("node {node} sends other bytes than the MD has: {header:?}"));
        } else if due != deadline_ns || due <= self.nodes[node].now_ns {
            let now = self.nodes[node].now_ns;
            self.fail(|| {
                format!("node {node} at {now}: deadline {deadline_ns} instead of {due}: {header:?}")
            });
        }
        if let Body::Put { hdr_data, .. } = header.body {
            self.puts.insert(hdr_data, payload.clone());
        }
        if let Some(out) = self.nodes[node].outs.get_mut(&id) {
            out.token = Some(token);
        }
        self.check_credits(node, ni, peer.nid);
    }

    fn out_of(&self, node: usize, token: TxToken) -> Option<u64> {
        let mut outs = self.nodes[node].outs.iter();
        outs.find(|(_, out)| out.token == Some(token)).map(|(&id, _)| id)
    }

    fn finalize_tx(&mut self, node: usize, token: TxToken, result: Result<(), Errno>) {
        let out = self.out_of(node, token).and_then(|id| self.nodes[node].outs.remove(&id));
        match out {
            Some(out) => self.complete_out(node, out, result),
            None => {
                self.fail(|| format!("node {node}: {token:?} is finalised, but the LND does not have it"))
            }
        }
    }

    fn sink(&mut self, node: usize, token: TxToken, sink: Option<usize>) {
        let Some(id) = self.out_of(node, token) else {
            return self.fail(|| format!("node {node}: a sink for {token:?}, which the LND does not have"));
        };
        let node_ = &mut self.nodes[node];
        let out = &node_.outs[&id];
        let (Some(md), response) = (out.md, out.response) else { return };
        let wanted = node_.responses.iter().any(|r| r.id == response);
        let whole = (0, node_.md(md).len());
        let expected = (wanted && node_.md(md).is_free(whole, true)).then_some(whole.1 as usize);
        if sink.is_some()
            && let Some(out) = node_.outs.get_mut(&id)
        {
            out.kind = OutKind::DirectGet;
        }
        if sink != expected {
            self.fail(|| format!("node {node}: a sink of {sink:?} bytes instead of {expected:?}"));
        }
    }

    fn finalize_get(&mut self, node: usize, token: TxToken, result: Result<Arc<[u8]>, Errno>) {
        let Some(out) = self.out_of(node, token).and_then(|id| self.nodes[node].outs.remove(&id)) else {
            return self.fail(|| format!("node {node}: {token:?} is answered, but the LND does not have it"));
        };
        let (Some(md), response) = (out.md, out.response) else { return };
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(errno) => return self.complete_out(node, out, Err(errno)),
        };
        let mut send = self.end_out(node, out, Ok(()));
        let node_ = &mut self.nodes[node];
        let mlength = (bytes.len() as u64).min(node_.md(md).len());
        let content = Some((0, bytes[..mlength as usize].into()));
        if let Some(send) = &mut send {
            send.content = content;
        }
        node_.due.extend(send);
        let Some(response) = node_.take_response(response) else { return };
        self.seen.replies += 1;
        node_.counts.received += 1;
        node_.md(md).consume();
        node_.md(md).busy += 1;
        let length = mlength as u32;
        let event = Event { rlength: length, mlength: length, ..node_.response_event(&response) };
        node_.due.push(Due { md, event, status: Ok(()), content: None, last: false });
    }

    fn judged(&mut self, node: usize, rx: u64, judgement: Judgement) {
        match self.nodes[node].handling.take() {
            Some((expected, handling)) if expected == rx => self.compare(node, handling, judgement),
            _ => self.fail(|| format!("node {node}: a judgement of {rx}, which did not arrive")),
        }
    }

    /// Compares the engine's verdict on a message with the expected one.
    fn compare(&mut self, node: usize, handling: Handling, judgement: Judgement) {
        let agrees = match (&handling, judgement) {
            (Handling::Deliver(message), Judgement::Deliver(_, sink)) => message.payload.len() == sink,
            (Handling::Done, Judgement::Done) | (Handling::Discard, Judgement::Discard) => true,
            (Handling::Delay, Judgement::Delay(_)) => true,
            _ => false,
        };
        if !agrees {
            return self.fail(|| format!("node {node}: {judgement:?} instead of {handling:?}"));
        }
        if let (Handling::Deliver(message), Judgement::Deliver(token, _)) = (handling, judgement) {
            self.nodes[node].ins.insert(token.0, *message);
        }
    }

    fn check_lane(&mut self, lane: Lane) {
        if !self.orderly {
            return;
        }
        let next = self.lanes.entry((lane.connection, lane.end)).or_default();
        let expected = *next;
        *next = lane.sequence + 1;
        if lane.sequence != expected {
            self.fail(|| format!("message {expected} of a connection is missing or out of order: {lane:?}"));
        }
    }

    fn check_content(&mut self, header: &Header, payload: &Arc<[u8]>) {
        let Body::Put { hdr_data, .. } = header.body else { return };
        if self.puts.get(&hdr_data) != Some(payload) {
            self.fail(|| format!("a PUT arrives with other bytes than it was sent with: {header:?}"));
        }
    }
}
