//! A small client, each of whose messages the test controls.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use lnet_region::{IoVec, Region};
use nlx_bev_cqueue::{Consumer, Producer, SharedMemory};
use nlx_core::{
    Address, BufferEvent, BufferHandle, Descriptor, DescriptorForm, Errno, MatchCounter, Operation,
    OperationKind, Queue, StartAddress,
};
use nlx_driver_proto::{Entry, Hello, Refusal, Reply, Request, Segment, StartTm, Submission, Welcome};
use nlx_helper::{Credentials, Departure, Host, ReplyPacket, Session, Violation};

pub(crate) const ROOT: Credentials = Credentials { pid: 1, uid: 0, gid: 0 };
pub(crate) const USER: Credentials = Credentials { pid: 2, uid: 1000, gid: 1000 };

/// An answer, decoded as a client does.
pub(crate) type Outcome = Result<(Reply, Vec<OwnedFd>), Refusal>;

pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) welcome: Welcome,
    pub(crate) ring: Producer<Submission, SharedMemory>,
    /// The memory of the ring, for tests that corrupt it.
    pub(crate) ring_memory: IoVec,
    /// The client's end of the doorbell.
    pub(crate) doorbell: OwnedFd,
    generation: u64,
}

/// A transfer machine as its client has it.
pub(crate) struct Tm {
    pub(crate) handle: u64,
    pub(crate) address: Address,
    pub(crate) events: Consumer<BufferEvent, SharedMemory>,
    /// The memory of the event queue, for tests that corrupt it.
    pub(crate) memory: IoVec,
}

/// An arena as its client has it.
pub(crate) struct Arena {
    pub(crate) handle: u32,
    pub(crate) memory: IoVec,
}

/// Sends a packet to a session and reads the answer, whose number must be that of the request.
pub(crate) fn ask(session: &mut Session, request: &Request) -> Outcome {
    const ID: u64 = 77;
    let (mut packet, mut answer) = (Vec::new(), ReplyPacket::default());
    request.write(ID, &mut packet);
    session.request(&packet, &mut answer).expect("no violation");
    match Reply::read(&answer.packet).expect("a reply") {
        (ID, Reply::Refused(refusal)) => {
            assert!(answer.fds.is_empty(), "a refusal brings no descriptors");
            Err(refusal)
        }
        (ID, reply) => Ok((reply, answer.take_fds().unwrap())),
        (other, _) => panic!("an answer to request {other}"),
    }
}

