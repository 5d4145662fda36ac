//! Tests that need private items of the crate; the suite in `tests/suite` has all others.

use std::sync::Arc;

use lnet_api::MdHandle;
use lnet_fake::{FakeDrive, FakeLnet};
use lnet_region::{IoVec, Region};
use nlx_core::{
    BufferHandle, Core, CoreError, CoreTm, Descriptor, Errno, MatchCounter, Operation, OperationKind,
    StartAddress, Submitted, TmId, TmOptions, match_bits,
};

use crate::Kcore;
use crate::machine::KcoreTm;

mod cancelling;
mod counter;
mod domains;
mod options;
mod ring;

const BUFFER_BYTES: usize = 8192;
const MESSAGES: u32 = 4;
const MIN_RECEIVE_SIZE: u64 = 5000;
const COOKIE: u64 = 0xc00c1e;

/// A domain over a scripted LNet, with one transfer machine and one registered buffer.
struct Rig {
    lnet: Arc<FakeLnet>,
    drive: Arc<FakeDrive>,
    core: Arc<Kcore>,
    tm: KcoreTm,
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

    /// Starts an operation and returns its MD.
    fn start(&self, kind: OperationKind) -> MdHandle {
        self.submit(kind).unwrap();
        self.lnet.last_md()
    }
}

fn start(text: &str) -> StartAddress {
    text.parse().unwrap()
}

const RECEIVE: OperationKind =
    OperationKind::Receive { min_receive_size: MIN_RECEIVE_SIZE, max_messages: MESSAGES };
