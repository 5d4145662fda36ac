//! A node of nlx, for the judge.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use lnet_api::{
    AckRequest, EqHandle, Event, EventKind, Get, LNet, Md, MdOptions, MeSpec, Position, Put, Threshold,
    Unlink,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_node::{AcceptPolicy, Node, NodeConfig, SockConfig};
use lnet_region::{IoVec, Region};
use nlx_testkit::TIME_LIMIT;
use nlx_testkit::events::on_event;
use nlx_tests::judge::{Policy, Target, wire};

/// The board's portal.
pub(crate) const PORTAL: u32 = 31;
/// The board's match bits.
pub(crate) const BITS: u64 = 0x626f_6172_6400_0000;

/// A node with a *board*: 1 MiB that peers may write and read.
pub(crate) struct Nlx {
    pub(crate) node: Node,
    pub(crate) port: u16,
    address: IpAddr,
    lnet: Arc<dyn LNet>,
    eq: EqHandle,
    events: Mutex<Receiver<Event>>,
}

impl Nlx {
    /// Starts a node on a free port, or on the given one.
    pub(crate) fn start(address: impl Into<IpAddr>, port: Option<u16>, accept: AcceptPolicy) -> Nlx {
        Nlx::tuned(address, port, accept, |_| {})
    }

    /// Starts a node with other tunables.
    pub(crate) fn tuned(
        address: impl Into<IpAddr>,
        port: Option<u16>,
        accept: AcceptPolicy,
        tune: impl FnOnce(&mut SockConfig),
    ) -> Nlx {
        let address = address.into();
        let free = || TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let port = port.unwrap_or_else(free);
        let mut config = NodeConfig::new().net(&format!("tcp({address})")).unwrap();
        tune(config.tcp());
        let node = Node::start(&config.accept_port(port).accept(accept)).unwrap();
        let (sender, events) = sync_channel(64);
        let lnet = node.lnet();
        // An event that does not fit is lost: its waiter times out, and the test fails.
        let pass = on_event(move |event| {
            let _ = sender.try_send(*event);
        });
        let eq = lnet.eq_alloc(pass).unwrap();
        let nlx = Nlx { node, port, address, lnet, eq, events: Mutex::new(events) };
        nlx.post_board();
        nlx
    }

    fn post_board(&self) {
        let me = MeSpec {
            portal: portal(),
            match_id: ProcessId::ANY,
            match_bits: MatchBits(BITS),
            ignore_bits: MatchBits(0),
            unlink: Unlink::Retain,
            position: Position::After,
        };
        let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        let memory = IoVec::whole(Region::heap(1 << 20).unwrap());
        let md = Md { memory, threshold: Threshold::Infinite, max_size: 0, options, user_ptr: 0, eq: None };
        let me = self.lnet.me_attach(&me).unwrap();
        self.lnet.md_attach(me, md, Unlink::Retain).unwrap();
    }

    /// Returns the node as a target of a judge at this address.
    pub(crate) fn target(&self, judge: impl Into<IpAddr>, policy: Policy, privileged: bool) -> Target {
        let to = SocketAddr::new(self.address, self.port);
        let target = Target::new(to, self.nid(), wire::Nid::new(judge, 0));
        Target { privileged, policy, buffer: Some((PORTAL, BITS)), ..target }
    }

    /// Returns the node's NID, in the judge's type.
    pub(crate) fn nid(&self) -> wire::Nid {
        wire::Nid::new(self.address, 0)
    }

    /// Sends a PUT, and waits for the ACK.
    pub(crate) fn put(&self, to: wire::Nid, bits: u64, payload: &[u8]) {
        let memory = memory(payload.len());
        memory.write(0..payload.len()).unwrap().copy_from(0, payload);
        let (source, target, portal, match_bits) = (None, process(to), portal(), MatchBits(bits));
        let md = self.bind(memory);
        let ack = AckRequest::Ack;
        let put = Put { source, md, ack, target, portal, match_bits, offset: 0, hdr_data: 0 };
        self.lnet.put(&put).unwrap();
        assert_eq!(self.wait_for(EventKind::Ack).mlength as usize, payload.len());
    }

    /// Sends a GET, and waits for the REPLY.
    pub(crate) fn get(&self, from: wire::Nid, bits: u64, length: usize) -> Vec<u8> {
        let memory = memory(length);
        let (source, target, portal, match_bits) = (None, process(from), portal(), MatchBits(bits));
        let md = self.bind(memory.clone());
        self.lnet.get(&Get { source, md, target, portal, match_bits, offset: 0 }).unwrap();
        let got = self.wait_for(EventKind::Reply).mlength as usize;
        memory.read(0..got).unwrap().to_vec()
    }

    fn bind(&self, memory: IoVec) -> lnet_api::MdHandle {
        let (threshold, options) = (Threshold::Limited(2), MdOptions::empty());
        let md = Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) };
        self.lnet.md_bind(md, Unlink::Auto).unwrap()
    }

    fn wait_for(&self, kind: EventKind) -> Event {
        loop {
            let event = self.events.lock().unwrap().recv_timeout(TIME_LIMIT).unwrap();
            assert_eq!(event.status, Ok(()), "{event:?}");
            if event.kind == kind {
                return event;
            }
        }
    }
}

/// Returns memory of `length` bytes, which may be 0.
fn memory(length: usize) -> IoVec {
    IoVec::whole(Region::heap(length.max(1)).unwrap()).trimmed(length).unwrap()
}

fn portal() -> Portal {
    Portal::new(PORTAL).unwrap()
}

fn process(nid: wire::Nid) -> ProcessId {
    ProcessId::lnet(nid.to_string().parse::<Nid>().unwrap())
}
