//! Random requests to a node and to a plain model of lst 6: statuses, sessions, counts and features
//! agree. And bytes of any kind do no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    BatchOp, Brw, Check, Direction, Features, LnetCounters, LstService, MESSAGE_LEN, Reply, ReplyBody,
    Request, RequestBody, SessionId, Statistics, Test,
};
use nlx_lst::node::{Client, Config, Count, Framework, Outcome, Served, Unit};
use proptest::prelude::*;

use crate::kit::{ON, emit, list, name, ping_test, process, sid};

/// What the model remembers of a test; a server has no units.
#[derive(Clone, Copy, Debug)]
struct ModelTest {
    units: u32,
    running: u32,
}

#[derive(Clone, Debug)]
struct ModelSession {
    /// Number of sessions before it.
    serial: usize,
    sid: SessionId,
    features: u32,
    references: u32,
    deadline_s: u64,
    batches: BTreeMap<u64, Vec<ModelTest>>,
}

/// The table of lst 6, with plain numbers.
#[derive(Clone, Debug, Default)]
struct Model {
    session: Option<ModelSession>,
    sessions: usize,
    received: u32,
}

/// What the model expects: status, and the number of a QUERY.
type Expected = (u32, u32);

impl Model {
    fn expire(&mut self, now_s: u64) {
        self.session.take_if(|session| session.deadline_s <= now_s);
    }

    fn expect(&mut self, features: u32, body: &RequestBody, now_s: u64) -> Expected {
        self.expire(now_s);
        self.received += 1;
        if let Some(session) = &mut self.session {
            session.deadline_s = now_s + 100;
        }
        let is_session_only = matches!(body, RequestBody::MakeSession { .. } | RequestBody::Debug { .. });
        let held = self.session.as_ref().map(|session| session.features);
        if if is_session_only { features > 1 } else { held.is_some_and(|held| held != features) } {
            return (71, 0);
        }
        match *body {
            RequestBody::MakeSession { sid, force, .. } => (self.make(sid, force, features, now_s), 0),
            RequestBody::RemoveSession { sid } => (self.remove(sid), 0),
            RequestBody::Debug { .. } => (if self.session.is_some() { 0 } else { 3 }, 0),
            RequestBody::Stat { sid, .. } => (if self.is(sid) { 0 } else { 3 }, 0),
            RequestBody::Test(test) => (self.test(&test), 0),
            RequestBody::Batch { sid, batch, op, test, .. } => self.batch(sid, batch, op, test),
            _ => unreachable!("no other requests are made"),
        }
    }

    fn is(&self, sid: SessionId) -> bool {
        self.session.as_ref().is_some_and(|session| session.sid == sid)
    }

    fn make(&mut self, sid: SessionId, force: u32, features: u32, now_s: u64) -> u32 {
        match &mut self.session {
            Some(session) if session.sid == sid => session.references += 1,
            Some(_) if force == 0 => return 16,
            session => {
                let (serial, batches, deadline_s) = (self.sessions, BTreeMap::new(), now_s + 100);
                *session = Some(ModelSession { serial, sid, features, references: 1, deadline_s, batches });
                self.sessions += 1;
            }
        }
        0
    }

    fn remove(&mut self, sid: SessionId) -> u32 {
        match &mut self.session {
            None => 3,
            Some(session) if session.sid != sid => 16,
            Some(session) => {
                session.references -= 1;
                self.session.take_if(|session| session.references == 0);
                0
            }
        }
    }

    fn test(&mut self, test: &Test) -> u32 {
        if test.concurrency == 0 || test.repeats == 0 || !(11..=12).contains(&test.service) {
            return 22;
        }
        let Some(session) = self.session.as_mut().filter(|session| session.sid == test.sid) else { return 2 };
        let batch = session.batches.entry(test.batch).or_default();
        if batch.iter().any(|test| test.running > 0) {
            return 16;
        }
        // The parameters are those of a session with the feature.
        if test.is_client && test.service == 11 && session.features == 0 {
            return 22;
        }
        let units = if test.is_client { test.concurrency } else { 0 };
        batch.push(ModelTest { units, running: 0 });
        0
    }

    fn batch(&mut self, sid: SessionId, id: u64, op: BatchOp, test: u32) -> Expected {
        let Some(session) = self.session.as_mut().filter(|session| session.sid == sid) else { return (3, 0) };
        let Some(batch) = session.batches.get_mut(&id) else { return (2, 0) };
        let active = batch.iter().filter(|test| test.running > 0).count() as u32;
        match (op, test) {
            (BatchOp::RUN, _) if active == 0 => batch.iter_mut().for_each(|test| test.running = test.units),
            (BatchOp::QUERY, 0) => return (0, active),
            (BatchOp::QUERY, 1..=0x7fff_ffff) => {
                return batch.get(test as usize - 1).map_or((2, 0), |test| (0, test.running));
            }
            (BatchOp::QUERY, _) => return (22, 0),
            _ => {}
        }
        (0, 0)
    }

