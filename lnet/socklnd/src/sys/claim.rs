use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use lnet_api::Errno;
use lnet_nid::Nid;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::errno;
use crate::SockError;

/// A NID held by this process, and by no other on the host: an abstract Unix socket named after it listens. The system
/// gives the name back when the process ends, however it ends.
///
/// It keeps two nodes from sharing a NID even if one of them does not listen on TCP, and says who holds it.
pub(crate) struct Claim(#[allow(dead_code)] UnixListener);

impl Claim {
    pub(crate) fn new(nid: Nid) -> Result<Claim, SockError> {
        let system = |errno| SockError::System { what: format!("claim {nid} for this process"), errno };
        let name = SocketAddr::from_abstract_name(format!("nlx/{nid}"))
            .map_err(|error| system(self::errno(&error)))?;
        match UnixListener::bind_addr(&name) {
            Ok(listener) => Ok(Claim(listener)),
            Err(error) if self::errno(&error) == Errno::EADDRINUSE => {
                Err(SockError::NidTaken { nid, holder: holder(&name) })
            }
            Err(error) => Err(system(self::errno(&error))),
        }
    }
}

/// Who listens behind the name, in words.
fn holder(name: &SocketAddr) -> String {
    let unknown = || "another process".to_string();
    let Ok(stream) = UnixStream::connect_addr(name) else { return unknown() };
    let Ok(credentials) = getsockopt(&stream, PeerCredentials) else { return unknown() };
    let pid = credentials.pid();
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(comm) => format!("{} (pid {pid})", comm.trim_end()),
        Err(_) => format!("the process with pid {pid}"),
    }
}
