use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use lnet_api::{Delivery, Errno, Sent, Tx};
use lnet_nid::ProcessId;
use lnet_proto::sock::Version;
use parking_lot::Mutex;

use crate::burst::{PollingHere, is_burst, is_polling, thread_id};
use crate::choice::Load;
use crate::conn::Conn;
use crate::counters::Counters;
use crate::links::Bounds;
use crate::ni::{Ni, NiTable};
use crate::outgoing::wire_len;
use crate::peer::{Peer, PeerKey, PeerTable, WAITING_MAX};
use crate::slab::Key;
use crate::sys::{Listener, Net, Options, Poller};
use crate::{AcceptPolicy, SockConfig};

/// How many times in a row one poll writes what its own upcalls queue.
const UNCORK_ROUNDS_MAX: usize = 8;

/// What any thread may ask of the driver.
pub(crate) enum Request {
    /// Accept connections on this listener.
    Listen(Box<dyn Listener>),
    /// Messages wait for this peer.
    Connect(Arc<Peer>),
    /// Go on writing.
    Flush(Key),
    /// A write failed.
    Broken(Key, Errno),
    /// Go on with a message that was held.
    Resume(Key, Option<Delivery>),
}

/// What senders, drivers and everybody else share.
pub(crate) struct Shared {
    pub(crate) config: SockConfig,
    pub(crate) policy: AcceptPolicy,
    pub(crate) nis: Arc<NiTable>,
    pub(crate) peers: PeerTable,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) options: Options,
    pub(crate) poller: Box<dyn Poller>,
    pub(crate) counters: Counters,
    conns_per_peer: AtomicU8,
    requests: Mutex<Vec<Request>>,
    corked: Mutex<Corked>,
    /// Messages may wait for the next poll of the thread that sends them.
    patient: AtomicBool,
}

/// Connections on which something waits to be written by the thread that polls, or polls next.
#[derive(Default)]
struct Corked {
    conns: Vec<Arc<Conn>>,
    /// The thread that has polled last.
    poller: usize,
}

impl Shared {
    pub(crate) fn new(config: SockConfig, net: Arc<dyn Net>) -> Result<Shared, Errno> {
        Ok(Shared {
            policy: config.accept_policy(),
            conns_per_peer: AtomicU8::new(config.conns_per_peer),
            options: Options::of(&config),
            config,
            nis: Arc::default(),
            peers: PeerTable::default(),
            poller: net.poller()?,
            net,
            counters: Counters::default(),
            requests: Mutex::default(),
            corked: Mutex::default(),
            patient: AtomicBool::new(true),
        })
    }

