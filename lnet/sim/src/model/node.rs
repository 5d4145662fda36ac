//! The model's state of one node: plain lists, searched from front to back.

use std::collections::BTreeMap;
use std::sync::Arc;

use lnet_api::{Errno, Event, EventKind, MdHandle, MdOptions, MeHandle, MeSpec, NiLimits, Position, TxToken};
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::{Header, WireHandle};
use lnet_region::IoVec;

/// A match entry of the model.
pub(super) struct Me {
    pub(super) spec: MeSpec,
    pub(super) handle: Option<MeHandle>,
    pub(super) md: Option<u64>,
}

impl Me {
    pub(super) fn is_masked(&self) -> bool {
        self.spec.ignore_bits.0 != 0
    }

    pub(super) fn is_local(&self) -> bool {
        self.spec.position == Position::Local
    }
}

/// A program's lease on bytes of an MD, for reading or writing. Messages need no lease, because
/// they do not exclude each other.
pub(super) struct Lease {
    pub(super) id: u64,
    pub(super) range: (u64, u64),
    pub(super) write: bool,
}

/// A memory descriptor of the model.
pub(super) struct Md {
    pub(super) memory: IoVec,
    /// The expected content of the MD's memory.
    pub(super) shadow: Vec<u8>,
    pub(super) handle: Option<MdHandle>,
    pub(super) me: Option<u64>,
    pub(super) bound: bool,
    pub(super) auto: bool,
    pub(super) options: MdOptions,
    /// Number of operations left; `None` if there is no limit.
    pub(super) left: Option<u32>,
    pub(super) max_size: Option<u64>,
    pub(super) offset: u64,
    pub(super) dead: bool,
    pub(super) aborted: bool,
    pub(super) busy: u32,
    pub(super) leases: Vec<Lease>,
}

impl Md {
    pub(super) fn len(&self) -> u64 {
        self.shadow.len() as u64
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.left == Some(0) || self.max_size.is_some_and(|max| self.offset + max > self.len())
    }

    pub(super) fn consume(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// Returns whether a message may use these bytes: no program writes them, nor reads bytes that
    /// the message would write.
    pub(super) fn is_free(&self, range: (u64, u64), write: bool) -> bool {
        let overlaps = |lease: &Lease| lease.range.0 < range.1 && range.0 < lease.range.1;
        range.0 == range.1 || !self.leases.iter().any(|lease| overlaps(lease) && (write || lease.write))
    }

    pub(super) fn bytes(&self, (start, end): (u64, u64)) -> Arc<[u8]> {
        self.shadow[start as usize..end as usize].into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutKind {
    Put,
    Get,
    DirectGet,
    Ack,
    Reply,
}

/// A message that this node sends.
#[derive(Debug, Clone)]
pub(super) struct Out {
    pub(super) kind: OutKind,
    pub(super) md: Option<u64>,
    /// The NI by which the message leaves; `None` for a message to this node itself.
    pub(super) ni: Option<Nid>,
    pub(super) peer: Nid,
    pub(super) header: Header,
    /// The bytes of the MD that it sends, with their content when it leaves.
    pub(super) range: (u64, u64),
    pub(super) event: Option<Event>,
    pub(super) deadline_ns: u64,
    pub(super) response: u64,
    /// Set while an LND has the message.
    pub(super) token: Option<TxToken>,
}

/// A message being received.
#[derive(Debug, Clone)]
pub(super) struct In {
    pub(super) md: u64,
    pub(super) event: Event,
    pub(super) payload: Arc<[u8]>,
    pub(super) ack: Option<WireHandle>,
    pub(super) from: From,
}

/// The origin of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct From {
    /// The NI on which the message arrived; `None` for this node itself.
    pub(super) ni: Option<Nid>,
    pub(super) peer: ProcessId,
    pub(super) rx: u64,
}

/// A PUT on a lazy portal.
pub(super) struct Waiting {
    pub(super) portal: u32,
    pub(super) header: Header,
    pub(super) payload: Arc<[u8]>,
    pub(super) from: From,
    pub(super) local: Option<Out>,
}

/// An expected ACK or REPLY.
#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) id: u64,
    pub(super) md: u64,
    pub(super) kind: EventKind,
    pub(super) target: ProcessId,
    pub(super) ni: Option<Nid>,
    pub(super) source: Nid,
    pub(super) deadline_ns: Option<u64>,
    pub(super) sent: bool,
}

/// An event that must be delivered before the step ends.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) md: u64,
    pub(super) event: Event,
    pub(super) status: Result<(), Errno>,
    /// Bytes that are now in the MD.
    pub(super) content: Option<(u64, Arc<[u8]>)>,
    /// True if the event belongs to no message, and ends the MD.
    pub(super) last: bool,
}

