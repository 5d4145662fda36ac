//! 1 MiB GETs and PUTs over TCP, with blocking calls, or polling with non-blocking ones. The
//! lengths are those of LNet over TCP: a request or an acknowledgement has 96 bytes, and so has the
//! header before the payload.
//!
//! Each side uses a buffer of 1 MiB for each operation in flight, in rotation, as nlx's side of the
//! comparison does. Reusing one buffer for all operations would be a fifth faster, but no real
//! program does that.

use std::hint::spin_loop;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;

use super::socket::{self, Wait};
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::server::Server;

pub(crate) const SERVER: &str = "raw-bulk";

const HEADER: usize = 96;
const PAYLOAD: usize = 1 << 20;

/// The kind of a request: its first byte.
const GET: u8 = 1;
const PUT: u8 = 2;

/// GET, one at a time: GB/s.
pub(crate) fn get(round: &Round) -> Result<Sample> {
    transfer(round, GET, 1, Wait::Sleep)
}

/// GET, one at a time, both sides polling: GB/s.
pub(crate) fn get_polling(round: &Round) -> Result<Sample> {
    transfer(round, GET, 1, Wait::Poll)
}

/// GET, 8 in flight: GB/s.
pub(crate) fn get_8(round: &Round) -> Result<Sample> {
    transfer(round, GET, 8, Wait::Sleep)
}

/// GET, 8 in flight, both sides polling: GB/s.
pub(crate) fn get_8_polling(round: &Round) -> Result<Sample> {
    transfer(round, GET, 8, Wait::Poll)
}

/// PUT, one at a time: GB/s.
pub(crate) fn put(round: &Round) -> Result<Sample> {
    transfer(round, PUT, 1, Wait::Sleep)
}

/// PUT, one at a time, both sides polling: GB/s.
pub(crate) fn put_polling(round: &Round) -> Result<Sample> {
    transfer(round, PUT, 1, Wait::Poll)
}

/// PUT, 8 in flight: GB/s.
pub(crate) fn put_8(round: &Round) -> Result<Sample> {
    transfer(round, PUT, 8, Wait::Sleep)
}

/// PUT, 8 in flight, both sides polling: GB/s.
pub(crate) fn put_8_polling(round: &Round) -> Result<Sample> {
    transfer(round, PUT, 8, Wait::Poll)
}

fn transfer(round: &Round, operation: u8, in_flight: usize, wait: Wait) -> Result<Sample> {
    let server = Server::start(SERVER, round.cores, &[in_flight.to_string(), wait.name().to_string()])?;
    let mut stream = set_up(socket::connect(server.reported())?, wait)?;
    let mut request = [0; HEADER];
    request[0] = operation;
    let begin = |stream: &mut TcpStream, buffers: &mut Buffers| match operation {
        GET => send(stream, &request, &[]),
        _ => send(stream, &request, buffers.next()),
    };
    let (mut reading, mut writing) = (Buffers::new(in_flight), Buffers::new(in_flight));
    for _ in 1..in_flight {
        begin(&mut stream, &mut writing)?;
    }
    let mut header = [0; HEADER];
    meter::bulk(round.time, &server, PAYLOAD, || {
        begin(&mut stream, &mut writing)?;
        let payload = if operation == GET { reading.next() } else { &mut [] };
        expect(receive(&mut stream, &mut header, payload)?)?;
        Ok(1)
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let in_flight = args.first().and_then(|count| count.parse().ok()).unwrap_or(1);
    let mut stream = set_up(socket::accept()?, Wait::parse(args.get(1)))?;
    let mut buffers = Buffers::new(in_flight);
    let mut header = [0; HEADER];
    while receive(&mut stream, &mut header, &mut [])? {
        match header[0] {
            GET => send(&mut stream, &header, buffers.next())?,
            _ => {
                expect(receive_rest(&mut stream, buffers.next())?)?;
                send(&mut stream, &header, &[])?;
            }
        }
    }
    Ok(())
}

/// Tunes a socket; only one that is polled is non-blocking.
fn set_up(stream: TcpStream, wait: Wait) -> Result<TcpStream> {
    stream.set_nonblocking(wait == Wait::Poll).map_err(BenchError::system("set up a socket"))?;
    Ok(stream)
}

/// Buffers used in rotation.
struct Buffers {
    memory: Vec<Vec<u8>>,
    at: usize,
}

impl Buffers {
    fn new(count: usize) -> Buffers {
        Buffers { memory: vec![vec![0x5a; PAYLOAD]; count], at: 0 }
    }

    fn next(&mut self) -> &mut [u8] {
        self.at = (self.at + 1) % self.memory.len();
        &mut self.memory[self.at]
    }
}

/// Sends header and payload, in one system call if the socket accepts them.
fn send(stream: &mut TcpStream, header: &[u8], payload: &[u8]) -> Result<()> {
    let mut pieces = &mut [IoSlice::new(header), IoSlice::new(payload)][..];
    while !pieces.is_empty() {
        match stream.write_vectored(pieces) {
            Ok(sent) => IoSlice::advance_slices(&mut pieces, sent),
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) => return Err(BenchError::system("send a message")(error)),
        }
    }
    Ok(())
}

/// Receives header and payload; returns `false` if the other end has closed.
fn receive(stream: &mut TcpStream, header: &mut [u8], payload: &mut [u8]) -> Result<bool> {
    let mut pieces = &mut [IoSliceMut::new(header), IoSliceMut::new(payload)][..];
    IoSliceMut::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match stream.read_vectored(pieces) {
            Ok(0) => return Ok(false),
            Ok(count) => IoSliceMut::advance_slices(&mut pieces, count),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) => return Err(BenchError::system("receive a message")(error)),
        }
    }
    Ok(true)
}

fn receive_rest(stream: &mut TcpStream, payload: &mut [u8]) -> Result<bool> {
    receive(stream, &mut [], payload)
}

/// Fails if the other end has closed during an operation.
fn expect(still_there: bool) -> Result<()> {
    if still_there {
        return Ok(());
    }
    Err(BenchError::Server { name: SERVER.to_string(), problem: "has closed the connection".to_string() })
}
