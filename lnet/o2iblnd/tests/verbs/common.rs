//! Two nodes, and connections between them.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use lnet_o2iblnd::fabric::*;
use lnet_o2iblnd::verbs::HostFabric;
use lnet_region::{IoVec, Region};
use nix::poll::{PollFd, PollFlags, poll};

/// Opens this host's devices.
pub(crate) fn new_host() -> HostFabric {
    // SAFETY: these tests keep their buffers until the queues that use them are gone.
    unsafe { HostFabric::new() }
}

/// The addresses of the guest's device.
pub(crate) const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// Returns the netdev of the guest's soft-RoCE device.
pub(crate) fn netdev() -> String {
    let all = std::env::var("NLX_GUEST_NETDEVS").expect("the guest's netdevs (tests/guest/run)");
    all.split([' ', ',']).next().expect("one").to_owned()
}

/// Changes a setting of the guest's netdev by `ip link set`.
pub(crate) fn link(setting: &[&str]) {
    let ip = Command::new("ip").args(["link", "set", &netdev()]).args(setting).status();
    assert!(ip.expect("ip").success());
}

/// The port of the listener.
pub(crate) const SERVICE: u16 = 987;

/// A time after which a test has hung.
const HUNG_MS: u16 = 60_000;

pub(crate) const OPTIONS: ConnectOptions = ConnectOptions { retry_count: 5, rnr_retry_count: 6 };
pub(crate) const DIAL: DialOptions = DialOptions { resolve_ms: 5_000, tos: None };
pub(crate) const SIZES: QueueSizes =
    QueueSizes { sends: 32, receives: 16, completions: 48, pieces: 4, inline: 128 };

/// The length of a receive buffer in bytes.
pub(crate) const BUFFER: usize = 4096;

pub(crate) struct Node {
    pub(crate) address: Ipv4Addr,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) channel: Arc<dyn Channel>,
}

pub(crate) fn node(host: &HostFabric, which: usize) -> Node {
    let address = ADDRESSES[which];
    let device = host.open(address).expect("the device");
    Node { address, device, channel: host.channel().expect("a channel") }
}

pub(crate) fn token() -> ChannelToken {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ChannelToken(NEXT.fetch_add(1, Relaxed))
}

impl Node {
    pub(crate) fn at(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, port)
    }

    /// Sleeps until the next event, and returns it.
    pub(crate) fn cm_event(&self) -> CmEvent {
        loop {
            if let Some(cm_event) = self.next_event() {
                return cm_event;
            }
            wait(&*self.channel);
        }
    }

    /// Returns the next event, if there is one.
    pub(crate) fn next_event(&self) -> Option<CmEvent> {
        self.channel.rest();
        self.channel.next()
    }

    pub(crate) fn listen(&self) -> (ChannelToken, Box<dyn Listener>) {
        let token = token();
        let listener = self.channel.listen(token, &self.device, self.at(SERVICE), 64);
        (token, listener.expect("a listener"))
    }

    /// Returns an endpoint that has resolved the route to the peer.
    pub(crate) fn resolved(&self, to: SocketAddrV4) -> (ChannelToken, Box<dyn Endpoint>) {
        let token = token();
        let endpoint = self.channel.dial(token, &self.device, self.at(0), to, &DIAL).expect("dialling");
        match self.cm_event() {
            CmEvent::Resolved(of) if of == token => (token, endpoint),
            other => panic!("{}", describe(&other)),
        }
    }

    pub(crate) fn request(&self) -> Box<dyn ConnRequest> {
        match self.cm_event() {
            CmEvent::Request { request, .. } => request,
            other => panic!("{}", describe(&other)),
        }
    }

    /// Allocates memory and registers it so that peers can write to it.
    pub(crate) fn memory(&self, bytes: usize) -> Slab {
        let region = Region::heap(bytes).expect("memory");
        let memory = self.device.register(&region, true).expect("a registration");
        Slab { memory, buffer: IoVec::whole(region.clone()), region }
    }
}

pub(crate) fn wait(channel: &dyn Channel) {
    let mut fds = [PollFd::new(channel.fd(), PollFlags::POLLIN)];
    assert_ne!(poll(&mut fds, HUNG_MS).expect("polling"), 0, "hung");
}

pub(crate) struct Slab {
    memory: Arc<dyn RegisteredMemory>,
    pub(crate) region: Region,
    buffer: IoVec,
}

impl Slab {
    pub(crate) fn piece(&self, offset: usize, length: usize) -> Piece {
        let (address, key) = (self.region.address_of(offset), self.memory.local_key());
        Piece { address, length: length as u32, key }
    }

    pub(crate) fn target(&self, offset: usize) -> SendKind {
        SendKind::Write { address: self.region.address_of(offset), key: self.memory.remote_key() }
    }

    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        let mut lease = self.buffer.write(offset..offset + bytes.len()).expect("a lease");
        lease.copy_from(0, bytes);
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.buffer.read(offset..offset + length).expect("a lease").to_vec()
    }
}

/// One side of a connection, with a buffer posted for each of its receives.
pub(crate) struct Side {
    pub(crate) node: Node,
    pub(crate) token: ChannelToken,
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) slab: Slab,
    /// True if the end of the connection has been reported.
    ended: Cell<bool>,
}

