//! 1 MiB between a buffer of the client and one that the server has posted for good; both sides have the same number of
//! buffers and use them in turn.

use lnet_api::{AckRequest, MdHandle};

use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::ours::xo;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "lnet-bulk";

const LENGTH: usize = 1 << 20;

/// GET, one at a time: GB/s.
pub(crate) fn get(round: &Round) -> Result<Sample> {
    transfer(round, 1, 1, Station::get)
}

/// GET, 8 in flight: GB/s.
pub(crate) fn get_8(round: &Round) -> Result<Sample> {
    transfer(round, 8, 8, Station::get)
}

/// PUT, one at a time: GB/s.
pub(crate) fn put(round: &Round) -> Result<Sample> {
    transfer(round, 1, 1, put_acknowledged)
}

/// PUT, 8 in flight: GB/s.
pub(crate) fn put_8(round: &Round) -> Result<Sample> {
    transfer(round, 8, 8, put_acknowledged)
}

/// GET, one at a time, with as many buffers as `xo::bulk::get` uses: GB/s.
pub(crate) fn get_as_xo(round: &Round) -> Result<Sample> {
    transfer(round, 1, xo::bulk::BUFFERS, Station::get)
}

/// PUT, one at a time, with as many buffers as `xo::bulk::put` uses: GB/s.
pub(crate) fn put_as_xo(round: &Round) -> Result<Sample> {
    transfer(round, 1, xo::bulk::PUT_BUFFERS, put_acknowledged)
}

fn put_acknowledged(station: &Station, md: MdHandle, slot: usize) -> Result<()> {
    station.put(md, slot, 0, AckRequest::Ack)
}

fn transfer(
    round: &Round,
    in_flight: usize,
    buffers: usize,
    begin: fn(&Station, MdHandle, usize) -> Result<()>,
) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let station = Station::client(nodes)?;
    let server = Server::start(NAME, round.cores, &nodes.args(&[&buffers]))?;
    let mds = (0..buffers).map(|slot| station.bind(slot, buffer(LENGTH)?)).collect::<Result<Vec<_>>>()?;
    let (mut begun, mut ended) = (0_usize, 0_usize);
    meter::bulk(round.time, &server, LENGTH, || {
        while begun < ended + in_flight {
            let slot = begun % buffers;
            begin(&station, mds[slot], slot)?;
            begun += 1;
        }
        station.wait_for(ended % buffers, (ended / buffers + 1) as u64, Wait::Sleep)?;
        ended += 1;
        Ok(1)
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let (nodes, args) = Nodes::parse(args)?;
    let buffers = args.first().and_then(|count| count.parse().ok()).unwrap_or(1);
    let station = Station::server(nodes)?;
    for slot in 0..buffers {
        station.post(slot, buffer(LENGTH)?)?;
    }
    server::ready("")?;
    station.serve()
}
