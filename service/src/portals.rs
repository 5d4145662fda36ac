//! The transport over LNet portals: requests are PUTs to a portal, replies and bulk use another.
//!
//! | | over LNet |
//! | --- | --- |
//! | endpoint | match bits at [`PortalNames::requests`] |
//! | request | a PUT, without ACK; [`URGENT`] in its header data makes it urgent |
//! | message ([`Transport::send`]) | a PUT, without ACK, to [`PortalNames::replies`]; its tag is the match bits |
//! | [`Transport::push`], [`Transport::pull`] | a PUT or GET there; the offer is the match bits. The PUT is without ACK, unless [`Portals::acknowledged`] |
//! | [`Transport::offer`] | an MD at [`PortalNames::requests`], with match bits of its own |
//! | source of reply and bulk | the local NID to which the request was sent ([`Peer::local`]) |
//! | posted memory | an MD that takes several PUTs one behind the other, in its partition alone |
//!
//! Each partition has an event queue, so an event names the partition in which the memory lies.
//! The thread that received a request may belong to another partition, if that one had no memory
//! ([`ArrivedMessage::crossed`]).
//!
//! # A service and its clients
//! Both ends of a [`Client`](crate::Client) and of its service are of this kind:
//!
//! | | the service | the client |
//! | --- | --- | --- |
//! | [`PortalNames::requests`] | where requests arrive | where answers and bulk arrive |
//! | [`PortalNames::bits`] | its match bits, the tag of its clients ([`ClientOptions::tag`]) | the client's [`ClientOptions::incarnation`] |
//! | [`PortalNames::replies`] | the client's portal | the service's portal |
//! | [`PortalNames::lazy`] | of choice | off: bulk for memory that is no longer offered would wait there |
//! | [`Portals::acknowledged`] | on: the answer would overtake bulk otherwise, whose offer the client then cancels | without effect |
//!
//! [`ClientOptions::tag`]: crate::client::ClientOptions::tag
//! [`ClientOptions::incarnation`]: crate::client::ClientOptions::incarnation

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventHandler, EventKind, Get, LNet, LNetError, Md, MdHandle,
    MdOptions, MeSpec, Position, Put, Threshold, Unlink,
};
use lnet_cpt::{CptTable, with_partition};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_region::{IoVec, Region};

use crate::transport::{Access, ArrivedMessage, Events, Place, Posting, Transport};

/// Set in the header data of an urgent request.
pub const URGENT: u64 = 1;

/// The sender of a request over LNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The process that sent it, to which reply and bulk go.
    pub id: ProcessId,
    /// The local NID to which it was sent, from which reply and bulk go.
    pub local: Nid,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, f)
    }
}

/// The portals and match bits of a service.
#[derive(Debug, Clone)]
pub struct PortalNames {
    /// The portal of the requests.
    pub requests: Portal,
    /// The match bits of the requests, one for each endpoint.
    pub bits: Vec<MatchBits>,
    /// The peers' portal for replies and bulk.
    pub replies: Portal,
    /// Requests that find no buffer wait, in place of being dropped (S-109).
    pub lazy: bool,
}

/// The transport over LNet portals.
pub struct Portals {
    lnet: Arc<dyn LNet>,
    table: Arc<CptTable>,
    /// The CPU partition of each partition of the service.
    cpts: Arc<[usize]>,
    names: PortalNames,
    /// What the peer of a push is asked for.
    push_ack: AckRequest,
    queues: OnceLock<Vec<EqHandle>>,
    /// The number of the next offer.
    offers: AtomicU64,
    /// The secret by which the match bits of offers follow from their numbers.
    secret: RandomState,
}

/// Set in the match bits of offers, so that they differ from those of endpoints.
const OFFER: u64 = 1 << 63;

/// The lowest bits of the number of an offer are part of its match bits, so that those of 2^20 offers in
/// a row differ: as many as a client's calls have.
const NUMBER_BITS: u32 = 20;

/// The kind of a descriptor, in the upper half of its user pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Posted = 0,
    Active = 1,
}

fn user_ptr(kind: Kind, token: u32) -> u64 {
    (kind as u64) << 32 | u64::from(token)
}

