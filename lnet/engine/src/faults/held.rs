//! Messages that a rule delays. Their connections stand meanwhile, as with a lazy portal's: so what a peer has sent stays in
//! order.
//!
//! A message begins to wait when [`Engine::advance`] is called next: the engine's clock may have stood for long when it
//! arrived. Messages whose time has come are looked at in the order of the moments at which they were to be, those of one
//! moment in the order in which they arrived.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{LNetError, RxToken, Verdict};
use lnet_proto::Header;
use parking_lot::{Mutex, MutexGuard};

use super::table::Fault;
use super::{FaultId, FaultRule, FaultStatistics, Faults};
use crate::drops::DropReason;
use crate::engine::Engine;
use crate::message::{Inbound, Local, Way};
use crate::names::RxName;
use crate::slab::{Key, Slab, slab};
use crate::work::Work;

/// Delayed messages.
pub(crate) struct Held {
    /// Taken before the locks of portals and partitions, never after.
    table: Mutex<HeldTable>,
    /// When [`Engine::advance`] must look here; 0 if a message has just come. Changed under the lock.
    due_ns: AtomicU64,
}

/// When a message is due, and the number of its arrival.
type Due = (u64, u64);

pub(crate) struct HeldTable {
    messages: Slab<HeldMessage>,
    /// Those that wait since the next call of [`Engine::advance`], in the order in which they came.
    fresh: VecDeque<Key>,
    order: BTreeMap<Due, Key>,
    arrivals: u64,
}

struct HeldMessage {
    inbound: Inbound,
    header: Header,
    /// The message itself, if this node sent it.
    local: Option<Local>,
    delay_ns: u64,
    arrival: u64,
    due_ns: Option<u64>,
}

impl Held {
    /// For at most `limit` messages.
    pub(super) fn new(limit: usize) -> Held {
        let table =
            HeldTable { messages: slab(limit), fresh: VecDeque::new(), order: BTreeMap::new(), arrivals: 0 };
        Held { table: Mutex::new(table), due_ns: AtomicU64::new(u64::MAX) }
    }
}

impl HeldTable {
    /// Enters a message; `None` if there are too many.
    fn enter(&mut self, mut message: HeldMessage) -> Option<Key> {
        self.arrivals += 1;
        message.arrival = self.arrivals;
        let key = self.messages.insert(message)?;
        self.fresh.push_back(key);
        Some(key)
    }

    /// Those that have come since the last call wait from now on.
    fn begin(&mut self, now_ns: u64) {
        while let Some(key) = self.fresh.pop_front() {
            if let Some(message) = self.messages.get_mut(key) {
                let due_ns = now_ns.saturating_add(message.delay_ns);
                message.due_ns = Some(due_ns);
                self.order.insert((due_ns, message.arrival), key);
            }
        }
    }

    /// The first whose time has come.
    fn take_due(&mut self, now_ns: u64) -> Option<HeldMessage> {
        let (&(due_ns, _), &key) = self.order.first_key_value()?;
        if due_ns > now_ns { None } else { self.take(key) }
    }

    fn take(&mut self, key: Key) -> Option<HeldMessage> {
        let message = self.messages.remove(key)?;
        match message.due_ns {
            Some(due_ns) => drop(self.order.remove(&(due_ns, message.arrival))),
            None => self.fresh.retain(|other| *other != key),
        }
        Some(message)
    }

    /// Where each came from, and itself if this node sent it.
    pub(crate) fn ways(&self) -> impl Iterator<Item = (&Way, Option<&Local>)> {
        let messages = self.messages.indices().map(|index| &self.messages[index]);
        messages.map(|message| (&message.inbound.back, message.local.as_ref()))
    }

    /// When the next one is due; 0 if some do not wait yet.
    fn next_ns(&self) -> u64 {
        let first_ns = self.order.first_key_value().map_or(u64::MAX, |(&(due_ns, _), _)| due_ns);
        if self.fresh.is_empty() { first_ns } else { 0 }
    }
}

impl Faults {
    /// The delayed messages. The lock comes before those of portals and partitions.
    pub(crate) fn held(&self) -> MutexGuard<'_, HeldTable> {
        self.held.table.lock()
    }
}

impl Engine {
    /// From now on messages that arrive are lost or late by this rule: behind the checks of the header, before anything is
    /// looked for that takes them (where LNet has its `lctl net_drop_add` and `net_delay_add`). Messages of the node to
    /// itself arrive too. Rules are asked in the order in which they were added, and the first that does something to a
    /// message is the last that is asked.
    ///
    /// Its sender cannot tell a lost message from one that was lost on this node; here it counts as dropped
    /// ([`crate::Counters::drop_count`]), but nobody is told who waits for it ([`lnet_api::LNet::watch_drops`]). A delayed one
    /// holds up its connection, so that what the peer sends behind it is late as well, and in order. It is lost if its
    /// connection or its NI goes meanwhile; that its rule is removed changes nothing for it. On a node without NIs, whose
    /// time does not pass, and beyond [`crate::Limits::held`] messages, none is delayed.
    ///
    /// ```
    /// use lnet::{Engine, EngineConfig};
    /// use lnet_nid::Pid;
    ///
    /// let node = Engine::new(EngineConfig::new(Pid::LNET, 1));
    /// let rule = node.add_fault("drop 1/100 put portal 42".parse()?)?;
    /// // ... and when all is over:
    /// let found = node.remove_fault(rule)?;
    /// println!("{}: {} of {} lost", found.rule, found.dropped, found.matched);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// ENOMEM beyond [`crate::FAULT_RULES_MAX`] rules, EINVAL for one that cannot be ([`FaultRule::check`]).
    pub fn add_fault(&self, rule: FaultRule) -> Result<FaultId, LNetError> {
        self.faults.add(rule)
    }

