//! The engine against recordings of kernel nodes, on all portals: it replaces either side, and must
//! send that side's messages. Headers are equal in all fields but the handles of the sender's
//! descriptors, which are echoed; ping infos in all but their sequence number.
//!
//! The layers above LNet are simulated: the test posts their buffers beforehand, and makes their
//! PUTs and GETs in the order of the recording.

use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_api::EventKind::{Ack, Get as Got, Put as Taken, Reply, Send};
use lnet_api::{AckRequest, Get, LNet, MdHandle, MdOptions, MeSpec, Put, Unlink, Upcalls};
use lnet_nid::{Nid, Pid, Portal, ProcessId};
use lnet_proto::ping::PingInfo;
use lnet_proto::{Body, Header};
use lnet_region::IoVec;

use super::common::*;
use super::ping::asleep;

mod recording;

use recording::{Answer, Exchange, Message, exchanges, handle_of};

const RECORDINGS: [&str; 9] = [
    "tcp-ping",
    "tcp-discover",
    "tcp-discover-ipv6",
    "tcp-lst-ping",
    "tcp-lst-read",
    "tcp-lst-write",
    "o2ib-ping",
    "o2ib-lst-read",
    "o2ib-lst-write",
];

/// The portal for bulk data and answers, whose entries name the target of the request.
const LST_BULK: u32 = 52;

/// An engine in the place of a kernel node.
struct Side {
    network: Arc<Network>,
    node: Node,
    /// The buffers posted for the other side's requests, in their order, each with its memory.
    posted: Vec<(MdHandle, IoVec)>,
}

/// A request whose answer has not arrived yet.
struct Asked {
    md: MdHandle,
    memory: IoVec,
    /// The request as it was sent, and its answer under that handle.
    exchange: Exchange,
    packet: Packet,
}

fn portal_of(header: &Header) -> u32 {
    match header.body {
        Body::Put { portal, .. } | Body::Get { portal, .. } => portal,
        _ => unreachable!("a question"),
    }
}

/// Returns whether the request is for LNet itself, which answers without a buffer of the test.
fn is_internal(exchange: &Exchange) -> bool {
    portal_of(&exchange.question.header) == Portal::RESERVED.get()
}

fn filled(bytes: &[u8]) -> IoVec {
    let memory = memory(bytes.len());
    memory.write(0..bytes.len()).unwrap().copy_from(0, bytes);
    memory
}

fn same_info(ours: &[u8], theirs: &[u8]) {
    let (ours, theirs) = (PingInfo::parse(ours).unwrap(), PingInfo::parse(theirs).unwrap());
    assert_eq!(PingInfo { sequence: theirs.sequence, ..ours }, theirs);
}

impl Side {
    fn new(nid: Nid, exchanges: &[Exchange]) -> Side {
        let network = Network::new();
        let engine = Engine::new(partitioned(EngineConfig::new(Pid::LNET, cookie(0))));
        engine.add_ni(ProcessId::lnet(nid), network.clone()).unwrap();
        let node = Node::over(engine, nid);
        let mut side = Side { network, node, posted: Vec::new() };
        for exchange in exchanges.iter().filter(|exchange| exchange.asked() == nid && !is_internal(exchange))
        {
            side.post(exchange);
        }
        side.posted.reverse();
        side
    }

    /// Posts the buffer for a request.
    fn post(&mut self, exchange: &Exchange) {
        let header = exchange.question.header;
        let (memory, options, match_bits) = match (header.body, &exchange.answer) {
            (Body::Put { match_bits, .. }, _) => {
                (memory(exchange.question.payload.len()), MdOptions::OP_PUT, match_bits)
            }
            (
                Body::Get { match_bits, .. },
                Answer::Message(Message { payload, .. }) | Answer::Written(payload),
            ) => (filled(payload), MdOptions::OP_GET, match_bits),
            _ => unreachable!("a question"),
        };
        let portal = Portal::new(portal_of(&header)).unwrap();
        let match_id = if portal.get() == LST_BULK { header.src } else { ProcessId::ANY };
        let me = self.node.engine.me_attach(&MeSpec { portal, match_id, match_bits, ..spec(0) }).unwrap();
        let md = self.node.md(&memory, options, 1);
        let md = self.node.engine.md_attach(me, md, Unlink::Auto).unwrap();
        self.posted.push((md, memory));
    }

