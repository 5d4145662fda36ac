//! The state of the raw test node: its session and batches, and its answer to each request (lst 6
//! and 7).

use std::collections::BTreeMap;

use super::data::{LENGTH_MAX, PAGE, READ, WRITE};
use super::message::{Lst, NO_SESSION, PING_MAGIC, Sid, service, status};

/// Seconds after which a session ends without an RPC, as announced.
const SESSION_TIMEOUT: u32 = 100;
/// The maximum number of destinations that a node accepts.
const DESTINATIONS_MAX: u32 = 87_296;
/// The maximum number of units for each destination.
const CONCURRENCY_MAX: u32 = 1024;
/// The size of one destination in bytes.
const DESTINATION: u32 = 12;

/// A session that a node holds.
#[derive(Debug, Clone)]
struct Held {
    sid: Sid,
    features: u32,
    name: String,
    count: u32,
    batches: BTreeMap<u64, Batch>,
}

/// A batch: its instances, in the order in which they were added.
#[derive(Debug, Clone, Default)]
struct Batch {
    is_running: bool,
    instances: Vec<Instance>,
}

/// A test of a batch.
#[derive(Debug, Clone)]
struct Instance {
    /// The units that run from RUN to STOP: those of a client without end. A client with an end has
    /// reached it at once, because this node sends nothing.
    units: u32,
}

/// The counters of a STAT reply that the raw node keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests received, malformed ones included.
    pub received: u32,
    /// Requests without a reply.
    pub dropped: u32,
    /// Bytes fetched by GET as a server.
    pub bulk_got: u64,
    /// Bytes sent by PUT as a server.
    pub bulk_put: u64,
}

/// The state of a test node.
#[derive(Debug, Default)]
pub(super) struct State {
    session: Option<Held>,
    pub(super) counters: Counters,
    /// The destinations of the client tests, in the order of the requests.
    pub(super) destinations: Vec<Vec<u8>>,
}

/// The answer of a node, before the bulk.
pub(super) enum Step {
    /// There is no reply.
    Silent,
    /// The reply.
    Reply(Lst),
    /// The reply follows after the node has fetched this number of bytes.
    Fetch(u32, Lst),
    /// The reply follows after the node has put this number of bytes.
    Put(u32, Lst),
}

impl State {
    /// Returns the answer to a request of a service.
    pub(super) fn step(&mut self, to: u64, bytes: &[u8]) -> Step {
        self.counters.received += 1;
        let step = match Lst::received(bytes).filter(|asked| Some(asked.kind()) == service::request_type(to))
        {
            Some(asked) => self.checked(to, &asked),
            None => Step::Silent,
        };
        self.counters.dropped += u32::from(matches!(step, Step::Silent));
        step
    }

    /// Makes the checks 2, 4 and 5 of the table in lst 6, then answers.
    fn checked(&mut self, to: u64, asked: &Lst) -> Step {
        if asked.at(4) != 1 {
            return Step::Reply(self.reply(to, status::EPROTO));
        }
        let unknown = asked.features() & !1 != 0;
        match to {
            service::BRW => return brw(asked),
            service::PING => return ping(asked),
            service::MKSN | service::DEBUG if unknown => {
                return Step::Reply(self.reply(to, status::EPROTO).u32(20, 1));
            }
            service::MKSN | service::DEBUG => {}
            _ if self.session.as_ref().is_some_and(|held| held.features != asked.features()) => {
                return Step::Reply(self.reply(to, status::EPROTO).u32(20, 1));
            }
            _ => {}
        }
        match to {
            service::DEBUG => Step::Reply(self.debug()),
            service::MKSN => Step::Reply(self.mksn(asked)),
            service::RMSN => Step::Reply(self.rmsn(asked.sid_at(32))),
            service::STAT => Step::Reply(self.stat(asked.sid_at(32))),
            service::BATCH => self.batch(asked),
            service::TEST => self.test(asked),
            _ => Step::Silent,
        }
    }

