use std::net::{IpAddr, SocketAddr};

use lnet_api::Errno;
use lnet_proto::sock::{PRIVILEGED_PORT_MAX, PRIVILEGED_PORT_MIN};
use socket2::{Domain, SockAddr, Socket, Type};

use super::errno;
use crate::{SockConfig, Step};

/// A connection under way.
pub(crate) struct Connecting {
    /// The socket; it becomes writable when the connection stands or has failed.
    pub(crate) socket: Socket,
    /// Whether its source port is privileged, which peers take for proof of who they talk to.
    pub(crate) privileged: bool,
}

/// Starts to connect from the NI's address to a peer's: from the highest privileged port that is free (lnet-wire 20),
/// or from any port if this process may not use those.
pub(crate) fn connect(
    from: IpAddr,
    to: SocketAddr,
    config: &SockConfig,
) -> Result<Connecting, (Step, Errno)> {
    for port in (PRIVILEGED_PORT_MIN..=PRIVILEGED_PORT_MAX).rev() {
        match connect_from(SocketAddr::new(from, port), to, config) {
            Ok(socket) => return Ok(Connecting { socket, privileged: true }),
            // The port, or this pair of address and port, is taken.
            Err((_, Errno::EADDRINUSE)) | Err((Step::Connect, Errno::EADDRNOTAVAIL)) => {}
            Err((Step::Bind, Errno::EACCES)) => break,
            Err(failed) => return Err(failed),
        }
    }
    connect_from(SocketAddr::new(from, 0), to, config).map(|socket| Connecting { socket, privileged: false })
}

fn connect_from(from: SocketAddr, to: SocketAddr, config: &SockConfig) -> Result<Socket, (Step, Errno)> {
    let at = |step| move |error: std::io::Error| (step, errno(&error));
    let socket =
        Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None).map_err(at(Step::Bind))?;
    if from.port() != 0 {
        socket.set_reuse_address(true).map_err(at(Step::Bind))?;
    }
    socket.bind(&SockAddr::from(from)).map_err(at(Step::Bind))?;
    // Buffer sizes count for the window that is offered with the first segment.
    super::tune(&socket, config).map_err(|errno| (Step::Bind, errno))?;
    match socket.connect(&SockAddr::from(to)).map_err(|error| errno(&error)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(socket),
        Err(errno) => Err((Step::Connect, errno)),
    }
}
