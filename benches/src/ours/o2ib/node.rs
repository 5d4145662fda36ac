//! A node with an NI over RDMA.

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lnet::{Engine, EngineConfig};
use lnet_api::{Clock, Drive, Lnd, Poll, Tokens};
use lnet_nid::{Net, NetType, Nid, Pid, ProcessId};
use lnet_o2iblnd::{Fabric, O2ibConfig, O2ibLnd};

use crate::error::{BenchError, Result};
use crate::ours::lnet::station::Station;

/// A node with one NI over RDMA, and LNet's defaults. Only its waiting thread drives it.
pub(crate) struct Node {
    id: ProcessId,
    engine: Arc<Engine>,
    pub(super) lnd: Arc<O2ibLnd>,
}

impl Node {
    /// Creates the node at `own`, whose messages go to the one at `peer`.
    pub(super) fn station(own: Ipv4Addr, peer: Ipv4Addr, fabric: Arc<dyn Fabric>) -> Result<Station<Node>> {
        let lnd = O2ibLnd::over(O2ibConfig::default(), fabric);
        let lnd = Arc::new(lnd.map_err(BenchError::nlx("make the verbs LND"))?);
        let life = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let engine = Engine::new(EngineConfig::new(Pid::LNET, life));
        let [id, peer] =
            [own, peer].map(|address| ProcessId::lnet(Nid::new_v4(Net::new(NetType::O2IB, 0), address)));
        engine.add_ni(id, lnd.clone()).map_err(BenchError::nlx("start a network over RDMA"))?;
        let tokens = Tokens::new(lnd.shards());
        let drive = Driven { engine: engine.clone(), lnd: lnd.clone(), tokens, started: Instant::now() };
        Station::over(engine.clone(), Arc::new(drive), Node { id, engine, lnd }, peer)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The NI exists: no other code removes it.
        let _ = self.engine.remove_ni(self.id.nid);
    }
}

struct Driven {
    engine: Arc<Engine>,
    lnd: Arc<O2ibLnd>,
    tokens: Tokens,
    started: Instant,
}

impl Clock for Driven {
    fn now_ns(&self) -> u64 {
        // From one second on, so that "long ago" is never 0.
        1_000_000_000 + self.started.elapsed().as_nanos() as u64
    }
}

impl Drive for Driven {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn poll(&self, shard: usize, budget: usize) -> Poll {
        let now_ns = self.now_ns();
        let polled = self.lnd.poll(shard, now_ns, budget);
        polled.and(Poll { work: 0, deadline_ns: self.engine.advance(now_ns) })
    }

    fn is_active(&self, _: usize) -> bool {
        self.lnd.is_active()
    }

    fn arm(&self, shard: usize) -> bool {
        self.lnd.arm(shard)
    }

    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        self.lnd.wait_fd(shard)
    }
}
