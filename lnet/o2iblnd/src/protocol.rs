//! The verbs protocol as seen by the LND skeleton (`lnet_lnd`), which owns NIs, peers and shards:
//! [`O2ib`] implements its `Protocol`. Starting an NI opens the device of its address, checks the
//! tunables against the device's limits, grows the shards and, unless another NI listens on the
//! address, starts a listener.

use crate::o2ib::{Ni, O2ib, PeerState, Shared};
use std::sync::Arc;

use lnet_api::{Errno, LndError, NiLimits, Sent, Tx, Upcalls};
#[cfg(feature = "verbs")]
use lnet_lnd::protocol::OnThisHost;
use lnet_lnd::protocol::{Conns, NiStarted, Protocol};
use lnet_lnd::{Config as _, ConnFailure, Hardware};
use lnet_nid::{NetType, ProcessId};
use lnet_proto::ib::End;
use lnet_region::Region;

use crate::advice::advice;
use crate::connection::Connection;
use crate::counters::LiveCounters;
use crate::driver::Driver;
use crate::fabric::{Fabric, FabricError};
use crate::links::{Bounds, Links};
use crate::memory::{self, Accessor};
use crate::ni::{NiData, update_port};
use crate::op_data::HeldMessage;
use crate::send::send;
use crate::shard::O2ibRequest;
use crate::shard::ShardData;
use crate::{ConnStats, NiConfig, O2ibConfig, replies, sizes};

/// Error text for a NID that cannot be an NI's.
const NO_ADDRESS: &str =
    "names no IPv4 address on a network of type o2ib: the protocol knows no other (lnet-wire 31)";

impl Protocol for O2ib {
    const NET_TYPE: NetType = NetType::O2IB;
    const NAME: &'static str = "O2ibLnd";
    const CONNS_PER_PEER_MAX: u8 = sizes::CONNS_PER_PEER_MAX as u8;

    type Config = O2ibConfig;
    type System = dyn Fabric;
    type NiData = NiData;
    type OfPeer = ();
    type OfState = ();
    type ShardData = ShardData;
    type Links = Links;
    type Conn = Connection;
    type Held = HeldMessage;
    type Request = O2ibRequest;
    type Driver = Driver;
    type Counted = LiveCounters;
    type ConnStats = ConnStats;

    fn start(
        shared: &Shared,
        id: ProcessId,
        (own, hardware): (NiConfig, Hardware),
        upcalls: Arc<dyn Upcalls>,
    ) -> NiStarted {
        let nid = id.nid;
        let wrong = |reason, errno| LndError { what: format!("{nid} {reason}"), errno };
        let ip = nid.ipv4().filter(|_| nid.net().net_type() == NetType::O2IB);
        let ip = ip.ok_or_else(|| wrong(NO_ADDRESS, Errno::EINVAL))?;
        let Shared { nis, shards, config, own: O2ib { fabric }, .. } = shared;
        if nis.get(nid).is_some() {
            return Err(wrong("is up already", Errno::EADDRINUSE));
        }
        let adjusted = sizes::adjust(&config.of(&own));
        // `what` already contains the errno.
        let refused = |FabricError { what, errno }| LndError { what: format!("{nid}: {what}"), errno };
        let device = fabric.open(ip).map_err(refused)?;
        // Fail here if the device cannot support the tunables, and not when the first peer
        // connects.
        sizes::connection(&adjusted, adjusted.peer_credits, adjusted.fragments, device.limits())?;
        let interfaces = nis.interfaces_with(&hardware);
        shared.grow(interfaces, |number| Ok(ShardData::new(number, fabric.channel()?))).map_err(refused)?;
        let sub = nis.sub_for(&hardware, shards.subs());
        let timeout_ns = own.timeout_ns();
        let limits =
            NiLimits { credits: adjusted.credits, peer_credits: adjusted.peer_credits.into(), timeout_ns };
        let listens = config.listens && !nis.uses(ip.into());
        let end = End { nid, stamp: replies::marked(fabric.incarnation()) };
        let of_ni = NiData::new((ip, end), device.clone(), own.tos, adjusted, &config.memory);
        let location = (hardware, sub);
        let ni = Arc::new(Ni::new((id, ip.into()), upcalls, timeout_ns, location, own.conns_per_peer, of_ni));
        let number = shards.shard(sub, 0).number;
        if let Some(slot) = shards.slot(number).filter(|_| listens) {
            let address = ni.own.address(config.service);
            slot.driver.lock().listen(&slot.shard, &device, address).map_err(refused)?;
            slot.shard.own.channel.ring();
        }
        nis.insert(ni.clone());
        // The device reports only changes: query the port's current state once.
        update_port(&ni);
        Ok(limits)
    }

    fn ending(ni: &Ni) {
        for pending in ni.own.pool.abandon().into_iter().chain(ni.own.sinks.abandon()) {
            let (token, sink) = (pending.token, pending.sink);
            drop(sink);
            ni.upcalls.finalize_get(token, Err(Errno::ESHUTDOWN));
        }
    }

    fn open(config: O2ibConfig, fabric: Arc<dyn Fabric>) -> Result<Shared, LndError> {
        Ok(Shared::new(config, O2ib { fabric }))
    }

    /// Returns the process of the NID's kernel LNet: the protocol has no PIDs.
    fn name_of(id: ProcessId) -> ProcessId {
        ProcessId::lnet(id.nid)
    }

    fn can_dial(id: ProcessId) -> bool {
        id.nid.ipv4().is_some()
    }

    fn links(_: &Shared, ni: &Ni, id: ProcessId) -> Links {
        let bounds = Bounds::new(ni.conns_per_peer(), ni.timeout_ns);
        Links::new(ni.own.end, id.nid, ni.own.params(), bounds)
    }

    fn closed(state: &mut PeerState, gone: &Conns<O2ib>, now_ns: u64) {
        gone.iter().for_each(|conn| state.links.lost(conn.id, now_ns));
    }

    fn send(shared: &Shared, tx: Tx) -> Result<Sent, Errno> {
        send(shared, tx)
    }

    fn register(shared: &Shared, region: &Region) {
        let now_ns = shared.shards.slot(0).map_or(0, |slot| slot.shard.own.now_ns());
        for ni in shared.nis.matching(None) {
            // An error is ignored, as payloads in memory that cannot be registered are copied.
            memory::register(&ni, region, Accessor::Node, now_ns);
        }
    }

    fn advice(failure: &ConnFailure) -> Option<&'static str> {
        advice(failure)
    }
}

#[cfg(feature = "verbs")]
impl OnThisHost for O2ib {
    /// Opens this host's RDMA devices.
    ///
    /// # Errors
    /// ENOSYS where libibverbs or librdmacm is not installed, ENODEV without any RDMA device,
    /// EACCES for a user who may not use them.
    fn system() -> Result<Arc<dyn Fabric>, LndError> {
        let host = crate::verbs::HostFabric::of_lnd();
        // The channel shows whether libraries, devices or permissions are missing.
        host.channel().map_err(|FabricError { what, errno }| LndError { what, errno })?;
        Ok(Arc::new(host))
    }
}
