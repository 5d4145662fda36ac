//! The socket protocol's implementation of the LND skeleton.

use std::fmt::Display;
use std::sync::Arc;

use lnet_api::{Errno, LndError, NiLimits, Sent, Tx, Upcalls};
use lnet_lnd::admission::Admission;
use lnet_lnd::protocol::{Conns, NiStarted, OnThisHost, Protocol};
use lnet_lnd::{ConnFailure, Hardware};
use lnet_nid::{NetType, ProcessId};
use parking_lot::Mutex;

use crate::admission;
use crate::advice::advice;
use crate::attempts::{AttemptState, Attempts};
use crate::conn::Conn;
use crate::counters::LiveCounters;
use crate::driver::{Driver, Unread, closed};
use crate::links::{Bounds, Links};
use crate::ni::NiData;
use crate::peer::OfState;
use crate::send::send;
use crate::shard::{ShardData, SockRequest};
use crate::sock::{Ni, PeerState, Request, Shared, Sock};
use crate::sys::{Listener, Options, Os, TcpStack};
use crate::{AcceptPolicy, ConnStats, NiConfig, SockConfig, SockError};

impl Protocol for Sock {
    const NET_TYPE: NetType = NetType::TCP;
    const NAME: &'static str = "SockLnd";
    const CONNS_PER_PEER_MAX: u8 = u8::MAX;

    type Config = SockConfig;
    type System = dyn TcpStack;
    type NiData = NiData;
    type OfPeer = AttemptState;
    type OfState = OfState;
    type ShardData = ShardData;
    type Links = Links;
    type Conn = Conn;
    type Held = Unread;
    type Request = SockRequest;
    type Driver = Driver;
    type Counted = LiveCounters;
    type ConnStats = ConnStats;

    fn open(config: SockConfig, net: Arc<dyn TcpStack>) -> Result<Shared, LndError> {
        let sock = Sock {
            policy: config.accept_policy(),
            options: Options::of(&config, &NiConfig::from(&config)),
            identity: Arc::default(),
            admission: Arc::new(Admission::new(admission::bounds(
                net.descriptors_max(),
                config.conns_of_address,
            ))),
            attempts: Arc::new(Attempts::new(config.nconnds_max as usize)),
            net,
        };
        let shared = Shared::new(config, sock);
        // One shard exists from the start, for threads that drive the LND before it has an NI.
        grow(&shared, 1, "the TCP LND")?;
        Ok(shared)
    }

    fn start(
        shared: &Shared,
        id: ProcessId,
        (own, hardware): (NiConfig, Hardware),
        upcalls: Arc<dyn Upcalls>,
    ) -> NiStarted {
        let nid = id.nid;
        let ip =
            nid.ip().filter(|_| nid.net().net_type() == NetType::TCP).ok_or(SockError::NotTcp { nid })?;
        let Shared { nis, shards, config, own: sock, .. } = shared;
        let claim = Mutex::new(Some(sock.net.claim(nid)?));
        grow(shared, nis.interfaces_with(&hardware), nid)?;
        let sub = nis.sub_for(&hardware, shards.subs());
        let of_ni = NiData { incarnation: sock.net.incarnation(), options: Options::of(config, &own), claim };
        let ni = Ni::new((id, ip), upcalls, own.timeout_ns(), (hardware, sub), own.conns_per_peer, of_ni);
        let listeners = listeners(shared, &ni)?;
        nis.insert(Arc::new(ni));
        for listener in listeners {
            shards.shard(sub, 0).request(Request::Own(SockRequest::Listen(listener)));
        }
        let NiConfig { credits, peer_credits, .. } = own;
        Ok(NiLimits { credits, peer_credits, timeout_ns: own.timeout_ns() })
    }

    fn ended(shared: &Shared, ni: &Ni) {
        shared.own.attempts.forget(ni.id.nid);
        ni.own.claim.lock().take();
    }

    fn can_dial(id: ProcessId) -> bool {
        !id.pid.is_userspace()
    }

    fn links(shared: &Shared, ni: &Ni, id: ProcessId) -> Links {
        let SockConfig { min_reconnect_ms, max_reconnect_ms, .. } = shared.config;
        let bounds = Bounds::new(ni.conns_per_peer(), min_reconnect_ms, max_reconnect_ms, ni.timeout_ns);
        Links::new(ni.id.nid, id.nid, id.pid.is_userspace(), bounds)
    }

    fn closed(state: &mut PeerState, gone: &Conns<Sock>, now_ns: u64) {
        closed(state, gone, now_ns);
    }

    fn send(shared: &Shared, tx: Tx) -> Result<Sent, Errno> {
        send(shared, tx)
    }

    fn advice(failure: &ConnFailure) -> Option<&'static str> {
        advice(failure)
    }
}

impl OnThisHost for Sock {
    fn system() -> Result<Arc<dyn TcpStack>, LndError> {
        Ok(Arc::new(Os))
    }
}

/// Creates shards until there are enough for `interfaces` hardware interfaces.
fn grow(shared: &Shared, interfaces: usize, of: impl Display) -> Result<(), SockError> {
    let Sock { net, identity, .. } = &shared.own;
    let new_shard = |_| Ok(ShardData::new(net.poller(shared.config.epoll_busy_poll_us)?, identity.clone()));
    shared
        .grow(interfaces, new_shard)
        .map_err(|errno| SockError::System { what: format!("set up a shard for {of}"), errno })
}

/// Opens the listeners of an NI: none if the policy accepts no connections, or if another NI has
/// the address.
fn listeners(shared: &Shared, ni: &Ni) -> Result<Vec<Box<dyn Listener>>, SockError> {
    let Shared { nis, config, own: Sock { net, options, policy, .. }, .. } = shared;
    if *policy == AcceptPolicy::None || nis.uses(ni.ip) {
        return Ok(Vec::new());
    }
    config.ports().map(|port| net.listen(ni.address(port), config.backlog, options)).collect()
}
