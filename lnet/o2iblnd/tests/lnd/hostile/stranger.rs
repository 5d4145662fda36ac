//! The hostile client, with a node and an honest peer of the node.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_nid::{Net, NetType, Nid, ProcessId};
use lnet_o2iblnd::O2ibConfig;
use lnet_o2iblnd::fabric::*;
use lnet_region::{IoVec, Region};
use nlx_testkit::buffers::{filled, whole};
use nlx_testkit::lnds::{TestBed as _, exchange};

use super::bytes::{CONNREQ, End, message, number, params};
use crate::{Bed, Node};

const SERVICE: u16 = 987;
const BUFFER: usize = 8192;
/// The number of receive buffers, and of send buffers.
const BUFFERS: usize = 32;
/// The length of the memory that peers may write to: receive buffers that are never used.
const TARGET: usize = (BUFFERS - 4) * BUFFER;
const OPTIONS: ConnectOptions = ConnectOptions { retry_count: 5, rnr_retry_count: 6 };

/// A node, its honest peer, and a host that attacks the node.
pub(super) struct Scene {
    pub(super) bed: Bed,
    pub(super) nodes: [Node; 2],
    address: Ipv4Addr,
    pub(super) device: Arc<dyn Device>,
    pub(super) channel: Arc<dyn Channel>,
    _fabric: Arc<dyn Fabric>,
}

/// An event of a [`Channel`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineEvent {
    Resolved,
    Accepted(PrivateData),
    Established,
    Rejected(Rejected),
    Failed,
    Disconnected,
    Other,
}