impl Side {
    pub(crate) fn new(node: Node, token: ChannelToken, endpoint: Box<dyn Endpoint>) -> Side {
        Side::with(node, token, endpoint, SIZES)
    }

    fn with(node: Node, token: ChannelToken, mut endpoint: Box<dyn Endpoint>, sizes: QueueSizes) -> Side {
        let made = endpoint.make_queues(&sizes).expect("queues");
        assert!(made.sends >= sizes.sends && made.receives >= sizes.receives, "{made:?}");
        assert!(made.completions >= sizes.completions && made.pieces >= sizes.pieces, "{made:?}");
        let slab = node.memory(sizes.receives as usize * BUFFER);
        let receive = |id| ReceiveWork { id, piece: slab.piece(id as usize * BUFFER, BUFFER) };
        let receives: Vec<ReceiveWork> = (0..u64::from(sizes.receives)).map(receive).collect();
        endpoint.post_receives(&receives).expect("receives");
        Side { node, token, endpoint, slab, ended: Cell::new(false) }
    }

    /// Returns the next `count` completions, by polling without sleep.
    pub(crate) fn completions(&self, count: usize) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut done = Completions::new();
            self.endpoint.poll(&mut done).expect("completions");
            if done.is_empty() {
                // The channel sleeps until there is a completion, unless one came before it was
                // armed.
                self.endpoint.arm().expect("arming");
                self.endpoint.poll(&mut done).expect("completions");
                if done.is_empty() {
                    self.wait_ready();
                }
            }
            all.extend(done);
        }
        all
    }

    /// Sleeps until the channel reports completions, or the end of the connection.
    fn wait_ready(&self) {
        match self.node.cm_event() {
            CmEvent::Ready(of) if of == self.token => (),
            CmEvent::Disconnected(of) if of == self.token => self.ended.set(true),
            other => panic!("{}", describe(&other)),
        }
    }

    pub(crate) fn expect_ready(&self) {
        self.wait_ready();
        assert!(!self.ended.get(), "disconnected");
    }

    pub(crate) fn expect_disconnected(&self) {
        while !self.ended.get() {
            self.wait_ready();
        }
    }

    pub(crate) fn send(&self, id: u64, pieces: &[Piece], inline: bool) {
        let work = SendWork { id, pieces, kind: SendKind::Send, signalled: true, inline };
        self.endpoint.post_sends(&[work]).expect("a send");
    }
}

/// Formats an event for a panic message.
pub(crate) fn describe(cm_event: &CmEvent) -> String {
    match cm_event {
        CmEvent::Request { listener, request } => {
            format!("{listener:?}: a request of {}", request.source())
        }
        CmEvent::Resolved(token) => format!("{token:?}: resolved"),
        CmEvent::Accepted(token, data) => format!("{token:?}: accepted with {data:?}"),
        CmEvent::Established(token) => format!("{token:?}: established"),
        CmEvent::Rejected(token, why) => format!("{token:?}: rejected: {why:?}"),
        CmEvent::Failed(token, errno) => format!("{token:?}: failed: {errno}"),
        CmEvent::Disconnected(token) => format!("{token:?}: disconnected"),
        CmEvent::Ready(token) => format!("{token:?}: ready"),
        CmEvent::Device { name, change } => format!("{name}: {change:?}"),
    }
}

/// Makes the passive half of a connection, up to accepting it.
pub(crate) fn accept(node: Node, data: &[u8]) -> Side {
    let request = node.request();
    let token = token();
    let endpoint = node.channel.adopt(token, request).expect("adopting");
    let mut side = Side::new(node, token, endpoint);
    side.endpoint.accept(data, &OPTIONS).expect("accepting");
    side
}

/// Makes the active half of a connection, up to the request.
pub(crate) fn connect(node: Node, to: SocketAddrV4, data: &[u8]) -> Side {
    let (token, endpoint) = node.resolved(to);
    let mut side = Side::new(node, token, endpoint);
    side.endpoint.connect(data, &OPTIONS).expect("connecting");
    side
}

impl Side {
    /// Waits until the connection is established; returns the data of the peer's answer.
    pub(crate) fn established(&mut self) -> PrivateData {
        match self.node.cm_event() {
            CmEvent::Accepted(of, data) if of == self.token => {
                self.endpoint.establish().expect("establishing");
                data
            }
            other => panic!("{}", describe(&other)),
        }
    }

    pub(crate) fn expect_established(&self) {
        match self.node.cm_event() {
            CmEvent::Established(of) if of == self.token => (),
            other => panic!("{}", describe(&other)),
        }
    }
}

/// Makes a connection; returns its active and its passive side.
pub(crate) fn pair(host: &HostFabric) -> (Side, Side) {
    pair_with(host, SIZES)
}

/// Makes a connection whose active side has these queues.
pub(crate) fn pair_with(host: &HostFabric, sizes: QueueSizes) -> (Side, Side) {
    let (active, passive) = (node(host, 0), node(host, 1));
    let (_, _listener) = passive.listen();
    let target = passive.at(SERVICE);
    let (token, endpoint) = active.resolved(target);
    let mut active = Side::with(active, token, endpoint, sizes);
    active.endpoint.connect(b"hello", &OPTIONS).expect("connecting");
    let passive = accept(passive, b"welcome");
    active.established();
    passive.expect_established();
    (active, passive)
}