impl Portals {
    /// Creates the transport of a service on a node with these CPU partitions.
    #[must_use]
    pub fn new(lnet: Arc<dyn LNet>, table: Arc<CptTable>, names: PortalNames) -> Portals {
        let cpts = (0..table.partitions()).collect();
        let push_ack = AckRequest::NoAck;
        let (offers, secret) = (AtomicU64::new(0), RandomState::new());
        Portals { lnet, table, cpts, names, push_ack, queues: OnceLock::new(), offers, secret }
    }

    /// A push ends when the peer has acknowledged it, and not when it has left: its bytes are in the
    /// peer's memory before what is sent afterwards. Without this a push costs no ACK, as in LNet's
    /// self-test, and its peer must wait for bulk that comes after the reply.
    #[must_use]
    pub fn acknowledged(self) -> Portals {
        Portals { push_ack: AckRequest::Ack, ..self }
    }

    /// Uses these CPU partitions only; the pool of the service has the same list
    /// ([`OnPartitions`](crate::OnPartitions)). Requests that arrive in others cross.
    #[must_use]
    pub fn on(self, cpts: Arc<[usize]>) -> Portals {
        Portals { cpts, ..self }
    }

    /// Returns match bits for an offer: a peer that knows those of others cannot guess them. The portal
    /// cannot check who uses an offer, because it has entries for messages of all peers.
    fn offer_bits(&self) -> MatchBits {
        let number = self.offers.fetch_add(1, Ordering::Relaxed);
        let low = number & ((1 << NUMBER_BITS) - 1);
        MatchBits(OFFER | self.secret.hash_one(number) << NUMBER_BITS | low)
    }

    /// Returns the event queue of a partition; ESHUTDOWN before it is open.
    fn queue(&self, partition: usize) -> Result<EqHandle, Errno> {
        self.queues.get().and_then(|queues| queues.get(partition)).copied().ok_or(Errno::ESHUTDOWN)
    }

    fn md(&self, at: Place, kind: Kind, memory: IoVec, operations: u32) -> Result<Md, Errno> {
        Ok(Md {
            memory,
            threshold: Threshold::Limited(operations),
            max_size: 0,
            options: MdOptions::empty(),
            user_ptr: user_ptr(kind, at.token),
            eq: Some(self.queue(at.partition)?),
        })
    }

    /// Posts a descriptor at the portal of the requests, in a partition alone.
    fn attach(&self, partition: usize, bits: MatchBits, md: Md) -> Result<MdHandle, Errno> {
        let me = MeSpec { position: Position::Local, ..MeSpec::new(self.names.requests, bits) };
        let posted: Result<MdHandle, LNetError> = with_partition(self.cpts[partition], || {
            let me = self.lnet.me_attach(&me)?;
            self.lnet.md_attach(me, md, Unlink::Auto)
        });
        posted.map_err(|error| error.errno())
    }

    /// Sends the first `length` bytes of memory to the portal of replies and bulk.
    fn put(
        &self,
        at: Place,
        to: &Peer,
        bits: u64,
        memory: IoVec,
        length: usize,
        ack: AckRequest,
    ) -> Result<Option<MdHandle>, Errno> {
        let memory = memory.into_trimmed(length).map_err(|_| Errno::EMSGSIZE)?;
        // The PUT and its ACK.
        let operations = if ack == AckRequest::Ack { 2 } else { 1 };
        let put = Put {
            source: Some(to.local),
            md: self.md(at, Kind::Active, memory, operations)?,
            ack,
            target: to.id,
            portal: self.names.replies,
            match_bits: MatchBits(bits),
            offset: 0,
            hdr_data: 0,
        };
        self.lnet.bind_put(put).map_err(|error| error.errno())
    }
}

impl Transport for Portals {
    type Peer = Peer;
    type Memory = IoVec;
    type Offer = MatchBits;
    type Operation = MdHandle;

    fn open(&self, events: Arc<dyn Events<Peer>>) -> Result<(), Errno> {
        self.lnet.set_lazy(self.names.requests, self.names.lazy);
        let mut queues = Vec::new();
        for (partition, &cpt) in self.cpts.iter().enumerate() {
            let handler = Queue { events: events.clone(), partition, cpt, table: self.table.clone() };
            match self.lnet.eq_alloc(Arc::new(handler)) {
                Ok(queue) => queues.push(queue),
                Err(error) => {
                    queues.into_iter().for_each(|queue| drop(self.lnet.eq_free(queue)));
                    return Err(error.errno());
                }
            }
        }
        // It is opened once.
        let _ = self.queues.set(queues);
        Ok(())
    }

