//! The host, with some properties changed or recorded.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use lnet_api::Errno;
use lnet_nid::Nid;
use lnet_socklnd::sys::{Connecting, Listener, Options, Os, Poller, TcpStack};
use lnet_socklnd::{ConnStep, SockError};

/// This host, with a limit for the process's descriptors.
pub struct Host {
    pub descriptors: usize,
    /// The address and the options of each connection attempt.
    pub connects: Mutex<Vec<(SocketAddr, Options)>>,
}

impl Host {
    pub fn new(descriptors: usize) -> Host {
        Host { descriptors, connects: Mutex::default() }
    }
}

impl TcpStack for Host {
    fn claim(&self, nid: Nid) -> Result<Box<dyn Send + Sync>, SockError> {
        Os.claim(nid)
    }

    fn listen(
        &self,
        address: SocketAddr,
        backlog: u16,
        options: &Options,
    ) -> Result<Box<dyn Listener>, SockError> {
        Os.listen(address, backlog, options)
    }

    fn connect(
        &self,
        from: IpAddr,
        to: SocketAddr,
        options: &Options,
    ) -> Result<Connecting, (ConnStep, Errno)> {
        self.connects.lock().unwrap().push((to, options.clone()));
        Os.connect(from, to, options)
    }

    fn poller(&self, epoll_busy_poll_us: u32) -> Result<Box<dyn Poller>, Errno> {
        Os.poller(epoll_busy_poll_us)
    }

    fn incarnation(&self) -> u64 {
        Os.incarnation()
    }

    fn descriptors_max(&self) -> usize {
        self.descriptors
    }
}
