//! Listening sockets, and the errors of accept.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use lnet_api::Errno;
use nix::libc::{SOCK_CLOEXEC, SOCK_NONBLOCK};
use socket2::{Domain, SockAddr, Socket, Type};

use super::stream::tune;
use super::{errno, retry};
use crate::SockError;
use crate::sys::{Accepted, Handle, Listener, Options};

/// A listening socket of the system.
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
        // A restarted node must not wait for connections of its former run to leave TIME_WAIT.
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
            Err(errno) if is_of_the_connection(errno) => Accepted::Gone,
            // Any other error may persist, so retries without a pause would never end.
            Err(errno) => Accepted::Exhausted(errno),
        }
    }
}

/// Returns whether an error belongs to the waiting connection, which accept passes on (accept(2),
/// "Error handling"): it does not concern the next one.
fn is_of_the_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ECONNABORTED
            | Errno::ECONNRESET
            | Errno::EHOSTDOWN
            | Errno::EHOSTUNREACH
            | Errno::ENETDOWN
            | Errno::ENETUNREACH
            | Errno::ENONET
            | Errno::ENOPROTOOPT
            | Errno::EOPNOTSUPP
            | Errno::EPROTO
            | Errno::ETIMEDOUT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that persists must not be mistaken for one of a waiting connection: the listener
    /// would be retried without end.
    #[test]
    fn an_error_that_lasts_is_not_taken_for_the_end_of_one_connection() {
        // A socket that does not listen returns EINVAL each time.
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
        let listening = Listening { socket, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        for _ in 0..2 {
            assert!(matches!(listening.accept(), Accepted::Exhausted(Errno::EINVAL)));
        }
        for errno in [Errno::EPERM, Errno::EBADF, Errno::EMFILE, Errno::ENOBUFS, Errno::ENOMEM] {
            assert!(!is_of_the_connection(errno), "{errno}");
        }
        assert!(is_of_the_connection(Errno::ECONNABORTED));
    }
}