    /// Sends a message on the best connection to its peer; without one it waits until the driver has made one.
    pub(crate) fn send(&self, tx: Tx) -> Sent {
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
            if let Some(conn) = state.choose(|conn| self.load(&tx, conn.version)) {
                let conn = conn.clone();
                drop(state);
                return conn.send(self, tx);
            }
            if peer.key.id.pid.is_userspace() {
                return Sent::Now(Err(Errno::EHOSTUNREACH));
            }
            if state.waiting.len() >= WAITING_MAX {
                return Sent::Now(Err(Errno::ENOBUFS));
            }
            state.waiting.push_back(tx);
            let asked = std::mem::replace(&mut state.asked, true);
            drop(state);
            if !asked {
                self.request(Request::Connect(peer));
            }
            return Sent::Later;
        }
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
        let peer = self.peer_of(&ni, tx.peer);
        // An NI that ends takes itself out of the table first, then its peers: one that came in between goes by this,
        // with what other threads have queued for it meanwhile.
        if self.nis.get(tx.ni).is_none_or(|listed| !Arc::ptr_eq(&listed, &peer.ni)) {
            self.peers.remove(&peer);
            peer.retire(Errno::ESHUTDOWN);
            return Err(Errno::ESHUTDOWN);
        }
        Ok(peer)
    }

    /// The peer of this name; made if it is not there.
    pub(crate) fn peer_of(&self, ni: &Arc<Ni>, id: ProcessId) -> Arc<Peer> {
        let key = PeerKey { ni: ni.id.nid, id };
        self.peers.get_or_insert(key, || Peer::new(ni.clone(), id, self.bounds()))
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let per_type = self.conns_per_peer.load(Ordering::Relaxed);
        Bounds::new(per_type, self.config.min_reconnect_ms, self.config.max_reconnect_ms)
    }

    pub(crate) fn set_conns_per_peer(&self, count: u8) {
        self.conns_per_peer.store(count.max(1), Ordering::Relaxed);
    }

    /// Asks the driver for something, and wakes it if it sleeps. The first request of a batch wakes: the driver takes all
    /// of them at once.
    pub(crate) fn request(&self, request: Request) {
        let first = {
            let mut requests = self.requests.lock();
            requests.push(request);
            requests.len() == 1
        };
        if first && !self.is_polling_here() {
            self.counters.tx.wakeups.one();
            self.poller.wake();
        }
    }

    /// Takes all requests; gives whether there were any.
    pub(crate) fn take_requests(&self, into: &mut Vec<Request>) -> bool {
        debug_assert!(into.is_empty(), "requests are taken before the last ones are served");
        std::mem::swap(&mut *self.requests.lock(), into);
        !into.is_empty()
    }

    /// Whether the next poll has something to do that the system does not know of.
    pub(crate) fn has_work(&self) -> bool {
        !self.requests.lock().is_empty() || !self.corked.lock().conns.is_empty()
    }

    /// Notes a connection on which the polling thread has queued something.
    pub(crate) fn cork(&self, conn: &Arc<Conn>) {
        self.corked.lock().conns.push(conn.clone());
    }

    /// Whether a message that this thread sends may wait for others: it is not the first since the thread's last poll.
    pub(crate) fn may_defer(&self) -> bool {
        is_burst(self.address()) && self.patient.load(Ordering::Relaxed)
    }

    /// Notes a connection on which something waits for the next poll. `false`: another thread has polled last, so that
    /// nobody may come for it; write it now.
    pub(crate) fn defer(&self, conn: &Arc<Conn>) -> bool {
        let mut corked = self.corked.lock();
        // SYNC corked.poller: either the next poller takes what is noted here, or this thread sees that there was one.
        let mine = corked.poller == thread_id();
        if mine {
            corked.conns.push(conn.clone());
        }
        mine
    }

    /// A poll begins: writes what was left to it. `true` if there was anything.
    pub(crate) fn write_deferred(&self, list: &mut Vec<Arc<Conn>>) -> bool {
        {
            let mut corked = self.corked.lock();
            // SYNC corked.poller
            corked.poller = thread_id();
            std::mem::swap(&mut corked.conns, list);
        }
        let any = !list.is_empty();
        for conn in list.drain(..) {
            conn.flush(self);
        }
        any
    }

    /// Says whether messages may wait for the next poll.
    pub(crate) fn set_patient(&self, patient: bool) {
        if self.patient.load(Ordering::Relaxed) != patient {
            self.patient.store(patient, Ordering::Relaxed);
        }
    }

    /// Writes what the polling thread has queued, and what the upcalls for that queue again. After a few rounds the rest
    /// is left to the next poll: whoever sends from every completion must not keep the poll from ending.
    pub(crate) fn uncork(&self, list: &mut Vec<Arc<Conn>>) -> usize {
        let mut flushed = 0;
        for _ in 0..UNCORK_ROUNDS_MAX {
            std::mem::swap(&mut self.corked.lock().conns, list);
            if list.is_empty() {
                break;
            }
            flushed += list.len();
            for conn in list.drain(..) {
                conn.flush(self);
            }
        }
        flushed
    }

    /// Whether the calling thread is inside this LND's poll.
    pub(crate) fn is_polling_here(&self) -> bool {
        is_polling(self.address())
    }

    /// Marks the calling thread as polling until the guard is dropped.
    pub(crate) fn polling_here(&self) -> PollingHere {
        PollingHere::new(self.address())
    }

    /// What threads know this LND's shard by.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
