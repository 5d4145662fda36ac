//! A client of the helper in the same thread: the objects that it has been given, and their use.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use lnet_region::{IoVec, Region};
use nix::fcntl::{FallocateFlags, fallocate};
use nlx_bev_cqueue::{Consumer, Producer, SharedMemory};
use nlx_core::{Address, BufferEvent, BufferHandle, MatchCounter, Operation, OperationKind};
use nlx_driver_proto::{Entry, Header, Reply, Request, Submission};
use nlx_helper::{ClientStatus, Credentials, Departure, Host, ReplyPacket, Session, Violation};

use crate::targets::same;

/// Event slots of each transfer machine.
pub(super) const EVENTS: u32 = 16;

/// A client, as far as it still exists.
pub(super) struct Client {
    host: Arc<Host>,
    number: u64,
    session: Option<Session>,
    answer: ReplyPacket,
    /// Set once it has broken the protocol; from then on it may be cut off.
    pub(super) is_foul: bool,
    pub(super) departure: Option<Departure>,
    pub(super) violation: Option<Violation>,
    ring: Option<(Producer<Submission, SharedMemory>, IoVec)>,
    pub(super) arenas: Vec<(u32, OwnedFd, IoVec)>,
    pub(super) buffers: Vec<u64>,
    pub(super) tms: Vec<Tm>,
    pub(super) refusals: u64,
}

/// One of its transfer machines.
pub(super) struct Tm {
    pub(super) handle: u64,
    pub(super) address: Address,
    consumer: Consumer<BufferEvent, SharedMemory>,
    memory: IoVec,
}

impl Client {
    pub(super) fn new(host: &Arc<Host>, uid: u32) -> Client {
        let session =
            Session::new(host, Credentials { pid: 1, uid, gid: uid }).expect("memory for a session");
        Client {
            host: host.clone(),
            number: session.client(),
            session: Some(session),
            answer: ReplyPacket::default(),
            is_foul: false,
            departure: None,
            violation: None,
            ring: None,
            arenas: Vec::new(),
            buffers: Vec::new(),
            tms: Vec::new(),
            refusals: 0,
        }
    }

    /// Sends a request and records its result.
    pub(super) fn ask(&mut self, request: &Request) -> Option<Reply> {
        let mut packet = Vec::new();
        request.write(self.refusals + 1, &mut packet);
        self.ask_packet(&packet)
    }

    /// Sends a packet as a request and records its result. Returns `None` once the client is cut
    /// off.
    pub(super) fn ask_packet(&mut self, packet: &[u8]) -> Option<Reply> {
        // Entries in the ring change the state, even if the request is refused.
        self.drain(usize::MAX);
        let before = self.status();
        let mut answer = std::mem::take(&mut self.answer);
        let result = self.session.as_mut()?.request(packet, &mut answer);
        self.is_foul |= packet.len() < Header::LEN;
        self.survived(result)?;
        let header = Header::peek(packet).expect("what has no header has no answer");
        let (id, reply) = Reply::read(&answer.packet).expect("a reply can be read");
        same(id, header.id.get(), "the number of a reply");
        let reply_kind = Header::peek(&answer.packet).map(|header| header.kind.get());
        same(reply_kind, Some(header.kind.get() | Header::REPLY), "the kind of a reply");
        let fds = answer.take_fds().expect("descriptors");
        self.answer = answer;
        if matches!(reply, Reply::Refused(_)) {
            assert!(fds.is_empty(), "a refusal with descriptors");
            same(self.status(), before, "what a refused request has changed");
            self.refusals += 1;
        } else {
            let (_, request) = Request::read(packet).expect("only a request is carried out");
            same(fds.len(), request.kind().reply_descriptors(), "the descriptors of a reply");
            self.learn(request, &reply, fds);
        }
        Some(reply)
    }

    /// Returns the client's status as an operator sees it, without counters that only grow.
    fn status(&self) -> Option<ClientStatus> {
        let clients = self.host.status().clients;
        let mut status = clients.into_iter().find(|client| client.client == self.number)?;
        status.totals = Default::default();
        Some(status)
    }

    /// Records the objects that the client got or released.
    fn learn(&mut self, request: Request, reply: &Reply, mut fds: Vec<OwnedFd>) {
        match (request, reply) {
            (Request::Hello(_), _) => {
                let (memory, seen) = seen(fds.swap_remove(0));
                let memory = SharedMemory::attach(memory).expect("the ring is a queue");
                self.ring = Some((Producer::new(memory).expect("this half is free"), seen));
            }
            (Request::CreateArena { .. }, &Reply::Arena { arena, bytes, .. }) => {
                let (fd, memory) = seen(fds.remove(0));
                same(memory.len() as u64, bytes, "the bytes of an arena");
                // Some are never sealed: no buffer lies in them.
                if !bytes.is_multiple_of(7) {
                    lnet_region::seal(fd.as_fd()).expect("it can be sealed");
                }
                self.arenas.push((arena, fd, memory));
            }
            (Request::ReleaseArena { arena }, _) => self.arenas.retain(|(other, ..)| *other != arena),
            (Request::Register { buffer, .. }, _) => self.buffers.push(buffer),
            (Request::StartTm(_), &Reply::Started { tm, address, .. }) => {
                let (memory, seen) = seen(fds.remove(0));
                let memory = SharedMemory::attach(memory).expect("events come in a queue");
                let consumer = Consumer::new(memory).expect("this half is free");
                self.tms.push(Tm { handle: tm, address, consumer, memory: seen });
            }
            (Request::StopTm { tm }, _) => self.tms.retain(|other| other.handle != tm),
            _ => {}
        }
    }

