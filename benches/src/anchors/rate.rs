//! Small acknowledged requests over TCP: 72 bytes for a request, 8 for its acknowledgement.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::socket;
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::server::Server;

pub(crate) const SERVER: &str = "raw-rate";

/// A request: a number of 8 bytes, and 64 bytes of payload.
const REQUEST: usize = 72;
const ACK: usize = 8;

/// Largest number of unacknowledged requests.
const WINDOW: usize = 64;

/// Requests, 64 in flight; all that may be sent go in one system call: millions of requests per
/// second.
pub(crate) fn coalesced(round: &Round) -> Result<Sample> {
    requests(round, WINDOW)
}

/// Requests, 64 in flight; each is one system call, and so is each acknowledgement: millions of
/// requests per second.
pub(crate) fn one_call_each(round: &Round) -> Result<Sample> {
    requests(round, 1)
}

/// Measures requests; `per_call` is the largest number of requests or acknowledgements in one
/// system call.
fn requests(round: &Round, per_call: usize) -> Result<Sample> {
    let server = Server::start(SERVER, round.cores, &[per_call])?;
    let mut stream = socket::connect(server.reported())?;
    let requests = [0x5a; REQUEST * WINDOW];
    let mut acks = [0; ACK * WINDOW];
    let mut arrived = Arrived::default();
    let mut sent = 0;
    meter::rate(round.time, &server, || {
        let allowed = WINDOW - (sent - arrived.whole);
        for call in requests[..allowed * REQUEST].chunks(per_call * REQUEST) {
            stream.write_all(call).map_err(BenchError::system("send requests"))?;
        }
        sent += allowed;
        match arrived.read(&mut stream, &mut acks[..per_call * ACK], ACK)? {
            None => Err(BenchError::Server {
                name: SERVER.to_string(),
                problem: "has closed the connection".to_string(),
            }),
            Some(acked) => Ok(acked as u64),
        }
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let per_call = args.first().and_then(|count| count.parse().ok()).unwrap_or(WINDOW).min(WINDOW);
    let mut stream = socket::accept()?;
    let mut requests = [0; REQUEST * WINDOW];
    let acks = [0x5a; ACK * WINDOW];
    let mut arrived = Arrived::default();
    while let Some(count) = arrived.read(&mut stream, &mut requests[..per_call * REQUEST], REQUEST)? {
        stream.write_all(&acks[..count * ACK]).map_err(BenchError::system("send acknowledgements"))?;
    }
    Ok(())
}

/// A counter of messages of one length that arrive in pieces.
#[derive(Debug, Default)]
struct Arrived {
    whole: usize,
    /// Bytes of a message that is incomplete.
    rest: usize,
}

impl Arrived {
    /// Reads the available bytes; returns the number of messages that they complete, `None` if the
    /// other end has closed.
    fn read(&mut self, stream: &mut TcpStream, buffer: &mut [u8], length: usize) -> Result<Option<usize>> {
        let count = match stream.read(buffer) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(BenchError::system("receive messages")(error)),
        };
        let bytes = self.rest + count;
        self.rest = bytes % length;
        self.whole += bytes / length;
        Ok(Some(bytes / length))
    }
}
