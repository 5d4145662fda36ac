//! A whole engine under a hostile network, which delivers any headers and finalises messages in any
//! order.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use lnet::{Engine, EngineConfig, Limits};
use lnet_api::{
    AckRequest, Arrival, EqHandle, Errno, Event, Get, LNet, Md, MdHandle, MdOptions, MeSpec, PayloadTarget,
    Position, Put, RxContext, RxToken, Threshold, Tx, TxToken, Unlink, Upcalls, Verdict,
};
use lnet_cpt::{CptTable, with_partition};
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{IoVec, Region};
use nlx_testkit::events::on_event;
use parking_lot::Mutex;

use super::Outcome;
use crate::corpus::{Item, streams};

pub(super) mod lnd;

use lnd::HoldingLnd;

/// The passive nodes of the recordings; this node has all of their NIDs.
const HERE: [&str; 3] = ["10.77.0.3@tcp", "10.77.0.3@o2ib", "fd77::3@tcp"];

/// The portals of LNet's selftest: two of its services, and bulk. The first has a buffer for every
/// message, messages on the second wait for one.
const OPEN: usize = 50;
const LAZY: usize = 51;
const BULK: usize = 52;

/// The cookie in this node's handles.
const COOKIE: u64 = 0x0123_4567_89ab_cdef;

/// Length of each descriptor in bytes.
const LENGTH: usize = 64;

/// Number of steps: the low bits of a byte select one. The rest of the byte selects an object for
/// it.
const STEPS: u8 = 12;

/// Checks the invariants of the events of any descriptor, and records which kinds occurred.
#[derive(Debug, Default)]
struct EventChecker {
    ended: Mutex<HashSet<MdHandle>>,
    kinds: Mutex<BTreeSet<String>>,
}

impl EventChecker {
    fn see(&self, event: &Event) {
        let mut ended = self.ended.lock();
        assert!(!ended.contains(&event.md), "an event after the last one: {event:?}");
        assert!(event.mlength <= event.rlength || event.rlength == 0, "{event:?}");
        if event.unlinked {
            ended.insert(event.md);
        }
        self.kinds.lock().insert(format!("{:?} {}", event.kind, event.status.is_ok()));
    }
}

/// An engine with the objects that the steps of an input use.
struct EngineRun {
    engine: Arc<Engine>,
    lnd: Arc<HoldingLnd>,
    checker: Arc<EventChecker>,
    eq: EqHandle,
    here: [Nid; 3],
    partitions: usize,
    mds: Vec<MdHandle>,
    memories: Vec<IoVec>,
    /// Handles of the PUTs and GETs sent, which an ACK or a REPLY must carry.
    handles: Vec<WireHandle>,
    received: u64,
    verdicts: BTreeSet<&'static str>,
}

/// Runs steps on an engine. The first byte chooses the number of partitions. Steps follow, each a
/// byte and its arguments: headers of both sizes arrive, messages are finalised in any order, with
/// success or failure, once or twice; this node sends, posts and unlinks. At the end no message and
/// no lease of memory may be left.
pub(super) fn engine(bytes: &[u8]) -> Outcome {
    let Some((&first, mut rest)) = bytes.split_first() else { return Outcome::of("empty") };
    let mut run = EngineRun::new(1 + usize::from(first & 1));
    while let Some((&step, after)) = rest.split_first() {
        rest = run.step(step % STEPS, usize::from(step / STEPS), after);
    }
    run.end();
    let kinds = run.checker.kinds.lock().clone();
    Outcome::of((run.partitions, &run.verdicts, kinds))
}

/// Takes `N` bytes, padded with zeros if there are fewer.
pub(super) fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> [u8; N] {
    let (head, rest): (&'a [u8], &'a [u8]) = bytes.split_at(bytes.len().min(N));
    *bytes = rest;
    let mut taken = [0; N];
    taken[..head.len()].copy_from_slice(head);
    taken
}

/// Removes and returns the element of the list that `choice` selects; `None` if the list is empty.
fn pick<T>(list: &Mutex<Vec<T>>, choice: usize) -> Option<T> {
    let mut list = list.lock();
    let index = choice.checked_rem(list.len())?;
    Some(list.swap_remove(index))
}

fn portal(index: usize) -> Portal {
    Portal::new(index as u32).expect("a portal")
}

