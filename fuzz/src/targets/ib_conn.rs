//! An RDMA connection whose peer and device follow the steps of an input.

use std::net::Ipv4Addr;

use lnet_api::Errno;
use lnet_nid::{MatchBits, Net, NetType, Nid, ProcessId};
use lnet_o2iblnd::conn::{Conn, ConnError, EmitKind, EndedOp, Limits, OpKey, Own, Receipt, ReceivedMessage};
use lnet_proto::ib::{
    Body, ConnParams, Cookie, End, Link, Message, RdmaDescriptor, RdmaFragment, TransferStatus, Version,
};
use lnet_proto::{Header, WireHandle};

use super::{Outcome, same};

const O2IB: Net = Net::new(NetType(5), 0);
const HERE: Nid = Nid::new_v4(O2IB, Ipv4Addr::new(10, 77, 0, 3));
const PEER: Nid = Nid::new_v4(O2IB, Ipv4Addr::new(10, 77, 0, 2));

/// Limits of the connection that are small enough for short inputs to reach each of them.
const LIMITS: Limits = Limits { depth: 3, high_water: 2, sends: 4, works: 12, messages: 6, keepalive_ns: 50 };

/// Number of steps: the low part of a byte selects one. The rest of the byte selects an object for
/// it.
const STEPS: u8 = 16;

/// Largest number of steps of one input; further ones reach nothing new.
const STEPS_MAX: usize = 256;

/// The driver's side of the connection: its state, and the values that the peer could have received
/// from it.
struct Driver {
    conn: Conn<usize>,
    /// Set for each item that has come back.
    back: Vec<bool>,
    /// Largest number of bytes that each item may transfer.
    limits: Vec<u32>,
    posted: Vec<u64>,
    receipts: Vec<Receipt>,
    keys: Vec<OpKey>,
    cookies: Vec<Cookie>,
    now_ns: u64,
    /// Errors that occurred, one bit each.
    seen: u32,
}

/// Runs steps, each a byte and its arguments. Whatever the peer sends, each item comes back once,
/// and no counter leaves its range.
pub(super) fn conn(bytes: &[u8]) -> Outcome {
    let mut driver = Driver {
        conn: Conn::new(&LIMITS, 0),
        back: Vec::new(),
        limits: Vec::new(),
        posted: Vec::new(),
        receipts: Vec::new(),
        keys: Vec::new(),
        cookies: Vec::new(),
        now_ns: 0,
        seen: 0,
    };
    let mut rest = bytes;
    for _ in 0..STEPS_MAX {
        let Some((&step, after)) = rest.split_first() else { break };
        rest = driver.step(step % STEPS, usize::from(step / STEPS), after);
        driver.check();
    }
    driver.end()
}

