use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use lnet_api::{Errno, Sent, Tx, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::ib::IMMEDIATE_MAX;

use crate::O2ibConfig;
use crate::connection::Refused;
use crate::driver::Driver;
use crate::fabric::Fabric;
use crate::fabric::FabricError;
use crate::item::{PLAIN, Rx};
use crate::links::{Bounds, Links};
use crate::memory::register_source;
use crate::ni::Ni;
use crate::peer::Peer;
use crate::shard::Request;
use crate::shard::Shard;
use lnet_lnd::shards::Shards;
use lnet_lnd::slab::Key;
use lnet_lnd::tables::{NiTable, PeerKey, PeerTable};

/// What senders, drivers and everybody else share, of all shards.
pub(crate) struct Shared {
    pub(crate) config: O2ibConfig,
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) nis: NiTable<Ni>,
    pub(crate) peers: PeerTable<Peer>,
    /// None before there is an NI.
    pub(crate) shards: Shards<Shard, Driver>,
    /// Connections to a peer that NIs open which say nothing of their own.
    pub(crate) conns_per_peer: AtomicU8,
}

impl Shared {
    pub(crate) fn new(config: O2ibConfig, fabric: Arc<dyn Fabric>) -> Shared {
        Shared {
            nis: NiTable::default(),
            peers: PeerTable::default(),
            shards: Shards::new(config.partitions, config.nscheds),
            conns_per_peer: AtomicU8::new(config.conns_per_peer),
            fabric,
            config,
        }
    }

    /// Makes sure that there are the shards of so many NIs.
    pub(crate) fn grow(&self, nis: usize) -> Result<(), FabricError> {
        self.shards.grow(nis, |number| {
            Ok((Shard::new(number, self.fabric.channel()?), Driver::new(&self.config, number)))
        })
    }

    /// Sends a message on a connection to its peer; without one, or without room on it, it waits for the driver.
    pub(crate) fn send(&self, mut tx: Tx) -> Sent {
        if let Some(context) = tx.reply_to.filter(|context| *context != PLAIN)
            && let Some(answer) = self.asked_directly(Key(context.0))
        {
            return match answer {
                Rx::Get { conn, operation } => {
                    // However short it is, it is written.
                    if let Some(payload) = &tx.payload {
                        register_source(conn.ni(), payload, conn.shard().now_ns());
                    }
                    conn.reply(operation, tx)
                }
                Rx::Held { .. } | Rx::Lost { .. } => Sent::Now(Err(Errno::EIO)),
            };
        }
        if tx.reply_to.is_some_and(|context| context != PLAIN) {
            // Its connection is gone, and with it the GET.
            return Sent::Now(Err(Errno::ECONNRESET));
        }
        let mut registered = false;
        loop {
            let peer = match self.peer(&tx) {
                Ok(peer) => peer,
                Err(errno) => return Sent::Now(Err(errno)),
            };
            if tx.header.payload_length as usize > IMMEDIATE_MAX
                && let Some(payload) = &tx.payload
                && !std::mem::replace(&mut registered, true)
            {
                register_source(&peer.ni, payload, peer.shard.now_ns());
            }
            let mut state = peer.state.lock();
            match state.retired {
                Some(Errno::EAGAIN) => continue,
                Some(errno) => return Sent::Now(Err(errno)),
                None => {}
            }
            // Behind those that wait.
            if state.waiting.is_empty()
                && let Some(conn) = state.choose()
            {
                let conn = conn.clone();
                drop(state);
                match conn.send(tx) {
                    Ok(sent) => return sent,
                    Err((back, Refused::Full | Refused::Closed)) => tx = back,
                }
                state = peer.state.lock();
                if state.retired.is_some() {
                    continue;
                }
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

    /// Takes out what the engine answers.
    fn asked_directly(&self, key: Key) -> Option<Rx> {
        self.shards.slot(key.shard())?.shard.receives.lock().remove(key)
    }

    /// Takes back a message that waits for its peer, or on a connection, and of which nothing is gone.
    pub(crate) fn withdraw(&self, key: PeerKey, token: TxToken) -> bool {
        let Some(peer) = self.peers.get(key) else { return false };
        let (waiting, conns) = {
            let mut state = peer.state.lock();
            (state.waiting.take(token), state.conns.clone())
        };
        waiting.is_some() || conns.iter().any(|conn| conn.withdraw(token))
    }

    /// The peer of a message; made if it is not there.
    fn peer(&self, tx: &Tx) -> Result<Arc<Peer>, Errno> {
        let key = PeerKey { ni: tx.ni, id: ProcessId::lnet(tx.peer.nid) };
        if let Some(peer) = self.peers.get(key) {
            return Ok(peer);
        }
        let ni = self.nis.get(tx.ni).ok_or(Errno::ENETDOWN)?;
        if tx.peer.nid.net() != tx.ni.net() || tx.peer.nid == tx.ni || tx.peer.nid.ipv4().is_none() {
            return Err(Errno::EHOSTUNREACH);
        }
        self.peer_of(&ni, tx.peer.nid).ok_or(Errno::ENETDOWN)
    }

    /// The peer of this name; made if it is not there, on the shard of its partition (S-209). `None` if the NI is ending.
    pub(crate) fn peer_of(&self, ni: &Arc<Ni>, nid: Nid) -> Option<Arc<Peer>> {
        let key = PeerKey { ni: ni.id.nid, id: ProcessId::lnet(nid) };
        if let Some(peer) = self.peers.get(key).filter(|peer| Arc::ptr_eq(&peer.ni, ni)) {
            return Some(peer);
        }
        let shard = self.shards.shard(ni.sub, ni.upcalls.partition_of(ni.id.nid, nid));
        let bounds = Bounds::new(ni.conns_per_peer(), ni.timeout_ns());
        let make = || Peer::new(key, ni.clone(), shard.clone(), Links::new(ni.end, nid, ni.params(), bounds));
        // If the NI has ended and started again meanwhile, the entry may be of its next life.
        self.peers.get_or_insert(key, || self.nis.is_up(ni), make).filter(|peer| Arc::ptr_eq(&peer.ni, ni))
    }
}