/// The expected handling of an arrived header.
#[derive(Debug, Clone)]
pub(super) enum Handling {
    Deliver(Box<In>),
    Done,
    Discard,
    Delay,
}

#[derive(Debug, Clone)]
pub(super) struct Ni {
    pub(super) nid: Nid,
    /// The partitions to which the NI's peers belong.
    pub(super) cpts: Vec<usize>,
    pub(super) limits: NiLimits,
    pub(super) stopping: bool,
}

/// A portal's state for one partition.
#[derive(Default, Clone)]
pub(super) struct Table {
    /// True if messages search this table, and the time at which a buffer was last posted.
    pub(super) active: bool,
    pub(super) posted_ns: u64,
    /// True if there are local entries, as far as messages have detected.
    pub(super) local: bool,
}

/// An entry in the list of its portal.
#[derive(Clone, Copy)]
pub(super) struct PortalEntry {
    pub(super) me: u64,
    pub(super) partition: usize,
}

pub(super) struct Portal {
    /// True for a unique portal, false for a wildcard one; `None` until that is decided.
    pub(super) unique: Option<bool>,
    /// The entries, including removed ones: later ones may be posted behind their positions.
    /// Entries of a unique portal have no order; here they are all in the first partition.
    pub(super) list: Vec<PortalEntry>,
    /// The tables, by partition.
    pub(super) tables: Vec<Table>,
    /// The partition at which the next message of a round-robin begins its search.
    pub(super) turn: usize,
    pub(super) lazy: bool,
}

impl Portal {
    fn new(partitions: usize) -> Portal {
        Portal {
            unique: None,
            list: Vec::new(),
            tables: vec![Table::default(); partitions],
            turn: 0,
            lazy: false,
        }
    }

    /// Returns the index of an entry in the list.
    pub(super) fn find(&self, me: u64) -> Option<usize> {
        self.list.iter().position(|listed| listed.me == me)
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) dropped: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) timeouts: u64,
}

pub(super) struct Node {
    pub(super) pid: Pid,
    pub(super) cookie: u64,
    pub(super) timeout_ns: u64,
    pub(super) now_ns: u64,
    pub(super) nis: Vec<Ni>,
    pub(super) portals: Vec<Portal>,
    pub(super) mes: BTreeMap<u64, Me>,
    pub(super) mds: BTreeMap<u64, Md>,
    pub(super) outs: BTreeMap<u64, Out>,
    /// Number of ACKs that waited too long: the engine discards them when their turn comes.
    pub(super) late_acks: u64,
    pub(super) ins: BTreeMap<u64, In>,
    pub(super) waiting: Vec<Waiting>,
    pub(super) responses: Vec<Response>,
    pub(super) due: Vec<Due>,
    pub(super) resumes: Vec<(u64, Handling)>,
    pub(super) handling: Option<(u64, Handling)>,
    /// A peer whose answers fail in this step.
    pub(super) losing: Option<(Nid, Nid, Errno)>,
    /// Memory that must be free when the step is over.
    pub(super) ended: Vec<(u64, IoVec)>,
    /// MDs whose memory is checked when the step is over.
    pub(super) written: Vec<u64>,
    pub(super) counts: Counts,
}