    /// Returns a framework reply with the session that the node holds now.
    fn reply(&self, to: u64, status: u32) -> Lst {
        let (features, sid) = self.session.as_ref().map_or((1, NO_SESSION), |held| (held.features, held.sid));
        let kind = service::request_type(to).map_or(0, |kind| kind + 1);
        Lst::new(crate::judge::wire::Order::Little, kind, features).u32(24, status).sid(28, sid)
    }

    fn holds(&self, sid: Sid) -> bool {
        self.session.as_ref().is_some_and(|held| held.sid == sid)
    }

    fn debug(&self) -> Lst {
        match &self.session {
            None => self.reply(service::DEBUG, status::ESRCH),
            Some(held) => {
                self.reply(service::DEBUG, 0).u32(44, SESSION_TIMEOUT).set(52, held.name.as_bytes())
            }
        }
    }

    fn mksn(&mut self, asked: &Lst) -> Lst {
        let sid = asked.sid_at(32);
        if sid.0 == u64::MAX {
            return self.reply(service::MKSN, status::EINVAL);
        }
        match &mut self.session {
            Some(held) if held.sid == sid => held.count += 1,
            Some(held) if asked.at(48) == 0 => {
                let name = held.name.clone();
                let refused = self.reply(service::MKSN, status::EBUSY);
                return refused.u32(44, SESSION_TIMEOUT).set(48, name.as_bytes());
            }
            _ => {
                let (features, name) = (asked.features(), asked.text(52));
                let batches = BTreeMap::new();
                self.session = Some(Held { sid, features, name, count: 1, batches });
            }
        }
        self.reply(service::MKSN, 0).u32(44, SESSION_TIMEOUT)
    }

    fn rmsn(&mut self, sid: Sid) -> Lst {
        let status = match &mut self.session {
            _ if sid.0 == u64::MAX => status::EINVAL,
            None => status::ESRCH,
            Some(held) if held.sid != sid => status::EBUSY,
            Some(held) => {
                held.count -= 1;
                0
            }
        };
        self.session = self.session.take().filter(|held| held.count > 0);
        self.reply(service::RMSN, status)
    }

    fn stat(&self, sid: Sid) -> Lst {
        if sid.0 == u64::MAX {
            return self.reply(service::STAT, status::EINVAL);
        }
        if !self.holds(sid) {
            return self.reply(service::STAT, status::ESRCH);
        }
        let running = |held: &Held| held.batches.values().filter(|batch| batch.is_running).count();
        let running = self.session.as_ref().map_or(0, running);
        let Counters { received, dropped, bulk_got, bulk_put } = self.counters;
        let reply = self.reply(service::STAT, 0).u32(48, running as u32);
        reply.u32(72, received).u32(76, dropped).u64(84, bulk_got).u64(92, bulk_put)
    }

    /// Runs nothing: a batch is active from RUN until STOP.
    fn batch(&mut self, asked: &Lst) -> Step {
        let answer = |state: &State, status| Step::Reply(state.reply(service::BATCH, status));
        if !self.holds(asked.sid_at(32)) {
            return answer(self, status::ESRCH);
        }
        let batches = self.session.as_mut().map(|held| &mut held.batches);
        let Some(batch) = batches.and_then(|batches| batches.get_mut(&asked.wide(48))) else {
            return answer(self, status::ENOENT);
        };
        match asked.at(56) {
            op @ (1 | 2) => {
                batch.is_running = op == 1 && batch.instances.iter().any(|instance| instance.units > 0);
                answer(self, 0)
            }
            3 => {
                let (status, active) = batch.query(asked.at(60));
                Step::Reply(self.reply(service::BATCH, status).u32(44, active))
            }
            _ => Step::Silent,
        }
    }

