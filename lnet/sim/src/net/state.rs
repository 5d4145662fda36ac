//! The network's tables.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lnet_api::{Errno, RxContext, RxToken, TxToken, Upcalls};
use lnet_nid::{NetType, Nid};
use lnet_region::WriteVec;

use super::link::LinkModel;
use super::seen::Seen;
use crate::Rng;
use crate::kit::EventQueue;

/// A future event.
#[derive(Debug)]
pub(super) enum Event {
    /// A message reaches the far end of its connection.
    Arrive { conn: u64, end: usize, sequence: u64 },
    /// The next message of a connection may be parsed.
    Pump { conn: u64, end: usize },
    /// The payload being received over a connection is complete, or lost.
    Payload { conn: u64, end: usize },
    /// A message has left.
    Finalize { tx: u64 },
    /// A message has failed.
    Fail { tx: u64, errno: Errno },
    /// A GET has been answered directly.
    Direct { get: u64, result: Result<Arc<[u8]>, Errno> },
    /// A delivery for a connection that is gone.
    FailRx { ni: Nid, peer: Nid, life: u64, token: RxToken, sink: Option<WriteVec> },
    /// A connection breaks.
    Break { conn: u64 },
    /// An end detects that its connection is broken.
    Notice { conn: u64, end: usize, reason: Errno },
    /// A timer of the user.
    Timer(u64),
}

/// A started NI.
#[derive(Clone)]
pub(super) struct Port {
    pub(super) upcalls: Arc<dyn Upcalls>,
    /// A number that differs for each start of the NI.
    pub(super) life: u64,
}

impl Port {
    /// Calls the engine in the partition of the shard of `peer`, whatever CPU the thread runs on.
    pub(super) fn on_shard<R>(&self, ni: Nid, peer: Nid, call: impl FnOnce(&dyn Upcalls) -> R) -> R {
        let shard = self.upcalls.partition_of(ni, peer);
        lnet_cpt::with_partition(shard, || call(&*self.upcalls))
    }
}

/// A message between two ends.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) sequence: u64,
    /// The encoded header.
    pub(super) header: Vec<u8>,
    pub(super) payload: Arc<[u8]>,
    /// The sender's id of a GET that the network answers directly.
    pub(super) get: Option<u64>,
}

/// The message that an end is receiving.
pub(super) enum Receiving {
    Payload { token: RxToken, sink: Option<WriteVec>, payload: Arc<[u8]>, lost: bool },
    Delayed { rx: RxContext, token: RxToken, payload: Arc<[u8]> },
}

/// A delayed message's pipe and NI.
pub(super) struct Delayed {
    pub(super) conn: u64,
    pub(super) end: usize,
    pub(super) ni: Nid,
    pub(super) peer: Nid,
    pub(super) life: u64,
}

/// One direction of a connection.
#[derive(Default)]
pub(super) struct Pipe {
    pub(super) sent: u64,
    /// True after a message was lost: no message arrives after the gap.
    pub(super) cut: bool,
    pub(super) flying: VecDeque<Packet>,
    pub(super) last_arrival_ns: u64,
    /// Arrived messages that are not parsed yet.
    pub(super) inbox: VecDeque<Packet>,
    pub(super) receiving: Option<Receiving>,
}

/// A connection. End 0 opened it; a pipe has the number of the end that sends.
pub(super) struct Conn {
    pub(super) nids: [Nid; 2],
    /// The NI's start number at each end, while that end has the connection.
    pub(super) attached: [Option<u64>; 2],
    pub(super) pipes: [Pipe; 2],
    pub(super) broken: bool,
}

/// A message that has not been finalised at its engine.
pub(super) struct PendingTx {
    pub(super) ni: Nid,
    pub(super) peer: Nid,
    pub(super) life: u64,
    pub(super) token: TxToken,
    pub(super) conn: Option<(u64, usize)>,
    /// The memory for the data of a direct GET.
    pub(super) sink: Option<WriteVec>,
    pub(super) is_direct_get: bool,
    /// The payload's lease.
    pub(super) payload: Option<lnet_region::ReadVec>,
}

