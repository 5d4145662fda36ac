use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::{Delivery, Errno, Lnd, LndError, NiLimits, Poll, RxContext, Sent, Tx, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_region::Region;
use parking_lot::Mutex;

use crate::driver::{Driver, Turn};
use crate::ni::Ni;
use crate::shared::{Request, Shared};
use crate::slab::Key;
use crate::sys::{Listener, Net, Os};
use crate::{AcceptPolicy, Failure, SockConfig, SockCounters, SockError, Step};

/// The TCP LND: all `tcp` networks of a node.
///
/// It has one shard for now: one epoll set, which whoever holds the shard's token drives with [`Lnd::poll`].
pub struct SockLnd {
    shared: Shared,
    /// Uncontended: the holder of the shard's token alone gets here.
    driver: Mutex<Driver>,
}

impl SockLnd {
    /// An LND without NIs.
    ///
    /// # Errors
    /// EINVAL for a tunable that cannot be, EMFILE without descriptors.
    pub fn new(config: SockConfig) -> Result<SockLnd, LndError> {
        SockLnd::over(config, Arc::new(Os))
    }

    /// The same over another system than this host's: a stand-in whose time is virtual.
    ///
    /// # Errors
    /// As [`SockLnd::new`].
    pub fn over(config: SockConfig, net: Arc<dyn Net>) -> Result<SockLnd, LndError> {
        config.check()?;
        let driver = Mutex::new(Driver::new(&config));
        let shared = Shared::new(config, net)
            .map_err(|errno| LndError { what: "set up the TCP LND's epoll set".to_string(), errno })?;
        Ok(SockLnd { shared, driver })
    }

    /// The tunables it was made with.
    #[must_use]
    pub fn config(&self) -> &SockConfig {
        &self.shared.config
    }

    /// Its counters, at this moment.
    #[must_use]
    pub fn counters(&self) -> SockCounters {
        self.shared.counters.snapshot()
    }

    /// Why the last connection to a NID failed, if one did since the last success; over whichever NI.
    #[must_use]
    pub fn last_failure(&self, nid: Nid) -> Option<Failure> {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |key| key.id.nid == nid);
        peers.into_iter().find_map(|peer| peer.state.lock().failure.clone())
    }

    /// How far the connection to a NID is that is being opened at this moment, over whichever NI: [`Step::Connect`] or
    /// [`Step::Handshake`]; `None` if none is.
    #[must_use]
    pub fn progress(&self, nid: Nid) -> Option<Step> {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |key| key.id.nid == nid);
        peers.into_iter().find_map(|peer| peer.state.lock().step)
    }

    /// Sets how many connections of each bulk type new peers get (S-208); 0 counts as 1.
    pub fn set_conns_per_peer(&self, count: u8) {
        self.shared.set_conns_per_peer(count);
    }

    fn start(&self, id: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<(), SockError> {
        let nid = id.nid;
        let ip =
            nid.ip().filter(|_| nid.net().net_type() == NetType::TCP).ok_or(SockError::NotTcp { nid })?;
        let net = &self.shared.net;
        let _claim = net.claim(nid)?;
        let ni = Arc::new(Ni { id, ip, incarnation: net.wall_clock_ns(), upcalls, _claim });
        let listener = self.listener(&ni, ip)?;
        self.shared.nis.insert(ni);
        if let Some(listener) = listener {
            self.shared.request(Request::Listen(listener));
        }
        Ok(())
    }

    /// The listener an NI needs: none if nobody may connect, or if another NI has the address.
    fn listener(&self, ni: &Ni, ip: IpAddr) -> Result<Option<Box<dyn Listener>>, SockError> {
        if self.shared.policy == AcceptPolicy::None || self.shared.nis.has_address(ip) {
            return Ok(None);
        }
        let config = &self.shared.config;
        let address = ni.address(config.accept_port);
        Ok(Some(self.shared.net.listen(address, config.backlog, &self.shared.options)?))
    }
}

impl Lnd for SockLnd {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        self.start(ni, upcalls)?;
        let config = &self.shared.config;
        Ok(NiLimits {
            credits: config.credits,
            peer_credits: config.peer_credits,
            timeout_ns: config.timeout_ns(),
        })
    }

    fn shutdown(&self, ni: Nid) {
        self.driver.lock().shutdown(&self.shared, ni);
    }

    fn send(&self, tx: Tx) -> Sent {
        self.shared.send(tx)
    }

    fn resume(&self, rx: RxContext, delivery: Option<Delivery>) {
        self.shared.request(Request::Resume(Key(rx.0), delivery));
    }

    fn shards(&self) -> usize {
        1
    }

    fn poll(&self, _shard: usize, now_ns: u64, budget: usize) -> Poll {
        // Somebody else drives only if a caller breaks the rule of the tokens, or polls from inside an upcall.
        let Some(mut driver) = self.driver.try_lock() else { return Poll::default() };
        driver.poll(Turn { shared: &self.shared, now_ns }, budget)
    }

    fn arm(&self, _shard: usize) -> bool {
        !self.shared.has_work() && self.driver.try_lock().is_none_or(|driver| !driver.has_work())
    }

    fn wait_fd(&self, _shard: usize) -> BorrowedFd<'_> {
        self.shared.poller.fd()
    }

    fn is_active(&self) -> bool {
        !self.shared.nis.is_empty()
    }

    fn register(&self, _region: &Region) -> Result<(), LndError> {
        Ok(())
    }

    fn deregister(&self, _region: &Region) {}
}

impl Drop for SockLnd {
    /// Ends the NIs that nobody has ended: connections and the upcalls hold each other.
    fn drop(&mut self) {
        for nid in self.shared.nis.nids() {
            self.shutdown(nid);
        }
    }
}

impl std::fmt::Debug for SockLnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SockLnd").field("nids", &self.shared.nis.nids()).finish_non_exhaustive()
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<SockLnd>();
};

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Errno {
        failure.errno
    }
}
