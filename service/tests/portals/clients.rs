//! Offers of a client over LNet portals, and a node that is not its service.

use std::sync::Arc;

use lnet_api::{AckRequest, Errno, Md, MdOptions, Put, Threshold};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Pid, Portal, ProcessId};
use lnet_node::{Node, NodeConfig};
use lnet_region::{IoVec, Region};
use nlx_service::client::{Client, ClientOptions};
use nlx_service::portals::{Peer, PortalNames, Portals};
use nlx_service::rpc::{Decision, ResponderOptions, Rpc, RpcHandler, RpcRequest};
use nlx_service::{BufferOptions, Pool, PoolOptions, Service};
use nlx_testkit::addresses::unused;
use nlx_testkit::until;
use parking_lot::Mutex;

const REQUESTS: u32 = 20;
const ANSWERS: u32 = 21;
const BITS: MatchBits = MatchBits(7);

/// Keeps the writable offers of its requests, and answers none.
#[derive(Default)]
struct Holds(Mutex<Vec<MatchBits>>);

impl RpcHandler<Portals> for Holds {
    type State = ();

    fn request(&self, request: RpcRequest<'_, Portals, ()>) -> Decision<MatchBits, IoVec> {
        self.0.lock().extend(request.offers.writable::<MatchBits>(0).map(|found| found.offer));
        Decision::Drop
    }
}

fn memory(bytes: &[u8]) -> IoVec {
    IoVec::whole(Region::from_vec(bytes.to_vec()).unwrap())
}

fn bytes(memory: &IoVec) -> Vec<u8> {
    memory.read(0..memory.len()).unwrap().to_vec()
}

fn node(partitions: usize) -> Node {
    let config = NodeConfig::new().net(&format!("tcp({})", unused())).unwrap();
    Node::start(&config.partitions(Arc::new(CptTable::virtual_parts(partitions).unwrap()))).unwrap()
}

fn portals(node: &Node, requests: u32, bits: MatchBits, replies: u32) -> Portals {
    let [requests, replies] = [requests, replies].map(|portal| Portal::new(portal).unwrap());
    let names =
        PortalNames { requests, bits: vec![bits], replies, lazy: requests == Portal::new(REQUESTS).unwrap() };
    Portals::new(node.lnet(), node.partitions().clone(), names)
}

struct Bed {
    server: Node,
    client: Node,
    service: Arc<Service<Portals, Rpc<Portals, Holds>>>,
    calls: Arc<Client<Portals>>,
    _pools: [Pool; 2],
}

impl Bed {
    /// A service, and a client.
    fn new(partitions: usize) -> Bed {
        let (server, client) = (node(partitions), node(partitions));
        let start = |node: &Node| Pool::start("test", node.drive(), partitions, PoolOptions::default());
        let [serving, calling] = [start(&server).unwrap(), start(&client).unwrap()];
        let rpc = Rpc::new(&serving, &ResponderOptions::default(), Holds::default()).unwrap();
        let served = portals(&server, REQUESTS, BITS, ANSWERS);
        let service = Service::start(&serving, served, BufferOptions::default(), rpc).unwrap();
        let (tag, incarnation) = (BITS.0, 100);
        let own = portals(&client, ANSWERS, MatchBits(incarnation), REQUESTS);
        let options = ClientOptions { tag, incarnation: Some(incarnation), ..Default::default() };
        let calls = Client::start(&calling, own, options).unwrap();
        Bed { server, client, service, calls, _pools: [serving, calling] }
    }

    /// The address of the service.
    fn address(&self) -> Peer {
        let id = ProcessId { nid: self.server.nids()[0], pid: Pid::LNET };
        Peer { id, local: self.client.nids()[0] }
    }
}

/// A node that knows an offer, and guesses that the next one has the next match bits, cannot write into
/// the memory of another call.
#[test]
fn offers_cannot_be_guessed() {
    let (bed, stranger) = (Bed::new(1), node(1));
    let client = bed.calls.clone();
    let (tx, rx) = std::sync::mpsc::channel();
    let offers = || bed.service.handler().handler().0.lock().clone();
    let targets = [memory(&[7; 50]), memory(&[7; 50])];
    let hold = |target: &IoVec| {
        let (tx, before) = (tx.clone(), offers().len());
        let call = client.call(bed.address(), b"hold").writable(target);
        let key = call.start(move |outcome| tx.send(outcome).unwrap()).unwrap();
        until("the offer arrives", || offers().len() > before);
        key
    };
    let keys = targets.each_ref().map(hold);
    let put = Put {
        source: None,
        md: Md {
            memory: memory(&[1; 50]),
            threshold: Threshold::Limited(1),
            max_size: 0,
            options: MdOptions::empty(),
            user_ptr: 0,
            eq: None,
        },
        ack: AckRequest::NoAck,
        target: ProcessId { nid: bed.client.nids()[0], pid: Pid::LNET },
        portal: Portal::new(ANSWERS).unwrap(),
        match_bits: MatchBits(offers()[0].0 + 1),
        offset: 0,
        hdr_data: 0,
    };
    let received = bed.client.counters().recv_count;
    stranger.lnet().bind_put(put).unwrap();
    let counters = || bed.client.counters();
    until("the stranger's message arrives", || counters().recv_count + counters().drop_count > received);
    for key in keys {
        client.cancel(key);
        assert_eq!(rx.recv().unwrap().unwrap_err().errno(), Errno::ECANCELED);
    }
    assert_eq!((bytes(&targets[0]), bytes(&targets[1])), (vec![7; 50], vec![7; 50]));
    assert_eq!(counters().drop_count, 1);
}