pub(super) struct State {
    pub(super) now_ns: u64,
    queue: EventQueue<Event>,
    pub(super) rng: Rng,
    pub(super) links: BTreeMap<NetType, LinkModel>,
    pub(super) ports: BTreeMap<Nid, Port>,
    pub(super) conns: BTreeMap<u64, Conn>,
    /// The connections an end has to a peer.
    pub(super) ends: BTreeMap<(Nid, Nid), Vec<u64>>,
    pub(super) held: BTreeMap<u64, PendingTx>,
    pub(super) delayed: BTreeMap<u64, Delayed>,
    /// GETs that have arrived and wait for their answer, with their senders' ids.
    pub(super) direct: BTreeMap<u64, u64>,
    /// The pairs of nodes that cannot reach each other, and the times at which they can again.
    pub(super) cut: BTreeMap<(Nid, Nid), u64>,
    next_id: u64,
    pub(super) seen: Seen,
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            now_ns: 0,
            queue: EventQueue::new(),
            rng: Rng::new(seed),
            links: BTreeMap::new(),
            ports: BTreeMap::new(),
            conns: BTreeMap::new(),
            ends: BTreeMap::new(),
            held: BTreeMap::new(),
            delayed: BTreeMap::new(),
            direct: BTreeMap::new(),
            cut: BTreeMap::new(),
            next_id: 1,
            seen: Seen::default(),
        }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns the behaviour of the network of a NID.
    pub(super) fn link(&self, nid: Nid) -> LinkModel {
        let link = self.links.get(&nid.net().net_type());
        link.cloned().unwrap_or_else(LinkModel::reliable)
    }

    pub(super) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.queue.schedule(at_ns.max(self.now_ns), event);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let (at_ns, event) = self.queue.pop()?;
        self.now_ns = at_ns;
        Some(event)
    }

    /// Removes and returns the deliveries that were to fail at an NI.
    pub(super) fn take_failing(&mut self, nid: Nid) -> Vec<Event> {
        let is_its = |event: &Event| matches!(event, Event::FailRx { ni, .. } if *ni == nid);
        if self.queue.any(is_its) { self.queue.take(is_its) } else { Vec::new() }
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.queue.next_ns()
    }

    /// Returns whether any event but timers is to come; the user has few timers, so checking all
    /// events is cheap.
    pub(super) fn has_traffic(&self) -> bool {
        self.queue.any(|event| !matches!(event, Event::Timer(_)))
    }

    pub(super) fn port(&self, ni: Nid, life: u64) -> Option<Port> {
        self.ports.get(&ni).filter(|port| port.life == life).cloned()
    }

    pub(super) fn is_cut(&self, a: Nid, b: Nid) -> bool {
        self.cut.get(&(a.min(b), a.max(b))).is_some_and(|&until| until > self.now_ns)
    }

    /// Returns the connection over which an end sends; makes it if there is none.
    pub(super) fn connect(&mut self, from: Nid, to: Nid, life: u64) -> u64 {
        if let Some(&conn) = self.ends.get(&(from, to)).and_then(|conns| conns.first()) {
            return conn;
        }
        let id = self.id();
        let link = self.link(from);
        if let Some(life_ns) = link.life_ns {
            let at = self.now_ns + self.rng.between(life_ns);
            self.schedule(at, Event::Break { conn: id });
        }
        let conn = Conn {
            nids: [from, to],
            attached: [Some(life), None],
            pipes: [Pipe::default(), Pipe::default()],
            broken: false,
        };
        self.conns.insert(id, conn);
        self.ends.entry((from, to)).or_default().push(id);
        self.seen.connections += 1;
        id
    }

    /// Breaks a connection. Messages in flight are lost, except those that `last_words` has sent.
    pub(super) fn break_conn(&mut self, id: u64, reason: Errno, last_words: Option<usize>) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.broken) else { return };
        conn.broken = true;
        let (nids, attached) = (conn.nids, conn.attached);
        for end in [0, 1] {
            if Some(end) != last_words {
                conn.pipes[end].flying.clear();
            }
        }
        self.seen.disconnects += 1;
        let notice_ns = self.link(nids[0]).notice_ns;
        for end in [0, 1] {
            if attached[end].is_some() {
                let at = self.now_ns + self.rng.between(notice_ns);
                self.schedule(at, Event::Notice { conn: id, end, reason });
            }
        }
        self.forget_if_over(id);
    }

    /// Detaches a connection from one of its ends. Returns the message that the end was receiving,
    /// and whether this was the end's last connection to that peer.
    pub(super) fn detach(&mut self, id: u64, end: usize) -> Option<(Option<Receiving>, bool)> {
        let conn = self.conns.get_mut(&id)?;
        conn.attached[end].take()?;
        let pipe = &mut conn.pipes[1 - end];
        pipe.inbox.clear();
        let receiving = pipe.receiving.take();
        let key = (conn.nids[end], conn.nids[1 - end]);
        let conns = self.ends.entry(key).or_default();
        conns.retain(|&known| known != id);
        let last = conns.is_empty();
        if last {
            self.ends.remove(&key);
        }
        self.forget_if_over(id);
        Some((receiving, last))
    }

    fn forget_if_over(&mut self, id: u64) {
        if self.conns.get(&id).is_some_and(|conn| conn.broken && conn.attached == [None, None]) {
            self.conns.remove(&id);
        }
    }

    /// Returns the connections of an NI, and which end of each it is.
    pub(super) fn conns_of(&self, ni: Nid) -> Vec<(u64, usize)> {
        let ends = self.conns.iter().flat_map(|(&id, conn)| {
            [0, 1].into_iter().filter(move |&end| conn.nids[end] == ni).map(move |end| (id, end))
        });
        ends.collect()
    }
}
