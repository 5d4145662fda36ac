//! Connections of the raw loops, with the same options as those of the TCP LND.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use socket2::SockRef;

use crate::error::{BenchError, Result};
use crate::server::{self, STEP_TIMEOUT};

/// The congestion control of every connection, on both sides of every comparison: bbr, the default
/// on many machines, costs up to a third of bulk throughput on loopback.
pub(crate) const CONGESTION: &str = "cubic";

/// The way in which the two sides wait for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Sleep,
    Poll,
}

impl Wait {
    /// Returns the argument for a server.
    pub(super) fn name(self) -> &'static str {
        match self {
            Wait::Sleep => "sleep",
            Wait::Poll => "poll",
        }
    }

    pub(super) fn parse(name: Option<&String>) -> Wait {
        if name.is_some_and(|name| name == Wait::Poll.name()) { Wait::Poll } else { Wait::Sleep }
    }
}

/// Connects to a raw server at its reported address.
pub(super) fn connect(address: &str) -> Result<TcpStream> {
    tune(TcpStream::connect(address).map_err(BenchError::system("connect to a raw server"))?)
}

/// Listens, reports the address, and accepts the one client.
pub(super) fn accept() -> Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(BenchError::system("listen"))?;
    let address: SocketAddr = listener.local_addr().map_err(BenchError::system("ask for the port"))?;
    server::ready(address)?;
    let (stream, _) = listener.accept().map_err(BenchError::system("accept the client"))?;
    tune(stream)
}

fn tune(stream: TcpStream) -> Result<TcpStream> {
    let set = || {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP_TIMEOUT))?;
        SockRef::from(&stream).set_tcp_congestion(CONGESTION.as_bytes())
    };
    set().map_err(BenchError::system("set up a raw socket"))?;
    Ok(stream)
}