    fn close(&self) {
        for &queue in self.queues.get().into_iter().flatten() {
            if let Err(error) = self.lnet.eq_free(queue) {
                tracing::debug!(%error, "an event queue of a service stays until its node ends");
            }
        }
    }

    fn endpoints(&self) -> usize {
        self.names.bits.len()
    }

    fn allocate(&self, _: usize, bytes: usize) -> Result<IoVec, Errno> {
        Region::heap(bytes).map(IoVec::whole).map_err(|error| error.errno())
    }

    fn post(&self, posting: Posting<'_, IoVec>) -> Result<MdHandle, Errno> {
        let md = Md {
            max_size: posting.request_max as u32,
            options: MdOptions::OP_PUT | MdOptions::MAX_SIZE | MdOptions::TRUNCATE,
            ..self.md(posting.at, Kind::Posted, posting.memory.clone(), posting.requests)?
        };
        self.attach(posting.at.partition, self.names.bits[posting.endpoint], md)
    }

    fn send(&self, at: Place, to: &Peer, tag: u64, memory: IoVec, length: usize) -> Result<(), Errno> {
        self.put(at, to, tag, memory, length, AckRequest::NoAck).map(drop)
    }

    fn push(
        &self,
        at: Place,
        to: &Peer,
        offer: MatchBits,
        memory: IoVec,
        length: usize,
    ) -> Result<Option<MdHandle>, Errno> {
        self.put(at, to, offer.0, memory, length, self.push_ack)
    }

    fn pull(&self, at: Place, to: &Peer, offer: MatchBits, memory: IoVec) -> Result<Option<MdHandle>, Errno> {
        let get = Get {
            source: Some(to.local),
            // The GET and its REPLY.
            md: self.md(at, Kind::Active, memory, 2)?,
            target: to.id,
            portal: self.names.replies,
            match_bits: offer,
            offset: 0,
        };
        self.lnet.bind_get(get).map_err(|error| error.errno())
    }

    fn offer(&self, at: Place, memory: IoVec, access: Access) -> Result<(MdHandle, MatchBits), Errno> {
        let (memory, options) = match access {
            // A GET for more gets what there is. A PUT of more than fits is dropped.
            Access::Read { length } => (
                memory.into_trimmed(length).map_err(|_| Errno::EMSGSIZE)?,
                MdOptions::OP_GET | MdOptions::TRUNCATE,
            ),
            Access::Write => (memory, MdOptions::OP_PUT),
        };
        let bits = self.offer_bits();
        let md = Md { options, ..self.md(at, Kind::Active, memory, 1)? };
        self.attach(at.partition, bits, md).map(|md| (md, bits))
    }

    fn cancel(&self, operation: MdHandle) {
        // ENOENT: it has ended.
        let _ = self.lnet.md_unlink(operation);
    }
}

/// The handler of a partition's event queue.
struct Queue {
    events: Arc<dyn Events<Peer>>,
    partition: usize,
    cpt: usize,
    table: Arc<CptTable>,
}

impl Queue {
    fn arrival(&self, event: &Event) -> ArrivedMessage<Peer> {
        ArrivedMessage {
            from: Peer { id: event.source, local: event.target.nid },
            offset: event.offset as usize,
            length: event.mlength as usize,
            sent_length: event.rlength as usize,
            urgent: event.hdr_data & URGENT != 0,
            crossed: self.table.current(true) != Some(self.cpt),
        }
    }
}

impl EventHandler for Queue {
    fn event(&self, event: &Event) {
        // The lower half is the token.
        let at = Place { partition: self.partition, token: event.user_ptr as u32 };
        if event.user_ptr >> 32 == Kind::Posted as u64 {
            if event.kind == EventKind::Put && event.status.is_ok() {
                self.events.arrived(at, self.arrival(event));
            }
            if event.unlinked {
                self.events.released(at);
            }
        } else {
            let outcome = match event.kind {
                // It was cancelled before it had moved anything.
                EventKind::Unlink => Err(Errno::ECANCELED),
                _ => event.status.map(|()| event.mlength as usize),
            };
            if event.unlinked {
                self.events.ended(at, outcome);
            } else if matches!(event.kind, EventKind::Reply | EventKind::Ack) {
                // The end of the GET's or PUT's own transmission comes after it, and has the last word.
                self.events.fetched(at, outcome);
            }
        }
    }

    fn wake(&self) {
        self.events.wake(self.partition);
    }
}