impl Driver {
    fn step<'a>(&mut self, step: u8, choice: usize, rest: &'a [u8]) -> &'a [u8] {
        match step {
            0 => self.queue(choice),
            1 | 2 => self.emit(choice),
            3 => self.complete(choice),
            4 => self.repost(choice),
            5 => self.decide(choice),
            6 => self.withdraw(choice),
            7 => {
                self.now_ns += choice as u64 * 10;
                _ = self.conn.late(self.now_ns);
            }
            // Some of these steps four times, so that inputs get far.
            8 => (0..4).for_each(|_| self.emit(0)),
            9 => (0..4).for_each(|_| self.complete(0)),
            10 => (0..4).for_each(|_| self.repost(0)),
            _ => return self.receive(choice, rest),
        }
        rest
    }

    fn queue(&mut self, choice: usize) {
        let (own, limit) =
            [(Own::Immediate, 0), (Own::Put { length: 100 }, 100), (Own::Get { length: 100 }, 100)]
                [choice % 3];
        match self.conn.queue(own, self.now_ns + 100, self.back.len()) {
            Ok(()) => self.keep(limit),
            Err(item) => same(item, self.back.len(), "a refused item"),
        }
    }

    fn emit(&mut self, choice: usize) {
        let Some(emit) = self.conn.next(self.now_ns) else { return };
        assert!(emit.id.index() < LIMITS.sends.into() && emit.credits <= LIMITS.depth, "{emit:?}");
        self.posted.push(emit.id.bits());
        match emit.kind {
            EmitKind::PutReq { cookie }
            | EmitKind::GetReq { cookie }
            | EmitKind::PutAck { sink: cookie, .. } => {
                self.cookies.push(cookie);
            }
            _ => {}
        }
        if choice == 15 {
            // The device reports a work request that is not posted.
            let id = self.posted[0] ^ 1 << 40;
            assert!(self.conn.completed(id).is_err(), "{id:#x} is not posted");
        }
    }

    fn complete(&mut self, choice: usize) {
        if self.posted.is_empty() {
            return;
        }
        let id = self.posted.swap_remove(choice % self.posted.len());
        let ended = self.conn.completed(id).unwrap_or_else(|error| panic!("{error}"));
        ended.into_iter().for_each(|ended| self.ended(ended));
        assert!(self.conn.completed(id).is_err(), "{id:#x} completes twice");
    }

    fn repost(&mut self, choice: usize) {
        if !self.receipts.is_empty() {
            let receipt = self.receipts.swap_remove(choice % self.receipts.len());
            self.conn.reposted(receipt);
        }
    }

    /// Answers a transfer that may have ended.
    fn decide(&mut self, choice: usize) {
        if self.keys.is_empty() {
            return;
        }
        let key = self.keys[choice / 4 % self.keys.len()];
        let deadline_ns = self.now_ns + 100;
        if self.conn.attach(key, self.back.len()).is_ok() {
            // A step below takes one, or returns one.
            self.keep(150);
        }
        match choice % 4 {
            0 => _ = self.conn.ack(key, 50, deadline_ns),
            1 => {
                let item = self.conn.nak(key, Err(Errno::ENOMEM), deadline_ns).ok().flatten();
                item.into_iter().for_each(|item| self.came_back(item));
            }
            2 => _ = self.conn.done(key, Ok(choice as u32 * 10), choice as u32, deadline_ns),
            _ => {
                let item = self.conn.detach(key);
                item.into_iter().for_each(|item| self.came_back(item));
            }
        }
    }

    fn withdraw(&mut self, choice: usize) {
        let item = self.conn.withdraw(|item| item % 16 == choice);
        item.into_iter().for_each(|item| self.came_back(item));
    }

    /// Delivers a message of the peer: credits, and for an answer cookie and status.
    fn receive<'a>(&mut self, choice: usize, rest: &'a [u8]) -> &'a [u8] {
        let Some(([credits, which, status @ ..], rest)) = rest.split_first_chunk::<4>() else { return &[] };
        let cookie = match usize::from(*which).checked_sub(self.cookies.len()) {
            None => self.cookies[usize::from(*which)],
            Some(number) => Cookie::new((number as u64) << (number % 8 * 8)),
        };
        let status = i32::from(i16::from_le_bytes(*status));
        let done = TransferStatus { cookie, status };
        let pieces = [RdmaFragment { length: status.unsigned_abs(), address: 0 }; 2];
        let descriptor = RdmaDescriptor::new(1, &pieces).unwrap_or_else(|error| panic!("{error}"));
        let own = Cookie([*which; 8]);
        let body = match choice % 10 {
            0 => Body::Noop,
            1 => Body::Immediate { header: header(false, 0), payload: &[] },
            2 => Body::PutReq { header: header(false, status.unsigned_abs()), cookie: own },
            3 => Body::GetReq { header: header(true, 0), cookie: own, descriptor },
            4 | 5 => Body::PutAck { source: cookie, sink: own, descriptor },
            6 => Body::PutNak(done),
            7 => Body::PutDone(done),
            8 => Body::GetDone(done),
            _ => Body::ConnAck(ConnParams::DEFAULT),
        };
        let link = Link {
            version: Version::V2,
            local: End { nid: PEER, stamp: 1 },
            peer: End { nid: HERE, stamp: 2 },
        };
        match self.conn.received(&Message { head: link.head(credits % 5), body }) {
            Ok((receipt, received)) => {
                self.receipts.push(receipt);
                match received {
                    ReceivedMessage::Nothing | ReceivedMessage::Immediate => {}
                    ReceivedMessage::PutReq(key)
                    | ReceivedMessage::GetReq(key)
                    | ReceivedMessage::PutAck { put: key, .. } => {
                        self.keys.insert(0, key);
                    }
                    ReceivedMessage::Ended(ended) => self.ended(ended),
                }
            }
            Err(error) => self.breach(&error),
        }
        rest
    }

    /// Checks and records an error of the peer. The driver would close the connection; without that
    /// it must not break either.
    fn breach(&mut self, error: &ConnError) {
        same(error.errno(), Errno::EPROTO, "what the peer did");
        self.seen |= match error {
            ConnError::Credits { .. } => 1,
            ConnError::Overrun { .. } => 2,
            ConnError::Transfers { .. } => 4,
            ConnError::Cookie { .. } => 8,
            ConnError::Status { .. } => 16,
            ConnError::Unexpected { .. } => 32,
            other => panic!("{other} is no fault of the peer's"),
        };
    }

    fn ended(&mut self, ended: EndedOp<usize>) {
        let limit = self.limits[ended.item];
        assert!(ended.outcome.unwrap_or(0) <= limit, "{ended:?} is more than {limit}");
        self.came_back(ended.item);
    }

    fn keep(&mut self, limit: u32) {
        self.back.push(false);
        self.limits.push(limit);
    }

    fn came_back(&mut self, item: usize) {
        assert!(!std::mem::replace(&mut self.back[item], true), "{item} comes back twice");
    }

    fn check(&self) {
        let counts = self.conn.counts();
        let depth = u16::from(LIMITS.depth);
        assert!(
            counts.credits <= depth && counts.reserved <= depth && counts.outstanding <= depth,
            "{counts:?}"
        );
        assert!(counts.own <= usize::from(LIMITS.messages), "{counts:?}");
        same(counts.posted, self.posted.len(), "posted sends");
    }

    fn end(mut self) -> Outcome {
        let counts = self.conn.counts();
        let outcome = (self.seen, counts.credits, counts.reserved, counts.outstanding, counts.own);
        for ended in std::mem::replace(&mut self.conn, Conn::new(&LIMITS, 0)).close() {
            assert!([Err(Errno::EIO), Err(Errno::ECONNABORTED)].contains(&ended.outcome), "{ended:?}");
            self.came_back(ended.item);
        }
        assert!(self.back.iter().all(|back| *back), "an item is lost: {:?}", self.back);
        Outcome::of(outcome)
    }
}

