//! The expected handling of a header: the rules of lnet-semantics 5 to 11, in order.

use std::sync::Arc;

use lnet_api::{Errno, Event, EventKind, MdOptions};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};

use super::Model;
use super::node::{Due, From, Handling, In, Node, Out, OutKind, Waiting};
use super::search::{Found, Search, SearchKey};

impl Model {
    pub(super) fn receive(
        &mut self,
        node: usize,
        from: From,
        header: &Header,
        payload: &Arc<[u8]>,
    ) -> Handling {
        let handling = match header.body {
            Body::Put { .. } => self.receive_put(node, from, header, payload),
            Body::Get { .. } => self.receive_get(node, from, header),
            Body::Ack { dst_wmd, match_bits, mlength } => {
                self.receive_ack(node, from, header, dst_wmd, match_bits, mlength)
            }
            Body::Reply { dst_wmd } => self.receive_reply(node, from, header, dst_wmd, payload),
        };
        if matches!(handling, Handling::Discard) {
            self.nodes[node].counts.dropped += 1;
        }
        handling
    }

    fn receive_put(&mut self, node: usize, from: From, header: &Header, payload: &Arc<[u8]>) -> Handling {
        let Body::Put { portal, .. } = header.body else { return Handling::Discard };
        let found = self.search(node, portal, from, header, &SearchKey::put(header));
        self.take_put(node, from, header, payload, found)
    }

    /// Receives a PUT into the buffer that was found for it.
    pub(super) fn take_put(
        &mut self,
        node: usize,
        from: From,
        header: &Header,
        payload: &Arc<[u8]>,
        found: Search,
    ) -> Handling {
        let Body::Put { ack_wmd, match_bits, hdr_data, portal, .. } = header.body else {
            return Handling::Discard;
        };
        let length = u64::from(header.payload_length);
        let found = match found {
            Search::Found(found) => found,
            Search::TooLong => {
                self.seen.too_long += 1;
                return Handling::Discard;
            }
            Search::Nothing => return self.wait_or_drop(node, from, header, payload, portal),
        };
        let range = (found.offset, found.offset + found.mlength);
        if !self.nodes[node].md(found.md).is_free(range, true) {
            self.seen.in_use += 1;
            return Handling::Discard;
        }
        self.take(node, &found);
        self.seen.puts_matched += 1;
        self.seen.truncated += u64::from(found.mlength < length);
        let node_ = &mut self.nodes[node];
        let silent = node_.md(found.md).options.contains(MdOptions::ACK_DISABLE) || ack_wmd.is_none();
        let event = Event {
            portal,
            match_bits,
            hdr_data,
            rlength: header.payload_length,
            mlength: found.mlength as u32,
            offset: found.offset,
            ..arrival(node_, EventKind::Put, from, header)
        };
        let payload = payload[..found.mlength as usize].into();
        let ack = (!silent).then_some(ack_wmd);
        self.deliver(node, In { md: found.md, event, payload, ack, from })
    }

    fn receive_get(&mut self, node: usize, from: From, header: &Header) -> Handling {
        let Body::Get { return_wmd, match_bits, portal, src_offset, sink_length } = header.body else {
            return Handling::Discard;
        };
        let (op, length) = (MdOptions::OP_GET, u64::from(sink_length));
        let key = SearchKey { op, bits: match_bits, source: header.src, length, offset: src_offset };
        let found = match self.search(node, portal, from, header, &key) {
            Search::Found(found) => found,
            Search::TooLong => {
                self.seen.too_long += 1;
                return Handling::Discard;
            }
            Search::Nothing => {
                self.seen.unmatched += 1;
                return Handling::Discard;
            }
        };
        let range = (found.offset, found.offset + found.mlength);
        if !self.nodes[node].md(found.md).is_free(range, false) {
            self.seen.in_use += 1;
            return Handling::Discard;
        }
        self.take(node, &found);
        self.seen.gets_matched += 1;
        let node_ = &mut self.nodes[node];
        node_.counts.received += 1;
        let event = Event {
            portal,
            match_bits,
            mlength: found.mlength as u32,
            offset: found.offset,
            ..arrival(node_, EventKind::Get, from, header)
        };
        let reply = Header {
            dest: header.src,
            src: ProcessId::new(header.dest.nid, node_.pid),
            payload_length: found.mlength as u32,
            body: Body::Reply { dst_wmd: return_wmd },
        };
        let out = Out {
            kind: OutKind::Reply,
            md: Some(found.md),
            ni: from.ni,
            peer: from.peer.nid,
            header: reply,
            range,
            event: Some(event),
            deadline_ns: 0,
            response: 0,
            token: None,
        };
        self.push(node, out);
        Handling::Done
    }

    fn receive_ack(
        &mut self,
        node: usize,
        from: From,
        header: &Header,
        wmd: WireHandle,
        match_bits: MatchBits,
        mlength: u32,
    ) -> Handling {
        let Some((md, response)) = self.expected(node, wmd, EventKind::Ack, header.src.nid) else {
            self.seen.stale_answers += 1;
            return Handling::Discard;
        };
        self.seen.acks += 1;
        let node = &mut self.nodes[node];
        node.take_response(response);
        node.md(md).consume();
        node.md(md).busy += 1;
        node.counts.received += 1;
        let event = Event { match_bits, mlength, ..arrival(node, EventKind::Ack, from, header) };
        node.due.push(Due { md, event, status: Ok(()), content: None, last: false });
        Handling::Done
    }

