//! loom models of cancelling, ending, stopping and waking: every interleaving of LNet's threads
//! with the client's.
//!
//! LNet is a scripted one ([`lnet`]) that keeps the engine's promises to an event queue, and
//! nothing beyond them. At the end of each model every operation has had exactly one last event and
//! nothing after it, and nothing is reserved, associated or held any more. loom itself fails a
//! model that leaks a queue of events.
//!
//! Each rule of [`crate::agreed`] is broken once, and a model must fail by it: this proves that the
//! rule is needed and that the models detect its absence. That nothing is freed under a callback
//! (K1) is no such rule: the event queue owns what its callbacks touch, and there is no unsafe
//! code.
//!
//! `RUSTFLAGS="--cfg loom -C debug-assertions" cargo test -p nlx-kcore --release --lib model`

use std::sync::{Arc, Weak};

use lnet_api::{Clock, Drive, Tokens};
use lnet_region::{IoVec, LndSlot, Region};
use loom::thread;
use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreError, CoreTm, Descriptor, DescriptorForm, Errno,
    MatchCounter, Operation, OperationKind, Queue, StartAddress, Submitted, TmOptions,
};

use crate::machine::KcoreTm;
use crate::{Anomalies, Kcore};
use lnet::ScriptedLnet;
use nlx_sync::{Rule, broken};

mod cancelling;
mod counting;
mod ending;
mod lnet;
mod losing;
mod stopping;
mod waking;

/// The operation on buffer `n` has the cookie `COOKIE + n` and the MD number `n`.
const COOKIE: u64 = 100;

/// Bytes of a buffer, and of each message.
const BYTES: usize = 8;

const CANCELLED: Result<(), Errno> = Err(Errno::ECANCELED);

/// Explores every interleaving.
fn check(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Explores every interleaving with at most this number of preemptions, for a model whose full
/// exploration would take half a minute. (Most faults need two preemptions.)
fn check_bounded(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

/// Checks that the models fail with this message when `rule` is broken.
fn needs(rule: Rule, models: fn(), fault: &str) {
    let outcome = std::panic::catch_unwind(|| broken(rule, models));
    let panic = outcome.expect_err("loom finds nothing wrong");
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).expect("loom says why");
    assert!(message.contains(fault), "{rule:?}: {message}");
}

/// A node whose clock does not advance and whose network needs no driver.
struct Still(Tokens);

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Drive for Still {
    fn tokens(&self) -> &Tokens {
        &self.0
    }
}

/// A domain over a scripted LNet, with one transfer machine.
struct Rig {
    lnet: Arc<ScriptedLnet>,
    core: Arc<Kcore>,
    tm: KcoreTm,
}

/// A registered buffer.
#[derive(Clone)]
struct Buffer {
    handle: BufferHandle,
    number: u64,
    /// Upgradable while the buffer's memory exists.
    memory: Weak<()>,
}

impl Rig {
    fn new() -> Rig {
        Rig::over(ScriptedLnet::default())
    }

    fn over(lnet: ScriptedLnet) -> Rig {
        let lnet = Arc::new(lnet);
        let core = Kcore::new(lnet.clone(), Arc::new(Still(Tokens::new(0))));
        let tm = start_machine(&core, "0@lo:12345:31:7").expect("a transfer machine");
        Rig { lnet, core, tm }
    }

    /// Returns a node with one operation in flight, a passive receive, whose MD and buffer have
    /// number 0.
    fn receiving() -> (Rig, Buffer) {
        let rig = Rig::new();
        let buffer = rig.buffer(0);
        rig.submit(&buffer, OperationKind::PassiveReceive).expect("it starts");
        (rig, buffer)
    }

    fn buffer(&self, number: u64) -> Buffer {
        let region = Region::heap(BYTES).expect("memory");
        let token = Arc::new(());
        let memory = Arc::downgrade(&token);
        region.registration(LndSlot::new(0).expect("a slot"), |_| Some(Box::new(token)));
        let handle = self.core.register(&IoVec::whole(region)).expect("a buffer");
        Buffer { handle, number, memory }
    }

    fn submit(&self, buffer: &Buffer, kind: OperationKind) -> Result<Submitted, CoreError> {
        self.tm.submit(&buffer.operation(kind))
    }

    fn cancel(&self, buffer: &Buffer) -> Result<(), CoreError> {
        self.tm.cancel(buffer.handle, COOKIE + buffer.number)
    }

    /// Checks that nothing is pending or reserved, that the buffers and their memory can be freed,
    /// and that the transfer machine stops.
    fn finish(&self, buffers: &[&Buffer]) {
        assert_eq!(self.tm.event_get().unwrap(), None, "an event after the last");
        assert_eq!(self.tm.needed(), 0);
        for buffer in buffers {
            buffer.give_back(&self.core);
        }
        self.tm.stop().expect("nothing is in flight");
        self.lnet.assert_empty();
        assert_eq!(self.core.faults(), Anomalies::default());
    }
}

/// Runs `work` in another thread.
fn beside<T: 'static>(
    rig: &Arc<Rig>,
    buffer: &Buffer,
    work: impl FnOnce(&Rig, &Buffer) -> T + 'static,
) -> thread::JoinHandle<T> {
    let (rig, buffer) = (rig.clone(), buffer.clone());
    thread::spawn(move || work(&rig, &buffer))
}

impl Buffer {
    fn operation(&self, kind: OperationKind) -> Operation {
        Operation { buffer: self.handle, cookie: COOKIE + self.number, kind }
    }

    /// Returns the status of the operation's only event, which must be the last.
    fn ended(&self, events: &[BufferEvent]) -> Result<(), Errno> {
        let own: Vec<_> = events.iter().filter(|event| event.cookie == COOKIE + self.number).collect();
        assert_eq!(own.len(), 1, "one event ends operation {}", self.number);
        assert!(own[0].unlinked());
        assert_eq!(own[0].buffer(), self.handle);
        own[0].status()
    }

    fn give_back(&self, core: &Kcore) {
        core.deregister(self.handle).expect("no operation has it");
        assert!(self.memory.upgrade().is_none(), "somebody keeps the memory");
    }
}

fn start_machine(core: &Kcore, address: &str) -> Result<KcoreTm, CoreError> {
    let address: StartAddress = address.parse().expect("an address");
    let mut options = TmOptions::default();
    // loom keeps a history of each slot.
    options.events_max = 2;
    core.start_machine(&address, &options)
}

fn events(tm: &KcoreTm) -> Vec<BufferEvent> {
    let (mut all, mut together) = (Vec::new(), [BufferEvent::ZERO; 2]);
    while let count @ 1.. = tm.events_get(&mut together).unwrap() {
        all.extend_from_slice(&together[..count]);
    }
    all
}

fn peer() -> Address {
    "10.0.0.2@tcp:12345:33:9".parse().expect("an address")
}

fn send() -> OperationKind {
    OperationKind::Send { length: BYTES as u64, to: peer() }
}

/// Returns an active receive: a GET of a peer's buffer.
fn receive_actively() -> OperationKind {
    let (form, operation) = (DescriptorForm::Compatible, (Queue::PassiveBulkSend, MatchCounter::FIRST));
    let descriptor = Descriptor::of_operation(form, peer(), operation, BYTES as u64).expect("an address");
    OperationKind::ActiveReceive { descriptor: descriptor.expect("it is passive") }
}
