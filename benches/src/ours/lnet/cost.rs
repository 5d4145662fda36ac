//! Memory of a connection, and allocations of a message.

use lnet_api::AckRequest;
use lnet_node::Node;

use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::heap::Watch;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::{self, Nodes};
use crate::server::{self, Server};

pub(crate) const CONNECTED: &str = "lnet-connected";
pub(crate) const PEERS: &str = "lnet-peers";

/// Peers of the node whose memory is measured: the number of clients of a storage server in a
/// medium cluster.
const PEER_COUNT: u8 = 200;

/// NIDs of each node among them, of 16 that a node can have.
const NIDS_EACH: usize = 10;

/// Connections to each peer: CONTROL, BULK_IN and BULK_OUT.
const CONNECTIONS_EACH: u64 = 3;

/// Heap bytes of an idle connection with its third of the peer, as requested.
pub(crate) fn connection_heap(round: &Round) -> Result<Sample> {
    connection(round, 0)
}

/// Resident bytes of an idle connection with its third of the peer: pages, with the heap's
/// overhead.
pub(crate) fn connection_resident(round: &Round) -> Result<Sample> {
    connection(round, 1)
}

/// Returns one of the figures of a process that has just connected to all peers. It is a separate
/// process, because this one's heap has pages left over from other rows.
fn connection(round: &Round, figure: usize) -> Result<Sample> {
    let connected = Server::start::<&str>(CONNECTED, round.cores, &[])?;
    let reported = connected.reported().split_whitespace().nth(figure).and_then(|bytes| bytes.parse().ok());
    let wrong = || BenchError::Server { name: CONNECTED.to_string(), problem: "gave no figure".to_string() };
    reported.map(Sample::of).ok_or_else(wrong)
}

/// Connects to all peers, and reports the memory divided by the number of connections: on the heap,
/// and resident.
pub(crate) fn serve_connected(cores: Cores, _: &[String]) -> Result<()> {
    let nodes = Nodes::choose()?;
    let process = std::process::id();
    let station = Station::client(nodes)?;
    let _peers = Server::start(PEERS, cores, &nodes.args(&[&process]))?;
    let message = station.bind(0, buffer(MESSAGE)?)?;
    let before = meter::resident_bytes()?;
    let watch = Watch::begin();
    for address in nodes::more_addresses(process, PEER_COUNT) {
        station.put_to(nodes::process(address), message, 0, 0, AckRequest::NoAck)?;
    }
    let all = u64::from(PEER_COUNT) * CONNECTIONS_EACH;
    station.wait_for_connections(all)?;
    let taken = [watch.bytes() as f64, meter::resident_bytes()? - before];
    let [heap, resident] = taken.map(|bytes| bytes / all as f64);
    server::ready(format_args!("{heap} {resident}"))
}

/// Runs the peers: nodes that accept connections, and drop messages.
pub(crate) fn serve_peers(_: Cores, args: &[String]) -> Result<()> {
    let (nodes, args) = Nodes::parse(args)?;
    let process = args.first().and_then(|process| process.parse().ok()).unwrap_or(0);
    let addresses: Vec<_> = nodes::more_addresses(process, PEER_COUNT).collect();
    let start = |nids| Node::start(&nodes.config_of(nids)?).map_err(BenchError::nlx("start a peer"));
    let _peers = addresses.chunks(NIDS_EACH).map(start).collect::<Result<Vec<_>>>()?;
    server::ready("")?;
    // The nodes' own threads drive them.
    loop {
        std::thread::park();
    }
}

/// The length of a small message, and of a bulk one.
const MESSAGE: usize = 64;
const BULK: usize = 1 << 20;

/// The slots of small PUTs, bulk PUTs and bulk GETs, at which the server posts and the client
/// binds.
const SMALL: usize = 0;
const BULK_PUT: usize = 1;
const BULK_GET: usize = 2;

/// Small PUTs in flight: the number of credits, less one for each bulk operation.
const SMALL_PUTS: u64 = 62;

/// The messages of a step: each PUT has its ACK, and the GET its REPLY.
const MESSAGES: u64 = 2 * (SMALL_PUTS + 2);

/// Steps until all tables have their final size, and steps that are counted.
const STEPS: u64 = 500;

/// Allocations per message over TCP, small and bulk, on both sides together: both nodes are in this
/// process.
pub(crate) fn allocations(_: &Round) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let [client, server] = [Station::client(nodes)?, Station::server(nodes)?];
    let lengths = [(SMALL, MESSAGE), (BULK_PUT, BULK), (BULK_GET, BULK)];
    for (slot, length) in lengths {
        server.post(slot, buffer(length)?)?;
    }
    let [small, put, get] = lengths.map(|(slot, length)| client.bind(slot, buffer(length)?));
    let (small, put, get) = (small?, put?, get?);
    let mut steps = 0;
    let mut step = || {
        steps += 1;
        for _ in 0..SMALL_PUTS {
            client.put(small, SMALL, 0, AckRequest::Ack)?;
        }
        client.put(put, BULK_PUT, 0, AckRequest::Ack)?;
        client.get(get, BULK_GET)?;
        for (slot, each) in [(SMALL, SMALL_PUTS), (BULK_PUT, 1), (BULK_GET, 1)] {
            client.wait_for(slot, steps * each, Wait::Sleep)?;
        }
        Ok(())
    };
    (0..STEPS).try_for_each(|_| step())?;
    let watch = Watch::begin();
    (0..STEPS).try_for_each(|_| step())?;
    Ok(Sample::of(watch.allocations() as f64 / (STEPS * MESSAGES) as f64))
}
