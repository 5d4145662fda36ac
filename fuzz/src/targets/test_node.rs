//! The test node of lst: a console that sends anything, servers that answer anything, and time.

use std::sync::Arc;

use lnet_proto::lst::{
    BatchOp, Brw, Check, Direction, Features, LnetCounters, LstService, MESSAGE_LEN, Name, Reply, Request,
    RequestBody, SessionId, Test,
};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::node::{
    Config, Count, DataService, Framework, Outcome as NodeOutcome, ReplyMessage, RpcEnd, Served, Unit,
};

use super::{Outcome, same};

const SECOND_NS: u64 = 1_000_000_000;

/// Most units that are driven; those beyond end at once.
const UNITS_MAX: usize = 16;

struct World {
    framework: Framework,
    data: DataService,
    ids: Ids,
    units: Vec<Unit>,
    now_ns: u64,
    received: u64,
    answered: u64,
}

/// Runs steps of one byte and its arguments: a request, its bytes changed; an RPC of a unit; time.
pub(super) fn node(bytes: &[u8]) -> Outcome {
    let framework = Framework::new(Config { memory_max: 1 << 20, ..Config::default() });
    let data = framework.data_service();
    let (ids, units) = (Ids::new(1), Vec::new());
    let mut world = World { framework, data, ids, units, now_ns: 0, received: 0, answered: 0 };
    let mut rest = bytes;
    while let Some((step, arguments)) = rest.split_first() {
        rest = world.step(*step, arguments);
        world.check();
    }
    let session = world.framework.session().map(|session| session.features.0);
    let counters =
        [Count::Dropped, Count::Sent, Count::Expired, Count::BulkGot, Count::BulkPut, Count::FatalRequest];
    let counted = counters.map(|count| world.data.counters().total(count) > 0);
    let clients = world.framework.clients().count().min(3);
    world.framework.shut_down();
    assert!(world.units.iter().all(Unit::is_aborted), "the end of a session stops its units");
    Outcome::of((session, counted, clients, world.units.len().min(3), world.answered.min(8)))
}

impl World {
    /// Runs a step, and returns what follows its arguments.
    fn step<'a>(&mut self, step: u8, arguments: &'a [u8]) -> &'a [u8] {
        match step {
            0..160 => {
                let service = LstService::ALL[usize::from(step) % LstService::ALL.len()];
                let request = Request::new(Features(u32::from(step >= 150) ^ 1), 7, body(service, step));
                let (bytes, rest) = changed(request.emit(), arguments);
                self.request(service, &bytes, rest.first().copied().unwrap_or_default());
                rest
            }
            160..200 => {
                let length = arguments.len().min(usize::from(step));
                let service = LstService::ALL[usize::from(step) % LstService::ALL.len()];
                self.request(service, &arguments[..length], step);
                &arguments[length..]
            }
            200..220 => {
                self.now_ns += u64::from(step - 199) * 10 * SECOND_NS;
                self.framework.expire(self.now_ns);
                arguments
            }
            220..230 => {
                self.units.truncate(self.units.len() / 2);
                arguments
            }
            _ => {
                self.drive(step);
                arguments
            }
        }
    }

    fn request(&mut self, service: LstService, bytes: &[u8], choice: u8) {
        self.received += 1;
        if service.is_data() {
            let served =
                if service == LstService::Ping { self.data.ping(bytes) } else { self.data.brw(bytes) };
            return self.serve(service, served, choice);
        }
        let mut outcome = self.framework.handle(service, bytes, LnetCounters::default, self.now_ns);
        if let NodeOutcome::Fetch(fetch) = outcome {
            let list = [0x05, 0, 0, 10, 0, 0, 2, 0, 0x39, 0x30, 0, choice & 1].repeat(fetch.length / 12);
            let list = if choice & 2 == 0 { Ok(&list[..]) } else { Err(Errno::ETIMEDOUT) };
            outcome = self.framework.fetched(&fetch, list, self.now_ns);
        }
        match outcome {
            NodeOutcome::Reply(answer) => self.answer(service, bytes, &answer),
            NodeOutcome::Run(answer, units) => {
                let room = UNITS_MAX - self.units.len();
                self.units.extend(units.take(room));
                self.answer(service, bytes, &answer);
            }
            NodeOutcome::Fetch(_) => panic!("a list is fetched once"),
            NodeOutcome::Drop(_) => {}
        }
    }

    fn serve(&mut self, service: LstService, served: Served, choice: u8) {
        match served {
            Served::Reply(answer) => {
                Reply::parse(service, &answer.bytes).expect("the node's replies are replies");
                self.answered += 1;
            }
            Served::Push(transfer) | Served::Pull(transfer) => {
                let mut data = vec![choice; transfer.length];
                transfer.prepare(&mut data);
                let data = if choice & 1 == 0 { Ok(&data[..]) } else { Err(Errno::EIO) };
                let ended = self.data.finish(&transfer, data);
                assert!(matches!(ended, Served::Reply(_) | Served::Drop(_)), "a transfer ends once");
            }
            Served::Drop(_) => {}
        }
    }

    /// Every reply has the session that the node holds, and the id that the request named.
    fn answer(&mut self, service: LstService, request: &[u8], answer: &ReplyMessage) {
        let reply = Reply::parse(service, &answer.bytes).expect("the node's replies are replies");
        let held = self.framework.session().map_or(SessionId::NONE, |session| session.sid);
        same(reply.sid, held, "session of a reply");
        let (request, _) = Request::parse(service, request).expect("only messages are answered");
        same(answer.reply_id, request.reply_id, "reply id");
        self.answered += 1;
    }

    /// One RPC of the last unit, which ends as the step says.
    fn drive(&mut self, step: u8) {
        let Some(mut unit) = self.units.pop() else { return };
        let mut buffer = vec![0; unit.instance().work().bulk_length()];
        let Some(rpc) = unit.begin(&self.ids, &mut buffer, self.now_ns) else { return };
        Request::parse(rpc.service, &rpc.request).expect("units send requests");
        let end = match step % 4 {
            0 => RpcEnd::Expired,
            1 => RpcEnd::Failed(Errno::EHOSTUNREACH),
            2 => RpcEnd::Aborted,
            _ => RpcEnd::Reply(&rpc.request),
        };
        unit.ended(end, &buffer, self.now_ns);
        self.units.push(unit);
    }

    fn check(&self) {
        let counters = self.data.counters();
        same(counters.total(Count::Received), self.received, "requests received");
        assert!(counters.total(Count::Dropped) <= self.received, "requests dropped");
        for client in self.framework.clients() {
            let own = self.units.iter().filter(|unit| Arc::ptr_eq(unit.instance(), &client.instance));
            same(client.instance.running() as usize, own.count(), "running units");
        }
    }
}