impl Client {
    pub(crate) fn connect(host: &Arc<Host>, credentials: Credentials) -> Client {
        let mut session = Session::new(host, credentials).unwrap();
        let (reply, fds) = ask(&mut session, &Request::Hello(Hello::new("test"))).unwrap();
        let Reply::Welcome(welcome) = reply else { panic!("{reply:?}") };
        let [ring, doorbell] = fds.try_into().unwrap();
        let ring_memory = seen(&ring);
        let ring = Producer::new(SharedMemory::attach(ring).unwrap()).unwrap();
        Client { session, welcome, ring, ring_memory, doorbell, generation: 1 }
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Outcome {
        ask(&mut self.session, request)
    }

    pub(crate) fn refused(&mut self, request: &Request) -> Refusal {
        self.ask(request).expect_err("it is refused")
    }

    pub(crate) fn done(&mut self, request: &Request) {
        assert_eq!(self.ask(request).unwrap().0, Reply::Done);
    }

    pub(crate) fn arena(&mut self, bytes: u64) -> Arena {
        let (reply, fds) = self.ask(&Request::CreateArena { bytes, huge: false, near: None }).unwrap();
        let Reply::Arena { arena, bytes: made, .. } = reply else { panic!("{reply:?}") };
        let [fd] = <[OwnedFd; 1]>::try_from(fds).unwrap();
        let region = Region::attach(fd.try_clone().unwrap()).unwrap();
        lnet_region::seal(fd.as_fd()).unwrap();
        assert_eq!((region.len() as u64, made >= bytes), (made, true));
        Arena { handle: arena, memory: IoVec::whole(region) }
    }

    pub(crate) fn start(&mut self, address: &str, events_max: u32) -> Tm {
        self.try_start(address, events_max).unwrap()
    }

    pub(crate) fn try_start(&mut self, address: &str, events_max: u32) -> Result<Tm, Refusal> {
        let address: StartAddress = address.parse().unwrap();
        let (reply, fds) = self.ask(&Request::StartTm(StartTm { address, events_max, lazy: false }))?;
        let Reply::Started { tm: handle, address, .. } = reply else { panic!("{reply:?}") };
        Ok(Tm::attach(handle, address, fds))
    }

    /// Returns a new handle for a buffer at this index.
    pub(crate) fn name(&mut self, place: u32) -> BufferHandle {
        self.generation += 1;
        BufferHandle(self.generation << 32 | u64::from(place))
    }

    /// Registers a buffer of one segment, through the ring.
    pub(crate) fn register(&mut self, place: u32, arena: u32, offset: u64, length: u64) -> BufferHandle {
        let buffer = self.name(place);
        self.push(&Entry::Register { buffer, segment: Segment { arena, offset, length } });
        buffer
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        self.ring.push(entry.write()).unwrap();
    }

    pub(crate) fn drain(&mut self) -> Result<usize, Violation> {
        self.session.drain(1000)
    }

    /// Submits an operation as a correct client does, and has the helper take it.
    pub(crate) fn operate(&mut self, tm: &mut Tm, buffer: BufferHandle, kind: OperationKind, counter: u64) {
        tm.events.provision(kind.events_max()).unwrap();
        self.push(&operation(tm, buffer, kind, counter));
        self.drain().expect("no violation");
    }

    pub(crate) fn close(self) -> Departure {
        self.session.close()
    }
}

/// Maps memory before it is sealed, as a client does that inspects it directly.
fn seen(fd: &OwnedFd) -> IoVec {
    IoVec::whole(Region::attach(fd.try_clone().unwrap()).unwrap())
}

/// Writes into the memory of a queue.
pub(crate) fn spoil(memory: &IoVec, offset: usize, bytes: &[u8]) {
    memory.write(offset..offset + bytes.len()).unwrap().copy_from(0, bytes);
}

/// Returns an operation whose cookie is its buffer's handle.
pub(crate) fn operation(tm: &Tm, buffer: BufferHandle, kind: OperationKind, counter: u64) -> Entry {
    operation_of(tm.handle, buffer, kind, counter)
}

pub(crate) fn operation_of(tm: u64, buffer: BufferHandle, kind: OperationKind, counter: u64) -> Entry {
    let operation = Operation { buffer, cookie: buffer.0, kind };
    Entry::Operate { tm, operation, counter: MatchCounter::new(counter).unwrap() }
}

/// Returns one operation of each queue, of 64 bytes; their peer is on another node.
pub(crate) fn one_of_each() -> [OperationKind; Queue::COUNT] {
    let peer: Address = "10.0.0.9@tcp:12345:40:9".parse().unwrap();
    let described = |queue| {
        let (form, first) = (DescriptorForm::Compatible, MatchCounter::FIRST);
        Descriptor::of_operation(form, peer, (queue, first), 64).unwrap().unwrap()
    };
    [
        OperationKind::Receive { min_receive_size: 8, max_messages: 4 },
        OperationKind::PassiveReceive,
        OperationKind::PassiveSend { length: 64 },
        OperationKind::Send { length: 64, to: peer },
        OperationKind::ActiveSend { descriptor: described(Queue::PassiveBulkReceive), length: 64 },
        OperationKind::ActiveReceive { descriptor: described(Queue::PassiveBulkSend) },
    ]
}

impl Arena {
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset..offset + bytes.len()).unwrap().copy_from(0, bytes);
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.memory.read(offset..offset + length).unwrap().to_vec()
    }
}

impl Tm {
    /// Attaches a transfer machine, from the descriptors that came with its start.
    pub(crate) fn attach(handle: u64, address: Address, fds: Vec<OwnedFd>) -> Tm {
        let [fd] = <[OwnedFd; 1]>::try_from(fds).unwrap();
        let memory = seen(&fd);
        let events = Consumer::new(SharedMemory::attach(fd).unwrap()).unwrap();
        Tm { handle, address, events, memory }
    }

    /// Returns the next event, and releases its room.
    pub(crate) fn event(&mut self) -> Option<BufferEvent> {
        let event = self.events.pop().ok()?;
        self.events.release(event.released).unwrap();
        Some(event)
    }

    /// Returns the status of the next event, which must be the last one of this buffer's operation.
    pub(crate) fn ended(&mut self, buffer: BufferHandle) -> Result<u64, Errno> {
        let event = self.event().expect("an event");
        assert_eq!((event.buffer(), event.cookie, event.unlinked()), (buffer, buffer.0, true));
        event.status().map(|()| event.length)
    }
}
