use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::{Delivery, Errno, Lnd, LndError, NiLimits, Poll, RxContext, Sent, Tx, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_region::Region;
use parking_lot::Mutex;

use crate::driver::Turn;
use crate::ni::Ni;
use crate::shard::Request;
use crate::shared::Shared;
use crate::slab::Key;
use crate::sys::{Listener, Net, Os};
use crate::{AcceptPolicy, Failure, SockConfig, SockCounters, SockError, Step};

/// The TCP LND: all `tcp` networks of a node.
///
/// It has a shard per CPU partition, each with a poller of its own, which whoever holds the shard's token drives with
/// [`Lnd::poll`]. Further NIs bring further shards, up to `nscheds` per partition (S-203, S-312). All connections of a
/// peer are on one shard: that of the NI on the partition which [`Upcalls::partition_of`] names (S-209).
pub struct SockLnd {
    shared: Shared,
    /// NIs start and end one at a time.
    setup: Mutex<()>,
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
        let shared = Shared::new(config, net)
            .map_err(|errno| LndError { what: "set up the TCP LND's epoll set".to_string(), errno })?;
        Ok(SockLnd { shared, setup: Mutex::new(()) })
    }

    /// The tunables it was made with.
    #[must_use]
    pub fn config(&self) -> &SockConfig {
        &self.shared.config
    }

    /// Its counters, at this moment.
    #[must_use]
    pub fn counters(&self) -> SockCounters {
        self.shared.shards.counters()
    }

    /// Why the last connection to a NID failed, if one did since the last success; over whichever NI.
    #[must_use]
    pub fn last_failure(&self, nid: Nid) -> Option<Failure> {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |peer| peer.key.id.nid == nid);
        peers.into_iter().find_map(|peer| peer.state.lock().failure.clone())
    }

    /// How far the connection to a NID is that is being opened at this moment, over whichever NI: [`Step::Connect`] or
    /// [`Step::Handshake`]; `None` if none is.
    #[must_use]
    pub fn progress(&self, nid: Nid) -> Option<Step> {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |peer| peer.key.id.nid == nid);
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
        let Shared { net, nis, shards, config, .. } = &self.shared;
        let _setup = self.setup.lock();
        let claim = Mutex::new(Some(net.claim(nid)?));
        shards
            .grow(nis.len() + 1, config, &**net)
            .map_err(|errno| SockError::System { what: format!("set up a shard for {nid}"), errno })?;
        let sub = nis.emptiest_sub(shards.subs());
        let ni = Arc::new(Ni { id, ip, incarnation: net.wall_clock_ns(), upcalls, sub, claim });
        let listener = self.listener(&ni, ip)?;
        nis.insert(ni);
        if let Some(listener) = listener {
            shards.shard(sub, 0).request(Request::Listen(listener));
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
        let Shared { nis, shards, attempts, .. } = &self.shared;
        let _setup = self.setup.lock();
        let Some(ni) = nis.remove(ni) else { return };
        for slot in shards.iter() {
            slot.driver.lock().shutdown(&self.shared, &slot.shard, &ni);
        }
        attempts.forget(ni.id.nid);
        ni.claim.lock().take();
    }

    fn send(&self, tx: Tx) -> Sent {
        self.shared.send(tx)
    }

    fn resume(&self, rx: RxContext, delivery: Option<Delivery>) {
        let key = Key(rx.0);
        if let Some(slot) = self.shared.shards.slot(key.shard()) {
            slot.shard.request(Request::Resume(key, delivery));
        }
    }

    fn shards(&self) -> usize {
        self.shared.shards.count()
    }

    fn partition(&self, shard: usize) -> usize {
        self.shared.shards.partition_of(shard)
    }

    fn poll(&self, shard: usize, now_ns: u64, budget: usize) -> Poll {
        let Some(slot) = self.shared.shards.slot(shard) else { return Poll::default() };
        // Somebody else drives only if a caller breaks the rule of the tokens, or polls from inside an upcall; or an NI
        // is being ended.
        let Some(mut driver) = slot.driver.try_lock() else { return Poll::default() };
        driver.poll(Turn { shared: &self.shared, shard: &slot.shard, now_ns }, budget)
    }

    fn arm(&self, shard: usize) -> bool {
        let Some(slot) = self.shared.shards.slot(shard) else { return true };
        !slot.shard.has_work() && slot.driver.try_lock().is_none_or(|driver| !driver.has_work())
    }

    /// # Panics
    /// If there is no such shard.
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        match self.shared.shards.slot(shard) {
            Some(slot) => slot.shard.poller.fd(),
            None => panic!("shard {shard} of {}", self.shards()),
        }
    }

    fn is_active(&self) -> bool {
        self.shared.nis.len() > 0
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
