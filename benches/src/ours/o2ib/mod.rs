//! The LNet API over RDMA, between two processes of the guest: what the rows `o2ib/…` measure.
//!
//! | module | holds |
//! | --- | --- |
//! | `node` | an engine over the verbs LND, driven by its waiting thread |
//! | `cost` | copies and registrations of transfers, and a connection's resources of its device |

pub(crate) mod cost;
mod node;

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::sync::Arc;

use lnet_o2iblnd::Fabric;
use lnet_o2iblnd::verbs::HostFabric;

use crate::error::{BenchError, Result};
use crate::guest::Guest;
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::lnet::Network;
use crate::ours::lnet::bulk::{put_acknowledged, transfer};
use crate::ours::lnet::pingpong::{self, pingpong};
use crate::ours::lnet::station::{Station, Wait};
use node::Node;

/// Transfers in flight, with a buffer for each on both sides: a peer's credits by LNet's defaults.
const IN_FLIGHT: usize = 8;

/// The addresses of the two nodes: the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    client: Ipv4Addr,
    server: Ipv4Addr,
}

impl Network for Addresses {
    type Node = Node;
    const PINGPONG: &'static str = "o2ib-pingpong";
    const BULK: &'static str = "o2ib-bulk";

    fn choose() -> Result<Addresses> {
        let Guest { client, server, .. } = Guest::find()?;
        Ok(Addresses { client, server })
    }

    fn args(self, more: &[&dyn Display]) -> Vec<String> {
        let own: [&dyn Display; 2] = [&self.client, &self.server];
        own.iter().chain(more).map(|arg| arg.to_string()).collect()
    }

    fn parse(args: &[String]) -> Result<(Addresses, &[String])> {
        let parse = |([client, server], more): (&[String; 2], _)| {
            Some((Addresses { client: client.parse().ok()?, server: server.parse().ok()? }, more))
        };
        args.split_first_chunk().and_then(parse).ok_or_else(|| BenchError::Server {
            name: "of a node".to_string(),
            problem: format!("was given '{}', not two addresses", args.join(" ")),
        })
    }

    fn client(self) -> Result<Station<Node>> {
        Node::station(self.client, self.server, host())
    }

    fn server(self) -> Result<Station<Node>> {
        Node::station(self.server, self.client, host())
    }
}

/// Returns this host's devices.
#[allow(unsafe_code, reason = "devices write where they are told to")]
fn host() -> Arc<dyn Fabric> {
    // SAFETY: the host is used by LNDs alone, and to query a device's limits.
    Arc::new(unsafe { HostFabric::new() })
}

/// PUTs of 64 bytes in both directions, sleeping: microseconds one way.
pub(crate) fn pingpong_sleeping(round: &Round) -> Result<Sample> {
    pingpong::<Addresses>(round, Wait::Sleep, 64)
}

/// PUTs of 64 bytes in both directions, sleeping: system calls of the client's thread per round
/// trip.
pub(crate) fn calls(round: &Round) -> Result<Sample> {
    pingpong::calls::<Addresses>(round, 64)
}

/// PUTs of 64 bytes in both directions, polling: microseconds one way.
pub(crate) fn pingpong_polling(round: &Round) -> Result<Sample> {
    pingpong::<Addresses>(round, Wait::Poll(round.cores), 64)
}

/// Acknowledged PUTs of 1 MiB, polling: GB/s.
pub(crate) fn put_polling(round: &Round) -> Result<Sample> {
    bulk(round, Wait::Poll(round.cores), put_acknowledged)
}

/// Acknowledged PUTs of 1 MiB, sleeping: GB/s.
pub(crate) fn put_sleeping(round: &Round) -> Result<Sample> {
    bulk(round, Wait::Sleep, put_acknowledged)
}

/// GETs of 1 MiB, polling: GB/s.
pub(crate) fn get_polling(round: &Round) -> Result<Sample> {
    bulk(round, Wait::Poll(round.cores), Station::get)
}

/// GETs of 1 MiB, sleeping: GB/s.
pub(crate) fn get_sleeping(round: &Round) -> Result<Sample> {
    bulk(round, Wait::Sleep, Station::get)
}

fn bulk(
    round: &Round,
    wait: Wait,
    begin: fn(&Station<Node>, lnet_api::MdHandle, usize) -> Result<()>,
) -> Result<Sample> {
    transfer::<Addresses>(round, wait, IN_FLIGHT, IN_FLIGHT, begin)
}
