//! The test fixtures.

use std::sync::Arc;

use lnet_fake::{FakeDrive, Spy};
use lnet_nid::{Nid, ProcessId};
use lnet_region::{IoVec, Region};
use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreError, CoreTm, Descriptor, HdrData, MatchCounter,
    Operation, OperationKind, PassiveBuffer, Queue, StartAddress, Submitted, TmId, TmOptions, match_bits,
};
use nlx_kcore::{Anomalies, Kcore};

mod engine;
mod fake;
mod pair;
mod signals;
mod trace;
mod wire;
mod world;

pub(crate) use engine::EngineWorld;
pub(crate) use fake::FakeWorld;
pub(crate) use nlx_testkit::buffers::{bytes as content, fill, pattern};
pub(crate) use nlx_testkit::until;
pub(crate) use pair::{Pair, Side};
pub(crate) use signals::{Signals, asleep};
pub(crate) use trace::{ClientEvent, Trace, expected};
pub(crate) use world::{Arriving, Body, Finish, SentMessage, World};

pub(crate) const BUFFER_BYTES: usize = 8192;
pub(crate) const MESSAGES: u32 = 4;
/// More than half a buffer: a message of [`LENGTH`] bytes leaves too little room for another.
pub(crate) const MIN_RECEIVE_SIZE: u64 = 5000;
pub(crate) const LENGTH: u32 = 4096;
pub(crate) const COOKIE: u64 = 0xc00c1e;
/// This node's NID, beside `0@lo`.
pub(crate) const OWN_NID: &str = "10.77.0.1@tcp";
/// The portal of the transfer machine under test.
pub(crate) const PORTAL: u32 = 31;

pub(crate) const RECEIVE: OperationKind =
    OperationKind::Receive { min_receive_size: MIN_RECEIVE_SIZE, max_messages: MESSAGES };

/// Returns the number at the end of a module's name.
pub(crate) const fn partitions_of(module: &str) -> usize {
    let name = module.as_bytes();
    (name[name.len() - 1] - b'0') as usize
}

/// kcore in a world, with a spy, one transfer machine and one registered buffer.
pub(crate) struct Bed<W: World> {
    pub(crate) world: W,
    pub(crate) spy: Arc<Spy>,
    pub(crate) drive: Arc<FakeDrive>,
    pub(crate) core: Arc<Kcore>,
    pub(crate) tm: Box<dyn CoreTm>,
    pub(crate) memory: IoVec,
    pub(crate) buffer: BufferHandle,
}

impl<W: World> Bed<W> {
    pub(crate) fn new(world: W) -> Bed<W> {
        Bed::with(world, &TmOptions::default())
    }

    pub(crate) fn with(world: W, options: &TmOptions) -> Bed<W> {
        let (spy, drive) = (Spy::new(world.lnet()), FakeDrive::new());
        let core = Kcore::new(spy.clone(), drive.clone());
        let tm = core.tm_start(&start(&format!("{OWN_NID}:12345:{PORTAL}:*")), options).unwrap();
        let memory = memory(BUFFER_BYTES);
        let buffer = core.register(&memory).unwrap();
        spy.take_calls();
        Bed { world, spy, drive, core, tm, memory, buffer }
    }

    /// Starts this operation.
    pub(crate) fn started(self, kind: OperationKind) -> Bed<W> {
        self.submit(kind).unwrap();
        self
    }

    pub(crate) fn submit(&self, kind: OperationKind) -> Result<Submitted, CoreError> {
        self.submit_on(self.buffer, COOKIE, kind)
    }

    pub(crate) fn submit_on(
        &self,
        buffer: BufferHandle,
        cookie: u64,
        kind: OperationKind,
    ) -> Result<Submitted, CoreError> {
        self.tm.submit(&Operation { buffer, cookie, kind })
    }

    /// Starts a sending operation, and returns its message, which has not left.
    pub(crate) fn send(&self, kind: OperationKind) -> SentMessage {
        self.submit(kind).unwrap();
        self.world.outgoing().pop().expect("a message is to leave")
    }

    /// Starts a passive operation, and returns the match bits under which it waits.
    pub(crate) fn expose(&self, kind: OperationKind) -> Passive {
        let descriptor = self.submit(kind).unwrap().descriptor.expect("it is passive");
        Passive(passive_of(&descriptor))
    }

    /// Returns a message of this many bytes for the transfer machine's receive buffers.
    pub(crate) fn message(&self, from: &Address, length: u32) -> Arriving {
        let Address { portal, tmid, .. } = self.tm.address();
        let hdr_data = HdrData { tmid: from.tmid.get(), portal: from.portal }.encode();
        let bits = match_bits(tmid, MatchCounter::UNSOLICITED);
        let payload = pattern(7, length as usize);
        Arriving {
            from: ProcessId::new(from.nid, from.pid),
            body: Body::Put { portal, bits, hdr_data, payload },
        }
    }

