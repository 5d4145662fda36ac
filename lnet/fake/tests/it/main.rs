//! The fake as seen by a program above it and by its test (S-7, S-417).

// An `unwrap` that fails in a helper also fails the test that called the helper.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use lnet_api::{
    AckRequest, EqHandle, Errno, EventKind, Get, LNet, LNetError, Md, MdHandle, MdOptions, MeHandle, MeSpec,
    Position, Put, Threshold, Unlink,
};
use lnet_fake::FakeLnet;
use lnet_fake::events::EventLog;
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_region::{IoVec, Region};

mod courses;
mod drive;
mod leaks;
mod legal;
mod partitions;
mod polled;
mod recording;
mod responder;
mod rules;
mod scripting;
mod spy;

const BITS: MatchBits = MatchBits(0xb175);
const USER: u64 = 77;

/// A node with an event queue that logs events.
struct Rig {
    lnet: Arc<FakeLnet>,
    log: Arc<EventLog>,
    eq: EqHandle,
}

impl Rig {
    fn new() -> Rig {
        let (lnet, log) = (FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]), EventLog::new());
        let eq = lnet.eq_alloc(log.clone()).unwrap();
        lnet.take_calls();
        Rig { lnet, log, eq }
    }

    fn md(&self, bytes: usize, options: MdOptions, threshold: u32) -> Md {
        Md {
            memory: IoVec::whole(Region::heap(bytes).unwrap()),
            threshold: Threshold::Limited(threshold),
            max_size: 0,
            options,
            user_ptr: USER,
            eq: Some(self.eq),
        }
    }

    /// Binds an MD of 8 bytes for `threshold` PUTs and GETs.
    fn bind(&self, threshold: u32) -> MdHandle {
        self.lnet.md_bind(self.md(8, MdOptions::empty(), threshold), Unlink::Auto).unwrap()
    }

    fn post(&self) -> MeHandle {
        self.lnet.me_attach(&spec()).unwrap()
    }

    /// Posts an MD of 64 bytes for `threshold` messages.
    fn expect(&self, options: MdOptions, threshold: u32) -> MdHandle {
        self.lnet.md_attach(self.post(), self.md(64, options, threshold), Unlink::Auto).unwrap()
    }

    fn put(&self, md: MdHandle, ack: AckRequest) -> Result<(), LNetError> {
        self.lnet.put(&put(md, ack))
    }

    fn get(&self, md: MdHandle) -> Result<(), LNetError> {
        self.lnet.get(&get(md))
    }

    /// Returns a PUT of 8 bytes that makes its MD, for `threshold` operations.
    fn bind_put(&self, ack: AckRequest, threshold: u32) -> Put<Md> {
        put(MdHandle(0), ack).with_md(self.md(8, MdOptions::empty(), threshold)).0
    }

    /// Returns a GET of 8 bytes that makes its MD, for `threshold` operations.
    fn bind_get(&self, threshold: u32) -> Get<Md> {
        get(MdHandle(0)).with_md(self.md(8, MdOptions::empty(), threshold)).0
    }

    /// Returns a rig with the same LNet and an empty log.
    fn with_empty_log(&self) -> Rig {
        Rig { lnet: self.lnet.clone(), log: EventLog::new(), eq: self.eq }
    }

    /// Returns kind, status and `unlinked` of the events delivered since the last call.
    fn brief(&self) -> Vec<(EventKind, Result<(), Errno>, bool)> {
        self.log.take().iter().map(|event| (event.kind, event.status, event.unlinked)).collect()
    }
}

fn peer() -> ProcessId {
    "12345-10.0.0.2@tcp".parse().unwrap()
}

fn portal(index: u32) -> Portal {
    Portal::new(index).unwrap()
}

fn spec() -> MeSpec {
    MeSpec {
        portal: portal(30),
        match_id: ProcessId::ANY,
        match_bits: BITS,
        ignore_bits: MatchBits(0),
        unlink: Unlink::Auto,
        position: Position::After,
    }
}

fn put(md: MdHandle, ack: AckRequest) -> Put {
    Put {
        source: None,
        md,
        ack,
        target: peer(),
        portal: portal(31),
        match_bits: MatchBits(5),
        offset: 16,
        hdr_data: 99,
    }
}

fn get(md: MdHandle) -> Get {
    Get { source: None, md, target: peer(), portal: portal(31), match_bits: MatchBits(6), offset: 24 }
}

fn errno<T: std::fmt::Debug>(result: Result<T, LNetError>) -> Errno {
    result.expect_err("a refusal").errno()
}

/// Returns the text of the panic with which the closure ends.
fn panic_of<T>(what: impl FnOnce() -> T) -> String {
    let payload =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(what()))).expect_err("a panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a panic has a text")).to_owned(),
    }
}

/// Checks that injecting the event is refused with this reason.
fn assert_cannot(rig: &Rig, md: MdHandle, scripted_event: lnet_fake::ScriptedEvent, reason: &str) {
    let text = panic_of(|| rig.lnet.inject(md, scripted_event));
    assert!(text.contains(reason), "{text:?} does not say {reason:?}");
    assert_eq!(rig.log.take(), []);
}
