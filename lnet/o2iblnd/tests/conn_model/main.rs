//! A [`Conn`] against a plain model of lnet-wire 36: lists and counters, searched from the start
//! each time. Sends complete in any order here, and answers arrive before or after them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../conn_world/mod.rs"]
mod conn_world;
mod model;

use conn_world::{NEVER, link, message, pieces};
use lnet_o2iblnd::conn::{Conn, EmitKind, EndedOp, Limits, OpKey, Own, Receipt, ReceivedMessage};
use lnet_proto::ib::{Cookie, MessageKind, TransferStatus};
use model::{Model, Queued};
use proptest::prelude::*;

/// A step of the test; its numbers select among the possible objects.
#[derive(Clone, Copy, Debug)]
enum Step {
    Queue(usize),
    Next,
    Complete(usize),
    /// The peer answers a request of this side: true for ACK or DONE, false for NAK.
    Answered(usize, bool),
    /// The peer sends an IMMEDIATE, a PUT_REQ or a GET_REQ.
    Receive(usize),
    Repost(usize),
    /// This side answers a request of the peer: true for ACK or DONE, false for NAK.
    Answer(usize, bool),
    /// This number of writes of a PUT is prepared.
    Write(usize, u32),
    /// The PUT_DONE of a transfer arrives.
    Taken(usize),
    /// The peer returns this number of credits, if it has them.
    Return(u8),
    Withdraw(usize),
    /// This side must show the peer that it lives.
    ShowLife,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0usize..64;
    prop_oneof![
        3 => (0usize..3).prop_map(Step::Queue),
        6 => Just(Step::Next),
        3 => which.clone().prop_map(Step::Complete),
        2 => (which.clone(), any::<bool>()).prop_map(|(which, yes)| Step::Answered(which, yes)),
        3 => (0usize..3).prop_map(Step::Receive),
        4 => which.clone().prop_map(Step::Repost),
        2 => (which.clone(), any::<bool>()).prop_map(|(which, yes)| Step::Answer(which, yes)),
        2 => (which.clone(), 0u32..5).prop_map(|(which, writes)| Step::Write(which, writes)),
        2 => which.clone().prop_map(Step::Taken),
        1 => (1u8..4).prop_map(Step::Return),
        1 => which.prop_map(Step::Withdraw),
        1 => Just(Step::ShowLife),
    ]
}

const PUT: Own = Own::Put { length: 10 };
const GET: Own = Own::Get { length: 10 };
const KINDS: [MessageKind; 3] = [MessageKind::Immediate, MessageKind::PutReq, MessageKind::GetReq];

/// An operation that waits for an event.
#[derive(Clone, Copy)]
struct Waits {
    op: usize,
    kind: MessageKind,
    cookie: Cookie,
}

struct Test {
    conn: Conn<usize>,
    model: Model,
    ops: usize,
    sent: Vec<Waits>,
    /// The peer's requests that have no answer yet, with their kinds.
    requests: Vec<(OpKey, MessageKind)>,
    wanted: Vec<(OpKey, usize)>,
    sinks: Vec<Waits>,
    receipts: Vec<Receipt>,
    /// The number of credits that the peer may return.
    returnable: usize,
    ended: Vec<usize>,
}

impl Test {
    fn new(limits: Limits) -> Test {
        Test {
            conn: Conn::new(&limits, 0),
            model: Model::new(limits),
            ops: 0,
            sent: Vec::new(),
            requests: Vec::new(),
            wanted: Vec::new(),
            sinks: Vec::new(),
            receipts: Vec::new(),
            returnable: 0,
            ended: Vec::new(),
        }
    }

    fn receive(&mut self, credits: u8, kind: EmitKind, length: u32) -> ReceivedMessage<usize> {
        let (receipt, received) =
            self.conn.received(&message(&link(1), credits, kind, (0, length), &pieces(length))).unwrap();
        self.receipts.push(receipt);
        self.model.unheard = 0;
        received
    }