/// A connection of the stranger, or the beginning of one.
pub(super) struct Line {
    pub(super) token: ChannelToken,
    pub(super) endpoint: Box<dyn Endpoint>,
    region: Region,
    memory: Arc<dyn RegisteredMemory>,
    buffer: IoVec,
    sent: usize,
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::with(&O2ibConfig::default())
    }

    pub(super) fn with(config: &O2ibConfig) -> Scene {
        let bed = Bed::new();
        let nodes = bed.pair(config);
        Scene::of(bed, nodes)
    }

    /// Creates a stranger to these nodes.
    pub(super) fn of(bed: Bed, nodes: [Node; 2]) -> Scene {
        let (address, fabric) = bed.host(3);
        let (device, channel) = (fabric.open(address).unwrap(), fabric.channel().unwrap());
        bed.look_often();
        let scene = Scene { bed, nodes, address, device, channel, _fabric: fabric };
        scene.check_honest();
        scene
    }

    pub(super) fn victim(&self) -> &Node {
        &self.nodes[0]
    }

    pub(super) fn id(&self) -> ProcessId {
        ProcessId::lnet(Nid::new_v4(Net::new(NetType::O2IB, 0), self.address))
    }

    /// Returns the stranger's side of a connection.
    pub(super) fn own(&self) -> End {
        End { nid: number(self.id().nid), stamp: 0x5eed }
    }

    /// Returns the node's side, as far as it is known before a connection.
    pub(super) fn other(&self) -> End {
        End { nid: number(self.victim().id.nid), stamp: 0 }
    }

    /// Returns the request of a well-behaved peer.
    pub(super) fn request(&self) -> Vec<u8> {
        message(CONNREQ, self.own(), self.other(), &params(8, 257, 4096))
    }

    /// Checks that the honest peer is served, in both directions.
    pub(super) fn check_honest(&self) {
        let [a, b] = &self.nodes;
        let memory = whole(5000);
        exchange(&self.bed, [a, b], &filled(whole(5000), 1), &memory);
        exchange(&self.bed, [b, a], &filled(whole(5000), 2), &memory);
    }

    pub(super) fn until(&self, so: impl FnMut() -> bool) {
        self.bed.until(&[&self.nodes[0], &self.nodes[1]], so);
    }

    pub(super) fn later(&self, ns: u64) {
        self.bed.later(&[&self.nodes[0], &self.nodes[1]], ns);
    }

    /// Checks that the node has no state of the stranger left, and that the honest peer is served
    /// by the connection it had.
    pub(super) fn end(self) {
        let connections = || self.victim().lnd.conn_stats().connections;
        self.until(|| connections() == 1);
        self.check_honest();
        let Scene { bed, nodes, device, channel, _fabric, .. } = self;
        drop((channel, device, _fabric));
        bed.end_of_wrong(nodes);
    }

    pub(super) fn token() -> ChannelToken {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ChannelToken(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn listen(&self) -> Box<dyn Listener> {
        let at = SocketAddrV4::new(self.address, SERVICE);
        self.channel.listen(Scene::token(), &self.device, at, 16).unwrap()
    }

    /// Begins a connection to the node.
    pub(super) fn dial(&self) -> Line {
        let token = Scene::token();
        let to = SocketAddrV4::new(self.victim().id.nid.ipv4().unwrap(), SERVICE);
        let from = SocketAddrV4::new(self.address, 0);
        let options = DialOptions { resolve_ms: 5_000, tos: None };
        let endpoint = self.channel.dial(token, &self.device, from, to, &options).unwrap();
        assert_eq!(self.next_event(token), LineEvent::Resolved);
        self.line(token, endpoint)
    }

    /// Returns the node's request to connect, as a line.
    pub(super) fn asked(&self) -> Line {
        let mut request = None;
        self.until(|| {
            self.channel.rest();
            if let Some(CmEvent::Request { request: asks, .. }) = self.channel.next() {
                request = Some(asks);
            }
            request.is_some()
        });
        let token = Scene::token();
        let endpoint = self.channel.adopt(token, request.unwrap()).unwrap();
        self.line(token, endpoint)
    }

    fn line(&self, token: ChannelToken, mut endpoint: Box<dyn Endpoint>) -> Line {
        let receives = BUFFERS as u32;
        let sizes = QueueSizes { sends: 64, receives, completions: 128, pieces: 1, inline: 0 };
        endpoint.make_queues(&sizes).unwrap();
        let region = Region::heap(2 * BUFFERS * BUFFER).unwrap();
        let memory = self.device.register(&region, true).unwrap();
        Line { token, endpoint, buffer: IoVec::whole(region.clone()), region, memory, sent: 0 }
    }

    /// Returns the channel's next event of a line.
    pub(super) fn next_event(&self, token: ChannelToken) -> LineEvent {
        let mut event = None;
        self.until(|| {
            self.channel.rest();
            while let Some(cm_event) = self.channel.next() {
                event = of(token, cm_event).or(event.take());
            }
            event.is_some()
        });
        event.unwrap()
    }

    /// Connects with this private data.
    pub(super) fn ask(&self, private_data: &[u8]) -> (Line, LineEvent) {
        let mut line = self.dial();
        line.receive();
        line.endpoint.connect(private_data, &OPTIONS).unwrap();
        let event = self.next_event(line.token);
        (line, event)
    }

    /// Returns an established connection, and the node's end of it.
    pub(super) fn connected(&self) -> (Line, End) {
        let (line, event) = self.ask(&self.request());
        self.establish(line, &event)
    }

    /// Returns a connection with unusual parameters.
    pub(super) fn connected_with(&self, params: &[u8]) -> (Line, End) {
        let (line, event) = self.ask(&message(CONNREQ, self.own(), self.other(), params));
        self.establish(line, &event)
    }

    /// Returns a connection that cannot receive.
    pub(super) fn deaf(&self) -> (Line, End) {
        let mut line = self.dial();
        line.endpoint.connect(&self.request(), &OPTIONS).unwrap();
        let event = self.next_event(line.token);
        self.establish(line, &event)
    }

    fn establish(&self, mut line: Line, event: &LineEvent) -> (Line, End) {
        let LineEvent::Accepted(data) = event else { panic!("{event:?}") };
        assert_eq!(data[6], super::bytes::CONNACK);
        let before = self.victim().lnd.conn_stats().connections;
        line.endpoint.establish().unwrap();
        self.until(|| self.victim().lnd.conn_stats().connections == before + 1);
        let stamp = u64::from_le_bytes(data[24..32].try_into().unwrap());
        (line, End { stamp, ..self.other() })
    }

    /// Waits until the node has ended a line.
    pub(super) fn expect_ended(&self, line: &Line, what: &str) {
        let connections = || self.victim().lnd.conn_stats().connections;
        self.until(|| {
            while self.channel.next().is_some() {}
            let mut done = Completions::new();
            let _ = line.endpoint.poll(&mut done);
            connections() == 1
        });
        let failure = self.victim().lnd.last_failure(self.id().nid);
        assert!(failure.is_some(), "{what}: nothing is said of it");
    }
}

fn of(token: ChannelToken, cm_event: CmEvent) -> Option<LineEvent> {
    match cm_event {
        CmEvent::Resolved(of) if of == token => Some(LineEvent::Resolved),
        CmEvent::Accepted(of, data) if of == token => Some(LineEvent::Accepted(data)),
        CmEvent::Established(of) if of == token => Some(LineEvent::Established),
        CmEvent::Rejected(of, why) if of == token => Some(LineEvent::Rejected(why)),
        CmEvent::Failed(of, _) if of == token => Some(LineEvent::Failed),
        CmEvent::Disconnected(of) if of == token => Some(LineEvent::Disconnected),
        CmEvent::Ready(of) if of == token => Some(LineEvent::Other),
        _ => None,
    }
}

impl Line {
    /// Posts all receive buffers of the line.
    pub(super) fn receive(&self) {
        let works: Vec<ReceiveWork> = (0..BUFFERS)
            .map(|place| ReceiveWork { id: place as u64, piece: self.piece(place, BUFFER) })
            .collect();
        works.chunks(COMPLETIONS_PER_LOOK).for_each(|works| self.endpoint.post_receives(works).unwrap());
    }

    fn piece(&self, place: usize, length: usize) -> Piece {
        let (address, key) = (self.region.address_of(place * BUFFER), self.memory.local_key());
        Piece { address, length: length as u32, key }
    }

    /// Returns `length` bytes of the stranger's memory, from `offset` on.
    pub(super) fn written(&self, offset: usize, length: usize) -> Vec<u8> {
        let start = TARGET + offset;
        self.buffer.read(start..start + length).unwrap().to_vec()
    }

    /// Returns the address and the key of the memory that peers may write to.
    pub(super) fn target(&self) -> (u64, u32) {
        (self.region.address_of(TARGET), self.memory.remote_key())
    }

    /// Sends a message; an error because the connection has ended is ignored.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let place = BUFFERS + self.sent % BUFFERS;
        self.sent += 1;
        if !bytes.is_empty() {
            let start = place * BUFFER;
            self.buffer.write(start..start + bytes.len()).unwrap().copy_from(0, bytes);
        }
        let pieces = [self.piece(place, bytes.len())];
        let work =
            SendWork { id: 1000, pieces: &pieces, kind: SendKind::Send, signalled: true, inline: false };
        let _ = self.endpoint.post_sends(&[work]);
    }

    /// Returns the received messages, and does not use their buffers again.
    pub(super) fn messages(&self) -> Vec<Vec<u8>> {
        self.received().into_iter().map(|(_, message)| message).collect()
    }

    /// Returns the received messages, and posts their buffers again.
    pub(super) fn taken(&self) -> Vec<Vec<u8>> {
        let taken = self.received().into_iter().map(|(place, message)| {
            let work = ReceiveWork { id: place as u64, piece: self.piece(place, BUFFER) };
            self.endpoint.post_receives(&[work]).unwrap();
            message
        });
        taken.collect()
    }

    /// Returns the received messages, each with the index of its buffer.
    fn received(&self) -> Vec<(usize, Vec<u8>)> {
        let mut done = Completions::new();
        let _ = self.endpoint.poll(&mut done);
        let received =
            done.iter().filter(|completion| completion.id < BUFFERS as u64 && completion.status.is_ok());
        received
            .map(|completion| {
                let place = completion.id as usize;
                let start = place * BUFFER;
                (place, self.buffer.read(start..start + completion.length as usize).unwrap().to_vec())
            })
            .collect()
    }
}
