use std::net::SocketAddr;

use lnet_api::Errno;
use nix::libc::{SOCK_CLOEXEC, SOCK_NONBLOCK};
use socket2::{Domain, SockAddr, Socket, Type};

use super::errno;
use crate::SockError;

/// Listens on one address and port.
pub(crate) fn listen(address: SocketAddr, backlog: u16) -> Result<Socket, SockError> {
    let attempt = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
        // A restarted node must not wait for connections of its former life to leave TIME_WAIT.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&SockAddr::from(address))?;
        socket.listen(i32::from(backlog))?;
        Ok(socket)
    };
    attempt().map_err(|error: std::io::Error| match errno(&error) {
        Errno::EADDRINUSE => SockError::PortTaken { address },
        Errno::EACCES => SockError::PortPrivileged { address },
        Errno::EADDRNOTAVAIL => SockError::NoSuchAddress { address },
        errno => SockError::System { what: format!("listen on {address}"), errno },
    })
}

/// What an attempt to accept gave.
pub(crate) enum Accepted {
    /// A connection, and where it comes from.
    Connection(Socket, SocketAddr),
    /// Nobody waits.
    Nobody,
    /// The connection that waited is gone; there may be others.
    Gone,
    /// There are no descriptors or no memory left for it.
    Exhausted(Errno),
}

/// Accepts one connection.
pub(crate) fn accept(listener: &Socket) -> Accepted {
    match super::retry(|| listener.accept4(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
        Ok((socket, address)) => match address.as_socket() {
            Some(address) => Accepted::Connection(socket, address),
            None => Accepted::Gone,
        },
        Err(Errno::EAGAIN) => Accepted::Nobody,
        Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
            Accepted::Exhausted(errno)
        }
        // Errors of the connection itself, which accept passes on (accept(2), "Error handling").
        Err(_) => Accepted::Gone,
    }
}
