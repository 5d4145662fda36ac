//! Connecting from a chosen port, and accepting within a time limit.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt::ReuseAddr,
};

use super::wire::PRIVILEGED_MAX;

/// The lowest port from which a kernel node connects.
pub(crate) const PRIVILEGED_MIN: u16 = 512;

/// Connects from an address: from the highest free privileged port, or from any port.
pub(crate) fn dial(
    from: IpAddr,
    to: SocketAddr,
    privileged: bool,
    patience: Duration,
) -> io::Result<TcpStream> {
    let stream = if privileged {
        (PRIVILEGED_MIN..=PRIVILEGED_MAX)
            .rev()
            .map(|port| dial_from(SocketAddr::new(from, port), to))
            .find(|tried| !matches!(tried, Err(Errno::EADDRINUSE | Errno::EADDRNOTAVAIL)))
            .unwrap_or(Err(Errno::EADDRINUSE))?
    } else {
        dial_from(SocketAddr::new(from, 0), to)?
    };
    prepare(&stream, patience)?;
    Ok(stream)
}

/// Sets the options of every connection of the judge: no delay, and a read timeout.
pub(crate) fn prepare(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

/// Accepts the next connection of a listener.
pub(crate) fn accept(listener: &TcpListener, patience: Duration) -> io::Result<TcpStream> {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    if poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], timeout)? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (stream, _) = listener.accept()?;
    prepare(&stream, patience)?;
    Ok(stream)
}

fn dial_from(from: SocketAddr, to: SocketAddr) -> Result<TcpStream, Errno> {
    let family = if to.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if from.port() != 0 {
        setsockopt(&fd, ReuseAddr, &true)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(from))?;
    connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(fd))
}
