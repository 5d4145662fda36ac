//! What one kind of network has of its own.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::{Delivery, Errno, LndError, NiLimits, Poll, Sent, Tx, TxToken, Upcalls};
use lnet_nid::{NetType, ProcessId};
use lnet_region::Region;
use smallvec::SmallVec;

use crate::closing::{Ends, InUse};
use crate::counting::Counted;
use crate::slab::Key;
use crate::{Config, Core, Hardware, Miss, Ni, Peer, PeerState, Shard, Shared, Turn};

/// One kind of network: what its LND ([`Network`](crate::Network)) has beside all that LNDs have in common. The value itself is what
/// senders, drivers and everybody else of the LND share: its system, its policies.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// The type of its networks.
    const NET_TYPE: NetType;
    /// The name of its LND.
    const NAME: &'static str;
    /// The most connections that `conns_per_peer` may ask for.
    const CONNS_PER_PEER_MAX: u8;

    /// The tunables of all its NIs.
    type Config: Config;
    /// All contact with the operating system, or with one that is simulated.
    type System: ?Sized;
    /// What it keeps of an NI ([`Ni::own`]).
    type OfNi: Send + Sync;
    /// What it keeps of a peer, under no lock ([`Peer::own`]).
    type OfPeer: Default + Send + Sync;
    /// What it keeps of a peer under the peer's lock ([`PeerState::own`]).
    type OfState: Default + Send;
    /// What it keeps of a shard ([`Shard::own`]).
    type OfShard: OfShard;
    /// Its rules for the connections of a peer.
    type Links: Links;
    /// A connection in use.
    type Conn: Connection;
    /// What it keeps of a message that the engine holds back.
    type Held: Send;
    /// What it asks of its own drivers.
    type Request: Send;
    /// What the driver of a shard alone touches.
    type Driver: Driver<Self>;
    /// What is counted ([`counters_of_lnd!`](crate::counters_of_lnd)).
    type Counted: Counted;
    /// How much there is at a moment.
    type ConnStats: for<'a> From<&'a Shared<Self>>;

    /// An LND without NIs; its tunables have been looked at.
    ///
    /// # Errors
    /// What the system refuses.
    fn open(config: Self::Config, system: Arc<Self::System>) -> Result<Shared<Self>, LndError>;

    /// Starts an NI on this hardware, one at a time: enters it into the table, and has it listened for.
    ///
    /// # Errors
    /// As [`lnet_api::Lnd::startup`].
    fn start(
        shared: &Shared<Self>,
        id: ProcessId,
        setup: (NiConfig<Self>, Hardware),
        upcalls: Arc<dyn Upcalls>,
    ) -> Started;

    /// An NI has left the table and all shards, which may have been asked for something meanwhile.
    fn ending(_ni: &Ni<Self>) {}

    /// Nothing of an NI is left.
    fn ended(_shared: &Shared<Self>, _ni: &Ni<Self>) {}

    /// How it knows a process.
    fn name_of(id: ProcessId) -> ProcessId {
        id
    }

    /// Whether this side can connect to such a peer: it has an address, and is not known by a connection of its own alone.
    fn can_dial(id: ProcessId) -> bool;

    /// The connections to a peer of which nothing is known yet.
    fn links(shared: &Shared<Self>, ni: &Ni<Self>, id: ProcessId) -> Self::Links;

    /// The rules for a peer's connections learn that these are closed, which have left its state.
    fn closed(state: &mut PeerState<Self>, gone: &Conns<Self>, now_ns: u64);

    /// Sends a message ([`lnet_api::Lnd::send`]).
    ///
    /// # Errors
    /// It cannot be sent.
    fn send(shared: &Shared<Self>, tx: Tx) -> Result<Sent, Errno>;

    /// Memory that will be sent from, and received into.
    fn register(_shared: &Shared<Self>, _region: &Region) {}

    /// What to try when a connection has failed like this, in one sentence; `None` if nothing is special about this kind of network.
    fn advice(miss: &Miss) -> Option<&'static str>;
}

/// A kind of network that this host may have.
pub trait OnThisHost: Protocol {
    /// This host's.
    ///
    /// # Errors
    /// What is missing, and what to do.
    fn system() -> Result<Arc<Self::System>, LndError>;
}

/// The rules for the connections of a peer: plain code, without a connection and without a clock.
pub trait Links: Send {
    /// Somebody has set how many connections a peer may have.
    fn set_conns(&mut self, conns_per_peer: u8);