    /// Returns the only message that the engine is sending.
    fn sending(&self) -> Packet {
        let packet = self.network.take(0).expect("a message");
        assert_eq!((packet.from, self.network.queue.lock().len()), (self.node.nid, 0));
        packet
    }

    /// Delivers a message to the engine as the network would.
    fn feed(&self, Message { header, payload }: Message) {
        let (from, to) = (header.src.nid, self.node.id());
        self.network.arrive(Packet { from, to, header, payload, tx: None });
    }

    /// Sends a request of this side, and compares it with the recorded one.
    fn ask(&self, exchange: &Exchange) -> Asked {
        let theirs = &exchange.question;
        let wanted = !handle_of(&theirs.header.body).is_none();
        let portal = Portal::new(portal_of(&theirs.header)).unwrap();
        let (source, target) = (None, theirs.header.dest);
        let (memory, md) = match theirs.header.body {
            Body::Put { match_bits, hdr_data, offset, .. } => {
                let memory = filled(&theirs.payload);
                let md = self.node.bind(&memory, 1 + u32::from(wanted));
                let ack = if wanted { AckRequest::Ack } else { AckRequest::NoAck };
                let put = Put { source, md, ack, target, portal, match_bits, offset, hdr_data };
                self.node.engine.put(&put).unwrap();
                (memory, md)
            }
            Body::Get { match_bits, src_offset, sink_length, .. } => {
                let memory = memory(sink_length as usize);
                let md = self.node.bind(&memory, 2);
                let get = Get { source, md, target, portal, match_bits, offset: src_offset };
                self.node.engine.get(&get).unwrap();
                (memory, md)
            }
            _ => unreachable!("a question"),
        };
        let packet = self.sending();
        let wmd = handle_of(&packet.header.body);
        assert_eq!(wanted, !wmd.is_none());
        if wanted {
            assert_eq!((wmd.interface_cookie(), wmd.object_cookie()), (cookie(0), md.0));
        }
        let exchange = exchange.under(wmd);
        assert_eq!(packet.header, exchange.question.header);
        assert_eq!(packet.payload, exchange.question.payload);
        Asked { md, memory, exchange, packet }
    }

    /// Delivers the other side's answer.
    fn take_answer(&self, asked: Asked) {
        let Asked { md, memory, exchange, packet } = asked;
        let tx = packet.tx.expect("a message being sent");
        let answer_kind = if exchange.is_put() { Ack } else { Reply };
        let (kind, bytes) = match exchange.answer {
            Answer::Nothing => {
                self.node.finalize(tx);
                (Send, Vec::new())
            }
            Answer::Message(answer) => {
                self.node.finalize(tx);
                self.feed(answer.clone());
                (answer_kind, answer.payload)
            }
            Answer::Written(bytes) => {
                let mut sink = self.node.engine.sink_of_get(tx.token).expect("the GET's memory");
                assert_eq!(sink.copy_from(0, &bytes), bytes.len());
                drop(sink);
                self.node.engine.finalize_get(tx.token, Ok(bytes.len() as u32));
                (answer_kind, bytes)
            }
        };
        let events = self.node.events();
        let expected = [(Send, Ok(()), kind == Send), (kind, Ok(()), true)];
        assert_eq!(brief(&events), expected[..1 + usize::from(kind != Send)]);
        assert!(events.iter().all(|event| event.md == md));
        let last = events.last().unwrap();
        match kind {
            Send => {}
            Ack => assert_eq!(last.mlength as usize, memory.len()),
            _ => {
                assert_eq!(last.mlength as usize, bytes.len());
                assert_eq!(content(&memory)[..bytes.len()], bytes);
            }
        }
    }