    fn receive_reply(
        &mut self,
        node: usize,
        from: From,
        header: &Header,
        wmd: WireHandle,
        payload: &Arc<[u8]>,
    ) -> Handling {
        let Some((md, response)) = self.expected(node, wmd, EventKind::Reply, header.src.nid) else {
            self.seen.stale_answers += 1;
            return Handling::Discard;
        };
        let node_ = &mut self.nodes[node];
        let sink = node_.md(md);
        let rlength = u64::from(header.payload_length);
        let mlength = rlength.min(sink.len());
        let cut = mlength < rlength && !sink.options.contains(MdOptions::TRUNCATE);
        if cut {
            return Handling::Discard;
        }
        if !sink.is_free((0, mlength), true) {
            self.seen.in_use += 1;
            // The data is lost, and the wait for it ends at once.
            sink.consume();
            sink.busy += 1;
            if let Some(lost) = node_.take_response(response) {
                let (event, status) = (node_.response_event(&lost), Err(Errno::EBUSY));
                node_.due.push(Due { md, event, status, content: None, last: false });
            }
            return Handling::Discard;
        }
        sink.consume();
        sink.busy += 1;
        node_.take_response(response);
        self.seen.replies += 1;
        let (rlength, kept) = (header.payload_length, mlength as u32);
        let event = Event { rlength, mlength: kept, ..arrival(node_, EventKind::Reply, from, header) };
        let payload = payload[..mlength as usize].into();
        self.deliver(node, In { md, event, payload, ack: None, from })
    }

    /// Returns the MD and the response to which an answer belongs.
    fn expected(&mut self, node: usize, wmd: WireHandle, kind: EventKind, source: Nid) -> Option<(u64, u64)> {
        let node = &self.nodes[node];
        if wmd.interface_cookie() != node.cookie {
            return None;
        }
        let named = |md: &super::node::Md| md.handle.is_some_and(|handle| handle.0 == wmd.object_cookie());
        let (&id, md) = node.mds.iter().find(|(_, md)| named(md) && !md.dead)?;
        if !md.bound || md.left == Some(0) {
            return None;
        }
        let mut responses = node.responses.iter();
        let fits = |r: &&super::node::Response| r.md == id && r.kind == kind && r.target.nid == source;
        responses.find(fits).map(|response| (id, response.id))
    }

    fn deliver(&mut self, node: usize, message: In) -> Handling {
        if message.event.rlength == 0 {
            self.complete_in(node, message, Ok(()), 0);
            return Handling::Done;
        }
        Handling::Deliver(Box::new(message))
    }

    /// Completes a received message, or fails it after `written` bytes.
    pub(super) fn complete_in(
        &mut self,
        node: usize,
        message: In,
        result: Result<(), Errno>,
        written: usize,
    ) {
        let In { md, event, payload, ack, from } = message;
        let node_ = &mut self.nodes[node];
        node_.counts.received += u64::from(result.is_ok());
        let content = Some((event.offset, payload[..written.min(payload.len())].into()));
        node_.due.push(Due { md, event, status: result, content, last: false });
        let Some(ack) = ack.filter(|_| result.is_ok()) else { return };
        let Event { source, target, match_bits, mlength, .. } = event;
        let out = Out {
            kind: OutKind::Ack,
            md: None,
            ni: from.ni,
            peer: from.peer.nid,
            header: Header {
                dest: source,
                src: ProcessId::new(target.nid, node_.pid),
                payload_length: 0,
                body: Body::Ack { dst_wmd: ack, match_bits, mlength },
            },
            range: (0, 0),
            event: None,
            deadline_ns: 0,
            response: 0,
            token: None,
        };
        self.push(node, out);
    }

    fn wait_or_drop(
        &mut self,
        node: usize,
        from: From,
        header: &Header,
        payload: &Arc<[u8]>,
        portal: u32,
    ) -> Handling {
        if !self.nodes[node].portals.get(portal as usize).is_some_and(|portal| portal.lazy) {
            self.seen.unmatched += 1;
            return Handling::Discard;
        }
        self.seen.delayed += 1;
        let waiting = Waiting { portal, header: *header, payload: payload.clone(), from, local: None };
        self.nodes[node].waiting.push(waiting);
        Handling::Delay
    }

    fn take(&mut self, node: usize, found: &Found) {
        let node = &mut self.nodes[node];
        let md = node.md(found.md);
        md.busy += 1;
        md.consume();
        md.offset = found.offset + found.mlength;
        if md.auto && md.is_exhausted() {
            node.retire(found.md);
        }
    }
}

fn arrival(node: &Node, kind: EventKind, from: From, header: &Header) -> Event {
    Event {
        target: header.dest,
        initiator: header.src,
        source: header.src,
        sender: from.peer.nid,
        ..node.blank(kind)
    }
}
