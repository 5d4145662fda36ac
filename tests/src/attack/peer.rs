//! A peer of the node that claims a NID, sends arbitrary messages, and reads nothing.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
};

use crate::judge::frame::{Message, PING_BITS};
use crate::judge::wire::{Hello, Nid, Order, PID, kind, request};

/// The time limit for the node's answer to a hello.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// If the node does not read a message within this time, it has stopped reading.
const JAM: Duration = Duration::from_millis(500);
/// The size of the receive buffer in bytes; the system rounds up to its minimum.
const BUFFER: usize = 1;

/// A connection of the type CONTROL with the smallest possible receive buffer.
#[derive(Debug)]
pub struct DeafPeer {
    stream: TcpStream,
    nid: Nid,
    node: Nid,
    handle: u64,
}

impl DeafPeer {
    /// Connects from an address and claims a NID.
    ///
    /// # Errors
    /// The system's error, or the fault in the node's hello.
    pub fn connect(from: Ipv4Addr, claimed: Ipv4Addr, to: SocketAddrV4) -> io::Result<DeafPeer> {
        let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, sockopt::RcvBuf, &BUFFER)?;
        bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(from, 0)))?;
        connect(fd.as_raw_fd(), &SockaddrIn::from(to))?;
        let mut stream = TcpStream::from(fd);
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        stream.set_write_timeout(Some(JAM))?;
        let (nid, node) = (Nid::new(IpAddr::V4(claimed), 0), Nid::new(IpAddr::V4(*to.ip()), 0));
        let hello = Hello {
            version: 3,
            src: nid,
            dst: node,
            src_pid: PID,
            dst_pid: PID,
            src_incarnation: u64::from(claimed.to_bits()),
            dst_incarnation: 0,
            kind: kind::CONTROL,
            addresses: Vec::new(),
        };
        let order = Order::Little;
        stream.write_all(&[request(node, order), hello.bytes(order)].concat())?;
        Hello::read(&mut stream).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(DeafPeer { stream, nid, node, handle: 0 })
    }

    /// Requests the node's ping information, with the longest possible answer.
    ///
    /// # Errors
    ///
    /// EAGAIN once the node accepts no more data.
    pub fn ask(&mut self) -> io::Result<()> {
        self.handle += 1;
        let mut handle = [0; 16];
        handle[..8].copy_from_slice(&self.handle.to_le_bytes());
        handle[8..].copy_from_slice(&u64::from_be_bytes(*b"attacker").to_le_bytes());
        let get = Message::get(self.nid, self.node, 0, PING_BITS, handle, 4096);
        self.stream.write_all(&get.bytes(3, Order::Little))
    }
}
