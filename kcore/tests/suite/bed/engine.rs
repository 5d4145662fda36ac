//! The engine, on a wire whose other end is the test.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet::{Engine, EngineConfig};
use lnet_api::{Errno, LNet};
use lnet_cpt::CptTable;
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::{Body as WireBody, Header, WireHandle};

use super::wire::{Verdicts, Wire};
use super::{Arriving, Body, Finish, OWN_NID, SentMessage, World};

pub(crate) struct EngineWorld {
    engine: Arc<Engine>,
    wire: Arc<Wire>,
    own: ProcessId,
}

impl EngineWorld {
    pub(crate) fn new(partitions: usize) -> EngineWorld {
        let wire = Arc::new(Wire::default());
        EngineWorld { engine: node(OWN_NID, &wire, partitions), wire, own: id(OWN_NID) }
    }

    /// From now on messages leave inside the call.
    pub(crate) fn send_at_once(&self) {
        self.wire.at_once.store(true, Ordering::Relaxed);
    }

    /// Returns the answers to GETs that are on their way out.
    fn replies(&self) -> Vec<u64> {
        let is_reply = |header: &Header| matches!(header.body, WireBody::Reply { .. });
        self.wire.waiting().iter().filter(|(_, header, _)| is_reply(header)).map(|(id, ..)| *id).collect()
    }
}

/// Creates a node of one NI on a wire.
pub(crate) fn node(nid: &str, wire: &Arc<Wire>, partitions: usize) -> Arc<Engine> {
    let engine = engine(partitions, id(nid).nid.to_nid4().unwrap());
    engine.add_ni(id(nid), wire.clone()).unwrap();
    engine
}

/// Creates a node that has only `0@lo`.
pub(crate) fn engine(partitions: usize, cookie: u64) -> Arc<Engine> {
    let table = CptTable::virtual_parts(partitions).unwrap();
    Engine::new(EngineConfig { partitions: Arc::new(table), ..EngineConfig::new(Pid::LNET, cookie) })
}

fn id(nid: &str) -> ProcessId {
    ProcessId::lnet(nid.parse::<Nid>().unwrap())
}

impl World for EngineWorld {
    fn lnet(&self) -> Arc<dyn LNet> {
        self.engine.clone()
    }

    fn outgoing(&self) -> Vec<SentMessage> {
        let message = |(id, header, payload): (u64, Header, Vec<u8>)| {
            let to = header.dest;
            let message = match header.body {
                WireBody::Put { ack_wmd, match_bits, hdr_data, portal, offset } => SentMessage {
                    id,
                    is_get: false,
                    to,
                    portal,
                    bits: match_bits,
                    offset,
                    hdr_data,
                    length: payload.len(),
                    payload,
                    ack: ack_wmd != WireHandle::NONE,
                    handle: ack_wmd,
                },
                WireBody::Get { return_wmd, match_bits, portal, src_offset, sink_length } => SentMessage {
                    id,
                    is_get: true,
                    to,
                    portal,
                    bits: match_bits,
                    offset: src_offset,
                    hdr_data: 0,
                    length: sink_length as usize,
                    payload,
                    ack: false,
                    handle: return_wmd,
                },
                _ => return None,
            };
            Some(message)
        };
        self.wire.waiting().into_iter().filter_map(message).collect()
    }

    fn leave(&self, message: &SentMessage, result: Result<(), Errno>) {
        self.wire.leave(message.id, result);
    }

    fn arrive(&self, message: &Arriving) -> Option<Finish<'_>> {
        let (body, payload) = match &message.body {
            Body::Put { portal, bits, hdr_data, payload } => {
                let body = WireBody::Put {
                    ack_wmd: WireHandle::NONE,
                    match_bits: *bits,
                    hdr_data: *hdr_data,
                    portal: *portal,
                    offset: 0,
                };
                (body, &payload[..])
            }
            Body::Get { portal, bits, length } => {
                let body = WireBody::Get {
                    return_wmd: WireHandle::new(77, 78),
                    match_bits: *bits,
                    portal: *portal,
                    src_offset: 0,
                    sink_length: *length,
                };
                (body, &[][..])
            }
            Body::Reply { to, payload } => (WireBody::Reply { dst_wmd: to.handle }, &payload[..]),
            Body::Ack { to } => {
                let body =
                    WireBody::Ack { dst_wmd: to.handle, match_bits: to.bits, mlength: to.length as u32 };
                (body, &[][..])
            }
        };
        let before = self.replies();
        let header = Header { dest: self.own, src: message.from, payload_length: payload.len() as u32, body };
        match self.wire.arrive(self.own.nid, message.from, &header, payload) {
            Verdicts::Taken(taken) => Some(Box::new(move |result| taken.finish(result))),
            Verdicts::Done => {
                match (&message.body, self.replies().into_iter().find(|id| !before.contains(id))) {
                    (Body::Get { .. }, reply) => {
                        let reply = reply?;
                        Some(Box::new(move |result| self.wire.leave(reply, result)))
                    }
                    _ => Some(Box::new(|_| ())),
                }
            }
            Verdicts::Nobody => None,
        }
    }

    fn audit(&self) {
        self.engine.audit().unwrap();
        let counters = self.engine.counters();
        assert_eq!((counters.msgs_alloc, counters.rst_alloc), (0, 0));
    }
}
