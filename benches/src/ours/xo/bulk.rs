//! Transfers of 1 MiB that the client starts, with buffers that the server stages in advance: their
//! descriptors are sent in messages.

use std::collections::VecDeque;

use nlx::{Buffer, Descriptor, Offer};

use super::pair::{self, NetworkPath, Pair};
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::server;

pub(crate) const GET_SERVER: &str = "xo-get";
pub(crate) const PUT_SERVER: &str = "xo-put";

const LENGTH: usize = 1 << 20;

/// Buffers that the server of the GETs stages; the client has the same number, used in rotation.
pub(crate) const BUFFERS: usize = 8;

/// Descriptors in one message: a request of a storage client carries several.
const GROUP: usize = 4;

/// Buffers of the server of the PUTs: one that is being written, and one staged already.
pub(crate) const PUT_BUFFERS: usize = 2;

/// Active receives, one at a time: GB/s.
pub(crate) fn get(round: &Round) -> Result<Sample> {
    get_by(round, NetworkPath::InProcess)
}

/// Active sends, one at a time, each acknowledged by the message with the next descriptor: GB/s.
pub(crate) fn put(round: &Round) -> Result<Sample> {
    put_by(round, NetworkPath::InProcess)
}

/// [`get`] by any path to the network.
pub(crate) fn get_by(round: &Round, path: NetworkPath) -> Result<Sample> {
    let mut client = Client::new(Pair::start(round, path, GET_SERVER)?, BUFFERS)?;
    let pids = client.pair.pids();
    meter::bulk(round.time, &pids, LENGTH, || {
        let (buffer, descriptor) = client.take()?;
        client.pair.party.fetch(buffer, &descriptor)?;
        client.end_of_bulk()?;
        Ok(1)
    })
}

/// [`put`] by any path to the network.
pub(crate) fn put_by(round: &Round, path: NetworkPath) -> Result<Sample> {
    let mut client = Client::new(Pair::start(round, path, PUT_SERVER)?, PUT_BUFFERS)?;
    let pids = client.pair.pids();
    meter::bulk(round.time, &pids, LENGTH, || {
        let (buffer, descriptor) = client.take()?;
        client.pair.party.deliver(buffer, &descriptor)?;
        client.end_of_bulk()?;
        Ok(1)
    })
}

pub(crate) fn serve_get(_: Cores, args: &[String]) -> Result<()> {
    let mut party = pair::served(args)?;
    server::ready("")?;
    let mut ended = Vec::with_capacity(BUFFERS);
    for _ in 0..BUFFERS {
        ended.push(party.buffer(LENGTH)?);
    }
    loop {
        while ended.len() >= GROUP {
            let mut message = [0; GROUP * Descriptor::COMPATIBLE_LEN];
            let offers = party.offer_all(ended.drain(..GROUP))?;
            for (slot, offer) in message.chunks_exact_mut(Descriptor::COMPATIBLE_LEN).zip(offers) {
                slot.copy_from_slice(offer.as_bytes());
            }
            party.send_content(&message)?;
        }
        ended.extend(party.next(|_| ())?);
    }
}

pub(crate) fn serve_put(_: Cores, args: &[String]) -> Result<()> {
    let mut party = pair::served(args)?;
    server::ready("")?;
    let first = party.ask_for(party.buffer(LENGTH)?)?;
    let mut staged = party.ask_for(party.buffer(LENGTH)?)?;
    party.send_content(first.as_bytes())?;
    loop {
        if let Some(buffer) = party.next(|_| ())? {
            party.send_content(staged.as_bytes())?;
            staged = party.ask_for(buffer)?;
        }
    }
}

/// The side that starts the transfers.
struct Client {
    pair: Pair,
    buffers: VecDeque<Buffer>,
    offers: VecDeque<Offer>,
}

impl Client {
    fn new(pair: Pair, buffers: usize) -> Result<Client> {
        let buffers = (0..buffers).map(|_| pair.party.buffer(LENGTH)).collect::<Result<_>>()?;
        Ok(Client { pair, buffers, offers: VecDeque::with_capacity(2 * BUFFERS) })
    }

    /// Returns the next buffer with an offer for it; waits for an offer if there is none.
    fn take(&mut self) -> Result<(Buffer, Offer)> {
        while self.offers.is_empty() {
            self.step()?;
        }
        let pair = self.buffers.pop_front().zip(self.offers.pop_front());
        pair.ok_or(BenchError::Wrong { subject: "the number of idle buffers", value: 0, expected: 1 })
    }

    /// Waits until the transfer has ended.
    fn end_of_bulk(&mut self) -> Result<()> {
        while !self.step()? {}
        Ok(())
    }

    /// Waits for one event; returns whether it ended a transfer.
    fn step(&mut self) -> Result<bool> {
        let offers = &mut self.offers;
        let ended = self.pair.party.next(|message| {
            let whole = message
                .chunks_exact(Descriptor::COMPATIBLE_LEN)
                .filter_map(|bytes| Offer::from_bytes(bytes).ok());
            offers.extend(whole);
        })?;
        let is_end = ended.is_some();
        self.buffers.extend(ended);
        Ok(is_end)
    }
}
