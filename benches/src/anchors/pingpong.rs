//! Small messages in both directions over TCP, as a program that sleeps in epoll does:
//! level-triggered, one receive and one send per message.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::socket::{self, Wait};
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::server::Server;

pub(crate) const SERVER: &str = "raw-pingpong";

/// Messages of `LENGTH` bytes, sleeping: microseconds one way.
pub(crate) fn sleeping<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong(round, Wait::Sleep, LENGTH)
}

/// Messages of `LENGTH` bytes, polling the socket: microseconds one way.
pub(crate) fn polling<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong(round, Wait::Poll, LENGTH)
}

fn pingpong(round: &Round, wait: Wait, length: usize) -> Result<Sample> {
    let server = Server::start(SERVER, round.cores, &[wait.name(), &length.to_string()])?;
    let mut end = End::new(socket::connect(server.reported())?, wait, length)?;
    meter::pingpong(round.time, &server, || {
        end.send()?;
        end.receive(round.cores)?;
        Ok(1)
    })
}

pub(crate) fn serve(cores: Cores, args: &[String]) -> Result<()> {
    let wait = Wait::parse(args.first());
    let length = args.get(1).and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut end = End::new(socket::accept()?, wait, length)?;
    while end.receive(cores)? {
        end.send()?;
    }
    Ok(())
}

/// One end of the connection.
struct End {
    stream: TcpStream,
    epoll: Epoll,
    wait: Wait,
    message: Vec<u8>,
}

impl End {
    fn new(stream: TcpStream, wait: Wait, length: usize) -> Result<End> {
        let set_up = || {
            stream.set_nonblocking(true)?;
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            Ok::<_, std::io::Error>(epoll)
        };
        let epoll = set_up().map_err(BenchError::system("set up epoll"))?;
        Ok(End { stream, epoll, wait, message: vec![0x5a; length] })
    }

    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.message).map_err(BenchError::system("send a message"))
    }

    /// Receives a message; returns `false` if the other end has closed.
    fn receive(&mut self, cores: Cores) -> Result<bool> {
        let mut got = 0;
        while got < self.message.len() {
            if self.wait == Wait::Sleep {
                self.sleep()?;
            }
            match self.stream.read(&mut self.message[got..]) {
                Ok(0) => return Ok(false),
                Ok(count) => got += count,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.nothing_there(cores),
                Err(error) => return Err(BenchError::system("receive a message")(error)),
            }
        }
        Ok(true)
    }

    fn sleep(&self) -> Result<()> {
        let mut events = [EpollEvent::empty()];
        self.epoll
            .wait(&mut events, EpollTimeout::NONE)
            .map(drop)
            .map_err(BenchError::system("sleep in epoll"))
    }

    /// Waits in a busy loop: it spends its time in the system call, and only a side that shares its
    /// core must yield to the other.
    fn nothing_there(&self, cores: Cores) {
        if cores.client == cores.server {
            cores.relax();
        }
    }
}
