//! A mailbox above LNet, with a test that needs no network: `cargo run -p lnet-fake --example
//! mailbox`.
//!
//! The mailbox posts a buffer for several letters, and another one when that buffer is full.

use std::sync::Arc;

use lnet_api::{EventKind, LNet, LNetError, Md, MdOptions, MeSpec, Position, Threshold, Unlink};
use lnet_fake::events::EventLog;
use lnet_fake::{CallKind, FakeLnet, ScriptedEvent};
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_region::{IoVec, Region};

const LETTERS: u32 = 2;
const LETTER_BYTES: u32 = 80;
const BITS: MatchBits = MatchBits(0x1e77e5);

/// The program under test.
struct Mailbox {
    lnet: Arc<dyn LNet>,
    /// The events of the received letters: the place of each in its buffer, and whether the buffer
    /// is now full.
    log: Arc<EventLog>,
    eq: lnet_api::EqHandle,
    portal: Portal,
    memory: IoVec,
}

impl Mailbox {
    fn open(lnet: Arc<dyn LNet>, portal: Portal) -> Result<Mailbox, Box<dyn std::error::Error>> {
        let log = EventLog::new();
        let eq = lnet.eq_alloc(log.clone())?;
        let memory = IoVec::whole(Region::heap((LETTERS * LETTER_BYTES) as usize)?);
        let mailbox = Mailbox { lnet, log, eq, portal, memory };
        mailbox.post()?;
        Ok(mailbox)
    }

    fn post(&self) -> Result<(), LNetError> {
        let me = self.lnet.me_attach(&MeSpec {
            portal: self.portal,
            match_id: ProcessId::ANY,
            match_bits: BITS,
            ignore_bits: MatchBits(0),
            unlink: Unlink::Auto,
            position: Position::After,
        })?;
        let md = Md {
            memory: self.memory.clone(),
            threshold: Threshold::Limited(LETTERS),
            max_size: LETTER_BYTES,
            options: MdOptions::OP_PUT | MdOptions::MAX_SIZE,
            user_ptr: 0,
            eq: Some(self.eq),
        };
        self.lnet.md_attach(me, md, Unlink::Auto).map(drop)
    }

    /// Returns the letters received since the last call, each with its sender.
    fn collect(&self) -> Result<Vec<(ProcessId, String)>, Box<dyn std::error::Error>> {
        let events = self.log.take();
        let mut letters = Vec::new();
        for event in events {
            let start = event.offset as usize;
            let bytes = self.memory.read(start..start + event.mlength as usize)?.to_vec();
            letters.push((event.initiator, String::from_utf8_lossy(&bytes).into_owned()));
            if event.unlinked {
                self.post()?;
            }
        }
        Ok(letters)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lnet = FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]);
    let portal = Portal::new(40)?;
    let mailbox = Mailbox::open(lnet.clone(), portal)?;
    let writer: ProcessId = "12345-10.0.0.2@tcp".parse()?;

    for text in ["one", "two", "three"] {
        let md = lnet.matching(EventKind::Put, writer, portal, BITS).expect("a buffer is posted");
        let event = lnet.inject(md, ScriptedEvent::put().from(writer).bytes(text));
        println!("{} bytes at {}, last of its buffer: {}", event.mlength, event.offset, event.unlinked);
        let letters = mailbox.collect()?;
        assert_eq!(letters, [(writer, text.to_owned())]);
    }
    // Two buffers were needed for the three letters.
    assert_eq!(lnet.calls_of(CallKind::MdAttach).len(), 2);
    println!("{} calls of LNet, all as they should be", lnet.calls().len());
    Ok(())
}
