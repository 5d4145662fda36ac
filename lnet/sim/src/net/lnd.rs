//! The network as an LND.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use lnet_api::{Errno, Lnd, LndError, NiLimits, PayloadTarget, Poll, RxContext, Sent, Tx, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use nlx_sync::Bell;

use super::SimNet;
use super::state::Port;

/// The LND of one type of network. Its shards need no poll: [`SimNet::step`] does all work.
pub(super) struct SimLnd {
    net: Arc<SimNet>,
    net_type: NetType,
    shards: usize,
    /// A descriptor that is never readable.
    fd: Bell,
}

impl SimLnd {
    pub(super) fn new(net: Arc<SimNet>, net_type: NetType, shards: usize) -> Result<SimLnd, LndError> {
        let no_fd = |errno| LndError { what: "a descriptor for a simulated LND".to_owned(), errno };
        Ok(SimLnd { net, net_type, shards, fd: Bell::new().map_err(no_fd)? })
    }
}

impl Lnd for SimLnd {
    fn net_type(&self) -> NetType {
        self.net_type
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        let mut state = self.net.state.lock();
        if state.ports.contains_key(&ni.nid) {
            let what = format!("another node has {}", ni.nid);
            return Err(LndError { what, errno: Errno::EADDRINUSE });
        }
        let life = state.id();
        let limits = state.link(ni.nid).limits;
        state.ports.insert(ni.nid, Port { upcalls, life });
        Ok(limits)
    }

    fn shutdown(&self, ni: Nid) {
        self.net.shutdown(ni);
    }

    fn send(&self, tx: Tx) -> Sent {
        self.net.send(tx)
    }

    fn resume(&self, rx: RxContext, delivery: Option<PayloadTarget>) {
        self.net.resume(rx, delivery);
    }

    fn shards(&self) -> usize {
        self.shards
    }

    fn poll(&self, _: usize, _: u64, _: usize) -> Poll {
        Poll::default()
    }

    fn arm(&self, _: usize) -> bool {
        true
    }

    fn wait_fd(&self, _: usize) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
