//! A client that is connected to the helper.

use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use super::events::{Event, Events};
use super::memory::Memory;
use super::points::Points;
use super::ring::{Queue, Ring};
use super::socket::Socket;
use super::wire::{self, Address, Entry, Reply, kind, u16_at, u32_at, u64_at};

/// Far longer than any operation here takes: a wait that exceeds it has failed.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A client of the helper.
#[derive(Debug)]
pub struct Client {
    /// The connection to the helper.
    pub socket: Socket,
    /// The submission ring.
    pub ring: Ring,
    /// The memfd in which the submission ring lies.
    pub ring_memory: OwnedFd,
    /// The points at which the client is killed.
    pub points: Points,
    /// The body of the welcome.
    pub welcome: Vec<u8>,
    /// The time limit for each reply or event.
    pub patience: Duration,
    last_id: u64,
}

/// An arena: memory for buffers.
#[derive(Debug)]
pub struct Arena {
    /// The arena's number.
    pub number: u32,
    /// Set if the memory is on huge pages.
    pub huge: bool,
    /// The client's mapping of the arena.
    pub memory: Memory,
    /// The descriptor of the memory.
    pub fd: OwnedFd,
}

/// A transfer machine.
#[derive(Debug)]
pub struct Tm {
    /// The helper's handle for it.
    pub handle: u64,
    /// The machine's end point.
    pub address: Address,
    /// The machine's event queue.
    pub events: Events,
}