    /// Takes a rule back; gives what has come of it.
    ///
    /// # Errors
    /// ENOENT if it is gone.
    pub fn remove_fault(&self, id: FaultId) -> Result<FaultStatistics, LNetError> {
        self.faults.remove(id).ok_or(LNetError::NoSuch { object: "fault rule", handle: 0 })
    }

    /// The rules in force, in the order in which they are asked, and what has come of each so far.
    pub fn faults(&self) -> Vec<FaultStatistics> {
        self.faults.statistics()
    }

    /// Messages that rules delay at this moment.
    pub fn held(&self) -> usize {
        self.faults.held().messages.len()
    }

    /// What the rules make of a message; `None` if they let it pass.
    pub(crate) fn strike(
        &self,
        inbound: &Inbound,
        header: &Header,
        local: &mut Option<Local>,
    ) -> Option<Verdict> {
        let (rule, fault) = self.faults.strike(header)?;
        match fault {
            Fault::Drop => Some(self.discard(inbound, header, DropReason::FaultRule)),
            Fault::Delay(delay_ns) => {
                let verdict = self.hold(inbound, header, local, delay_ns);
                rule.count_delay(verdict.is_some());
                verdict
            }
        }
    }

    /// Makes a message wait; `None` if it cannot.
    fn hold(
        &self,
        inbound: &Inbound,
        header: &Header,
        local: &mut Option<Local>,
        delay_ns: u64,
    ) -> Option<Verdict> {
        let mut table = self.faults.held();
        // Under the lock: whoever ends the NI's life comes before this, or finds the message.
        if !self.has_time() || !self.is_alive(&inbound.back) {
            return None;
        }
        let inbound = inbound.clone();
        let message =
            HeldMessage { inbound, header: *header, local: None, delay_ns, arrival: 0, due_ns: None };
        let key = table.enter(message)?;
        let token = RxName::Held(key).token();
        if let Some(message) = table.messages.get_mut(key) {
            message.inbound.held = token.0;
            message.local = local.take();
        }
        self.faults.held.due_ns.store(0, Ordering::Relaxed);
        Some(Verdict::Delay(token))
    }

    /// When the first of those that wait is due, or begins to wait; the greatest number if there are none.
    pub(crate) fn held_until_ns(&self) -> u64 {
        self.faults.held.due_ns.load(Ordering::Relaxed)
    }

    /// Looks at the messages whose time has come, each before the next one.
    pub(crate) fn release_held(&self, now_ns: u64) {
        self.with(|work| {
            while let Some((message, verdict)) = self.release_one(now_ns, work) {
                self.proceed(&message.inbound, message.local, verdict, work);
                self.run(work);
            }
        });
    }

    /// Under the lock: who does not find a message here finds it where it has gone.
    fn release_one(&self, now_ns: u64, work: &mut Work) -> Option<(HeldMessage, Verdict)> {
        let mut table = self.faults.held();
        table.begin(now_ns);
        let due = table.take_due(now_ns);
        self.faults.held.due_ns.store(table.next_ns(), Ordering::Relaxed);
        let mut message = due?;
        let verdict = self.dispatch(&message.inbound, &message.header, &mut message.local, work);
        Some((message, verdict))
    }

    /// The connection of a delayed message is lost; `false` if the message does not wait any more.
    pub(crate) fn forget_held(&self, token: RxToken, key: Key, work: &mut Work) -> bool {
        let gone = self.take_held(|table| table.messages.get(key).is_some().then_some(key));
        match gone {
            Some(message) => {
                let _ = self.discard(&message.inbound, &message.header, DropReason::ConnectionLost);
                if let Some(local) = message.local {
                    self.end_outgoing(&local.message, Ok(()), work);
                }
                true
            }
            // Perhaps it waits for a buffer since.
            None => self.forget_elsewhere(token, work),
        }
    }

    /// Drops the delayed messages of some ways.
    pub(crate) fn drop_held(&self, which: impl Fn(&Way) -> bool, work: &mut Work) {
        let first = |table: &HeldTable| {
            let goes = |&index: &u32| which(&table.messages[index].inbound.back);
            table.messages.indices().find(goes).map(|index| table.messages.key(index))
        };
        while let Some(message) = self.take_held(first) {
            let verdict = self.discard(&message.inbound, &message.header, DropReason::NiStopping);
            self.proceed(&message.inbound, message.local, verdict, work);
            self.run(work);
        }
    }

    fn take_held(&self, which: impl FnOnce(&HeldTable) -> Option<Key>) -> Option<HeldMessage> {
        let mut table = self.faults.held();
        let key = which(&table)?;
        let message = table.take(key);
        self.faults.held.due_ns.store(table.next_ns(), Ordering::Relaxed);
        message
    }
}
