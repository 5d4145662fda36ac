//! Messages that wait after their arrival: PUTs for a buffer on a lazy portal (lnet-semantics 11;
//! S-109, S-310), and messages that a fault rule delays.
//!
//! A PUT that finds no buffer announces itself, and searches once more with the portal's queue
//! locked; only then does it wait. A thread that posts a buffer checks for announcements after it
//! has released the partition's lock. The last search and the posting take the same partition's
//! lock: so either the search finds the buffer, or the poster sees the announcement, and waits for
//! the queue's lock until the message is in the queue. A message that has no reason to search the
//! buffer's partition has read the kinds of existing entries before the poster published that of
//! the buffer; then the poster sees the announcement as well
//! ([`PLACED`](crate::placement::PLACED)). Until the poster has checked the queue, the new buffer
//! is reserved: no later message overtakes those that wait.

use lnet_api::{RxToken, Verdict};
use lnet_proto::PING_PORTAL;
use nlx_sync::{Rule, rule};

use super::Engine;
use crate::drops::DropReason;
use crate::faults::{DelayedTable, FaultEffect};
use crate::message::{AdmittedMessage, Local, Path, WaitingMessage};
use crate::names::RxName;
use crate::portal_state::PortalState;
use crate::resources::{MatchAttempt, Search};
use crate::slab::Key;
use crate::work::DeferredWork;

/// SYNC engine.announced: a message announces itself before its last search for a buffer, so either
/// that search finds the buffer that is being attached, or the attaching thread finds the message.
pub(crate) const ANNOUNCED: Rule = Rule::new("engine.announced");

impl Engine {
    /// Queues a PUT that has found no buffer if its portal is lazy, and drops it otherwise.
    pub(super) fn delay(
        &self,
        portal: usize,
        search: &Search<'_>,
        local: &mut Option<Local>,
        work: &mut DeferredWork,
    ) -> Verdict {
        // No operation on the node's own portal waits for a buffer.
        let lazy =
            portal != PING_PORTAL.index() && self.portals.get(portal).is_some_and(PortalState::is_lazy);
        if !lazy {
            return self.drop_put(search.message, self.no_match(portal), work);
        }
        let state = &self.portals[portal];
        let mut blocked = state.blocked();
        let attempt = rule!(ANNOUNCED, state.announce(), then = self.search_again(portal, search, work));
        // Under the queue's lock: a thread that ends the portal's laziness or the NI comes before
        // this, or finds the message.
        let outcome = match attempt {
            MatchAttempt::Taken(verdict) => Ok(verdict),
            MatchAttempt::Refused(reason) => Err(reason),
            MatchAttempt::Nothing if !state.is_lazy() => Err(DropReason::NotLazy),
            MatchAttempt::Nothing if !self.is_alive(search.message.inbound.back) => {
                Err(DropReason::NiStopping)
            }
            MatchAttempt::Nothing => match blocked.push(search, local) {
                Some(key) => return Verdict::Delay(RxName::Delayed(portal, key).token()),
                None => Err(DropReason::NoRoom),
            },
        };
        state.withdraw();
        drop(blocked);
        outcome.unwrap_or_else(|reason| self.drop_put(search.message, reason, work))
    }

    fn is_alive(&self, path: Path) -> bool {
        match path {
            Path::Here => true,
            Path::Over { ni, partition, .. } => self.net.lock(partition).shared().is_open(ni),
        }
    }

    /// Offers a new buffer to the waiting messages, in order, until it is used up (S-109), and then
    /// to later messages. Each message proceeds before the next search, so no list of them has to
    /// be kept, and messages whose buffer is busy do not hinder each other.
    pub(super) fn retry_delayed(&self, portal: usize, partition: usize, me: Key, work: &mut DeferredWork) {
        let _reserved = BufferReservation { engine: self, partition, me };
        let mut passed = None;
        while let Some((waiting, attempt)) = self.retry_one(portal, partition, me, &mut passed, work) {
            match attempt {
                MatchAttempt::Taken(verdict) => self.proceed(waiting, verdict, work),
                MatchAttempt::Refused(reason) => self.drop_one(waiting, reason, work),
                MatchAttempt::Nothing => self.drop_one(waiting, DropReason::NoMatch, work),
            }
            self.run(work);
        }
    }

    /// Returns the first message after the `passed` ones that the buffer takes, or would take if it
    /// had the room. If there is none, ends the reservation of the buffer.
    fn retry_one(
        &self,
        portal: usize,
        partition: usize,
        me: Key,
        passed: &mut Option<Key>,
        work: &mut DeferredWork,
    ) -> Option<(WaitingMessage, MatchAttempt)> {
        let state = &self.portals[portal];
        let mut blocked = state.blocked();
        let part = &mut *self.posted.lock(partition);
        while let Some((key, search)) = blocked.next(*passed) {
            let attempt = part.try_waiting(me, &search, work)?;
            if !attempt.is_nothing() {
                return Some((blocked.remove(state, key)?, attempt));
            }
            *passed = Some(key);
        }
        part.release(me);
        None
    }

    /// Drops the messages of a portal's queue that arrived over a path for which `which` holds.
    /// Each is dropped before the next search.
    pub(super) fn drop_delayed(
        &self,
        portal: usize,
        which: impl Fn(&Path) -> bool,
        reason: DropReason,
        work: &mut DeferredWork,
    ) {
        let state = &self.portals[portal];
        let mut passed = None;
        let mut next = || state.blocked().remove_first(state, &mut passed, &which);
        while let Some(waiting) = next() {
            self.drop_one(waiting, reason, work);
            self.run(work);
        }
    }

