//! The parts common to all drivers: serving requests, checking peers, and ending NIs.

use std::sync::Arc;

use lnet_api::{Errno, Poll};

use crate::closing::{close_broken, end_conns};
use crate::held::{HeldTable, resume};
use crate::pass_timer::{FAILURES_KEPT, PassTimer};
use crate::protocol::{Connection, Driver, Links};
use crate::{Config, ConnFailure, LIST_ROOM, LndShared, Ni, Peer, Protocol, Shard, ShardRequest};

/// The context of one call: the time, the shared state and the shard.
pub struct Turn<'a, P: Protocol> {
    /// The state of all shards.
    pub shared: &'a LndShared<P>,
    /// The driver's shard.
    pub shard: &'a Shard<P>,
    /// The time of the call, in nanoseconds of the node's clock.
    pub now_ns: u64,
}

impl<P: Protocol> Clone for Turn<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Protocol> Copy for Turn<'_, P> {}

impl<P: Protocol> Turn<'_, P> {
    /// Runs `work`, which allocates memory for the driver's shard, so that the memory lies near its
    /// partition (S-305).
    pub fn near<R>(self, work: impl FnOnce() -> R) -> R {
        let partition = self.shared.shards.partition_of(self.shard.number);
        self.shared.config.memory().near(partition, work)
    }

    /// Returns the peers of an NI that belong to this shard.
    pub fn peers_of(self, ni: &Arc<Ni<P>>) -> Vec<Arc<Peer<P>>> {
        self.shared.peers.all(|peer| Arc::ptr_eq(&peer.ni, ni) && peer.shard.number == self.shard.number)
    }
}

/// The state that all drivers have.
pub struct DriverCore<P: Protocol> {
    /// The time of the driver's next check of its connections and peers.
    pub timers: PassTimer,
    /// The time of the last poll, in nanoseconds of the node's clock.
    pub now_ns: u64,
    /// The messages that the engine holds back.
    pub held: HeldTable<P>,
    /// Queue of the requests being served. It is empty between calls, and kept for its memory.
    requests: Vec<ShardRequest<P>>,
    peers: Vec<Arc<Peer<P>>>,
}

impl<P: Protocol> DriverCore<P> {
    /// Makes the state of the driver of this shard; `longest_ns` is the default timeout of its
    /// connections.
    pub fn new(shard: usize, longest_ns: u64) -> DriverCore<P> {
        DriverCore {
            timers: PassTimer::new(longest_ns),
            now_ns: 0,
            held: HeldTable::new(shard),
            requests: Vec::with_capacity(LIST_ROOM),
            peers: Vec::new(),
        }
    }

    /// Returns the result of a poll that did this amount of work.
    pub fn polled(&mut self, work: usize) -> Poll {
        self.held.sign_ns().into_iter().for_each(|at_ns| self.timers.note(at_ns));
        Poll { work, deadline_ns: self.timers.next_ns() }
    }
}

/// Serves the requests queued for the driver's shard; returns their number.
pub fn serve_requests<P: Protocol>(driver: &mut P::Driver, turn: Turn<'_, P>) -> usize {
    let mut count = 0;
    for _ in 0..P::Driver::REQUEST_ROUNDS {
        let mut requests = std::mem::take(&mut driver.core().requests);
        let any = turn.shard.requests.take(&mut requests);
        count += requests.len();
        for request in requests.drain(..) {
            match request {
                ShardRequest::Connect(peer) => driver.connect(turn, &peer),
                ShardRequest::Complete(peer) => {
                    peer.state.lock().links.set_conns(peer.ni.conns_per_peer());
                    driver.advance_peer(turn, &peer);
                }
                ShardRequest::Broken(key, errno) => {
                    close_broken(driver, turn, key, ConnFailure::gone(errno, P::Driver::SEND_FAILED));
                }
                ShardRequest::Resume(key, delivery) => resume(driver, turn, key, delivery),
                ShardRequest::Unheld(key, errno) => driver.core().held.fail(turn, key, errno),
                ShardRequest::Own(request) => driver.serve(turn, request),
            }
        }
        driver.core().requests = requests;
        if !any {
            break;
        }
    }
    count
}

/// Checks all peers of the driver's shard: sends signs of life to those whose messages are held on
/// connections, fails overdue messages, lets the driver advance each peer, and removes idle
/// entries. Returns the amount of work done.
pub fn check_peers<P: Protocol>(driver: &mut P::Driver, turn: Turn<'_, P>) -> usize {
    let mut peers = std::mem::take(&mut driver.core().peers);
    driver.core().held.take_signs(turn.now_ns, &mut peers);
    for peer in peers.drain(..) {
        driver.send_sign_of_life(turn, &peer);
    }
    turn.shared.peers.collect(&mut peers, |peer| peer.shard.number == turn.shard.number);
    let crowded = peers.len() > FAILURES_KEPT;
    let mut count = 0;
    for peer in peers.drain(..) {
        let overdue = peer.state.lock().waiting.take_overdue(turn.now_ns);
        count += overdue.fail(&*peer.ni.upcalls, Errno::ETIMEDOUT);
        count += driver.check_peer(turn, &peer);
        if peer.retire_if_idle(turn.now_ns, crowded) {
            turn.shared.peers.remove(&peer);
        }
    }
    driver.core().peers = peers;
    count
}

/// Ends a shard's part of an NI that has left the table: closes everything that belongs to it, and
/// finalises all messages in flight.
pub(crate) fn end_ni<P: Protocol>(
    driver: &mut P::Driver,
    shared: &LndShared<P>,
    shard: &Shard<P>,
    ni: &Arc<Ni<P>>,
) {
    let turn = Turn { shared, shard, now_ns: driver.core().now_ns };
    serve_requests(driver, turn);
    for peer in turn.peers_of(ni) {
        let conns = {
            let mut state = peer.state.lock();
            state.retired = Some(Errno::ESHUTDOWN);
            let conns = std::mem::take(&mut state.conns);
            P::closed(&mut state, &conns, turn.now_ns);
            conns
        };
        end_conns(driver, turn, &peer, &conns, Errno::ESHUTDOWN);
        conns.iter().for_each(|conn| conn.wait_for_writer());
        peer.fail_waiting(Errno::ESHUTDOWN);
        turn.shared.peers.remove(&peer);
    }
    driver.core().held.end_ni(turn, ni);
    driver.end_ni(turn, ni);
}

/// Serves the requests that came while an NI ended, and has the driver release closed resources.
pub(crate) fn clear_up<P: Protocol>(driver: &mut P::Driver, shared: &LndShared<P>, shard: &Shard<P>) {
    let now_ns = driver.core().now_ns;
    serve_requests(driver, Turn { shared, shard, now_ns });
    driver.release_deferred(shard);
}
