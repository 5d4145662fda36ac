//! The traits that one kind of network implements.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::{Errno, LndError, NiLimits, PayloadTarget, Poll, Sent, Tx, TxToken, Upcalls};
use lnet_nid::{NetType, ProcessId};
use lnet_region::Region;
use smallvec::SmallVec;

use crate::closing::{CloseScope, InUse};
use crate::counting::Counted;
use crate::shard_table::ShardKey;
use crate::{Config, ConnFailure, DriverCore, Hardware, LndShared, Ni, Peer, PeerState, Shard, Turn};

/// One kind of network: the part of an LND ([`Network`](crate::Network)) that differs between
/// networks. The value itself is shared by senders, drivers and all other threads of the LND; it
/// holds the system layer and the policies.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// The network type of the NIDs.
    const NET_TYPE: NetType;
    /// The name of the LND.
    const NAME: &'static str;
    /// The upper limit for `conns_per_peer`.
    const CONNS_PER_PEER_MAX: u8;

    /// The tunables of the LND and its NIs.
    type Config: Config;
    /// The interface to the operating system, or to a simulated one.
    type System: ?Sized;
    /// Additional state of an NI ([`Ni::own`]).
    type NiData: Send + Sync;
    /// Additional state of a peer, not under the peer's lock ([`Peer::own`]).
    type OfPeer: Default + Send + Sync;
    /// Additional state of a peer, under the peer's lock ([`PeerState::own`]).
    type OfState: Default + Send;
    /// Additional state of a shard ([`Shard::own`]).
    type ShardData: ShardData;
    /// The rules for the connections of a peer.
    type Links: Links;
    /// A connection in use.
    type Conn: Connection;
    /// State kept for a message that the engine holds back.
    type Held: Send;
    /// Requests to a driver that only this kind of network has.
    type Request: Send;
    /// The state of a shard that only its driver accesses.
    type Driver: Driver<Self>;
    /// The counters ([`counters_of_lnd!`](crate::counters_of_lnd)).
    type Counted: Counted;
    /// A snapshot of the number of peers and connections.
    type ConnStats: for<'a> From<&'a LndShared<Self>>;

    /// Makes an LND without NIs. The caller has checked the tunables.
    ///
    /// # Errors
    /// The system's error.
    fn open(config: Self::Config, system: Arc<Self::System>) -> Result<LndShared<Self>, LndError>;

    /// Starts an NI on this hardware: inserts it into the table and starts its listeners. NIs start
    /// one at a time.
    ///
    /// # Errors
    /// The errors of [`lnet_api::Lnd::startup`].
    fn start(
        shared: &LndShared<Self>,
        id: ProcessId,
        setup: (NiConfig<Self>, Hardware),
        upcalls: Arc<dyn Upcalls>,
    ) -> NiStarted;

    /// Called when an NI has left the table, and before the shards end it. Requests for it may
    /// still be queued.
    fn ending(_ni: &Ni<Self>) {}

    /// Called when all state of an NI has been freed.
    fn ended(_shared: &LndShared<Self>, _ni: &Ni<Self>) {}

    /// Returns the process by which peers are keyed.
    fn name_of(id: ProcessId) -> ProcessId {
        id
    }

    /// Returns whether this side can open connections to a peer. False for peers that have no
    /// address or are known only by a connection that they opened.
    fn can_dial(id: ProcessId) -> bool;

    /// Returns the link state of a peer without connections.
    fn links(shared: &LndShared<Self>, ni: &Ni<Self>, id: ProcessId) -> Self::Links;

    /// Updates the rules for a peer's connections after the connections `gone` have been closed and
    /// removed from its state.
    fn closed(state: &mut PeerState<Self>, gone: &Conns<Self>, now_ns: u64);

    /// Sends a message ([`lnet_api::Lnd::send`]).
    ///
    /// # Errors
    /// The message cannot be sent.
    fn send(shared: &LndShared<Self>, tx: Tx) -> Result<Sent, Errno>;

    /// Registers memory that will be sent from and received into.
    fn register(_shared: &LndShared<Self>, _region: &Region) {}

    /// Returns advice for a failed connection, in one sentence; `None` if this kind of network has
    /// no specific advice.
    fn advice(failure: &ConnFailure) -> Option<&'static str>;
}

/// A kind of network that this host may support.
pub trait OnThisHost: Protocol {
    /// Returns this host's system layer.
    ///
    /// # Errors
    /// Names the missing resource and the remedy.
    fn system() -> Result<Arc<Self::System>, LndError>;
}

/// The rules for the connections of a peer: plain code, without a connection and without a clock.
pub trait Links: Send {
    /// Sets the number of connections that a peer may have.
    fn set_conns(&mut self, conns_per_peer: u8);

    /// Returns whether the state equals that of a new entry, so that the entry can be removed.
    fn is_forgettable(&self, now_ns: u64) -> bool;
}