/// A request of session 1 that a console could send.
fn body(service: LstService, choice: u8) -> RequestBody {
    let sid = SessionId { nid4: 0x0002_0000_0a00_0009, stamp: 1 };
    let flag = u32::from(choice & 1);
    match service {
        LstService::Debug => RequestBody::Debug { sid, flags: 0 },
        LstService::MakeSession => RequestBody::MakeSession { sid, force: flag, name: Name::EMPTY },
        LstService::RemoveSession => RequestBody::RemoveSession { sid },
        LstService::Batch => {
            let op = BatchOp(1 + u32::from(choice / 9 % 3));
            RequestBody::Batch { sid, batch: 2, op, test: flag, argument: flag }
        }
        LstService::Test => RequestBody::Test(Test {
            bulk_id: 3,
            sid,
            batch: 2,
            service: 11 + u32::from(choice / 18 % 2),
            repeats: 5,
            concurrency: 2,
            is_client: choice & 1 != 0,
            stop_on_error: choice & 2 != 0,
            destinations: 1,
            parameter: [1, 0, 2, 0, 0, 16, 0, 0, 0, 0, 0, 0],
        }),
        LstService::Stat => RequestBody::Stat { sid, kind: 0 },
        LstService::Join => RequestBody::Join { sid, group: Name::EMPTY },
        LstService::Brw => RequestBody::Brw(Brw {
            bulk_id: 4,
            direction: Direction(1 + flag),
            length: 4096,
            check: Check::SIMPLE,
        }),
        LstService::Ping => RequestBody::Ping { sequence: 1, seconds: 0, nanoseconds: 0 },
    }
}

/// The bytes of a message, some of them changed: a count, then places with their new values.
fn changed(mut message: [u8; MESSAGE_LEN], arguments: &[u8]) -> ([u8; MESSAGE_LEN], &[u8]) {
    let Some((count, rest)) = arguments.split_first() else { return (message, arguments) };
    let (changes, rest) = rest.split_at(rest.len().min(usize::from(count % 4) * 2));
    for change in changes.chunks_exact(2) {
        message[usize::from(change[0]) % MESSAGE_LEN] = change[1];
    }
    (message, rest)
}

/// Sessions that run, stop and end; `0` behind a request leaves it as it is.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    // The places of MKSN, TEST, BATCH … in `LstService::ALL`.
    let of = |service: LstService, round: u8| {
        round * 9 + LstService::ALL.iter().position(|of| *of == service).unwrap_or(0) as u8
    };
    let session = [of(LstService::MakeSession, 0), 0];
    let server = [of(LstService::Test, 0), 0];
    let client = [of(LstService::Test, 1), 0];
    let run = [of(LstService::Batch, 0), 0];
    let stop = [of(LstService::Batch, 1), 0];
    let query = [of(LstService::Batch, 2), 0];
    let others = [LstService::Debug, LstService::Stat, LstService::Brw, LstService::Ping]
        .map(|service| [of(service, 0), 0]);
    let remove = [of(LstService::RemoveSession, 0), 0];
    let parts = |parts: &[&[u8]]| parts.concat();
    vec![
        parts(&[&session, &server, &others.concat(), &remove]),
        parts(&[&session, &client, &run, &[231, 235, 230], &query, &stop, &[239], &remove]),
        parts(&[&session, &client, &run, &[215], &session, &[221]]),
        parts(&[
            &session,
            &server,
            &[of(LstService::Brw, 0), 1, 44, 8],
            &[of(LstService::Test, 1), 1, 64, 12],
        ]),
    ]
}
