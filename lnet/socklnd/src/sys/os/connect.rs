//! Non-blocking connection attempts, from a privileged port if possible.

use std::net::{IpAddr, SocketAddr};

use lnet_api::Errno;
use lnet_proto::sock::{PRIVILEGED_PORT_MAX, PRIVILEGED_PORT_MIN};
use socket2::{Domain, SockAddr, Socket, Type};

use super::errno;
use super::stream::tune;
use crate::ConnStep;
use crate::sys::{Connecting, Options};

pub(super) fn connect(
    from: IpAddr,
    to: SocketAddr,
    options: &Options,
) -> Result<Connecting, (ConnStep, Errno)> {
    for port in (PRIVILEGED_PORT_MIN..=PRIVILEGED_PORT_MAX).rev() {
        match connect_from(SocketAddr::new(from, port), to, options) {
            Ok(socket) => return Ok(Connecting { stream: Box::new(socket), privileged: true }),
            // The port, or this pair of addresses and ports, is in use: try the next port.
            Err((_, Errno::EADDRINUSE)) | Err((ConnStep::Connect, Errno::EADDRNOTAVAIL)) => {}
            Err((ConnStep::Bind, Errno::EACCES)) => break,
            Err(failed) => return Err(failed),
        }
    }
    let socket = connect_from(SocketAddr::new(from, 0), to, options)?;
    Ok(Connecting { stream: Box::new(socket), privileged: false })
}

fn connect_from(from: SocketAddr, to: SocketAddr, options: &Options) -> Result<Socket, (ConnStep, Errno)> {
    let at = |step| move |error: std::io::Error| (step, errno(&error));
    let socket =
        Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None).map_err(at(ConnStep::Bind))?;
    if from.port() != 0 {
        socket.set_reuse_address(true).map_err(at(ConnStep::Bind))?;
    }
    socket.bind(&SockAddr::from(from)).map_err(at(ConnStep::Bind))?;
    // Set before connecting, because buffer sizes determine the window that the first segment
    // offers.
    tune(&socket, options).map_err(|errno| (ConnStep::Bind, errno))?;
    match socket.connect(&SockAddr::from(to)).map_err(|error| errno(&error)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(socket),
        Err(errno) => Err((ConnStep::Connect, errno)),
    }
}