impl Node {
    pub(super) fn new(pid: Pid, cookie: u64, timeout_ns: u64, partitions: usize) -> Node {
        Node {
            pid,
            cookie,
            timeout_ns,
            now_ns: 0,
            nis: Vec::new(),
            portals: (0..lnet_nid::Portal::COUNT).map(|_| Portal::new(partitions)).collect(),
            mes: BTreeMap::new(),
            mds: BTreeMap::new(),
            outs: BTreeMap::new(),
            late_acks: 0,
            ins: BTreeMap::new(),
            waiting: Vec::new(),
            responses: Vec::new(),
            due: Vec::new(),
            resumes: Vec::new(),
            handling: None,
            losing: None,
            ended: Vec::new(),
            written: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn ni(&self, nid: Nid) -> Option<&Ni> {
        self.nis.iter().find(|ni| ni.nid == nid)
    }

    pub(super) fn is_local(&self, nid: Nid) -> bool {
        nid.is_loopback() || self.ni(nid).is_some()
    }

    /// Returns the MD, which must exist.
    pub(super) fn md(&mut self, md: u64) -> &mut Md {
        self.mds.get_mut(&md).expect("the model names MDs that it has")
    }

    /// Returns the payload of a message if it leaves now.
    pub(super) fn payload(&self, out: &Out) -> Arc<[u8]> {
        match out.md {
            Some(md) if out.range.0 < out.range.1 => self.mds[&md].bytes(out.range),
            _ => Arc::new([]),
        }
    }

    /// Returns an empty event.
    pub(super) fn blank(&self, kind: EventKind) -> Event {
        Event::blank(kind, ProcessId::new(Nid::ANY, self.pid))
    }

    /// Makes an MD unreachable from now on.
    pub(super) fn retire(&mut self, md: u64) {
        self.responses.retain(|response| response.md != md);
        let gone = self.md(md);
        gone.dead = true;
        let Some(me) = gone.me.take() else { return };
        let Some(entry) = self.mes.get_mut(&me) else { return };
        entry.md = None;
        if entry.spec.unlink == lnet_api::Unlink::Auto {
            self.remove_me(me);
        }
    }

    pub(super) fn remove_me(&mut self, me: u64) -> Option<Me> {
        let gone = self.mes.remove(&me)?;
        let portal = gone.spec.portal.index();
        let listed = self.portals[portal].list.iter().find(|listed| listed.me == me);
        if let Some(&PortalEntry { partition, .. }) = listed
            && !self.portals[portal].tables[partition].active
        {
            self.notice_local(portal, partition);
        }
        Some(gone)
    }

    /// Clears the flag of local entries if a partition has none.
    pub(super) fn notice_local(&mut self, portal: usize, partition: usize) {
        let local = self.entries(portal).any(|(at, _, me)| at == partition && me.is_local());
        self.portals[portal].tables[partition].local &= local;
    }

    /// Returns the entries of a portal in the order of its list, with their partitions.
    pub(super) fn entries(&self, portal: usize) -> impl Iterator<Item = (usize, u64, &Me)> {
        let list = self.portals[portal].list.iter();
        list.filter_map(|listed| Some((listed.partition, listed.me, self.mes.get(&listed.me)?)))
    }

    /// Ends an MD for another reason than exhaustion, with this event if it is idle.
    pub(super) fn unlink(&mut self, md: u64, event: Event, status: Result<(), Errno>) -> bool {
        self.retire(md);
        let busy = self.md(md).busy > 0;
        if busy {
            self.md(md).aborted = true;
        } else {
            self.due.push(Due { md, event, status, content: None, last: true });
        }
        busy
    }

    /// Returns the event of an answer that did not come.
    pub(super) fn response_event(&self, response: &Response) -> Event {
        Event {
            target: ProcessId::new(response.source, self.pid),
            initiator: response.target,
            source: response.target,
            sender: response.target.nid,
            ..self.blank(response.kind)
        }
    }

    pub(super) fn take_response(&mut self, id: u64) -> Option<Response> {
        let place = self.responses.iter().position(|response| response.id == id)?;
        Some(self.responses.remove(place))
    }
}