    /// Delivers a message, which must be received.
    pub(crate) fn receive(&self, message: &Arriving) {
        self.world.arrive(message).expect("somebody takes it")(Ok(()));
    }

    /// Returns the only event, which must be the last one of its operation, and checks that nothing
    /// is left.
    pub(crate) fn only_event(&self) -> BufferEvent {
        let event = self.tm.event_get().unwrap().expect("there is an event");
        assert!(event.unlinked());
        assert_eq!((event.buffer(), event.cookie), (self.buffer, COOKIE));
        self.assert_idle();
        event
    }

    /// Checks that nothing is in flight, pending or reserved, that the buffer can be used again,
    /// and that LNet's tables agree.
    pub(crate) fn assert_idle(&self) {
        assert_eq!(self.tm.event_get().unwrap(), None);
        assert_eq!(self.tm.needed(), 0);
        assert_eq!(self.spy.mds(), 0);
        self.world.audit();
        self.submit(OperationKind::PassiveReceive).unwrap();
        self.tm.cancel(self.buffer, COOKIE).unwrap();
        assert!(self.tm.event_get().unwrap().is_some_and(|event| event.unlinked()));
        self.spy.take_events();
    }

    pub(crate) fn assert_no_faults(&self) {
        assert_eq!(self.core.faults(), Anomalies::default());
    }
}

/// A passive buffer of the transfer machine under test, from its descriptor.
pub(crate) struct Passive(pub(crate) PassiveBuffer);

impl Passive {
    /// Returns a PUT with which a peer writes into the buffer.
    pub(crate) fn put(&self, from: &Address, length: u32) -> Arriving {
        let (portal, bits) = (self.0.address.portal, self.0.match_bits);
        let payload = pattern(9, length as usize);
        let body = Body::Put { portal, bits, hdr_data: HdrData::NONE, payload };
        Arriving { from: ProcessId::new(from.nid, from.pid), body }
    }

    /// Returns a GET with which a peer reads from the buffer.
    pub(crate) fn get(&self, from: &Address, length: u32) -> Arriving {
        let (portal, bits) = (self.0.address.portal, self.0.match_bits);
        Arriving { from: ProcessId::new(from.nid, from.pid), body: Body::Get { portal, bits, length } }
    }
}

/// Decodes a descriptor.
pub(crate) fn passive_of(descriptor: &Descriptor) -> PassiveBuffer {
    descriptor.for_active_receive(u64::MAX).or_else(|_| descriptor.for_active_send(1)).unwrap()
}

pub(crate) fn start(text: &str) -> StartAddress {
    text.parse().unwrap()
}

/// Returns the address of a peer's transfer machine; peers of consecutive numbers are in different
/// partitions.
pub(crate) fn peer_of(number: u32) -> Address {
    let nid: Nid = format!("10.77.0.{}@tcp", 2 + number).parse().unwrap();
    let tmid = TmId::new(7 + number).unwrap();
    Address { nid, pid: lnet_nid::Pid::LNET, portal: 33, tmid }
}

pub(crate) fn peer() -> Address {
    peer_of(0)
}

/// Returns the descriptor of a buffer of the peer.
pub(crate) fn peers_descriptor(queue: Queue, length: u64) -> Descriptor {
    let address = peer();
    let match_bits = match_bits(address.tmid, MatchCounter::new(55).unwrap());
    Descriptor::encode(&PassiveBuffer { address, match_bits, queue, length }).unwrap()
}

pub(crate) fn active_receive(length: u64) -> OperationKind {
    OperationKind::ActiveReceive { descriptor: peers_descriptor(Queue::PassiveBulkSend, length) }
}

pub(crate) fn active_send(length: u64) -> OperationKind {
    let descriptor = peers_descriptor(Queue::PassiveBulkReceive, length);
    OperationKind::ActiveSend { descriptor, length }
}

/// Returns one operation of each queue, each of [`LENGTH`] bytes where it has a length.
pub(crate) fn every_operation() -> [OperationKind; Queue::COUNT] {
    let length = u64::from(LENGTH);
    [
        RECEIVE,
        OperationKind::Send { length, to: peer() },
        OperationKind::PassiveReceive,
        OperationKind::PassiveSend { length },
        active_receive(length),
        active_send(length),
    ]
}

pub(crate) fn memory(bytes: usize) -> IoVec {
    IoVec::whole(Region::heap(bytes).unwrap())
}
