//! Copies and registrations of transfers, and a connection's resources of its device. Both nodes
//! are in this process.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use lnet_api::{AckRequest, MdHandle};
use lnet_o2iblnd::sizes::{self, ConnSizes};
use lnet_o2iblnd::{O2ibConfig, O2ibCounters};
use nlx_testkit::lnds::watched::{Seen, WatchedFabric};

use super::node::Node;
use super::{Addresses, host};
use crate::error::{BenchError, Result};
use crate::heap::Watch;
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::lnet::Network;
use crate::ours::lnet::station::{Station, buffer};
use crate::server::STEP_TIMEOUT;

/// The length of a small message, which is sent with its header, and of one that is written by
/// RDMA.
const MESSAGE: usize = 64;
const BULK: usize = 1 << 20;

/// The slots at which the server posts and the client binds them.
const SMALL: usize = 0;
const PUT: usize = 1;
const GET: usize = 2;

/// Steps until all tables have their final size, and steps that are counted.
const STEPS: u64 = 10;

/// Messages of a step: a small PUT and its ACK, a bulk PUT and its ACK, a GET and its REPLY.
const MESSAGES: u64 = 6;
const BULK_BYTES: u64 = 2 * BULK as u64;

/// The two nodes, the server first.
struct Pair {
    stations: [Station<Node>; 2],
    seen: [Arc<Seen>; 2],
    mds: [MdHandle; 3],
    steps: u64,
}

impl Pair {
    fn start() -> Result<Pair> {
        let Addresses { client, server } = Addresses::choose()?;
        let station = |own, peer| {
            let (fabric, seen) = WatchedFabric::over(host(), |_| ());
            Ok((Node::station(own, peer, fabric)?, seen))
        };
        let ((server, server_seen), (client, client_seen)) =
            (station(server, client)?, station(client, server)?);
        for (slot, length) in [(SMALL, MESSAGE), (PUT, BULK), (GET, BULK)] {
            server.post(slot, buffer(length)?)?;
        }
        let bind = |slot, length| client.bind(slot, buffer(length)?);
        let mds = [bind(SMALL, MESSAGE)?, bind(PUT, BULK)?, bind(GET, BULK)?];
        Ok(Pair { stations: [server, client], seen: [server_seen, client_seen], mds, steps: 0 })
    }

    /// Runs a small PUT, a bulk PUT and a bulk GET to their ends.
    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        let [_, client] = &self.stations;
        client.put(self.mds[SMALL], SMALL, 0, AckRequest::Ack)?;
        client.put(self.mds[PUT], PUT, 0, AckRequest::Ack)?;
        client.get(self.mds[GET], GET)?;
        let begin = Instant::now();
        while [SMALL, PUT, GET].iter().any(|&slot| client.ended(slot) < self.steps) {
            self.stations.iter().try_for_each(Station::poll)?;
            if begin.elapsed() > STEP_TIMEOUT {
                return Err(BenchError::TimedOut {
                    event: "a step over RDMA",
                    seconds: STEP_TIMEOUT.as_secs(),
                });
            }
        }
        Ok(())
    }

    fn warm() -> Result<Pair> {
        let mut pair = Pair::start()?;
        (0..STEPS).try_for_each(|_| pair.step())?;
        Ok(pair)
    }

    fn counters(&self) -> O2ibCounters {
        let mut all = O2ibCounters::default();
        self.stations.iter().for_each(|station| all += station.node.lnd.counters());
        all
    }
}

/// Copied bytes per byte of the bulk transfers, on both sides together.
pub(crate) fn copies(_: &Round) -> Result<Sample> {
    let mut pair = Pair::start()?;
    let copied = |pair: &Pair| {
        let O2ibCounters { tx, rx } = pair.counters();
        let small = 2 * MESSAGE as u64 * pair.steps;
        (tx.bytes_copied + tx.bytes_bounced + rx.bytes_copied + rx.bytes_bounced).saturating_sub(small)
    };
    (0..STEPS).try_for_each(|_| pair.step())?;
    let moved = STEPS * BULK_BYTES;
    // All bytes that are not copied were written by RDMA.
    equal("bytes written by RDMA", pair.counters().tx.bytes_direct, moved)?;
    Ok(Sample::of(copied(&pair) as f64 / moved as f64))
}