fn header(get: bool, payload_length: u32) -> Header {
    let match_bits = MatchBits(1);
    let body = if get {
        lnet_proto::Body::Get {
            return_wmd: WireHandle::NONE,
            match_bits,
            portal: 4,
            src_offset: 0,
            sink_length: 1,
        }
    } else {
        lnet_proto::Body::Put { ack_wmd: WireHandle::NONE, match_bits, hdr_data: 0, portal: 4, offset: 0 }
    };
    Header { dest: ProcessId::lnet(HERE), src: ProcessId::lnet(PEER), payload_length, body }
}

/// Returns inputs with a transfer of each kind from either side that succeeds, then each with a
/// fault.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let step = |step: u8, choice: u8| step + STEPS * choice;
    let receive = |kind: u8, credits: u8, which: u8, status: i16| {
        let [low, high] = status.to_le_bytes();
        vec![step(11, kind), credits, which, low, high]
    };
    let begin = |own: u8| vec![step(0, own), step(8, 0), step(9, 0)];
    let settle = vec![step(8, 0), step(9, 0), step(10, 0)];
    let put = [begin(1), receive(4, 0, 0, 30), vec![step(5, 2)], settle.clone()].concat();
    let get = [begin(2), receive(8, 1, 0, 30), settle.clone()].concat();
    let sink = [receive(2, 0, 0, 80), vec![step(5, 0)], settle.clone(), receive(7, 0, 0, 50), settle.clone()]
        .concat();
    let source = [receive(3, 0, 0, 80), vec![step(5, 2)], settle.clone()].concat();
    let refused = [receive(2, 0, 0, 80), vec![step(5, 1)], settle.clone()].concat();
    let immediate = [begin(0), receive(1, 1, 0, 0).repeat(3), settle].concat();
    let all = [&put[..], &get, &sink, &source, &refused, &immediate].concat();
    vec![put, get, sink, source, refused, immediate, all, receive(0, 4, 0, 0), receive(9, 0, 0, 0)]
}
