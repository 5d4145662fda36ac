use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use lnet_api::{Errno, Sent, Tx, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::MessageType;
use lnet_proto::sock::Version;

use crate::admission::Admission;
use crate::attempts::Attempts;
use crate::choice::Load;
use crate::driver::Driver;
use crate::links::Bounds;
use crate::ni::Ni;
use crate::outgoing::wire_len;
use crate::peer::Peer;
use crate::shard::Request;
use crate::shard::Shard;
use crate::sys::{Net, Options};
use crate::{AcceptPolicy, NiConfig, SockConfig};
use lnet_lnd::shards::Shards;
use lnet_lnd::tables::{NiTable, PeerKey, PeerTable};

/// What senders, drivers and everybody else share, of all shards.
pub(crate) struct Shared {
    pub(crate) config: SockConfig,
    pub(crate) policy: AcceptPolicy,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) options: Options,
    pub(crate) nis: Arc<NiTable<Ni>>,
    pub(crate) peers: PeerTable<Peer>,
    pub(crate) shards: Shards<Shard, Driver>,
    /// What all shards have in common.
    identity: Arc<()>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) attempts: Arc<Attempts>,
    /// Connections of each bulk type that NIs have which say nothing of their own.
    pub(crate) conns_per_peer: AtomicU8,
}

impl Shared {
    pub(crate) fn new(config: SockConfig, net: Arc<dyn Net>) -> Result<Shared, Errno> {
        let shared = Shared {
            policy: config.accept_policy(),
            options: Options::of(&config, &NiConfig::from(&config)),
            nis: Arc::default(),
            peers: PeerTable::default(),
            shards: Shards::new(config.partitions, config.nscheds),
            identity: Arc::default(),
            admission: Arc::new(Admission::new(net.descriptors_max())),
            attempts: Arc::new(Attempts::new(config.nconnds_max as usize)),
            conns_per_peer: AtomicU8::new(config.conns_per_peer),
            net,
            config,
        };
        // Who drives the LND before it has an NI has something to drive.
        shared.grow(1)?;
        Ok(shared)
    }

    /// Makes sure that there are the shards of so many NIs.
    pub(crate) fn grow(&self, nis: usize) -> Result<(), Errno> {
        self.shards.grow(nis, |number| {
            let shard = Shard::new(number, self.net.poller()?, self.identity.clone());
            Ok((shard, Driver::new(&self.config, number)))
        })
    }

    /// Sends a message on the best connection to its peer; without one it waits until the driver has made one.
    ///
    /// For an answer a connection is opened only to a peer that has proven its address. Anybody can ask in the name of a host that
    /// knows nothing of it, and go: that host would get a connection from a privileged port of this node, and the answer would
    /// hold credits of all others until then.
    pub(crate) fn send(&self, mut tx: Tx) -> Sent {
        loop {
            let peer = match self.peer(&tx) {
                Ok(peer) => peer,
                Err(errno) => return Sent::Now(Err(errno)),
            };
            let mut state = peer.state.lock();
            match state.retired {
                Some(Errno::EAGAIN) => continue,
                Some(errno) => return Sent::Now(Err(errno)),
                None => {}
            }
            if let Some(conn) = state.choose(self.config.round_robin, |conn| self.load(&tx, conn.version)) {
                let conn = conn.clone();
                drop(state);
                return conn.send(&mut tx);
            }
            if is_answer(&tx) && !state.proven {
                peer.shard.counters.tx.answers_withheld.one();
                return Sent::Now(Err(Errno::EHOSTUNREACH));
            }
            if peer.key.id.pid.is_userspace() {
                return Sent::Now(Err(Errno::EHOSTUNREACH));
            }
            if state.waiting.is_full() {
                return Sent::Now(Err(Errno::ENOBUFS));
            }
            state.waiting.push(tx);
            let asked = std::mem::replace(&mut state.asked, true);
            drop(state);
            if !asked {
                peer.shard.request(Request::Connect(peer.clone()));
            }
            return Sent::Later;
        }
    }

    /// Takes back a message that waits for its peer to be connected, or in an outbox, and of which nothing is gone. It is in
    /// one of them, or in the hands of the thread that sends it: what waits joins a connection under the peer's lock.
    pub(crate) fn withdraw(&self, key: PeerKey, token: TxToken) -> bool {
        let Some(peer) = self.peers.get(key) else { return false };
        let (waiting, conns) = {
            let mut state = peer.state.lock();
            (state.waiting.take(token), state.conns.clone())
        };
        waiting.is_some() || conns.iter().any(|conn| conn.withdraw(token))
    }

    /// What a message is to the choice of a connection.
    pub(crate) fn load(&self, tx: &Tx, version: Version) -> Load {
        Load::Message { bytes: wire_len(&tx.header, version), min_bulk: self.config.min_bulk as usize }
    }

    /// The peer of a message; made if it is not there, except for one that can only connect in.
    fn peer(&self, tx: &Tx) -> Result<Arc<Peer>, Errno> {
        let key = PeerKey { ni: tx.ni, id: tx.peer };
        if let Some(peer) = self.peers.get(key) {
            return Ok(peer);
        }
        let ni = self.nis.get(tx.ni).ok_or(Errno::ESHUTDOWN)?;
        if tx.peer.pid.is_userspace() || tx.peer.nid.net() != tx.ni.net() || tx.peer.nid == tx.ni {
            return Err(Errno::EHOSTUNREACH);
        }
        // The same node under another PID has proven its address for this one too.
        let proven = is_answer(tx) && self.is_proven(tx.ni, tx.peer.nid);
        let peer = self.peer_of(&ni, tx.peer).ok_or(Errno::ESHUTDOWN)?;
        peer.state.lock().proven |= proven;
        Ok(peer)
    }

    fn is_proven(&self, ni: Nid, nid: Nid) -> bool {
        let mut peers = Vec::new();
        self.peers.collect(&mut peers, |peer| peer.key.ni == ni && peer.key.id.nid == nid);
        peers.iter().any(|peer| peer.state.lock().proven)
    }

    /// The peer of this name; made if it is not there, on the shard of its partition (S-209). `None` if the NI is ending.
    pub(crate) fn peer_of(&self, ni: &Arc<Ni>, id: ProcessId) -> Option<Arc<Peer>> {
        let key = PeerKey { ni: ni.id.nid, id };
        if let Some(peer) = self.peers.get(key).filter(|peer| Arc::ptr_eq(&peer.ni, ni)) {
            return Some(peer);
        }
        let shard = self.shards.shard(ni.sub, ni.upcalls.partition_of(ni.id.nid, id.nid));
        let make = || Peer::new(ni.clone(), id, shard.clone(), self.bounds(ni));
        // If the NI has ended and started again meanwhile, the entry may be of its next life.
        self.peers.get_or_insert(key, || self.nis.is_up(ni), make).filter(|peer| Arc::ptr_eq(&peer.ni, ni))
    }

    fn bounds(&self, ni: &Ni) -> Bounds {
        let SockConfig { min_reconnect_ms, max_reconnect_ms, .. } = self.config;
        Bounds::new(ni.conns_per_peer(), min_reconnect_ms, max_reconnect_ms, ni.timeout_ns)
    }
}

/// Whether a message answers one that came.
fn is_answer(tx: &Tx) -> bool {
    matches!(tx.header.message_type(), MessageType::Ack | MessageType::Reply)
}
