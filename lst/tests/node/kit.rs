//! A node, and a console that speaks to it in either byte order.

use lnet_nid::{Pid, ProcessId};
use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    BatchOp, BrwParameter, Check, Destinations, Direction, Features, LnetCounters, LstService, Name, Reply,
    ReplyBody, Request, RequestBody, SessionId, Statistics, Test,
};
use nix::errno::Errno;
use nlx_lst::node::{Config, Fetch, Framework, Outcome, ReplyMessage, Units};

pub(crate) const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];
pub(crate) const ON: Features = Features::BULK_LENGTH;
pub(crate) const OFF: Features = Features::NONE;
pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn process(nid: &str) -> ProcessId {
    ProcessId::new(nid.parse().unwrap(), Pid::LNET)
}

pub(crate) fn sid(stamp: i64) -> SessionId {
    SessionId::new("10.0.0.9@tcp".parse().unwrap(), stamp).unwrap()
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Number of an errno as replies have it.
pub(crate) const fn status(errno: Errno) -> u32 {
    errno as u32
}

/// The bytes of a request from a sender of this byte order.
pub(crate) fn emit(request: &Request, order: ByteOrder) -> Vec<u8> {
    let mut bytes = request.emit().to_vec();
    if order == ByteOrder::Big {
        let mut rest = &mut bytes[..];
        for length in [&[4; 6], fields(request)].concat() {
            let (field, behind) = rest.split_at_mut(length);
            // Texts are the only fields of more than 8 bytes.
            if length <= 8 {
                field.reverse();
            }
            rest = behind;
        }
    }
    bytes
}

/// The lengths of the fields behind the head.
fn fields(request: &Request) -> &'static [usize] {
    match request.service() {
        LstService::Debug | LstService::Stat => &[8, 8, 8, 4],
        LstService::MakeSession => &[8, 8, 8, 4, 32],
        LstService::RemoveSession => &[8, 8, 8],
        LstService::Batch => &[8, 8, 8, 8, 4, 4, 4],
        LstService::Test if request.features == OFF => &[8, 8, 8, 8, 8, 4, 4, 4, 1, 1, 4, 4, 4, 4],
        LstService::Test => &[8, 8, 8, 8, 8, 4, 4, 4, 1, 1, 4, 2, 2, 4, 4],
        LstService::Join => &[8, 8, 8, 32],
        LstService::Brw => &[8, 8, 4, 4, 4],
        LstService::Ping => &[8, 4, 4, 8, 8],
    }
}

/// A node with its console.
pub(crate) struct Bench {
    pub(crate) framework: Framework,
    pub(crate) order: ByteOrder,
    pub(crate) features: Features,
    pub(crate) now_ns: u64,
    reply_id: u64,
}

impl Bench {
    pub(crate) fn new(order: ByteOrder) -> Bench {
        Bench::with(order, Config::default())
    }

    pub(crate) fn with(order: ByteOrder, config: Config) -> Bench {
        Bench { framework: Framework::new(config), order, features: ON, now_ns: 0, reply_id: 0x5000 }
    }

    /// A node that holds session 1, called "one".
    pub(crate) fn in_session(order: ByteOrder) -> Bench {
        let mut bench = Bench::new(order);
        assert_eq!(bench.ask(make_session(1, 0, "one")).status, 0);
        bench
    }

    pub(crate) fn request(&mut self, body: RequestBody) -> Request {
        self.reply_id += 1;
        Request::new(self.features, self.reply_id, body)
    }

    pub(crate) fn send(&mut self, body: RequestBody) -> Outcome {
        let request = self.request(body);
        let bytes = emit(&request, self.order);
        self.framework.handle(request.service(), &bytes, LnetCounters::default, self.now_ns)
    }

    /// Sends a request and reads the reply, which is little-endian.
    pub(crate) fn ask(&mut self, body: RequestBody) -> Reply {
        let service = Request::new(ON, 0, body).service();
        match self.send(body) {
            Outcome::Reply(answer) => self.read(service, &answer),
            outcome => panic!("{outcome:?} to {body:?}"),
        }
    }

