//! The peer: bytes written by hand (lnet-wire 21 to 25); nothing here uses `lnet-proto`.

use std::net::{Ipv4Addr, SocketAddr};

use lnet_api::Errno;
use lnet_region::Part;
use lnet_sim::tcp::PLAIN_OPTIONS as OPTIONS;
use lnet_socklnd::sys::{Accepted, Listener, RecvResult, Stream, TcpStack};

use super::stage::{NODE, PEER, Stage};

const CONTROL: u32 = 1;
const NONE: u32 = u32::MAX;
const PORT: u16 = 988;

/// Lengths of a request and of a hello in bytes.
const REQUEST_LEN: usize = 16;
const HELLO_LEN: usize = 56;

/// Lengths of a prefix, and of a prefix with its header, in bytes.
pub(crate) const PREFIX_LEN: usize = 24;
const FRAME_LEN: usize = PREFIX_LEN + 72;

fn nid(ip: Ipv4Addr) -> [u8; 8] {
    (0x0002_0000_u64 << 32 | u64::from(u32::from(ip))).to_le_bytes()
}

pub(crate) fn request() -> Vec<u8> {
    [&0xacce_7100_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &nid(NODE)].concat()
}

pub(crate) fn hello(version: u32, from: Ipv4Addr, conn_type: u32) -> Vec<u8> {
    [
        &0x4572_6963_u32.to_le_bytes()[..],
        &version.to_le_bytes(),
        &nid(from),
        &nid(NODE),
        &12345_u32.to_le_bytes(),
        &0_u32.to_le_bytes(),
        &77_u64.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &conn_type.to_le_bytes(),
        &0_u32.to_le_bytes(),
    ]
    .concat()
}

pub(crate) fn noop(cookie_1: u64) -> Vec<u8> {
    [&0xc0_u32.to_le_bytes()[..], &0_u32.to_le_bytes(), &0_u64.to_le_bytes(), &cookie_1.to_le_bytes()]
        .concat()
}

/// Returns a PUT of `size` bytes with its prefix; there is no buffer for it.
pub(crate) fn put(size: usize) -> Vec<u8> {
    let message = [
        &0xc1_u32.to_le_bytes()[..],
        &[0; 20],
        &nid(NODE),
        &nid(PEER),
        &12345_u32.to_le_bytes(),
        &12345_u32.to_le_bytes(),
        &1_u32.to_le_bytes(),
        &(size as u32).to_le_bytes(),
        &[0xff; 16],
        &[0; 16],
        &9_u32.to_le_bytes(),
        &0_u32.to_le_bytes(),
    ]
    .concat();
    assert_eq!(message.len(), FRAME_LEN);
    [message, vec![0; size]].concat()
}

/// The peer's end of a connection.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    /// The bytes received.
    pub(crate) bytes: Vec<u8>,
    /// True once the script has found that the node ended the connection.
    pub(crate) ended: bool,
    /// The type that the node requested, once its hello has arrived.
    pub(crate) wanted: u8,
    answered: bool,
}

impl Wire {
    fn new(stream: Box<dyn Stream>) -> Wire {
        Wire { stream, bytes: Vec::new(), ended: false, wanted: 0, answered: false }
    }

    /// Connects to the node, without sending anything.
    pub(crate) fn connect(stage: &mut Stage) -> Wire {
        let connecting = stage.peer.connect(PEER.into(), SocketAddr::new(NODE.into(), PORT), &OPTIONS);
        let wire = Wire::new(connecting.unwrap_or_else(|error| panic!("{error:?}")).stream);
        let stands = |_: &mut Stage| (wire.stream.send(&[]) != Err(Errno::EAGAIN)).then_some(());
        stage.until(super::S, stands).expect("the connection is accepted");
        wire
    }

    /// Connects, and completes the handshake as a peer of this version.
    pub(crate) fn greet(stage: &mut Stage, version: u32) -> Wire {
        let mut wire = Wire::connect(stage);
        wire.send(&[request(), hello(version, PEER, CONTROL)].concat());
        stage.until(super::S, |_| wire.has(HELLO_LEN).then_some(())).expect("no hello comes back");
        wire.bytes.clear();
        wire
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        assert_eq!(self.stream.send(&[Part::new(bytes)]), Ok(bytes.len()));
    }

    /// Reads at most `most` bytes; returns their number.
    pub(crate) fn read(&mut self, most: usize) -> usize {
        let mut buffer = vec![0; most];
        match self.stream.receive(&mut buffer) {
            RecvResult::Bytes(count) => {
                self.bytes.extend(&buffer[..count]);
                return count;
            }
            RecvResult::Nothing => {}
            RecvResult::End | RecvResult::Broken(_) => self.ended = true,
        }
        0
    }

    /// Reads what has arrived, and returns whether `count` bytes have arrived.
    fn has(&mut self, count: usize) -> bool {
        self.read(count - self.bytes.len());
        self.bytes.len() >= count
    }

    /// Returns whether the node has ended the connection; reads all that has arrived.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.read(4096);
        self.ended
    }
}

/// The peer's treatment of nodes that connect to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Accepts the connection, and sends nothing.
    Silent,
    /// Answers with a hello of type NONE.
    Refuses,
    /// Answers with a hello that accepts.
    Welcomes,
}

/// The peer's listener, and all accepted connections.
pub(crate) struct ScriptedPeer {
    listener: Box<dyn Listener>,
    from: Ipv4Addr,
    pub(crate) behaviour: Behaviour,
    pub(crate) wires: Vec<Wire>,
}

impl ScriptedPeer {
    pub(crate) fn open(stage: &Stage, behaviour: Behaviour) -> ScriptedPeer {
        ScriptedPeer::at(stage, PEER, behaviour)
    }

    pub(crate) fn at(stage: &Stage, ip: Ipv4Addr, behaviour: Behaviour) -> ScriptedPeer {
        let listener = stage.peer.listen(SocketAddr::new(ip.into(), PORT), 127, &OPTIONS).unwrap();
        ScriptedPeer { listener, from: ip, behaviour, wires: Vec::new() }
    }

    /// Accepts connections, and answers hellos. Nothing is read beyond them.
    pub(crate) fn serve(&mut self) {
        while let Accepted::Connection(stream, _) = self.listener.accept() {
            self.wires.push(Wire::new(stream));
        }
        if self.behaviour == Behaviour::Silent {
            return;
        }
        for wire in self.wires.iter_mut().filter(|wire| !wire.answered) {
            wire.answered = wire.has(REQUEST_LEN + HELLO_LEN);
            if wire.answered {
                let wanted = wire.bytes[REQUEST_LEN + 48];
                wire.wanted = wanted;
                // A connection that is IN for the node is OUT for the peer.
                let own = if self.behaviour == Behaviour::Refuses {
                    NONE
                } else {
                    [0, 1, 3, 2][usize::from(wanted)]
                };
                wire.send(&hello(3, self.from, own));
                wire.bytes.clear();
            }
        }
        if self.behaviour == Behaviour::Refuses {
            self.wires.retain(|wire| !wire.answered);
        }
    }
}