    fn test(&mut self, asked: &Lst) -> Step {
        let refused = |state: &State, status| Step::Reply(state.reply(service::TEST, status));
        let (is_client, count) = (asked.bytes[76] != 0, asked.at(78));
        let numbers = asked.at(68) != 0 && (1..=CONCURRENCY_MAX).contains(&asked.at(72));
        let list = count <= DESTINATIONS_MAX && !(is_client && count == 0);
        let known = [service::BRW, service::PING].contains(&u64::from(asked.at(64)));
        if !(known && numbers && list && asked.wide(40) != u64::MAX) {
            return refused(self, status::EINVAL);
        }
        if !self.holds(asked.sid_at(40)) {
            return refused(self, status::ENOENT);
        }
        let Some(held) = &mut self.session else { return Step::Silent };
        let batch = held.batches.entry(asked.wide(56)).or_default();
        if batch.is_running {
            return refused(self, status::EBUSY);
        }
        let good = !is_client || u64::from(asked.at(64)) == service::PING || parameter(asked);
        if good {
            let endless = is_client && (asked.at(68) as i32) < 0;
            batch.instances.push(Instance { units: if endless { count * asked.at(72) } else { 0 } });
        }
        let reply = self.reply(service::TEST, if good { 0 } else { status::EINVAL });
        if is_client { Step::Fetch(count * DESTINATION, reply) } else { Step::Reply(reply) }
    }
}

impl Batch {
    /// Returns the status and the number that a QUERY with this index is answered with.
    fn query(&self, index: u32) -> (u32, u32) {
        let of = |instance: &Instance| if self.is_running { instance.units } else { 0 };
        let clients = self.instances.iter().filter(|instance| of(instance) > 0);
        match index as i32 {
            0 => (0, clients.count() as u32),
            ..0 => (status::EINVAL, 0),
            index => match self.instances.get(index as usize - 1) {
                Some(instance) => (0, of(instance)),
                None => (status::ENOENT, 0),
            },
        }
    }
}

/// Returns whether a test client accepts the parameter of a BRW test (lst 9.1).
fn parameter(asked: &Lst) -> bool {
    let (direction, check, length, offset) = match asked.features() & 1 {
        1 => (asked.short(82).into(), asked.short(84).into(), asked.at(86), asked.at(90)),
        _ => (asked.at(82), asked.at(90), asked.at(86).saturating_mul(PAGE as u32), 0),
    };
    let length = (1..=LENGTH_MAX).contains(&length);
    [READ, WRITE].contains(&direction) && (1..=4).contains(&check) && offset % 8 == 0 && length
}

/// Returns a reply of a data service in the features of its request.
fn data_reply(to: u64, asked: &Lst, status: u32) -> Lst {
    let kind = service::request_type(to).map_or(0, |kind| kind + 1);
    Lst::new(crate::judge::wire::Order::Little, kind, asked.features()).u32(24, status)
}

fn ping(asked: &Lst) -> Step {
    if asked.at(32) != PING_MAGIC {
        return Step::Silent;
    }
    let unknown = asked.features() & !1 != 0;
    let reply = data_reply(service::PING, asked, if unknown { status::EPROTO } else { 0 });
    let reply = if unknown { reply.u32(20, 1) } else { reply };
    Step::Reply(reply.u32(28, PING_MAGIC).u32(32, asked.at(36)))
}

fn brw(asked: &Lst) -> Step {
    let [direction, length, check] = [40, 44, 48].map(|at| asked.at(at));
    let refused = |status| Step::Reply(data_reply(service::BRW, asked, status));
    if ![READ, WRITE].contains(&direction) || !(1..=4).contains(&check) {
        return refused(status::EINVAL);
    }
    if asked.features() & !1 != 0 {
        return Step::Reply(data_reply(service::BRW, asked, status::EPROTO).u32(20, 1));
    }
    let pages = asked.features() & 1 == 0 && !(length as usize).is_multiple_of(PAGE);
    // A length that is no multiple of 8 stops a kernel node (lst 13).
    if pages || length == 0 || length > LENGTH_MAX || length % 8 != 0 {
        return refused(status::EINVAL);
    }
    let reply = data_reply(service::BRW, asked, 0);
    if direction == READ { Step::Put(length, reply) } else { Step::Fetch(length, reply) }
}