    pub(crate) fn read(&self, service: LstService, answer: &ReplyMessage) -> Reply {
        assert_eq!(answer.reply_id, self.reply_id);
        assert_eq!(answer.bytes[..4], [0x0d, 0xf0, 0xb0, 0xee], "little-endian");
        let behind = &answer.bytes[Reply::length(service)..];
        assert!(behind.iter().all(|byte| *byte == 0), "zeros behind the last field");
        Reply::parse(service, &answer.bytes).unwrap()
    }

    /// Sends a TEST for a client and brings the list of its destinations.
    pub(crate) fn add_client(&mut self, test: Test, destinations: &[ProcessId]) -> Reply {
        let fetch = self.fetch(test, destinations.len());
        let list = list(destinations, self.order);
        match self.framework.fetched(&fetch, Ok(&list), self.now_ns) {
            Outcome::Reply(answer) => self.read(LstService::Test, &answer),
            outcome => panic!("{outcome:?} to {test:?}"),
        }
    }

    /// Sends a TEST for a client with so many destinations.
    pub(crate) fn fetch(&mut self, test: Test, destinations: usize) -> Fetch {
        let test = Test { is_client: true, bulk_id: 77, destinations: destinations as u32, ..test };
        match self.send(RequestBody::Test(test)) {
            Outcome::Fetch(fetch) => {
                assert_eq!((fetch.bulk_id, fetch.length), (77, 12 * destinations));
                fetch
            }
            outcome => panic!("{outcome:?} to {test:?}"),
        }
    }

    pub(crate) fn run(&mut self, batch_id: u64) -> Units {
        match self.send(batch(1, batch_id, BatchOp::RUN, 0, 0)) {
            Outcome::Run(answer, units) => {
                assert_eq!(self.read(LstService::Batch, &answer).status, 0);
                units
            }
            outcome => panic!("{outcome:?} to RUN"),
        }
    }

    /// Status and number of a QUERY.
    pub(crate) fn query(&mut self, batch_id: u64, test: u32) -> (u32, u32) {
        let reply = self.ask(batch(1, batch_id, BatchOp::QUERY, test, 0));
        let ReplyBody::Batch { active, time: 0 } = reply.body else { panic!("{reply:?}") };
        (reply.status, active)
    }

    pub(crate) fn statistics(&mut self) -> Statistics {
        let reply = self.ask(RequestBody::Stat { sid: sid(1), kind: 0 });
        match reply {
            Reply { status: 0, body: ReplyBody::Stat(statistics), .. } => statistics,
            _ => panic!("{reply:?}"),
        }
    }
}

pub(crate) fn list(destinations: &[ProcessId], order: ByteOrder) -> Vec<u8> {
    let mut list = Vec::new();
    for to in destinations {
        let mut entry = Destinations::emit(to.nid, to.pid).unwrap();
        if order == ByteOrder::Big {
            entry[..8].reverse();
            entry[8..].reverse();
        }
        list.extend(entry);
    }
    list
}

pub(crate) fn make_session(stamp: i64, force: u32, text: &str) -> RequestBody {
    RequestBody::MakeSession { sid: sid(stamp), force, name: name(text) }
}

pub(crate) fn batch(stamp: i64, batch: u64, op: BatchOp, test: u32, argument: u32) -> RequestBody {
    RequestBody::Batch { sid: sid(stamp), batch, op, test, argument }
}

/// A PING server in batch 2 of session 1.
pub(crate) fn ping_test() -> Test {
    Test {
        bulk_id: 0,
        sid: sid(1),
        batch: 2,
        service: LstService::Ping as u32,
        repeats: 1,
        concurrency: 1,
        is_client: false,
        stop_on_error: true,
        destinations: 0,
        parameter: [0; 12],
    }
}

/// A BRW server in batch 2 of session 1, or with a list of destinations a client.
pub(crate) fn brw_test(direction: Direction, check: Check, length: u32) -> Test {
    let test = Test { service: LstService::Brw as u32, ..ping_test() };
    test.with_brw(&BrwParameter { direction, check, length, offset: 0 }, ON).unwrap()
}
