use std::net::IpAddr;

use super::state::TcpWire;
use super::tap::HeldConn;
use super::traffic::Traffic;
use crate::kit::Net;

/// A TCP network in virtual time: hosts, listeners, connections. Packets in flight when a direction
/// is cut are held back and arrive when it is healed, as TCP retransmits them, unless it has given
/// up.
pub type TcpNet = Net<TcpWire>;

impl TcpNet {
    /// Sets the limit for the descriptors of a host's programs.
    pub fn limit_descriptors(&self, host: usize, most: usize) {
        self.lock().hosts[host].own.descriptors_max = most;
    }

    /// Returns the number of open descriptors of a host.
    #[must_use]
    pub fn descriptors(&self, host: usize) -> usize {
        self.lock().hosts[host].own.descriptors
    }

    pub(super) fn expect_backoff(&self, backoff_ns: Option<(u64, u64)>) {
        self.lock().own.tap.backoff_ns = backoff_ns;
    }

    pub(super) fn forget(&self, ip: IpAddr) {
        self.lock().own.tap.forget(ip);
    }

    pub(super) fn held(&self, host: usize) -> Vec<HeldConn> {
        self.lock().own.tap.held(host)
    }

    pub(super) fn take_traffic(&self, host: usize) -> Traffic {
        self.lock().own.tap.take_traffic(host)
    }

    pub(super) fn on_their_way(&self) -> Option<(IpAddr, IpAddr, u64)> {
        self.lock().own.tap.on_their_way()
    }
}