impl EngineRun {
    fn new(partitions: usize) -> EngineRun {
        let table = CptTable::virtual_parts(partitions).expect("one or two partitions");
        let limits = Limits {
            messages: 16,
            peers: 4,
            delayed: 4,
            match_entries: 64,
            descriptors: 64,
            ..Limits::default()
        };
        let config =
            EngineConfig { partitions: Arc::new(table), limits, ..EngineConfig::new(Pid::LNET, COOKIE) };
        let (engine, lnd, checker) =
            (Engine::new(config), Arc::new(HoldingLnd::default()), Arc::<EventChecker>::default());
        let here = HERE.map(|nid| nid.parse().expect("a NID"));
        for nid in here {
            engine.add_ni(ProcessId::lnet(nid), lnd.clone()).expect("an NI");
        }
        let seeing = checker.clone();
        let eq = engine.eq_alloc(on_event(move |event| seeing.see(event))).expect("room for an EQ");
        let (mds, memories, handles, verdicts) = Default::default();
        let mut run = EngineRun {
            engine,
            lnd,
            checker,
            eq,
            here,
            partitions,
            mds,
            memories,
            handles,
            received: 0,
            verdicts,
        };
        run.engine.set_lazy(portal(LAZY), true);
        let both = MdOptions::OP_PUT | MdOptions::OP_GET;
        run.post(OPEN, both | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE, Threshold::Infinite);
        run.post(BULK, both | MdOptions::MAX_SIZE, Threshold::Limited(3));
        run
    }

    fn md(&mut self, options: MdOptions, threshold: Threshold) -> Md {
        let memory = IoVec::whole(Region::heap(LENGTH).expect("memory"));
        self.memories.push(memory.clone());
        Md { memory, threshold, max_size: LENGTH as u32 / 2, options, user_ptr: 0, eq: Some(self.eq) }
    }

    /// Posts a buffer for any sender and any bits, if there is room.
    fn post(&mut self, index: usize, options: MdOptions, threshold: Threshold) {
        let spec = MeSpec {
            portal: portal(index),
            match_id: ProcessId::ANY,
            match_bits: MatchBits(0),
            ignore_bits: MatchBits(u64::MAX),
            unlink: Unlink::Auto,
            position: Position::Local,
        };
        let md = self.md(options, threshold);
        let here = self.received as usize % self.partitions;
        let engine = &self.engine;
        let attach = || engine.me_attach(&spec).and_then(|me| engine.md_attach(me, md, Unlink::Auto));
        self.mds.extend(with_partition(here, attach));
    }

