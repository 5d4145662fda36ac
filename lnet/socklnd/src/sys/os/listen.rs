use std::net::SocketAddr;
use std::os::fd::AsFd;

use lnet_api::Errno;
use nix::libc::{SOCK_CLOEXEC, SOCK_NONBLOCK};
use socket2::{Domain, SockAddr, Socket, Type};

use super::stream::tune;
use super::{errno, retry};
use crate::SockError;
use crate::sys::{Accepted, Handle, Listener, Options};

/// A socket that listens.
struct Listening {
    socket: Socket,
    address: SocketAddr,
}

pub(super) fn listen(
    address: SocketAddr,
    backlog: u16,
    options: &Options,
) -> Result<Box<dyn Listener>, SockError> {
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
    let socket = attempt().map_err(|error: std::io::Error| match errno(&error) {
        Errno::EADDRINUSE => SockError::PortTaken { address },
        Errno::EACCES => SockError::PortPrivileged { address },
        Errno::EADDRNOTAVAIL => SockError::NoSuchAddress { address },
        errno => SockError::System { what: format!("listen on {address}"), errno },
    })?;
    tune(&socket, options).map_err(|errno| SockError::System {
        what: match &options.congestion_control {
            Some(name) => format!("set socket options, among them the congestion control '{name}'"),
            None => "set socket options".to_string(),
        },
        errno,
    })?;
    Ok(Box::new(Listening { socket, address }))
}

impl Listener for Listening {
    fn handle(&self) -> Handle<'_> {
        Handle::Fd(self.socket.as_fd())
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> Accepted {
        match retry(|| self.socket.accept4(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
            Ok((socket, address)) => match address.as_socket() {
                Some(address) => Accepted::Connection(Box::new(socket), address),
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
}
