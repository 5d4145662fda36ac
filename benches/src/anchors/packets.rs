//! Records of 120 bytes from process to process in packets of a Unix socket (SOCK_SEQPACKET): the
//! submissions of a client to a helper without shared memory. The receiver sleeps in epoll,
//! level-triggered, and takes all packets that have arrived.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::ops::Range;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample, Timed};
use crate::server::{self, Server};

pub(crate) const SERVER: &str = "raw-packets";

/// Records in a batch.
pub(crate) const BATCH: usize = 32;

const RECORD: usize = 120;

/// Records between two readings of the clock.
const TURN: u64 = 1024;

/// A packet per record: millions of records per second.
pub(crate) fn one_by_one(round: &Round) -> Result<Sample> {
    stream(round, 1)
}

/// A packet per batch: millions of records per second.
pub(crate) fn in_batches(round: &Round) -> Result<Sample> {
    stream(round, BATCH)
}

fn stream(round: &Round, batch: usize) -> Result<Sample> {
    let server = Server::start(SERVER, round.cores, &["take"])?;
    let socket = connect(server.reported())?;
    let mut packet = vec![0; batch * RECORD];
    let mut sent = 0;
    let sample = meter::rate(round.time, &server, || {
        for first in (sent..sent + TURN).step_by(batch) {
            number(&mut packet, first..first + batch as u64);
            socket.send(&packet).map_err(BenchError::system("send records"))?;
        }
        sent += TURN;
        Ok(TURN)
    })?;
    drop(socket);
    server.finish()?;
    Ok(sample)
}

/// A record in each direction, both sides sleeping: microseconds one way.
pub(crate) fn there_and_back(round: &Round) -> Result<Sample> {
    let server = Server::start(SERVER, round.cores, &["echo"])?;
    let socket = connect(server.reported())?;
    let mut packet = [0; RECORD];
    let mut room = [MaybeUninit::uninit(); RECORD];
    let mut turn = 0;
    let sample = meter::pingpong(round.time, &server, || {
        number(&mut packet, turn..turn + 1);
        socket.send(&packet).map_err(BenchError::system("send a record"))?;
        socket.recv(&mut room).map_err(BenchError::system("receive a record"))?;
        turn += 1;
        Ok(1)
    })?;
    drop(socket);
    server.finish()?;
    Ok(sample)
}

/// Connecting, a record in each direction, and disconnecting: microseconds.
pub(crate) fn attach(round: &Round) -> Result<Sample> {
    let server = Server::start(SERVER, round.cores, &["attach"])?;
    let mut room = [MaybeUninit::uninit(); RECORD];
    let timed = Timed::warm(round.time, || {
        let socket = connect(server.reported())?;
        socket.send(&[0; RECORD]).map_err(BenchError::system("send a record"))?;
        socket.recv(&mut room).map_err(BenchError::system("receive a record"))?;
        Ok(1)
    })?;
    Ok(Sample::of(timed.microseconds_per_step()))
}

/// Writes a number into each record.
fn number(packet: &mut [u8], numbers: Range<u64>) {
    for (record, number) in packet.chunks_exact_mut(RECORD).zip(numbers) {
        record[..8].copy_from_slice(&number.to_le_bytes());
    }
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let mode = args.first().map_or("", String::as_str);
    let listener = listen()?;
    if mode == "attach" {
        loop {
            answer_one(&listener)?;
        }
    }
    let (socket, epoll) = accept(&listener)?;
    socket.set_nonblocking(true).map_err(BenchError::system("set up a raw socket"))?;
    let echoes = mode == "echo";
    let mut room = [0; BATCH * RECORD];
    let mut expected = 0;
    loop {
        match std::io::Read::read(&mut &socket, &mut room) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                for record in room[..count].chunks_exact(RECORD) {
                    expected = check(record, expected)?;
                }
                if echoes {
                    socket.send(&room[..count]).map_err(BenchError::system("send a record"))?;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let woken = epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE);
                woken.map_err(BenchError::system("sleep in epoll"))?;
            }
            Err(error) => return Err(BenchError::system("receive records")(error)),
        }
    }
}

/// Accepts a client, and answers its record.
fn answer_one(listener: &Socket) -> Result<()> {
    let (socket, _) = accept(listener)?;
    let mut room = [MaybeUninit::uninit(); RECORD];
    socket.recv(&mut room).map_err(BenchError::system("receive a record"))?;
    socket.send(&[0; RECORD]).map(drop).map_err(BenchError::system("send a record"))
}

/// Checks a record's number; returns that of the next record.
fn check(record: &[u8], expected: u64) -> Result<u64> {
    let value = record.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    if value == expected {
        return Ok(expected + 1);
    }
    Err(BenchError::Wrong { subject: "the number of a record", value, expected })
}

fn connect(reported: &str) -> Result<Socket> {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.connect(&SockAddr::unix(format!("\0{reported}"))?)?;
        Ok::<_, std::io::Error>(socket)
    };
    connect().map_err(BenchError::system("connect to a raw server"))
}

/// Listens, and reports the address.
fn listen() -> Result<Socket> {
    let name = format!("nlx-bench-packets-{}", std::process::id());
    let listen = || {
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        listener.bind(&SockAddr::unix(format!("\0{name}"))?)?;
        listener.listen(1)?;
        Ok::<_, std::io::Error>(listener)
    };
    let listener = listen().map_err(BenchError::system("listen"))?;
    server::ready(&name)?;
    Ok(listener)
}

fn accept(listener: &Socket) -> Result<(Socket, Epoll)> {
    let accept = || {
        let (socket, _) = listener.accept()?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok::<_, std::io::Error>((socket, epoll))
    };
    accept().map_err(BenchError::system("accept a client"))
}