    /// Runs one step; returns the rest of the input.
    fn step<'a>(&mut self, step: u8, choice: usize, mut rest: &'a [u8]) -> &'a [u8] {
        let result = if choice & 1 == 0 { Ok(()) } else { Err(Errno::ECONNRESET) };
        match step {
            0 => {
                if let Ok(header) = Header::parse(&take(&mut rest)) {
                    self.arrive(header, choice);
                }
            }
            1 => {
                if let Ok(header) = Header::parse_large(&take(&mut rest)) {
                    self.arrive(header, choice);
                }
            }
            2 => {
                if let Some(delivery) = pick(&self.lnd.receiving, choice / 2) {
                    drop(delivery.sink);
                    self.engine.finalize_rx(delivery.token, result);
                }
            }
            3 => {
                if let Some(tx) = pick(&self.lnd.sending, choice / 2) {
                    let token = tx.token;
                    drop(tx);
                    self.engine.finalize_tx(token, result);
                }
            }
            4 => self.get_directly(choice),
            // A faulty LND: these tokens are invalid, or of a message that is finalised already.
            5 => {
                let token = u64::from_le_bytes(take(&mut rest));
                if !self.is_in_progress(token) {
                    self.engine.finalize_rx(RxToken(token), result);
                    self.engine.finalize_tx(TxToken(token), result);
                    self.engine.finalize_get(TxToken(token), result.map(|()| 1));
                    assert!(self.engine.sink_of_get(TxToken(token)).is_none(), "{token:x}");
                }
            }
            6 | 7 => self.ask(step == 6, choice),
            8 => self.post(LAZY, MdOptions::OP_PUT | MdOptions::TRUNCATE, Threshold::Limited(2)),
            9 => {
                if let Some(at) = choice.checked_rem(self.mds.len()) {
                    // The descriptor may have been unlinked automatically.
                    let _ = self.engine.md_unlink(self.mds.swap_remove(at));
                }
            }
            10 => {
                let tx = self.lnd.sending.lock().first().map(|tx| (tx.ni, tx.peer));
                let (ni, peer) = tx.unwrap_or((self.here[0], ProcessId::lnet(nid(self.here[0]))));
                self.engine.peer_lost(ni, peer, Errno::ECONNRESET);
            }
            _ => {
                self.engine.advance(choice as u64 * 20_000_000_000);
                self.engine.set_lazy(portal(LAZY), choice & 1 == 0);
            }
        }
        rest
    }

    /// Delivers a header. With an odd `choice` an answer is to this node's last request.
    fn arrive(&mut self, mut header: Header, choice: usize) {
        if let (true, Some(handle)) = (choice & 1 == 1, self.handles.last()) {
            match &mut header.body {
                Body::Ack { dst_wmd, .. } | Body::Reply { dst_wmd } => *dst_wmd = *handle,
                Body::Put { .. } | Body::Get { .. } => {}
            }
        }
        let ni = if self.here.contains(&header.dest.nid) { header.dest.nid } else { self.here[choice % 3] };
        self.received += 1;
        let from = ProcessId::lnet(if choice & 2 == 0 { header.src.nid } else { nid(ni) });
        let arrival = Arrival { ni, from, header: &header, host: None, rx: RxContext(self.received) };
        let verdict = match self.engine.parse(&arrival) {
            Verdict::Deliver(delivery) => {
                let sink = delivery.sink.as_ref().map_or(0, |sink| sink.len());
                assert!(sink <= header.payload_length as usize, "{sink} bytes into memory of {header:?}");
                self.lnd.receiving.lock().push(delivery);
                "deliver"
            }
            Verdict::Done => "done",
            Verdict::Discard => "discard",
            Verdict::Delay(_) | Verdict::Stay(_) => "delay",
            Verdict::Close(_) => "close",
        };
        self.verdicts.insert(verdict);
    }

    /// Finalises a GET as an LND does that writes the reply into the sink itself.
    fn get_directly(&mut self, choice: usize) {
        let Some(tx) = pick(&self.lnd.sending, choice / 2) else { return };
        let result = if choice & 1 == 0 { Ok(choice as u32 * 8) } else { Err(Errno::ENODATA) };
        let token = tx.token;
        drop(tx);
        match self.engine.sink_of_get(token) {
            Some(sink) => {
                assert_eq!(sink.len(), LENGTH);
                drop(sink);
                self.engine.finalize_get(token, result);
                self.verdicts.insert("direct");
            }
            None => self.engine.finalize_tx(token, Err(Errno::ECANCELED)),
        }
    }

    /// Sends a PUT or a GET from this node.
    fn ask(&mut self, is_put: bool, choice: usize) {
        let md = self.md(MdOptions::empty(), Threshold::Limited(2));
        let here = choice % self.partitions;
        let Ok(md) = with_partition(here, || self.engine.md_bind(md, Unlink::Auto)) else { return };
        let target = ProcessId::lnet(nid(self.here[choice % 3]));
        let (source, portal, match_bits, offset) = (None, portal(OPEN), MatchBits(1), 0);
        let asked = if is_put {
            let ack = if choice & 1 == 0 { AckRequest::Ack } else { AckRequest::NoAck };
            self.engine.put(&Put { source, md, ack, target, portal, match_bits, offset, hdr_data: 0 })
        } else {
            self.engine.get(&Get { source, md, target, portal, match_bits, offset })
        };
        if asked.is_ok() {
            self.handles.push(WireHandle::new(COOKIE, md.0));
        }
        self.mds.push(md);
    }

    fn is_in_progress(&self, token: u64) -> bool {
        self.lnd.sending.lock().iter().any(|tx| tx.token.0 == token)
            || self.lnd.receiving.lock().iter().any(|delivery| delivery.token.0 == token)
    }

    /// Finalises and unlinks everything, and checks that nothing is left.
    fn end(&mut self) {
        self.engine.set_lazy(portal(LAZY), false);
        loop {
            if let Some(PayloadTarget { token, .. }) = pick(&self.lnd.receiving, 0) {
                self.engine.finalize_rx(token, Ok(()));
            } else if let Some(Tx { token, .. }) = pick(&self.lnd.sending, 0) {
                self.engine.finalize_tx(token, Ok(()));
            } else {
                break;
            }
        }
        assert_eq!(self.engine.counters().msgs_alloc, 0, "messages are left");
        for md in self.mds.drain(..) {
            let _ = self.engine.md_unlink(md);
        }
        let counters = self.engine.counters();
        assert_eq!((counters.msgs_alloc, counters.rst_alloc), (0, 0), "answers are still waited for");
        for memory in &self.memories {
            assert!(memory.write(0..memory.len()).is_ok(), "memory is still lent");
        }
        assert!(self.engine.eq_free(self.eq).is_ok(), "a descriptor is left");
    }
}

/// Returns a peer on the network of one of this node's NIDs.
fn nid(here: Nid) -> Nid {
    here.to_string().replacen(".3@", ".2@", 1).replacen("::3@", "::2@", 1).parse().expect("a NID")
}

/// Returns each recorded stream as it arrived, in one partition and in two, with finalisations and
/// this node's own messages among its headers.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let lnet = |item: &Item| !item.header.is_empty();
    let recorded: Vec<_> = streams().into_iter().filter(|stream| stream.items.iter().any(lnet)).collect();
    let mut seeds = Vec::new();
    for partitions in 0..2 {
        for stream in &recorded {
            let mut seed = vec![partitions];
            for (number, item) in stream.items.iter().filter(|item| lnet(item)).enumerate() {
                let number = number as u8;
                seed.push(6 + number % 2);
                // An odd choice directs an answer to this node's last request.
                seed.push(u8::from(item.header.len() == Header::LARGE_LEN) + STEPS);
                seed.extend(&item.header);
                seed.extend([3, 2, 8, 4]);
                if number % 4 == 3 {
                    seed.extend([9, 10, 11, 5, 1, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
            seeds.push(seed);
        }
    }
    seeds
}
