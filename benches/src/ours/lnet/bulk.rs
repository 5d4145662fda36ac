//! 1 MiB between a buffer of the client and a permanently posted one of the server; both sides have
//! the same number of buffers and use them in rotation.

use lnet_api::{AckRequest, MdHandle};

use super::Network;
use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::ours::xo;
use crate::server::{self, Server};

const LENGTH: usize = 1 << 20;

/// GET, one at a time: GB/s.
pub(crate) fn get(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Default, 1, 1, Station::get)
}

/// GET, one at a time, both sides polling: GB/s.
pub(crate) fn get_polling(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Poll(round.cores), 1, 1, Station::get)
}

/// GET, 8 in flight: GB/s.
pub(crate) fn get_8(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Default, 8, 8, Station::get)
}

/// PUT, one at a time: GB/s.
pub(crate) fn put(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Default, 1, 1, put_acknowledged)
}

/// PUT, one at a time, both sides polling: GB/s.
pub(crate) fn put_polling(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Poll(round.cores), 1, 1, put_acknowledged)
}

/// PUT, 8 in flight: GB/s.
pub(crate) fn put_8(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Default, 8, 8, put_acknowledged)
}

/// GET, one at a time, with the number of buffers of `xo::bulk::get`: GB/s.
pub(crate) fn get_as_xo(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Default, 1, xo::bulk::BUFFERS, Station::get)
}

/// PUT, one at a time, with the number of buffers of `xo::bulk::put`: GB/s.
pub(crate) fn put_as_xo(round: &Round) -> Result<Sample> {
    transfer::<Nodes>(round, Wait::Default, 1, xo::bulk::PUT_BUFFERS, put_acknowledged)
}

/// Begins a PUT that is acknowledged.
pub(crate) fn put_acknowledged<N>(station: &Station<N>, md: MdHandle, slot: usize) -> Result<()> {
    station.put(md, slot, 0, AckRequest::Ack)
}

/// Transfers over any network, with `in_flight` of them at a time: GB/s.
pub(crate) fn transfer<N: Network>(
    round: &Round,
    wait: Wait,
    in_flight: usize,
    buffers: usize,
    begin: fn(&Station<N::Node>, MdHandle, usize) -> Result<()>,
) -> Result<Sample> {
    let nodes = N::choose()?;
    let station = nodes.client()?;
    let server = Server::start(N::BULK, round.cores, &nodes.args(&[&buffers, &wait.name()]))?;
    let mds = (0..buffers).map(|slot| station.bind(slot, buffer(LENGTH)?)).collect::<Result<Vec<_>>>()?;
    let (mut begun, mut ended) = (0_usize, 0_usize);
    meter::bulk(round.time, &server, LENGTH, || {
        while begun < ended + in_flight {
            let slot = begun % buffers;
            begin(&station, mds[slot], slot)?;
            begun += 1;
        }
        station.wait_for(ended % buffers, (ended / buffers + 1) as u64, wait)?;
        ended += 1;
        Ok(1)
    })
}

pub(crate) fn serve<N: Network>(cores: Cores, args: &[String]) -> Result<()> {
    let (nodes, args) = N::parse(args)?;
    let buffers = args.first().and_then(|count| count.parse().ok()).unwrap_or(1);
    let wait = Wait::parse(args.get(1), cores);
    let station = nodes.server()?;
    for slot in 0..buffers {
        station.post(slot, buffer(LENGTH)?)?;
    }
    server::ready("")?;
    station.serve(wait)
}