impl Client {
    /// Connects, and completes the hello.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn connect(path: &Path, name: &str) -> Result<Client, String> {
        Client::connect_with(path, name, Points::harmless())
    }

    /// Does what [`Client::connect`] does, for a client that is killed at one of the points.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn connect_with(path: &Path, name: &str, mut points: Points) -> Result<Client, String> {
        let socket = Socket::connect(path).map_err(|errno| format!("cannot connect: {errno}"))?;
        points.pass("connected");
        let hello = wire::packet(kind::HELLO, 1, &wire::hello(name, wire::VERSION));
        socket.send(&hello, &[]).map_err(|errno| format!("cannot send the hello: {errno}"))?;
        points.pass("hello sent");
        let reply = receive(&socket, 1, TIME_LIMIT)?;
        points.pass("welcomed");
        let mut reply = reply.done().map_err(|errno| format!("not welcome: {errno}"))?;
        if reply.body.len() != 96 || u16_at(&reply.body, 0) != wire::VERSION || reply.fds.len() != 2 {
            return Err(format!("an invalid welcome: {reply:?}"));
        }
        let (Some(doorbell), Some(memory)) = (reply.fds.pop(), reply.fds.pop()) else { unreachable!() };
        let ring = Ring::new(Queue::map(&memory)?, doorbell);
        points.pass("ring mapped");
        Ok(Client {
            socket,
            ring,
            ring_memory: memory,
            points,
            welcome: reply.body,
            patience: TIME_LIMIT,
            last_id: 1,
        })
    }

    /// Returns the helper's number for this client.
    pub fn number(&self) -> u64 {
        u64_at(&self.welcome, 16)
    }

    /// Returns a limit of the welcome at its offset there: 52 buffers, 56 transfer machines, 60
    /// operations, 64 events, 68 arenas.
    pub fn limit(&self, at: usize) -> u32 {
        u32_at(&self.welcome, at)
    }

    /// Returns the limit in bytes of all arenas together.
    pub fn bytes_max(&self) -> u64 {
        u64_at(&self.welcome, 72)
    }

    /// Returns the limit in bytes of one arena.
    pub fn arena_bytes_max(&self) -> u64 {
        u64_at(&self.welcome, 88)
    }

    /// Makes a request and waits for the reply.
    ///
    /// # Errors
    ///
    /// A failure of the connection; a refusal is a reply.
    pub fn request(&mut self, kind: u16, body: &[u8]) -> Result<Reply, String> {
        self.request_with(kind, body, &[])
    }

    /// Makes a request with descriptors and waits for the reply.
    ///
    /// # Errors
    ///
    /// As [`Client::request`].
    pub fn request_with(&mut self, kind: u16, body: &[u8], fds: &[RawFd]) -> Result<Reply, String> {
        let id = self.ask(kind, body, fds)?;
        let reply = receive(&self.socket, id, self.patience)?;
        self.points.pass("request done");
        Ok(reply)
    }

    /// Makes a request without waiting; returns its number.
    ///
    /// # Errors
    ///
    /// A failure of the connection.
    pub fn ask(&mut self, kind: u16, body: &[u8], fds: &[RawFd]) -> Result<u64, String> {
        self.last_id += 1;
        let packet = wire::packet(kind, self.last_id, body);
        self.socket.send(&packet, fds).map_err(|errno| format!("cannot send the request: {errno}"))?;
        self.points.pass("request sent");
        Ok(self.last_id)
    }

    /// Makes a request; a refusal is an error.
    ///
    /// # Errors
    /// The errno; EIO if there was no reply.
    pub fn call(&mut self, kind: u16, body: &[u8]) -> Result<Reply, Errno> {
        self.request(kind, body).map_err(|_| Errno::EIO)?.done()
    }

    /// Creates an arena, and maps it.
    ///
    /// # Errors
    /// The errno.
    pub fn arena(&mut self, bytes: u64, huge: bool) -> Result<Arena, Errno> {
        self.points.pass("arena asked for");
        let mut reply = self.call(kind::CREATE_ARENA, &wire::create_arena(bytes, huge.into(), 0))?;
        self.points.pass("arena received");
        let fd = reply.fds.pop().ok_or(Errno::EPROTO)?;
        let memory = Memory::map_and_seal(&fd)?;
        self.points.pass("arena mapped");
        Ok(Arena { number: u32_at(&reply.body, 0), huge: u32_at(&reply.body, 4) != 0, memory, fd })
    }

    /// Starts a transfer machine on any free id.
    ///
    /// # Errors
    /// The errno.
    pub fn start_tm(&mut self, nid: [u8; 20], portal: u32, events_max: u32) -> Result<Tm, Errno> {
        self.points.pass("start asked for");
        let mut reply = self.call(kind::START_TM, &wire::start_tm(nid, portal, 0, events_max, 0))?;
        self.points.pass("started");
        let fd = reply.fds.pop().ok_or(Errno::EPROTO)?;
        let queue = Queue::map(fd).map_err(|_| Errno::EPROTO)?;
        self.points.pass("events mapped");
        let body = &reply.body;
        let mut nid = [0; 20];
        nid.copy_from_slice(&body[8..28]);
        let address = Address { nid, portal: u32_at(body, 32), tmid: u32_at(body, 36) };
        Ok(Tm { handle: u64_at(body, 0), address, events: Events::new(queue) })
    }

    /// Stops a transfer machine.
    ///
    /// # Errors
    /// The errno.
    pub fn stop_tm(&mut self, tm: u64) -> Result<(), Errno> {
        self.points.pass("stop asked for");
        self.call(kind::STOP_TM, &tm.to_le_bytes()).map(drop)
    }

    /// Waits until the helper has processed all submitted entries.
    ///
    /// # Errors
    /// The errno.
    pub fn sync(&mut self) -> Result<(), Errno> {
        self.call(kind::SYNC, &[]).map(drop)
    }

    /// Puts an entry into the ring; if the ring is full, waits until the helper has taken entries.
    ///
    /// # Errors
    /// The errno; EIO if the helper is gone.
    pub fn submit(&mut self, entry: &Entry) -> Result<(), Errno> {
        self.submit_bytes(&entry.bytes())
    }

    /// Puts arbitrary bytes into the ring as [`Client::submit`] puts an entry.
    ///
    /// # Errors
    ///
    /// As [`Client::submit`].
    pub fn submit_bytes(&mut self, entry: &[u8; wire::ENTRY]) -> Result<(), Errno> {
        if self.ring.free() == 0 {
            self.ring.ring();
            self.sync()?;
        }
        let filled = self.ring.fill(entry);
        self.points.pass("entry filled");
        self.ring.stamp(filled);
        self.points.pass("entry stamped");
        if self.ring.must_ring() {
            self.points.pass("doorbell claimed");
            self.ring.ring();
            self.points.pass("doorbell rung");
        }
        Ok(())
    }

    /// Provisions room for the events of an operation, and submits it.
    ///
    /// # Errors
    /// The errors of [`Client::submit`].
    pub fn operate(&mut self, tm: &mut Tm, entry: &Entry) -> Result<(), Errno> {
        tm.events.provision(entry.count.max(1), &mut self.points);
        self.submit(entry)
    }

    /// Waits for the next event of a transfer machine.
    ///
    /// # Errors
    /// ETIMEDOUT; ENOTCONN if the helper is gone.
    pub fn event(&mut self, tm: &mut Tm) -> Result<Event, Errno> {
        let socket = &self.socket;
        let mut gone = false;
        let came = tm.events.wait(self.patience, &mut self.points, || {
            gone = socket.is_readable(Duration::ZERO).unwrap_or(true);
            gone
        });
        match tm.events.take(&mut self.points) {
            Some(event) => Ok(event),
            None if gone || came => Err(Errno::ENOTCONN),
            None => Err(Errno::ETIMEDOUT),
        }
    }
}

/// Receives the next packet, which must be the reply to this request.
fn receive(socket: &Socket, id: u64, patience: Duration) -> Result<Reply, String> {
    let packet = socket.receive(patience).map_err(|errno| format!("no reply: {errno}"))?;
    let (packet, fds) = packet.ok_or("the helper has closed the connection")?;
    let reply = Reply::read(&packet, fds)?;
    if reply.id == id { Ok(reply) } else { Err(format!("the reply to {id} is to {}", reply.id)) }
}