    /// Pushes an entry; if there is no room, it first lets the helper drain the ring, as a client
    /// would wait for it.
    pub(super) fn push(&mut self, submission: Submission) {
        if self.ring.as_mut().is_some_and(|(ring, _)| ring.free() == Ok(0)) {
            self.drain(usize::MAX);
        }
        if let Some((ring, _)) = &mut self.ring {
            // The client may have corrupted its ring so that there is never room.
            let pushed = ring.push(submission);
            assert!(pushed.is_ok() || self.is_foul, "{pushed:?}");
        }
    }

    /// Starts an operation as a client does: with room for its events.
    pub(super) fn operate(&mut self, at: usize, buffer: u64, cookie: u64, kind: OperationKind) {
        let Some(tm) = at.checked_rem(self.tms.len()).map(|at| &mut self.tms[at]) else { return };
        // Even a refusal takes an event, for which there is then no room.
        self.is_foul |= kind.events_max() == 0;
        if tm.consumer.needed() + kind.events_max() > EVENTS
            || tm.consumer.provision(kind.events_max()).is_err()
        {
            return;
        }
        let counter = if kind.queue().is_passive() { cookie % 7 + 1 } else { 0 };
        let counter = MatchCounter::new(counter).expect("it is small");
        let operation = Operation { buffer: BufferHandle(buffer), cookie, kind };
        let entry = Entry::Operate { tm: tm.handle, operation, counter };
        self.push(entry.write());
    }

    /// Lets the helper carry out the entries of the ring.
    pub(super) fn drain(&mut self, budget: usize) {
        let Some(session) = self.session.as_mut() else { return };
        let drained = session.drain(budget.min(4 * EVENTS as usize));
        if let Some(done) = self.survived(drained) {
            assert!(done <= budget, "{done} entries with a budget of {budget}");
        }
    }

    pub(super) fn check(&mut self) {
        let checked = self.session.as_ref().map(Session::check);
        checked.map(|checked| self.survived(checked));
    }

    pub(super) fn sleep(&mut self) {
        if let Some(session) = &mut self.session {
            session.prepare_sleep();
            session.finish_sleep();
        }
    }

    /// Takes all events of a transfer machine.
    pub(super) fn events(&mut self, at: usize) -> Vec<BufferEvent> {
        let Some(tm) = at.checked_rem(self.tms.len()).map(|at| &mut self.tms[at]) else { return Vec::new() };
        let events: Vec<_> = tm.consumer.drain(2 * EVENTS as usize).collect();
        for event in &events {
            let released = tm.consumer.release(event.released);
            assert!(released.is_ok() || self.is_foul, "{event:?}: {released:?}");
            assert!(event.unlinked() == (event.released > 0) || self.is_foul, "{event:?}");
        }
        events
    }

    /// Writes over the ring, or over the queue of a transfer machine.
    pub(super) fn scribble(&mut self, at: Option<usize>, offset: u64, value: &[u8]) {
        self.is_foul = true;
        let memory = match at {
            None => self.ring.as_ref().map(|(_, memory)| memory),
            Some(at) => at.checked_rem(self.tms.len()).map(|at| &self.tms[at].memory),
        };
        if let Some(memory) = memory {
            write_within(memory, offset, value);
        }
    }

    /// Writes into an arena, or punches a hole in it; both are permitted.
    pub(super) fn touch_arena(&mut self, at: usize, offset: u64, value: &[u8]) {
        let Some((_, fd, memory)) = at.checked_rem(self.arenas.len()).map(|at| &self.arenas[at]) else {
            return;
        };
        if value.contains(&0) {
            let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            let _ = fallocate(fd, hole, offset as i64, 4096);
        } else {
            write_within(memory, offset, value);
        }
    }

    /// Disconnects the client.
    pub(super) fn close(&mut self) {
        if let Some(session) = self.session.take() {
            self.departure = Some(session.close());
        }
    }

    /// Returns the result of a call; if the client was cut off, checks that it deserved it, and
    /// disconnects it.
    fn survived<T>(&mut self, result: Result<T, Violation>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(violation) => {
                assert!(self.is_foul, "cut off without a reason: {violation}");
                assert!(violation.errno() as i32 > 0 && !violation.to_string().is_empty());
                self.violation = Some(violation);
                self.close();
                None
            }
        }
    }
}

/// Writes where there is memory: the file cannot grow.
pub(super) fn write_within(memory: &IoVec, offset: u64, value: &[u8]) {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    if let Some(offset) = offset.checked_rem(memory.len()) {
        let value = &value[..value.len().min(memory.len() - offset)];
        memory.write(offset..offset + value.len()).expect("no lease conflicts").copy_from(0, value);
    }
}

/// Maps memory before it is sealed. Returns its descriptor and the mapping.
fn seen(fd: OwnedFd) -> (OwnedFd, IoVec) {
    let region = Region::attach(fd.try_clone().expect("a descriptor")).expect("the memory of a helper");
    (fd, IoVec::whole(region))
}
