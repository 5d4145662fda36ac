//! TCP sockets whose `close` blocks: they have a linger time and data that the other end does not
//! read.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrIn, bind, connect, getsockname, listen,
    send, setsockopt, socket, sockopt,
};

/// The time for which `close` blocks, in seconds.
const LINGER_S: i32 = 3600;
/// Connections per listener: below the system's usual limit of a backlog, 4096.
const BACKLOG: usize = 2000;
/// The size of each socket buffer in bytes; the system rounds up to its minimum of some KiB.
const BUFFER: usize = 1;

/// Listeners that accept and read nothing. When they are dropped, every blocked `close` returns.
#[derive(Debug, Default)]
pub struct Sink {
    listeners: Vec<OwnedFd>,
    connections: usize,
}

impl Sink {
    /// Creates a connection to this sink, with unsent data and a linger time of an hour.
    ///
    /// # Errors
    /// The system's error.
    pub fn lingering(&mut self) -> Result<OwnedFd, Errno> {
        if self.connections.is_multiple_of(BACKLOG) {
            self.listeners.push(listener()?);
        }
        let Some(listener) = self.listeners.last() else { return Err(Errno::ENOTCONN) };
        let address: SockaddrIn = getsockname(listener.as_raw_fd())?;
        let stream = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&stream, sockopt::SndBuf, &BUFFER)?;
        connect(stream.as_raw_fd(), &address)?;
        self.connections += 1;
        let bytes = [0; 4096];
        loop {
            match send(stream.as_raw_fd(), &bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: LINGER_S })?;
        Ok(stream)
    }
}

fn listener() -> Result<OwnedFd, Errno> {
    let listener = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // Connections inherit the size.
    setsockopt(&listener, sockopt::RcvBuf, &BUFFER)?;
    bind(listener.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)))?;
    listen(&listener, Backlog::MAXALLOWABLE)?;
    Ok(listener)
}
