//! An engine with an NI on a network that does nothing, which the measurements of the engine share.

use std::net::Ipv4Addr;
use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, Arrival, EqHandle, EventHandler, Get, LNet, Lnd, LndError, Md, MdHandle, MdOptions, MeSpec,
    NiLimits, PayloadTarget, Position, Put, RxContext, Sent, Threshold, Tx, Unlink, Upcalls, Verdict,
};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Net, NetType, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{IoVec, Region};

use crate::error::{BenchError, Result};

/// The portal of all buffers; Motr's data portal.
const PORTAL: u32 = 34;

/// An engine with an NI on [`NullLnd`].
pub(crate) struct Node {
    engine: Arc<Engine>,
    id: ProcessId,
    portal: Portal,
}

impl Node {
    /// Creates a node with this number of CPU partitions.
    pub(crate) fn new(partitions: usize) -> Result<Node> {
        let table = CptTable::virtual_parts(partitions).map_err(BenchError::nlx("make partitions"))?;
        let config = EngineConfig { partitions: Arc::new(table), ..EngineConfig::new(Pid::LNET, 1) };
        let id = process(u32::from(Ipv4Addr::new(10, 0, 0, 1)));
        let engine = Engine::new(config);
        engine.add_ni(id, Arc::new(NullLnd)).map_err(BenchError::nlx("add an NI"))?;
        let portal = Portal::new(PORTAL).map_err(BenchError::nlx("choose a portal"))?;
        Ok(Node { engine, id, portal })
    }

    pub(crate) fn lnet(&self) -> Arc<dyn LNet> {
        self.engine.clone()
    }

    pub(crate) fn queue(&self, handler: Arc<dyn EventHandler>) -> Result<EqHandle> {
        self.engine.eq_alloc(handler).map_err(BenchError::nlx("make an event queue"))
    }

    /// Posts a buffer for messages from a process (or all) with these bits, in the caller's
    /// partition.
    pub(crate) fn post(&self, from: ProcessId, bits: u64, md: Md) -> Result<()> {
        let unlink = unlink_of(&md);
        let spec = MeSpec {
            portal: self.portal,
            match_id: from,
            match_bits: MatchBits(bits),
            ignore_bits: MatchBits(0),
            unlink,
            position: Position::Local,
        };
        let me = self.engine.me_attach(&spec).map_err(BenchError::nlx("post a match entry"))?;
        self.engine.md_attach(me, md, unlink).map(drop).map_err(BenchError::nlx("attach a descriptor"))
    }

    pub(crate) fn bind(&self, md: Md) -> Result<MdHandle> {
        let unlink = unlink_of(&md);
        self.engine.md_bind(md, unlink).map_err(BenchError::nlx("bind a descriptor"))
    }

    /// Sends a PUT without an ACK.
    pub(crate) fn put(&self, md: MdHandle, target: ProcessId, bits: u64) -> Result<()> {
        self.engine.put(&self.put_of(md, target, bits)).map_err(BenchError::nlx("send a PUT"))
    }

    /// Sends a PUT without an ACK from a descriptor that the call creates.
    pub(crate) fn bind_put(&self, md: Md, target: ProcessId, bits: u64) -> Result<()> {
        self.engine.bind_put(self.put_of(md, target, bits)).map(drop).map_err(BenchError::nlx("send a PUT"))
    }

    fn put_of<M>(&self, md: M, target: ProcessId, bits: u64) -> Put<M> {
        Put {
            source: None,
            md,
            ack: AckRequest::NoAck,
            target,
            portal: self.portal,
            match_bits: MatchBits(bits),
            offset: 0,
            hdr_data: 0,
        }
    }

    pub(crate) fn get(&self, md: MdHandle, target: ProcessId, bits: u64) -> Result<()> {
        let (portal, match_bits) = (self.portal, MatchBits(bits));
        let get = Get { source: None, md, target, portal, match_bits, offset: 0 };
        self.engine.get(&get).map_err(BenchError::nlx("send a GET"))
    }

    /// Binds a descriptor and unlinks it.
    pub(crate) fn bind_and_unlink(&self, md: Md) -> Result<()> {
        let md = self.bind(md)?;
        self.engine.md_unlink(md).map_err(BenchError::nlx("unlink a descriptor"))
    }

    /// Receives a PUT without payload: all work of the engine for it, with its event. A buffer must
    /// match it.
    #[inline]
    pub(crate) fn arrive(&self, from: ProcessId, bits: u64) -> Result<()> {
        let header = Header {
            dest: self.id,
            src: from,
            payload_length: 0,
            body: Body::Put {
                ack_wmd: WireHandle::NONE,
                match_bits: MatchBits(bits),
                hdr_data: 0,
                portal: PORTAL,
                offset: 0,
            },
        };
        match self.engine.parse(&Arrival {
            ni: self.id.nid,
            from,
            header: &header,
            host: None,
            rx: RxContext(1),
        }) {
            Verdict::Done => Ok(()),
            _ => Err(BenchError::Wrong { subject: "PUTs taken", value: 0, expected: 1 }),
        }
    }
}

/// Returns a descriptor for remote PUTs and GETs, any number of them.
pub(crate) fn open_md(memory: IoVec, eq: EqHandle, user_ptr: u64) -> Md {
    let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
    Md { memory, threshold: Threshold::Infinite, max_size: 0, options, user_ptr, eq: Some(eq) }
}

/// Returns a descriptor for local PUTs and GETs, any number of them.
pub(crate) fn own_md(memory: IoVec, eq: EqHandle) -> Md {
    Md { options: MdOptions::empty(), ..open_md(memory, eq, 0) }
}

/// Returns the same descriptor for one operation, which unlinks it.
pub(crate) fn once(md: Md) -> Md {
    Md { threshold: Threshold::Limited(1), ..md }
}

fn unlink_of(md: &Md) -> Unlink {
    if md.threshold == Threshold::Infinite { Unlink::Retain } else { Unlink::Auto }
}

/// Returns the process at an IPv4 address of the node's network.
pub(crate) fn process(address: u32) -> ProcessId {
    ProcessId::lnet(Nid::new_v4(Net::TCP, Ipv4Addr::from(address)))
}

pub(crate) fn memory(bytes: usize) -> Result<Region> {
    Region::heap(bytes).map_err(BenchError::nlx("take memory"))
}

/// A network that completes every send at once, and delivers nothing.
struct NullLnd;

impl Lnd for NullLnd {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, _: ProcessId, _: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        Ok(NiLimits { credits: 256, peer_credits: 8, timeout_ns: 50_000_000_000 })
    }

    fn shutdown(&self, _: Nid) {}

    fn send(&self, tx: Tx) -> Sent {
        drop(tx);
        Sent::Now(Ok(()))
    }

    fn resume(&self, _: RxContext, _: Option<PayloadTarget>) {}
}