    fn end(&mut self, ended: Option<EndedOp<usize>>) {
        let Some(ended) = ended else { return };
        assert!(!self.ended.contains(&ended.item));
        self.ended.push(ended.item);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Queue(which) => self.queue([Own::Immediate, PUT, GET][which], KINDS[which]),
            Step::Next => self.next(),
            Step::Complete(at) if !self.model.posted.is_empty() => {
                let (id, _) = self.model.posted.remove(at % self.model.posted.len());
                let ended = self.conn.completed(id).unwrap();
                self.end(ended);
            }
            Step::Answered(at, yes) if !self.sent.is_empty() => {
                let asked = self.sent.remove(at % self.sent.len());
                self.answered(asked, yes);
            }
            Step::Receive(which) => self.peer_sends(KINDS[which]),
            Step::Repost(at) if !self.receipts.is_empty() => {
                let receipt = self.receipts.remove(at % self.receipts.len());
                match receipt {
                    Receipt::Credit => self.model.outstanding += 1,
                    Receipt::Answer => self.model.reserved += 1,
                    Receipt::Plain | Receipt::PutReq(_) => {}
                }
                self.conn.reposted(receipt);
                self.model.promote();
            }
            Step::Answer(at, yes) if !self.requests.is_empty() => {
                let (key, kind) = self.requests.remove(at % self.requests.len());
                self.answer(key, kind, yes);
            }
            Step::Write(at, writes) if !self.wanted.is_empty() => {
                let (key, op) = self.wanted.remove(at % self.wanted.len());
                self.conn.done(key, Ok(10), writes, NEVER).unwrap();
                self.model.no_credit.push(Queued { kind: MessageKind::PutDone, op, works: writes + 1 });
            }
            Step::Taken(at) if !self.sinks.is_empty() => {
                let sink = self.sinks.remove(at % self.sinks.len());
                let received =
                    self.receive(0, EmitKind::PutDone(TransferStatus { cookie: sink.cookie, status: 10 }), 0);
                self.finished(received);
            }
            Step::Return(credits) if self.returnable > 0 => {
                let credits = self.returnable.min(credits.into());
                self.returnable -= credits;
                self.model.credits += credits;
                assert!(matches!(self.receive(credits as u8, EmitKind::Noop, 0), ReceivedMessage::Nothing));
            }
            Step::Withdraw(at) => self.withdraw(at),
            Step::ShowLife => {
                self.conn.send_sign_of_life();
                self.model.shows_life = true;
            }
            _ => {}
        }
        let counts = self.conn.counts();
        let model = &self.model;
        let lists = model.no_credit.len() + model.credit.len() + model.waiting.len();
        assert_eq!(
            (
                counts.credits.into(),
                counts.reserved.into(),
                counts.outstanding.into(),
                counts.queued,
                counts.posted
            ),
            (model.credits, model.reserved, model.outstanding, lists, model.posted.len())
        );
    }

    fn queue(&mut self, own: Own, kind: MessageKind) {
        let op = self.ops;
        if self.conn.queue(own, NEVER, op).is_ok() {
            self.ops += 1;
            let queued = Queued { kind, op, works: 1 };
            if own == Own::Immediate {
                self.model.credit.push(queued)
            } else {
                self.model.waiting.push(queued)
            }
            self.model.promote();
        } else {
            assert_eq!(self.conn.counts().own, usize::from(self.model.limits.messages));
        }
    }

    fn next(&mut self) {
        let expected = self.model.next();
        let emit = self.conn.next(0);
        let got = emit.as_ref().map(|emit| {
            (
                kind_of(emit.kind),
                usize::from(emit.credits),
                emit.item.as_deref().copied().unwrap_or(usize::MAX),
            )
        });
        assert_eq!(got, expected.map(|(queued, credits)| (queued.kind, credits, queued.op)));
        let (Some(emit), Some((queued, _))) = (emit, expected) else { return };
        self.model.posted.push((emit.id.bits(), queued));
        let Queued { op, kind, .. } = queued;
        match emit.kind {
            EmitKind::Immediate => self.returnable += 1,
            EmitKind::PutReq { cookie } | EmitKind::GetReq { cookie } => {
                self.returnable += 1;
                self.sent.push(Waits { op, kind, cookie });
            }
            EmitKind::PutAck { sink, .. } => self.sinks.push(Waits { op, kind, cookie: sink }),
            _ => {}
        }
    }

    fn answered(&mut self, asked: Waits, yes: bool) {
        let Waits { op, kind, cookie } = asked;
        if kind == MessageKind::PutReq && yes {
            let kind = EmitKind::PutAck { source: cookie, sink: Cookie([1; 8]) };
            let ReceivedMessage::PutAck { put, length: 10 } = self.receive(0, kind, 10) else {
                panic!("it is wanted")
            };
            assert_eq!(self.conn.item(put), Some(&mut op.clone()));
            self.wanted.push((put, op));
            return;
        }
        let done = TransferStatus { cookie, status: -5 };
        let kind = if kind == MessageKind::PutReq { EmitKind::PutNak(done) } else { EmitKind::GetDone(done) };
        let received = self.receive(0, kind, 0);
        self.finished(received);
    }

    fn finished(&mut self, received: ReceivedMessage<usize>) {
        match received {
            ReceivedMessage::Nothing => {}
            ReceivedMessage::Ended(ended) => self.end(Some(ended)),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a message of the peer, if the model allows it.
    fn peer_sends(&mut self, kind: MessageKind) {
        let transfer = kind != MessageKind::Immediate;
        if self.model.granted == 0 || (transfer && self.model.peer_reserved == 0) {
            return;
        }
        self.model.hears_credit_message();
        self.model.peer_reserved -= usize::from(transfer);
        let cookie = Cookie([2; 8]);
        let sent = match kind {
            MessageKind::PutReq => EmitKind::PutReq { cookie },
            MessageKind::GetReq => EmitKind::GetReq { cookie },
            _ => EmitKind::Immediate,
        };
        match self.receive(0, sent, 10) {
            ReceivedMessage::Immediate => {}
            ReceivedMessage::PutReq(key) => {
                self.requests.push((key, kind));
                let receipt = self.receipts.pop().unwrap();
                assert_eq!(receipt, Receipt::PutReq(key));
                self.conn.reposted(receipt);
            }
            ReceivedMessage::GetReq(key) => self.requests.push((key, kind)),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, key: OpKey, kind: MessageKind, yes: bool) {
        let op = self.ops;
        self.ops += 1;
        self.conn.attach(key, op).unwrap();
        let (kind, op) = match (kind, yes) {
            (MessageKind::GetReq, _) => {
                self.conn.done(key, Ok(3), 0, NEVER).unwrap();
                (MessageKind::GetDone, op)
            }
            (_, true) => {
                self.conn.ack(key, 10, NEVER).unwrap();
                (MessageKind::PutAck, op)
            }
            (_, false) => {
                let item = self.conn.nak(key, Ok(()), NEVER).unwrap();
                self.end(item.map(|item| EndedOp { item, outcome: Ok(0) }));
                self.model.outstanding += 1;
                (MessageKind::PutNak, usize::MAX)
            }
        };
        self.model.no_credit.push(Queued { kind, op, works: 1 });
    }

    fn withdraw(&mut self, at: usize) {
        let there = self.model.waiting.len() + self.model.credit.len();
        if there == 0 {
            assert_eq!(self.conn.withdraw(|_| true), None);
            return;
        }
        let at = at % there;
        let queued = match at.checked_sub(self.model.waiting.len()) {
            None => self.model.waiting.remove(at),
            Some(at) => {
                let queued = self.model.credit.remove(at);
                self.model.reserved += usize::from(queued.kind != MessageKind::Immediate);
                queued
            }
        };
        self.model.promote();
        assert_eq!(self.conn.withdraw(|item| *item == queued.op), Some(queued.op));
        self.ended.push(queued.op);
    }
}

fn kind_of(kind: EmitKind) -> MessageKind {
    match kind {
        EmitKind::Noop => MessageKind::Noop,
        EmitKind::Immediate => MessageKind::Immediate,
        EmitKind::PutReq { .. } => MessageKind::PutReq,
        EmitKind::PutNak(_) => MessageKind::PutNak,
        EmitKind::PutAck { .. } => MessageKind::PutAck,
        EmitKind::PutDone(_) => MessageKind::PutDone,
        EmitKind::GetReq { .. } => MessageKind::GetReq,
        EmitKind::GetDone(_) => MessageKind::GetDone,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn it_does_what_the_model_does(
        depth in 1u8..9,
        high_water in 0u16..9,
        sends in 1u16..9,
        works in 5u32..20,
        messages in 1u16..20,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let limits = Limits { depth, high_water, sends, works, messages, keepalive_ns: NEVER };
        let mut test = Test::new(limits);
        steps.into_iter().for_each(|step| test.run(step));
        // All operations that have not ended are returned now, each once.
        let Test { conn, ops, mut ended, .. } = test;
        ended.extend(conn.close().map(|left| left.item));
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..ops).collect::<Vec<_>>());
    }
}
