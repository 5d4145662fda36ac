//! Connecting from a port of choice.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt::ReuseAddr,
};

use super::wire::PRIVILEGED_MAX;

/// The lowest port that a kernel node connects from.
const PRIVILEGED_MIN: u16 = 512;

/// Connects from an address: from the highest privileged port that is free, or from any.
pub(crate) fn dial(
    from: Ipv4Addr,
    to: SocketAddrV4,
    privileged: bool,
    patience: Duration,
) -> io::Result<TcpStream> {
    let stream = if privileged {
        (PRIVILEGED_MIN..=PRIVILEGED_MAX)
            .rev()
            .map(|port| dial_from(from, port, to))
            .find(|tried| !matches!(tried, Err(Errno::EADDRINUSE | Errno::EADDRNOTAVAIL)))
            .unwrap_or(Err(Errno::EADDRINUSE))?
    } else {
        dial_from(from, 0, to)?
    };
    prepare(&stream, patience)?;
    Ok(stream)
}

/// What every connection of the judge has: no delay, and an end to its patience.
pub(crate) fn prepare(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

fn dial_from(from: Ipv4Addr, port: u16, to: SocketAddrV4) -> Result<TcpStream, Errno> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if port != 0 {
        setsockopt(&fd, ReuseAddr, &true)?;
    }
    bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(from, port)))?;
    connect(fd.as_raw_fd(), &SockaddrIn::from(to))?;
    Ok(TcpStream::from(fd))
}
