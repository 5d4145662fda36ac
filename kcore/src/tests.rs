//! The Core interface over a scripted LNet.

use std::sync::Arc;

use lnet_api::{Clock, EventKind, MdHandle};
use lnet_fake::{CallKind, FakeDrive, FakeLnet, Happening, Objects};
use lnet_region::{IoVec, Region};
use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreError, CoreTm, Descriptor, Errno, MatchCounter, Operation,
    OperationKind, PassiveBuffer, Queue, StartAddress, Submitted, TmId, TmOptions, match_bits,
};

use crate::Kcore;
use crate::machine::Machine;

mod cancelling;
mod domains;
mod events;
mod failures;
mod life;
mod options;
mod setup;
mod waiting;

const BUFFER_BYTES: usize = 8192;
const MESSAGES: u32 = 4;
/// More than half a buffer: a message of [`LENGTH`] bytes leaves too little room for another.
const MIN_RECEIVE_SIZE: u64 = 5000;
const LENGTH: u32 = 4096;
const COOKIE: u64 = 0xc00c1e;

/// A domain over a scripted LNet, with one transfer machine and one registered buffer.
struct Rig {
    lnet: Arc<FakeLnet>,
    drive: Arc<FakeDrive>,
    core: Arc<Kcore>,
    tm: Machine,
    memory: IoVec,
    buffer: BufferHandle,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(TmOptions::default())
    }

    fn with(options: TmOptions) -> Rig {
        let (lnet, drive) = (FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]), FakeDrive::new());
        let core = Kcore::new(lnet.clone(), drive.clone());
        let tm = core.start_machine(&start("10.0.0.1@tcp:12345:31:*"), &options).unwrap();
        let memory = IoVec::whole(Region::heap(BUFFER_BYTES).unwrap());
        let buffer = core.register(&memory).unwrap();
        lnet.take_calls();
        Rig { lnet, drive, core, tm, memory, buffer }
    }

    fn submit(&self, kind: OperationKind) -> Result<Submitted, CoreError> {
        self.tm.submit(&Operation { buffer: self.buffer, cookie: COOKIE, kind })
    }

    /// Starts an operation; gives its MD.
    fn start(&self, kind: OperationKind) -> MdHandle {
        self.submit(kind).unwrap();
        self.lnet.last_md()
    }

    /// The only event there is; the last one of its operation, which leaves nothing behind.
    fn only_event(&self) -> BufferEvent {
        let event = self.tm.event_get().expect("there is an event");
        assert!(event.unlinked());
        assert_eq!((event.buffer(), event.cookie), (self.buffer, COOKIE));
        self.assert_idle();
        event
    }

    /// Nothing is in flight, waits or is reserved, and the buffer can be used again.
    fn assert_idle(&self) {
        assert_eq!(self.tm.event_get(), None);
        assert_eq!(self.tm.needed(), 0);
        assert_nothing_posted(&self.lnet);
        self.core.deregister(self.buffer).unwrap();
        assert_eq!(self.core.register(&self.memory).map(drop), Ok(()));
    }
}

/// LNet holds no match entry and no MD.
fn assert_nothing_posted(lnet: &FakeLnet) {
    let Objects { mes, mds, .. } = lnet.objects();
    assert_eq!((mes, mds), (0, 0));
}

fn start(text: &str) -> StartAddress {
    text.parse().unwrap()
}

fn peer() -> Address {
    "10.0.0.2@tcp:12345:33:7".parse().unwrap()
}

/// Descriptor of a buffer of the peer's.
fn peers_descriptor(queue: Queue, length: u64) -> Descriptor {
    let address = peer();
    let match_bits = match_bits(address.tmid, MatchCounter::new(55).unwrap());
    Descriptor::encode(&PassiveBuffer { address, match_bits, queue, length }).unwrap()
}

const RECEIVE: OperationKind =
    OperationKind::Receive { min_receive_size: MIN_RECEIVE_SIZE, max_messages: MESSAGES };

/// One operation of each kind, with the LNet call that can complete it and the events that do.
fn every_operation() -> [(OperationKind, CallKind, Vec<Happening>); Queue::COUNT] {
    let length = u64::from(LENGTH);
    let came = || vec![Happening::put().length(LENGTH)];
    let (sent, taken) = (|| vec![Happening::send()], vec![Happening::get()]);
    let answered = vec![Happening::send(), Happening::reply()];
    let (from, to) = (Queue::PassiveBulkSend, Queue::PassiveBulkReceive);
    let get = OperationKind::ActiveReceive { descriptor: peers_descriptor(from, length) };
    let put = OperationKind::ActiveSend { descriptor: peers_descriptor(to, length), length };
    [
        (RECEIVE, CallKind::MdAttach, came()),
        (OperationKind::Send { length, to: peer() }, CallKind::Put, sent()),
        (OperationKind::PassiveReceive, CallKind::MdAttach, came()),
        (OperationKind::PassiveSend { length }, CallKind::MdAttach, taken),
        (get, CallKind::Get, answered),
        (put, CallKind::Put, sent()),
    ]
}
