//! The implementation of the system layer on Linux.

mod claim;
mod connect;
mod listen;
mod poller;
mod stream;

use std::io;
use std::net::{IpAddr, SocketAddr};

use lnet_api::Errno;
use lnet_nid::Nid;
use nix::sys::resource::{Resource, getrlimit};

use super::{Connecting, Listener, Options, Poller, TcpStack};
use crate::{ConnStep, SockError};
pub use claim::{Claim, holder_of};

/// This process's host: Linux sockets and epoll.
#[derive(Debug, Clone, Copy, Default)]
pub struct Os;

impl TcpStack for Os {
    fn claim(&self, nid: Nid) -> Result<Box<dyn Send + Sync>, SockError> {
        Ok(Box::new(Claim::new(nid)?))
    }

    fn listen(
        &self,
        address: SocketAddr,
        backlog: u16,
        options: &Options,
    ) -> Result<Box<dyn Listener>, SockError> {
        listen::listen(address, backlog, options)
    }

    fn connect(
        &self,
        from: IpAddr,
        to: SocketAddr,
        options: &Options,
    ) -> Result<Connecting, (ConnStep, Errno)> {
        connect::connect(from, to, options)
    }

    fn poller(&self, epoll_busy_poll_us: u32) -> Result<Box<dyn Poller>, Errno> {
        Ok(Box::new(poller::Epolled::new(epoll_busy_poll_us)?))
    }

    fn incarnation(&self) -> u64 {
        lnet_api::next_incarnation()
    }

    fn descriptors_max(&self) -> usize {
        getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| soft as usize)
    }
}

/// Returns the errno of an I/O error; every error of a system call has one.
fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> Result<T, Errno> {
    loop {
        match call() {
            Ok(value) => return Ok(value),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
}
