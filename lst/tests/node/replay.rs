//! Recorded sessions of kernel nodes: each recorded request gets the recorded reply, except what
//! lst 16 lets differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lnet_nid::Nid;
use lnet_proto::lst::{
    BatchOp, DATA_PORTAL, FRAMEWORK_PORTAL, LnetCounters, LstService, REPLY_PORTAL, Reply, ReplyBody,
    Request, RequestBody, SessionId,
};
use lnet_proto::{Body, Header, ib};
use nlx_lst::Ids;
use nlx_lst::node::{
    Config, DataService, Framework, Outcome, ReplyMessage, RpcEnd, Served, Transfer, Unit, UnitRpc, Work,
};
use nlx_lst::pattern::{PAGE_SIZE, fill};
use serde_json::Value;

/// Recorded LNet messages, each with its payload where the recording has it.
struct Session(Vec<(Header, Option<Vec<u8>>)>);

/// One source's requests to a node, in order; a TEST with the list that was fetched for it.
struct Source {
    nid: Nid,
    requests: Vec<(LstService, Vec<u8>)>,
    lists: Vec<Vec<u8>>,
}

fn hex(value: &Value) -> Vec<u8> {
    let (pairs, _) = value.as_str().unwrap().as_bytes().as_chunks::<2>();
    pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

impl Session {
    fn read(file: &str) -> Session {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors").join(file);
        let recording: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let streams = recording["streams"].as_array().into_iter().flatten();
        let items = streams.map(|stream| &stream["items"]).chain([&recording["items"]]);
        let items = items.filter_map(Value::as_array).flatten();
        Session(items.filter_map(read_item).collect())
    }

    /// The sources of requests to a node.
    fn sources(&self, node: Nid) -> Vec<Source> {
        let mut sources: BTreeMap<Nid, Source> = BTreeMap::new();
        for (header, payload) in self.0.iter().filter(|(header, _)| header.dest.nid == node) {
            let nid = header.src.nid;
            let source =
                sources.entry(nid).or_insert_with(|| Source { nid, requests: vec![], lists: vec![] });
            let Some(payload) = payload.clone() else { continue };
            match header.body {
                Body::Put { match_bits, portal, .. } if is_request(portal) => {
                    source.requests.push((LstService::of(match_bits).unwrap(), payload));
                }
                // The only other GETs are pings, whose answers are longer.
                Body::Reply { .. } if payload.len() == 12 => source.lists.push(payload),
                _ => {}
            }
        }
        sources.into_values().filter(|source| !source.requests.is_empty()).collect()
    }

    fn nodes(&self) -> BTreeSet<Nid> {
        let requests = self.0.iter().filter(|(header, _)| match header.body {
            Body::Put { portal, .. } => is_request(portal),
            _ => false,
        });
        requests.map(|(header, _)| header.dest.nid).collect()
    }

    /// The reply from `node` to these match bits.
    fn reply(&self, node: Nid, bits: u64) -> &[u8] {
        let found = self.0.iter().find_map(|(header, payload)| match header.body {
            Body::Put { match_bits, portal, .. }
                if header.src.nid == node && match_bits.0 == bits && portal == REPLY_PORTAL.get() =>
            {
                payload.as_deref()
            }
            _ => None,
        });
        found.unwrap_or_else(|| panic!("{node} has replied to {bits:x}"))
    }

    /// Whether `node` has PUT or fetched so many bytes of bulk data.
    fn has_bulk(&self, node: Nid, is_put: bool, bits: u64, length: usize) -> bool {
        self.0.iter().any(|(header, _)| {
            let (found, found_length, found_put) = match header.body {
                Body::Put { match_bits, .. } => (match_bits.0, header.payload_length, true),
                Body::Get { match_bits, sink_length, .. } => (match_bits.0, sink_length, false),
                _ => return false,
            };
            (header.src.nid, found, found_length as usize, found_put) == (node, bits, length, is_put)
        })
    }
}

fn is_request(portal: u32) -> bool {
    [DATA_PORTAL, FRAMEWORK_PORTAL].iter().any(|of| of.get() == portal)
}

fn read_item(item: &Value) -> Option<(Header, Option<Vec<u8>>)> {
    match item["kind"].as_str().unwrap() {
        "lnet" => {
            let header = Header::parse(hex(&item["header_hex"])[..].try_into().ok()?).unwrap();
            Some((header, item.get("payload_hex").map(hex)))
        }
        "send" => {
            let bytes = hex(&item["hex"]);
            match ib::Message::parse(&bytes).unwrap().body {
                ib::Body::Immediate { header, payload } => Some((header, Some(payload.to_vec()))),
                ib::Body::PutReq { header, .. } | ib::Body::GetReq { header, .. } => Some((header, None)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A node that is being replayed, with the driver of its units.
struct Node<'a> {
    session: &'a Session,
    nid: Nid,
    framework: Framework,
    data: DataService,
    ids: Ids,
    running: Vec<(Unit, UnitRpc)>,
    /// PINGs that units do when they are started.
    pings: usize,
}

impl<'a> Node<'a> {
    fn new(session: &'a Session, nid: Nid, pings: usize) -> Node<'a> {
        let framework = Framework::new(Config::default());
        let data = framework.data_service();
        Node { session, nid, framework, data, ids: Ids::new(0), running: Vec::new(), pings }
    }

    /// The answer to a request, if the recorded reply is the same.
    fn replay(
        &mut self,
        service: LstService,
        payload: &[u8],
        lists: &mut Vec<Vec<u8>>,
    ) -> Result<(), String> {
        let answer = match service {
            LstService::Ping => self.served(self.data.ping(payload)),
            LstService::Brw => self.served(self.data.brw(payload)),
            _ => {
                let outcome = self.framework.handle(service, payload, LnetCounters::default, 0);
                self.handled(outcome, lists)
            }
        }?;
        self.drive();
        let (request, _) = Request::parse(service, payload).unwrap();
        let recorded = self.session.reply(self.nid, request.reply_id);
        assert_eq!(answer.reply_id, request.reply_id);
        let (found, expected) = (masked(&request, &answer.bytes), masked(&request, recorded));
        if found == expected { Ok(()) } else { Err(format!("{request:?}:\n{found:x?}, not\n{expected:x?}")) }
    }

    fn handled(&mut self, outcome: Outcome, lists: &mut Vec<Vec<u8>>) -> Result<ReplyMessage, String> {
        match outcome {
            Outcome::Reply(answer) => Ok(answer),
            Outcome::Run(answer, units) => {
                units.for_each(|unit| self.start(unit));
                Ok(answer)
            }
            Outcome::Fetch(fetch) => {
                assert!(self.session.has_bulk(self.nid, false, fetch.bulk_id, fetch.length));
                let list = lists.remove(0);
                let outcome = self.framework.fetched(&fetch, Ok(&list), 0);
                self.handled(outcome, lists)
            }
            Outcome::Drop(reason) => Err(reason.to_string()),
        }
    }

    fn served(&self, served: Served) -> Result<ReplyMessage, String> {
        let finish = |transfer: &Transfer, is_put| {
            assert!(self.session.has_bulk(self.nid, is_put, transfer.bulk_id, transfer.length));
            let mut data = vec![0; transfer.length];
            fill(transfer.check, PAGE_SIZE, &mut data);
            self.served(self.data.finish(transfer, Ok(&data)))
        };
        match served {
            Served::Reply(answer) => Ok(answer),
            Served::Push(transfer) => finish(&transfer, true),
            Served::Pull(transfer) => finish(&transfer, false),
            Served::Drop(reason) => Err(reason.to_string()),
        }
    }

    /// A BRW unit does all it has to do, an endless PING unit some RPCs; its last one is in flight.
    fn start(&mut self, mut unit: Unit) {
        let rpcs = if unit.instance().work() == Work::Ping { self.pings } else { usize::MAX };
        for _ in 1..rpcs {
            match self.begin(&mut unit) {
                Some(rpc) => succeed(&mut unit, &rpc),
                None => return,
            }
        }
        self.resume(unit);
    }

    fn begin(&self, unit: &mut Unit) -> Option<UnitRpc> {
        let mut buffer = vec![0; unit.instance().work().bulk_length()];
        unit.begin(&self.ids, &mut buffer, 0)
    }

    fn resume(&mut self, mut unit: Unit) {
        if let Some(rpc) = self.begin(&mut unit) {
            self.running.push((unit, rpc));
        }
    }

    /// The RPCs in flight end, and units that have not been stopped begin the next.
    fn drive(&mut self) {
        for (mut unit, rpc) in std::mem::take(&mut self.running) {
            succeed(&mut unit, &rpc);
            self.resume(unit);
        }
    }
}

fn succeed(unit: &mut Unit, rpc: &UnitRpc) {
    let (request, _) = Request::parse(rpc.service, &rpc.request).unwrap();
    let body = match request.body {
        RequestBody::Ping { sequence, .. } => ReplyBody::Ping { sequence },
        _ => ReplyBody::Brw,
    };
    let reply = Reply { features: request.features, status: 0, sid: SessionId::NONE, body };
    let mut data = vec![0; unit.instance().work().bulk_length()];
    if let Work::Brw { check, .. } = unit.instance().work() {
        fill(check, PAGE_SIZE, &mut data);
    }
    unit.ended(RpcEnd::Reply(&reply.emit()), &data, 0);
}

/// The bytes of a reply that mean something and do not depend on time or on LNet.
fn masked(request: &Request, reply: &[u8]) -> Vec<u8> {
    let status = u32::from_le_bytes(reply[24..28].try_into().unwrap());
    let mut bytes = reply[..Reply::length(request.service())].to_vec();
    let stale = match request.body {
        RequestBody::Stat { .. } if status != 0 => 44..160,
        // The session's time, and LNet's counters.
        RequestBody::Stat { .. } => {
            bytes[44..48].fill(0);
            100..160
        }
        RequestBody::MakeSession { .. } if status == 0 => 48..80,
        RequestBody::Batch { op, .. } if op != BatchOp::QUERY => 44..48,
        _ => 0..0,
    };
    bytes[stale].fill(0);
    bytes
}

/// All orders in which so many requests of each source can have come.
fn orders(left: &[usize]) -> Vec<Vec<usize>> {
    if left.iter().all(|count| *count == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for source in (0..left.len()).filter(|source| left[*source] > 0) {
        let mut rest = left.to_vec();
        rest[source] -= 1;
        all.extend(orders(&rest).into_iter().map(|order| [vec![source], order].concat()));
    }
    all
}

/// Replays the requests of all sources in this order.
fn replay_in(session: &Session, nid: Nid, pings: usize, order: &[usize]) -> Result<(), String> {
    let mut node = Node::new(session, nid, pings);
    let mut sources = session.sources(nid);
    for source in order {
        let source = &mut sources[*source];
        let (service, payload) = source.requests.remove(0);
        node.replay(service, &payload, &mut source.lists)?;
    }
    Ok(())
}

/// A recording does not say in which order requests of different sources came: in one of the possible
/// orders, all replies are those that were recorded. Returns the number of requests.
fn replay(file: &str, pings: usize) -> usize {
    let session = Session::read(file);
    let mut count = 0;
    for nid in session.nodes() {
        let left: Vec<_> = session.sources(nid).iter().map(|source| source.requests.len()).collect();
        count += left.iter().sum::<usize>();
        let tried: Vec<_> =
            orders(&left).iter().map(|order| replay_in(&session, nid, pings, order)).collect();
        assert!(tried.iter().any(Result::is_ok), "{file}, {nid}: {tried:?}");
    }
    count
}

#[test]
fn recorded_requests_get_the_recorded_replies() {
    let files = [
        ("tcp-lst-ping.json", 6),
        ("tcp-lst-read.json", 6),
        ("tcp-lst-write.json", 6),
        ("tcp-lst-busy.json", 9),
        ("tcp-lst-expiry.json", 12),
        ("o2ib-lst-read.json", 6),
        ("o2ib-lst-write.json", 6),
    ];
    for (file, requests) in files {
        assert_eq!(replay(file, 1), requests, "{file}");
    }
}

/// The test client's units are not in this recording; with so many PINGs they have sent the 16 requests
/// that the recorded node has counted.
#[test]
fn a_recorded_console_drives_a_client() {
    assert_eq!(replay("tcp-lst-console.json", 5), 17);
}

/// The client of this recording sends what its unit sends, except ids and clock.
#[test]
fn units_send_the_recorded_requests() {
    let session = Session::read("tcp-lst-expiry.json");
    let (client, server) = ("10.77.0.10@tcp".parse().unwrap(), "10.77.0.11@tcp".parse().unwrap());
    let mut node = Node::new(&session, client, 1);
    for Source { requests, mut lists, .. } in session.sources(client) {
        for (service, payload) in requests {
            node.replay(service, &payload, &mut lists).unwrap();
        }
    }
    let of_client = |source: &Source| source.nid == client;
    let recorded = session.sources(server).into_iter().find(of_client).unwrap().requests;
    // The unit began with RUN, and once more after it; the recording has left out the middle.
    let (unit, second) = node.running.pop().unwrap();
    assert_eq!(unit.destination().nid, server);
    let without_ids = |request: &[u8]| [&request[..24], &request[32..40], &request[56..]].concat();
    assert_eq!(recorded[1].0, second.service);
    assert_eq!(without_ids(&recorded[1].1), without_ids(&second.request));
}