    /// Delivers a request of the other side, and compares the answer with the recorded one.
    fn be_asked(&mut self, exchange: &Exchange) {
        let question = &exchange.question;
        self.feed(question.clone());
        match &exchange.answer {
            Answer::Nothing => assert!(self.network.take(0).is_none()),
            Answer::Message(theirs) => {
                let ours = self.sending();
                assert_eq!(ours.header, theirs.header);
                match is_internal(exchange) && !exchange.is_put() {
                    true => same_info(&ours.payload, &theirs.payload),
                    false => assert_eq!(ours.payload, theirs.payload),
                }
                self.node.finalize(ours.tx.expect("a message being sent"));
            }
            // The network answers the GET itself, and uses only the payload of the recorded
            // message.
            Answer::Written(bytes) => {
                let ours = self.sending();
                let tx = ours.tx.expect("a message being sent");
                assert!(tx.reply_to.is_some());
                assert_eq!(handle_of(&ours.header.body), handle_of(&question.header.body));
                assert_eq!((ours.header.dest, &ours.payload), (question.header.src, bytes));
                self.node.finalize(tx);
            }
        }
        let events = self.node.events();
        if is_internal(exchange) {
            return assert_eq!(events, []);
        }
        let (md, memory) = self.posted.pop().expect("a posted buffer");
        let kind = if exchange.is_put() { Taken } else { Got };
        assert_eq!(brief(&events), [(kind, Ok(()), true)]);
        assert_eq!(
            (events[0].md, events[0].source, events[0].target),
            (md, question.header.src, self.node.id())
        );
        assert_eq!(events[0].portal, portal_of(&question.header));
        if let Body::Put { match_bits, hdr_data, .. } = question.header.body {
            assert_eq!((events[0].match_bits, events[0].hdr_data), (match_bits, hdr_data));
            assert_eq!(content(&memory), question.payload);
        }
    }

    fn is_over(&self) {
        let counters = self.node.engine.counters();
        assert_eq!((counters.drop_count, counters.errors), (0, 0));
        assert!(self.posted.is_empty() && self.network.queue.lock().is_empty() && self.node.is_quiet());
    }
}

#[test]
fn on_either_side_the_engine_says_what_the_kernel_said() {
    for file in RECORDINGS {
        let exchanges = exchanges(file);
        for us in [exchanges[0].asker(), exchanges[0].asked()] {
            let mut side = Side::new(us, &exchanges);
            for exchange in &exchanges {
                match exchange.asker() == us {
                    true => side.take_answer(side.ask(exchange)),
                    false => side.be_asked(exchange),
                }
            }
            side.is_over();
        }
    }
}

#[test]
fn two_engines_say_to_each_other_what_two_kernels_said() {
    for file in RECORDINGS {
        let exchanges = exchanges(file);
        let mut sides = [exchanges[0].asker(), exchanges[0].asked()].map(|nid| Side::new(nid, &exchanges));
        for exchange in &exchanges {
            let [a, b] = &mut sides;
            let (asker, asked_one) = if exchange.asker() == a.node.nid { (a, b) } else { (b, a) };
            let asked = asker.ask(exchange);
            asked_one.be_asked(&asked.exchange);
            asker.take_answer(asked);
        }
        sides.iter().for_each(Side::is_over);
    }
}

#[test]
fn a_ping_asks_as_the_kernel_did_and_understands_its_answer() {
    for file in ["tcp-ping", "tcp-discover", "tcp-discover-ipv6", "o2ib-ping"] {
        let exchanges = exchanges(file);
        let Exchange { question: theirs, .. } = &exchanges[0];
        let side = Side::new(exchanges[0].asker(), &[]);
        let mut ping = side.node.engine.ping(None, theirs.header.dest, asleep()).unwrap();
        let packet = side.sending();
        let expected = exchanges[0].under(handle_of(&packet.header.body));
        let Body::Get { return_wmd, match_bits, portal, src_offset, sink_length } = packet.header.body else {
            panic!("{:?}", packet.header)
        };
        let Body::Get { sink_length: their_length, .. } = theirs.header.body else {
            panic!("{:?}", theirs.header)
        };
        // The length of the sink is each node's own choice, at least 272 bytes.
        assert!(sink_length >= 272);
        let body = Body::Get { return_wmd, match_bits, portal, src_offset, sink_length: their_length };
        assert_eq!(Header { body, ..packet.header }, expected.question.header);

        side.node.finalize(packet.tx.expect("a message being sent"));
        let Answer::Message(reply) = expected.answer else { panic!("a REPLY") };
        side.feed(reply.clone());
        let info = ping.poll().unwrap().unwrap();
        assert_eq!(info, PingInfo::parse(&reply.payload).unwrap());
        assert_eq!(info.nis[0].nid, theirs.header.dest.nid);
    }
}