    /// A unit has ended.
    fn end_unit(&mut self, place: Place) {
        if let Some(session) = self.session.as_mut().filter(|session| session.serial == place.serial) {
            session.batches.get_mut(&place.batch).unwrap()[place.test].running -= 1;
        }
    }
}

/// Which test a unit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    serial: usize,
    batch: u64,
    test: usize,
}

/// A random request, or the end of some units, and how many seconds pass before it.
#[derive(Clone, Debug)]
enum Step {
    Request(u32, RequestBody),
    EndUnits(usize),
}

fn steps() -> impl Strategy<Value = (u64, Step)> {
    let features = prop_oneof![8 => Just(1_u32), 1 => 0..4_u32];
    let sids = (1..3_i64).prop_map(sid);
    let bodies =
        (sids, 0..2_u32, 1..4_u64, 0..5_u32, 0..12_u8).prop_map(|(sid, flag, batch, number, kind)| {
            match kind {
                0 => RequestBody::MakeSession { sid, force: flag, name: name("any") },
                1 => RequestBody::RemoveSession { sid },
                2 => RequestBody::Debug { sid, flags: flag },
                3 => RequestBody::Stat { sid, kind: flag },
                4..=6 => RequestBody::Test(Test {
                    sid,
                    batch,
                    service: 10 + number % 4,
                    is_client: flag == 1,
                    destinations: flag,
                    concurrency: number,
                    repeats: if number == 3 { 0 } else { 1 },
                    // READ of 8 bytes without check, if it is BRW.
                    parameter: [1, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0],
                    ..ping_test()
                }),
                7 | 8 => RequestBody::Batch { sid, batch, op: BatchOp::RUN, test: 0, argument: 0 },
                9 => RequestBody::Batch { sid, batch, op: BatchOp::STOP, test: 0, argument: flag },
                10 => RequestBody::Batch {
                    sid,
                    batch,
                    op: BatchOp::QUERY,
                    test: u32::MAX - number,
                    argument: 0,
                },
                _ => RequestBody::Batch { sid, batch, op: BatchOp::QUERY, test: number, argument: 0 },
            }
        });
    let step = prop_oneof![
        8 => (features, bodies).prop_map(|(features, body)| Step::Request(features, body)),
        1 => (0..4_usize).prop_map(Step::EndUnits),
    ];
    (prop_oneof![9 => 0..20_u64, 1 => 90..110_u64], step)
}

/// The node beside the model.
struct Pair {
    framework: Framework,
    model: Model,
    order: ByteOrder,
    /// Units that have not ended.
    units: Vec<(Unit, Place)>,
}

impl Pair {
    fn request(&mut self, features: u32, body: RequestBody, now_s: u64) {
        let before = self.model.clone();
        let (status, active) = self.model.expect(features, &body, now_s);
        let request = Request::new(Features(features), 5, body);
        let now_ns = now_s * 1_000_000_000;
        let bytes = emit(&request, self.order);
        let mut outcome = self.framework.handle(request.service(), &bytes, LnetCounters::default, now_ns);
        if let Outcome::Fetch(fetch) = outcome {
            let list = list(&[process("10.0.0.2@tcp")], self.order);
            outcome = self.framework.fetched(&fetch, Ok(&list), now_ns);
        }
        let answer = match outcome {
            Outcome::Reply(answer) => answer,
            Outcome::Run(answer, units) => {
                self.start(&body, units.collect());
                answer
            }
            other => panic!("{other:?} to {body:?} after {before:?}"),
        };
        let reply = Reply::parse(request.service(), &answer.bytes).unwrap();
        assert_eq!((reply.status, answer.reply_id), (status, 5), "{body:?} after {before:?}");
        let held = self.model.session.as_ref();
        assert_eq!(reply.sid, held.map_or(SessionId::NONE, |session| session.sid));
        let held = held.map_or(1, |session| session.features);
        assert_eq!(reply.features, Features(if status == 71 { 1 } else { held }));
        match reply.body {
            ReplyBody::Batch { active: found, .. } => assert_eq!(found, active, "{body:?} after {before:?}"),
            ReplyBody::Stat(found) if status == 0 => self.check_statistics(&found),
            _ => {}
        }
    }

    /// Units are of the session that holds the batch.
    fn start(&mut self, body: &RequestBody, units: Vec<Unit>) {
        let RequestBody::Batch { batch, .. } = *body else { panic!("{body:?} has started units") };
        let serial = self.model.session.as_ref().unwrap().serial;
        let clients: Vec<_> = self.framework.clients().filter(|client| client.batch == batch).collect();
        for unit in units {
            let own = |client: &&Client| Arc::ptr_eq(&client.instance, unit.instance());
            let test = clients.iter().find(own).unwrap().test - 1;
            self.units.push((unit, Place { serial, batch, test }));
        }
    }

    fn end_units(&mut self, count: usize) {
        for (unit, place) in self.units.drain(..count.min(self.units.len())) {
            drop(unit);
            self.model.end_unit(place);
        }
    }