/// Registrations of memory per operation, after the first ones.
pub(crate) fn registrations(_: &Round) -> Result<Sample> {
    let mut pair = Pair::warm()?;
    let known = pair.seen.iter().all(|seen| seen.bytes() > BULK as u64);
    equal("whether bulk memory is registered", known.into(), 1)?;
    let registered = |pair: &Pair| pair.seen.iter().map(|seen| seen.registrations()).sum::<usize>();
    let before = registered(&pair);
    (0..STEPS).try_for_each(|_| pair.step())?;
    Ok(Sample::of((registered(&pair) - before) as f64 / (STEPS * MESSAGES / 2) as f64))
}

/// Allocations per message, on both sides together.
pub(crate) fn allocations(_: &Round) -> Result<Sample> {
    let mut pair = Pair::warm()?;
    let watch = Watch::begin();
    (0..STEPS).try_for_each(|_| pair.step())?;
    Ok(Sample::of(watch.allocations() as f64 / (STEPS * MESSAGES) as f64))
}

/// Send work requests of a connection, as reported by the device.
pub(crate) fn sends(_: &Round) -> Result<Sample> {
    connection(|seen| seen.queues()[0].1.sends.into())
}

/// Receive work requests of a connection, as reported by the device.
pub(crate) fn receives(_: &Round) -> Result<Sample> {
    connection(|seen| seen.queues()[0].1.receives.into())
}

/// Completion queue entries of a connection, as requested from the device: it may round up, and
/// soft-RoCE does.
pub(crate) fn completions(_: &Round) -> Result<Sample> {
    connection(|seen| {
        let (asked, made) = seen.queues()[0];
        if made.completions >= asked.completions { asked.completions.into() } else { made.completions.into() }
    })
}

/// Receives that are posted to the device when the connection is idle, and their bytes.
pub(crate) fn posted(_: &Round) -> Result<Sample> {
    connection(|seen| seen.receives().0)
}

pub(crate) fn posted_bytes(_: &Round) -> Result<Sample> {
    connection(|seen| seen.receives().1)
}

/// Returns a figure of the one connection between the nodes, which must be equal on both sides.
fn connection(figure: fn(&Seen) -> u64) -> Result<Sample> {
    let pair = Pair::warm()?;
    for seen in &pair.seen {
        equal("connections of a node", seen.queues().len() as u64, 1)?;
    }
    let [server, client] = pair.seen.each_ref().map(|seen| figure(seen));
    equal("what the passive side has", server, client)?;
    Ok(Sample::of(client as f64))
}

/// Results of `nlx o2iblnd-calc`.
pub(crate) fn calculated_sends(_: &Round) -> Result<Sample> {
    calculated(|sizes| sizes.sends.into())
}

pub(crate) fn calculated_receives(_: &Round) -> Result<Sample> {
    calculated(|sizes| sizes.receives.into())
}

pub(crate) fn calculated_completions(_: &Round) -> Result<Sample> {
    calculated(|sizes| sizes.completions.into())
}

pub(crate) fn calculated_bytes(_: &Round) -> Result<Sample> {
    calculated(|sizes| sizes.receive_bytes)
}

fn calculated(figure: fn(&ConnSizes) -> u64) -> Result<Sample> {
    let address: Ipv4Addr = Addresses::choose()?.client;
    let device = host().open(address).map_err(BenchError::nlx("open a device"))?;
    let adjusted = sizes::adjust(&O2ibConfig::default());
    let sizes = sizes::connection(&adjusted, adjusted.peer_credits, adjusted.fragments, device.limits());
    let sizes = sizes.map_err(BenchError::nlx("reckon the queues"))?;
    Ok(Sample::of(figure(&sizes) as f64))
}

fn equal(subject: &'static str, value: u64, expected: u64) -> Result<()> {
    if value == expected { Ok(()) } else { Err(BenchError::Wrong { subject, value, expected }) }
}
