//! Peers made of bare sockets and bytes written by hand: nothing here uses `lnet-proto`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;

use socket2::{Domain, Socket, Type};

use super::{Node, PORT, drive_with, settle};

pub const CONTROL: u32 = 1;
pub const BULK_IN: u32 = 2;
pub const BULK_OUT: u32 = 3;
pub const NONE: u32 = u32::MAX;

/// Returns the 64-bit NID of an address on `tcp`: network 0x20000 and the address, little-endian
/// (lnet-wire 2).
pub fn nid(address: Ipv4Addr) -> [u8; 8] {
    (0x0002_0000_u64 << 32 | u64::from(u32::from(address))).to_le_bytes()
}

/// Returns an acceptor request (lnet-wire 21).
pub fn request(target: Ipv4Addr) -> Vec<u8> {
    [&0xacce_7100_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &nid(target)].concat()
}

/// Returns a hello (lnet-wire 22.2).
pub fn hello(version: u32, from: Ipv4Addr, to: Ipv4Addr, incarnation: u64, conn_type: u32) -> Vec<u8> {
    [
        &0x4572_6963_u32.to_le_bytes()[..],
        &version.to_le_bytes(),
        &nid(from),
        &nid(to),
        &12345_u32.to_le_bytes(),
        &0_u32.to_le_bytes(),
        &incarnation.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &conn_type.to_le_bytes(),
        &0_u32.to_le_bytes(),
    ]
    .concat()
}

/// Returns a message prefix (lnet-wire 25.2).
pub fn prefix(kind: u32, zc_req: u64, zc_ack: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &0_u32.to_le_bytes(), &zc_req.to_le_bytes(), &zc_ack.to_le_bytes()].concat()
}

pub fn noop(zc_req: u64, zc_ack: u64) -> Vec<u8> {
    prefix(0xc0, zc_req, zc_ack)
}

/// Returns a PUT with its prefix (lnet-wire 6). A zero-copy ack is requested unless `cookie` is 0.
pub fn put(from: Ipv4Addr, to: Ipv4Addr, cookie: u64, match_bits: u64, payload: &[u8]) -> Vec<u8> {
    [
        &prefix(0xc1, cookie, 0)[..],
        &nid(to),
        &nid(from),
        &12345_u32.to_le_bytes(),
        &12345_u32.to_le_bytes(),
        &1_u32.to_le_bytes(),
        &(payload.len() as u32).to_le_bytes(),
        &[0xff; 16],
        &match_bits.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &9_u32.to_le_bytes(),
        &0_u32.to_le_bytes(),
        payload,
    ]
    .concat()
}

/// One end of a connection to a node under test.
pub struct Wire(pub TcpStream);

impl Wire {
    fn new(stream: TcpStream) -> Wire {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        Wire(stream)
    }

    /// Connects to a node from a given address and port; 0 leaves the port to the system.
    pub fn connect(from: Ipv4Addr, port: u16, to: &Node) -> Wire {
        Wire::connect_to(from, port, to.listens_on())
    }

    /// Connects to a given address.
    pub fn connect_to(from: Ipv4Addr, port: u16, to: SocketAddr) -> Wire {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from(SocketAddrV4::new(from, port)).into()).unwrap();
        socket.connect(&to.into()).unwrap();
        Wire::new(socket.into())
    }

    /// Connects and sends request and hello; returns the hello of the answer.
    pub fn shake_hands(from: Ipv4Addr, to: &Node, incarnation: u64, conn_type: u32) -> (Wire, Vec<u8>) {
        let mut wire = Wire::connect(from, 0, to);
        wire.send(&request(to.nid.ipv4().unwrap()));
        wire.send(&hello(3, from, to.nid.ipv4().unwrap(), incarnation, conn_type));
        let answer = wire.read(&[to], 56);
        (wire, answer)
    }

    /// Accepts a connection that a node opens.
    pub fn accept(listener: &TcpListener, nodes: &[&Node]) -> (Wire, SocketAddr) {
        listener.set_nonblocking(true).unwrap();
        let mut accepted = None;
        drive_with(nodes, &[listener.as_fd()], || match listener.accept() {
            Ok(got) => {
                accepted = Some(got);
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        });
        let (stream, from) = accepted.unwrap();
        (Wire::new(stream), from)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends more than the socket takes at once, while the nodes read.
    pub fn send_all(&mut self, nodes: &[&Node], bytes: &[u8]) {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.0.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            settle(nodes);
        }
    }

    /// Reads exactly this number of bytes, while the nodes continue.
    pub fn read(&mut self, nodes: &[&Node], count: usize) -> Vec<u8> {
        let bytes = self.read_up_to(nodes, count);
        assert_eq!(bytes.len(), count, "the node closed the connection after {bytes:02x?}");
        bytes
    }

    /// Reads until the node closes the connection.
    pub fn read_to_end(&mut self, nodes: &[&Node]) -> Vec<u8> {
        self.read_up_to(nodes, usize::MAX)
    }

    fn read_up_to(&mut self, nodes: &[&Node], count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let stream = &self.0;
        drive_with(nodes, &[stream.as_fd()], || {
            let mut buffer = [0; 4096];
            let mut reader = stream;
            while bytes.len() < count {
                let room = buffer.len().min(count - bytes.len());
                match reader.read(&mut buffer[..room]) {
                    Ok(0) => return true,
                    Ok(got) => bytes.extend_from_slice(&buffer[..got]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
                    Err(error) => panic!("{error}"),
                }
            }
            true
        });
        bytes
    }
}

/// Listens at the address and port on which nodes expect a peer.
pub fn listen(address: Ipv4Addr) -> TcpListener {
    TcpListener::bind(SocketAddrV4::new(address, PORT)).unwrap()
}