/// A connection in use, shared by senders and its shard's driver.
pub trait Connection: Send + Sync {
    /// Removes a message of which no byte has been sent; returns `false` if there is none with this
    /// token.
    fn withdraw(&self, token: TxToken) -> bool;

    /// Returns the key of the connection in the tables of its shard's driver.
    fn key(&self) -> ShardKey;

    /// Returns whether nothing is being sent on the connection.
    fn is_idle(&self) -> bool;

    /// Blocks, after the connection was closed, until no thread is sending on it: at most for one
    /// non-blocking system call.
    fn wait_for_writer(&self) {}
}

/// Additional state of a shard: the object on which its driver sleeps and by which it is woken.
pub trait ShardData: Send + Sync {
    /// Wakes the driver if it sleeps or is about to.
    fn wake(&self);

    /// Returns the descriptor that is readable when there is something to do.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Returns whether the next poll has work that neither the descriptor nor a queued request
    /// reports.
    fn has_work(&self) -> bool {
        false
    }
}

/// The driver of a shard: handles everything on its connections except sends in the caller's own
/// thread. One thread at a time runs it, and senders do not access its state, so the upcalls that
/// it makes may send.
pub trait Driver<P: Protocol<Driver = Self>>: Sized + Send {
    /// Maximum number of times that one call takes the request queue again, for requests made while
    /// it serves others.
    const REQUEST_ROUNDS: usize;
    /// Description of a connection failure found by a sender, used if the errno does not describe
    /// it.
    const SEND_FAILED: &'static str;

    /// Makes the driver of the shard with this number.
    fn new(config: &P::Config, shard: usize) -> Self;

    /// Returns the state that all drivers have.
    fn core(&mut self) -> &mut DriverCore<P>;

    /// Handles pending events; about `budget` messages at most.
    fn poll(&mut self, turn: Turn<'_, P>, budget: usize) -> Poll;

    /// Prepares the driver for the sleep of the polling thread; returns whether that thread may
    /// sleep.
    fn arm(&mut self, shard: &Shard<P>) -> bool;

    /// Performs the next step that the peer's links ask for.
    fn advance_peer(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>);

    /// Handles [`ShardRequest::Connect`](crate::ShardRequest::Connect): messages wait for this peer, or its
    /// turn to be connected has come.
    fn connect(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>);

    /// Returns the connection with this key if it is in use.
    fn in_use(&self, turn: Turn<'_, P>, key: ShardKey) -> Option<InUse<P>>;

    /// Returns which connections of the peer end when the connection with this key breaks for this
    /// reason.
    fn ends_with(&self, _turn: Turn<'_, P>, _key: ShardKey, _failure: &ConnFailure) -> CloseScope {
        CloseScope::One
    }

    /// Closes a connection that has been removed from its peer's state, and finalises the messages
    /// in flight on it. Messages that have not begun to leave may go over another connection.
    fn end_conn(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>, conn: &Arc<P::Conn>, errno: Errno);

    /// Continues with a message that was held on its connection; without a delivery its payload is
    /// discarded.
    fn resume(
        &mut self,
        turn: Turn<'_, P>,
        conn: ShardKey,
        message: P::Held,
        delivery: Option<PayloadTarget>,
    );

    /// Serves a request specific to this kind of network.
    fn serve(&mut self, turn: Turn<'_, P>, request: P::Request);

    /// Checks a peer whose overdue messages have failed: handles its timeouts, and then calls
    /// [`Driver::advance_peer`]. Returns the amount of work done.
    fn check_peer(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>) -> usize;

    /// Sends a sign of life to a peer: a NOOP on each connection on which nothing else is being
    /// sent.
    fn send_sign_of_life(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>);

    /// Returns the time of the last receipt from a peer on any of its connections. A connection on
    /// which the engine holds a message back may not be read; `None` if no connection can be read.
    fn heard_ns(&self, peer: &Peer<P>) -> Option<u64>;

    /// Returns the number of connections that are being opened to peers that have some already.
    fn completing(&self) -> usize;

    /// Ends the remaining state of an NI whose peers are gone: listeners, and connections that are
    /// being opened.
    fn end_ni(&mut self, turn: Turn<'_, P>, ni: &Arc<Ni<P>>);

    /// Releases resources that senders left to the next poll. Called when an NI has ended.
    fn release_deferred(&mut self, _shard: &Shard<P>) {}
}

/// The limits of an NI that has started, or the error.
pub type NiStarted = Result<NiLimits, LndError>;

/// The tunables that can be set per NI.
pub type NiConfig<P> = <<P as Protocol>::Config as Config>::NiConfig;

/// The connections of a peer: three over TCP by default, one over verbs.
pub type Conns<P> = SmallVec<[Arc<<P as Protocol>::Conn>; 4]>;