    fn check_statistics(&self, found: &Statistics) {
        let session = self.model.session.as_ref().unwrap();
        let is_active = |tests: &&Vec<ModelTest>| tests.iter().any(|test| test.running > 0);
        assert_eq!(found.active_batches, session.batches.values().filter(is_active).count() as u32);
        let old = self.units.iter().map(|(_, place)| place.serial).filter(|serial| *serial != session.serial);
        assert_eq!(found.zombie_sessions, old.collect::<BTreeSet<_>>().len() as u32);
        assert_eq!((found.rpcs_received, found.rpcs_dropped), (self.model.received, 0));
    }

    /// Each unit that the model has is a unit of the node, with force stopped if its session has ended.
    fn check_units(&self) {
        let session = self.model.session.as_ref();
        for (unit, place) in &self.units {
            if session.is_none_or(|session| session.serial != place.serial) {
                assert!(unit.is_aborted(), "{place:?}");
            }
        }
        for (batch, tests) in session.iter().flat_map(|session| &session.batches) {
            for (test, of_model) in tests.iter().enumerate() {
                let place = Place { serial: session.unwrap().serial, batch: *batch, test };
                let units = self.units.iter().filter(|(_, of)| *of == place).count();
                assert_eq!(units, of_model.running as usize, "{place:?}");
            }
        }
        assert_eq!(self.framework.session().map(|session| session.sid), session.map(|session| session.sid));
    }
}

proptest! {
    #[test]
    fn a_node_does_what_the_model_does(
        steps in prop::collection::vec(steps(), 1..120), big in any::<bool>()
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let framework = Framework::new(Config::default());
        let mut pair = Pair { framework, model: Model::default(), order, units: Vec::new() };
        let mut now_s = 0;
        for (seconds, step) in steps {
            now_s += seconds;
            match step {
                Step::Request(features, body) => pair.request(features, body, now_s),
                Step::EndUnits(count) => pair.end_units(count),
            }
            pair.model.expire(now_s);
            pair.framework.expire(now_s * 1_000_000_000);
            pair.check_units();
        }
    }

    /// Random bytes, and messages with random bytes in them: at most one answer each, counted.
    #[test]
    fn bytes_of_any_kind_do_no_harm(
        requests in prop::collection::vec(
            (0..LstService::ALL.len(), prop::collection::vec(any::<u8>(), 0..200), any::<bool>(), 0..24_usize),
            1..60,
        ),
    ) {
        let mut framework = Framework::new(Config { memory_max: 1 << 20, ..Config::default() });
        let data = framework.data_service();
        let mut units = Vec::new();
        for (service, mut bytes, is_message, kept) in requests.clone() {
            let service = LstService::ALL[service];
            if is_message {
                // A message of session 1, in which all behind its first fields is random.
                let known = emit(&Request::new(ON, 5, known_body(service)), ByteOrder::Little);
                bytes.resize(MESSAGE_LEN, 0);
                bytes[..48 + kept].copy_from_slice(&known[..48 + kept]);
            }
            if service.is_data() {
                let served = if service == LstService::Ping { data.ping(&bytes) } else { data.brw(&bytes) };
                if let Served::Push(transfer) | Served::Pull(transfer) = served {
                    let ended = data.finish(&transfer, Ok(&bytes));
                    prop_assert!(matches!(ended, Served::Reply(_) | Served::Drop(_)));
                }
                continue;
            }
            let mut outcome = framework.handle(service, &bytes, LnetCounters::default, 0);
            if let Outcome::Fetch(fetch) = outcome {
                prop_assert!(fetch.length <= 1 << 20);
                outcome = framework.fetched(&fetch, Ok(&bytes), 0);
            }
            match outcome {
                Outcome::Run(_, started) => units.extend(started.take(3)),
                Outcome::Fetch(_) => prop_assert!(false, "a list is fetched once"),
                Outcome::Reply(_) | Outcome::Drop(_) => {}
            }
        }
        let received = data.counters().total(Count::Received);
        prop_assert_eq!(received, requests.len() as u64);
        prop_assert!(data.counters().total(Count::Dropped) <= received);
    }
}

fn known_body(service: LstService) -> RequestBody {
    let (sid, group) = (sid(1), name("any"));
    match service {
        LstService::Debug => RequestBody::Debug { sid, flags: 0 },
        LstService::MakeSession => RequestBody::MakeSession { sid, force: 0, name: group },
        LstService::RemoveSession => RequestBody::RemoveSession { sid },
        LstService::Batch => RequestBody::Batch { sid, batch: 2, op: BatchOp::RUN, test: 0, argument: 0 },
        LstService::Test => RequestBody::Test(Test { is_client: true, destinations: 1, ..ping_test() }),
        LstService::Stat => RequestBody::Stat { sid, kind: 0 },
        LstService::Join => RequestBody::Join { sid, group },
        LstService::Brw => {
            let (direction, check) = (Direction::READ, Check::NONE);
            RequestBody::Brw(Brw { bulk_id: 1, direction, length: 8, check })
        }
        LstService::Ping => RequestBody::Ping { sequence: 0, seconds: 0, nanoseconds: 0 },
    }
}