    fn drop_one(&self, waiting: WaitingMessage, reason: DropReason, work: &mut DeferredWork) {
        let verdict = self.drop_put(waiting.admitted(), reason, work);
        self.proceed(waiting, verdict, work);
    }

    /// Ends the wait of a message: it is received or dropped, or waits for something else.
    fn proceed(&self, waiting: WaitingMessage, verdict: Verdict, work: &mut DeferredWork) {
        let delivery = match verdict {
            Verdict::Deliver(delivery) => Some(delivery),
            Verdict::Delay(_) | Verdict::Stay(_) => return,
            Verdict::Done | Verdict::Discard | Verdict::Close(_) => None,
        };
        if let Some(mut local) = waiting.local {
            return self.end_local(&mut local, delivery, work);
        }
        // The LND of the message continues with it.
        let Path::Over { ni, partition, .. } = waiting.inbound.back else { return };
        let lnd = { self.net.lock(partition).shared().lnd(ni) };
        if let Some(lnd) = lnd {
            lnd.resume(waiting.inbound.rx, delivery);
        }
    }

    /// Drops a waiting message for this reason; `false` if the message does not wait any more.
    pub(super) fn forget_waiting(&self, token: RxToken, reason: DropReason, work: &mut DeferredWork) -> bool {
        let (gone, held) = match RxName::decode(token) {
            RxName::Receiving(..) => (None, false),
            RxName::Delayed(portal, key) => {
                let state = self.portals.get(portal);
                (state.and_then(|state| state.blocked().remove(state, key)), false)
            }
            RxName::Held(key) => match self.take_held(|table| table.take(key)) {
                Some(waiting) => (Some(waiting), true),
                // The message may wait for a buffer by now: its LND still has the same token.
                None => (self.take_delayed(token), false),
            },
        };
        let Some(waiting) = gone else { return false };
        let _ = if held {
            self.discard(waiting.admitted(), reason)
        } else {
            self.drop_put(waiting.admitted(), reason, work)
        };
        if let Some(mut local) = waiting.local {
            self.end_local(&mut local, None, work);
        }
        true
    }

    /// Removes and returns a message that waits for a buffer, and that a fault rule delayed before
    /// under this token.
    fn take_delayed(&self, token: RxToken) -> Option<WaitingMessage> {
        self.portals.iter().filter(|state| state.has_waiting()).find_map(|state| {
            let mut blocked = state.blocked();
            let key = blocked.held_as(token)?;
            blocked.remove(state, key)
        })
    }

    /// Applies the fault rules to a message; `None` if they let it pass.
    pub(super) fn apply_faults(
        &self,
        message: AdmittedMessage<'_>,
        local: &mut Option<Local>,
    ) -> Option<Verdict> {
        let (rule, fault) = self.faults.apply(message.header)?;
        match fault {
            FaultEffect::Drop => Some(self.discard(message, DropReason::FaultRule)),
            FaultEffect::Delay(delay_ns) => {
                let token = self.hold(message, local, delay_ns);
                rule.count_delay(token.is_some());
                token.map(Verdict::Stay)
            }
        }
    }

    /// Delays a message; `None` if that is not possible.
    fn hold(
        &self,
        message: AdmittedMessage<'_>,
        local: &mut Option<Local>,
        delay_ns: u64,
    ) -> Option<RxToken> {
        let mut table = self.held.lock();
        // Under the lock: a thread that ends the NI comes before this, or finds the message.
        if !self.has_time() || !self.is_alive(message.inbound.back) {
            return None;
        }
        let token = table.push(message, local, delay_ns)?;
        self.held.update_due(&table);
        Some(token)
    }

    /// Dispatches the delayed messages that are due, one after the other.
    pub(super) fn release_held(&self, now_ns: u64) {
        self.with(|work| {
            while let Some((waiting, verdict)) = self.release_one(now_ns, work) {
                self.proceed(waiting, verdict, work);
                self.run(work);
            }
        });
    }

    /// Removes and dispatches the next delayed message that is due. Both happen under the table's
    /// lock, so that a thread that does not find the message here finds it where it was dispatched
    /// to.
    fn release_one(&self, now_ns: u64, work: &mut DeferredWork) -> Option<(WaitingMessage, Verdict)> {
        let mut table = self.held.lock();
        table.begin(now_ns);
        let due = table.take_due(now_ns);
        self.held.update_due(&table);
        let mut waiting = due?;
        let message = AdmittedMessage { inbound: &waiting.inbound, header: &waiting.header };
        let verdict = self.dispatch(message, &mut waiting.local, work);
        Some((waiting, verdict))
    }

    /// Drops the messages that fault rules delay and that arrived over a path for which `which`
    /// holds.
    pub(super) fn drop_held(&self, which: impl Fn(&Path) -> bool, work: &mut DeferredWork) {
        while let Some(waiting) = self.take_held(|table| table.take_first(&which)) {
            let verdict = self.discard(waiting.admitted(), DropReason::NiStopping);
            self.proceed(waiting, verdict, work);
            self.run(work);
        }
    }

    fn take_held(
        &self,
        take: impl FnOnce(&mut DelayedTable) -> Option<WaitingMessage>,
    ) -> Option<WaitingMessage> {
        let mut table = self.held.lock();
        let waiting = take(&mut table)?;
        self.held.update_due(&table);
        Some(waiting)
    }
}

/// Reservation of a buffer for waiting messages. Ends it if a handler panics in its wake-up.
struct BufferReservation<'a> {
    engine: &'a Engine,
    partition: usize,
    me: Key,
}

impl Drop for BufferReservation<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.posted.lock(self.partition).release(self.me);
        }
    }
}