    /// Whether nothing is remembered that a fresh entry would not know.
    fn is_forgettable(&self, now_ns: u64) -> bool;
}

/// A connection in use, as senders and its shard's driver share it.
pub trait Connection: Send + Sync {
    /// Takes back a message of which nothing is gone; `false` if it has none of this token.
    fn withdraw(&self, token: TxToken) -> bool;

    /// What the driver of its shard knows it by.
    fn key(&self) -> Key;

    /// Whether nothing is being sent on it.
    fn is_idle(&self) -> bool;

    /// It is closed: waits for threads that are still sending on it, for as long as a system call that does not block.
    fn wait_for_writer(&self) {}
}

/// What a shard has beside what all have: what its driver sleeps on, and is woken by.
pub trait OfShard: Send + Sync {
    /// Wakes the driver if it sleeps, or is about to.
    fn wake(&self);

    /// Readable when there is something to do.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether the next poll has something to do that neither the system knows of nor a request tells.
    fn has_work(&self) -> bool {
        false
    }
}

/// The driver of a shard: everything that happens on its connections but sending in a caller's own thread. One thread at a time
/// drives, and senders touch nothing of it, so that the upcalls it makes may send.
pub trait Driver<P: Protocol<Driver = Self>>: Sized + Send {
    /// How often one call takes the requests that serving others has made.
    const REQUEST_ROUNDS: usize;
    /// What is wrong with a connection on which a sender has failed, if the errno does not say it.
    const SEND_FAILED: &'static str;

    /// Of the shard of this number, which has nothing yet.
    fn new(config: &P::Config, shard: usize) -> Self;

    /// What all drivers have.
    fn core(&mut self) -> &mut Core<P>;

    /// Does what there is to do; about `budget` messages at the most.
    fn poll(&mut self, turn: Turn<'_, P>, budget: usize) -> Poll;

    /// The thread that polls is about to sleep: whether it may.
    fn arm(&mut self, shard: &Shard<P>) -> bool;

    /// Does for a peer what its links say is next.
    fn advance_peer(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>);

    /// Messages wait for this peer, or its turn to be connected has come.
    fn connect(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>);

    /// The connection of this name, if it is in use.
    fn in_use(&self, turn: Turn<'_, P>, key: Key) -> Option<InUse<P>>;

    /// What ends with a connection that is broken for this reason.
    fn ends_with(&self, _turn: Turn<'_, P>, _key: Key, _why: &Miss) -> Ends {
        Ends::One
    }

    /// Closes a connection that has left its peer's state, and finalises what was in flight on it. What has not begun to leave may go
    /// over another one.
    fn end_conn(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>, conn: &Arc<P::Conn>, errno: Errno);

    /// Goes on with a message of a connection that was held back; without a delivery it is thrown away.
    fn resume(&mut self, turn: Turn<'_, P>, conn: Key, what: P::Held, delivery: Option<Delivery>);

    /// Does what else was asked.
    fn serve(&mut self, turn: Turn<'_, P>, request: P::Request);

    /// Looks at a peer whose overdue messages have failed: whatever of it takes time, and [`Driver::advance_peer`]. Gives how much was
    /// done.
    fn look_at(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>) -> usize;

    /// Shows a peer that this node's program runs: with a NOOP on each connection, where nothing else is being sent.
    fn show_life(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>);

    /// When something of a peer last came, on any of its connections. What comes on a connection on which the engine holds a message back
    /// may not be read: `None` if nothing can be heard.
    fn heard_ns(&self, peer: &Peer<P>) -> Option<u64>;

    /// How many connections are being opened to peers that have some already.
    fn completing(&self) -> usize;

    /// Ends what else there is of an NI whose peers are gone: listeners, and connections that are being opened.
    fn end_ni(&mut self, turn: Turn<'_, P>, ni: &Arc<Ni<P>>);

    /// Lets go of what senders had left to the next poll, when an NI has ended.
    fn let_go(&mut self, _shard: &Shard<P>) {}
}

/// What an NI that has started tells of itself, or why it has not.
pub type Started = Result<NiLimits, LndError>;

/// The tunables that an NI may have otherwise than the others.
pub type NiConfig<P> = <<P as Protocol>::Config as Config>::OfNi;

/// The connections of a peer: three over TCP by default, one over verbs.
pub type Conns<P> = SmallVec<[Arc<<P as Protocol>::Conn>; 4]>;
