//! A request, 1 MiB that the server PUTs or GETs, and the reply: the exchange of a BRW test of lst, 8
//! in flight.

use lnet_api::{AckRequest, MdHandle};

use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "lnet-exchange";

/// Exchanges in flight; each has a bulk buffer on both sides.
pub(crate) const IN_FLIGHT: usize = 8;

/// Bytes of the bulk of an exchange.
pub(crate) const BULK: usize = 1 << 20;

/// Bytes of a request, and of a reply.
const MESSAGE: usize = 160;

/// The buffer that receives requests or replies. Those before it have bulk.
const INBOX: usize = IN_FLIGHT;

/// The buffer that requests or replies are sent from.
const OUTBOX: usize = IN_FLIGHT + 1;

/// The argument of a server that GETs the bulk.
const GETS: &str = "get";

/// The server PUTs the bulk into the client's memory: GB/s.
pub(crate) fn read(round: &Round) -> Result<Sample> {
    exchanges(round, "put")
}

/// The server GETs the bulk from the client's memory: GB/s.
pub(crate) fn write(round: &Round) -> Result<Sample> {
    exchanges(round, GETS)
}

/// The buffers of a side.
struct Side {
    station: Station,
    message: MdHandle,
}

impl Side {
    fn new(station: Station) -> Result<Side> {
        station.post(INBOX, buffer(IN_FLIGHT * MESSAGE)?)?;
        let message = station.bind(OUTBOX, buffer(MESSAGE)?)?;
        Ok(Side { station, message })
    }

    /// Sends the request or the reply of an exchange.
    fn send(&self, exchange: usize) -> Result<()> {
        let offset = (exchange % IN_FLIGHT * MESSAGE) as u32;
        self.station.put(self.message, INBOX, offset, AckRequest::NoAck)
    }
}

fn exchanges(round: &Round, bulk: &str) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let client = Side::new(Station::client(nodes)?)?;
    for slot in 0..IN_FLIGHT {
        client.station.post(slot, buffer(BULK)?)?;
    }
    let server = Server::start(NAME, round.cores, &nodes.args(&[&bulk]))?;
    let (mut begun, mut ended) = (0, 0);
    meter::bulk(round.time, &server, BULK, || {
        while begun < ended + IN_FLIGHT {
            client.send(begun)?;
            begun += 1;
        }
        client.station.wait_for(INBOX, ended as u64 + 1, Wait::Default)?;
        ended += 1;
        Ok(1)
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let (nodes, args) = Nodes::parse(args)?;
    let gets = args.first().is_some_and(|bulk| bulk == GETS);
    let side = Side::new(Station::server(nodes)?)?;
    let station = &side.station;
    let mds = (0..IN_FLIGHT).map(|slot| station.bind(slot, buffer(BULK)?)).collect::<Result<Vec<_>>>()?;
    server::ready("")?;
    let (mut begun, mut got) = (0, 0);
    loop {
        let has_request = |begun: usize| station.ended(INBOX) > begun as u64;
        let has_bulk = |got: usize| station.ended(got % IN_FLIGHT) > (got / IN_FLIGHT) as u64;
        station.wait_until(|| has_request(begun) || has_bulk(got), Wait::Default)?;
        while has_request(begun) {
            let slot = begun % IN_FLIGHT;
            if gets {
                station.get(mds[slot], slot)?;
            } else {
                station.put(mds[slot], slot, 0, AckRequest::NoAck)?;
                side.send(begun)?;
            }
            begun += 1;
        }
        while has_bulk(got) {
            side.send(got)?;
            got += 1;
        }
    }
}
