//! MT-214: each message has the bytes that the document shows, which were written by hand.

use std::num::NonZeroU32;

use nlx_core::{
    Address, BufferEvent, BufferHandle, Descriptor, DescriptorForm, Errno, EventFlags, Limits, MatchCounter,
    Operation, OperationKind, PassiveBuffer, Queue, StartAddress, match_bits,
};
use nlx_driver_proto::{
    Entry, Features, Header, Hello, Kind, Reason, Refusal, Reply, Request, Segment, StartTm, Submission,
    VERSION, Welcome,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::document;

const TM: u64 = 0x2_0000_0001;
const BUFFER: BufferHandle = BufferHandle(0x1_0000_0000);
const COOKIE: u64 = 77;

fn requests() -> Vec<(&'static str, Request)> {
    let segments =
        vec![Segment { arena: 1, offset: 4096, length: 65536 }, Segment { arena: 2, offset: 0, length: 100 }];
    let address: StartAddress = "10.0.0.1@tcp:12345:40:*".parse().unwrap();
    vec![
        ("hello", Request::Hello(Hello::new("raw"))),
        ("create-arena", Request::CreateArena { bytes: 16 << 20, huge: true, near: NonZeroU32::new(2) }),
        ("release-arena", Request::ReleaseArena { arena: 3 }),
        ("register", Request::Register { buffer: 0x2_0000_0005, segments }),
        ("start-tm", Request::StartTm(StartTm { address, events_max: 1024, lazy: true })),
        ("stop-tm", Request::StopTm { tm: TM }),
        ("tm-descriptor", Request::TmDescriptor { tm: TM }),
        ("sync", Request::Sync),
        ("nids", Request::Nids),
    ]
}

fn replies() -> Vec<(&'static str, Kind, Reply)> {
    let mut limits = Limits::LNET;
    limits.buffers_max = 4096;
    let welcome = Welcome {
        version: VERSION,
        features: Features::HUGE_PAGES,
        client: 9,
        limits,
        tms_max: 64,
        operations_max: 8192,
        events_max: 16384,
        arenas_max: 32,
        bytes_max: 1 << 30,
        now_ns: 1_000_000_000,
        arena_bytes_max: 16 << 20,
    };
    let refusal = Refusal { errno: Errno::EPERM, reason: Reason::Portal, value: 30, limit: 0 };
    let address = "10.0.0.1@tcp:12345:40:4095".parse().unwrap();
    let nids = ["10.0.0.1@tcp", "fd00::1@tcp3", "0@lo"].map(|nid| nid.parse().unwrap());
    vec![
        ("welcome", Kind::Hello, Reply::Welcome(welcome)),
        ("refused", Kind::StartTm, Reply::Refused(refusal)),
        ("done", Kind::Sync, Reply::Done),
        ("arena", Kind::CreateArena, Reply::Arena { arena: 1, bytes: 16 << 20, huge: true }),
        ("started", Kind::StartTm, Reply::Started { tm: TM, address, near: NonZeroU32::new(2) }),
        ("nids-reply", Kind::Nids, Reply::Nids(nids.to_vec())),
    ]
}

/// Returns the address of the peer's transfer machine in all examples.
fn peer() -> Address {
    "10.0.0.2@tcp:12345:40:7".parse().unwrap()
}

fn descriptor(form: DescriptorForm, queue: Queue, counter: u64, length: u64) -> Descriptor {
    let match_bits = match_bits(peer().tmid, MatchCounter::new(counter).unwrap());
    Descriptor::encode_as(form, &PassiveBuffer { address: peer(), match_bits, queue, length }).unwrap()
}

fn entries() -> Vec<(&'static str, Entry)> {
    let operate = |kind, counter| Entry::Operate {
        tm: TM,
        operation: Operation { buffer: BUFFER, cookie: COOKIE, kind },
        counter: MatchCounter::new(counter).unwrap(),
    };
    let to_read = descriptor(DescriptorForm::Compatible, Queue::PassiveBulkSend, 8, 8192);
    let to_write = descriptor(DescriptorForm::Extended, Queue::PassiveBulkReceive, 9, 4096);
    let receive = OperationKind::Receive { min_receive_size: 4096, max_messages: 16 };
    let segment = Segment { arena: 1, offset: 8192, length: 4096 };
    vec![
        ("entry-receive", operate(receive, 0)),
        ("entry-send", operate(OperationKind::Send { length: 5, to: peer() }, 0)),
        ("entry-passive-receive", operate(OperationKind::PassiveReceive, 7)),
        ("entry-passive-send", operate(OperationKind::PassiveSend { length: 8192 }, 8)),
        ("entry-active-receive", operate(OperationKind::ActiveReceive { descriptor: to_read }, 0)),
        ("entry-active-send", operate(OperationKind::ActiveSend { descriptor: to_write, length: 2048 }, 0)),
        ("entry-cancel", Entry::Cancel { tm: TM, buffer: BUFFER, cookie: COOKIE }),
        ("entry-register", Entry::Register { buffer: BUFFER, segment }),
        ("entry-deregister", Entry::Deregister { buffer: BUFFER }),
    ]
}

// Covers: MT-214
#[test]
fn requests_have_the_bytes_of_the_document() {
    for (name, request) in requests() {
        let (bytes, id) = (document::bytes(name), request.kind() as u64);
        let mut packet = vec![0xee];
        request.write(id, &mut packet);
        assert_eq!(packet, bytes, "{name}");
        assert_eq!(Request::read(&bytes), Ok((id, request)), "{name}");
    }
    assert!(requests().into_iter().map(|(_, request)| request.kind()).eq(Kind::ALL));
}

// Covers: MT-214
#[test]
fn replies_have_the_bytes_of_the_document() {
    for (name, kind, reply) in replies() {
        let (bytes, id) = (document::bytes(name), kind as u64);
        let mut packet = vec![0xee];
        reply.write(kind as u16, id, &mut packet);
        assert_eq!(packet, bytes, "{name}");
        assert_eq!(Reply::read(&bytes), Ok((id, reply)), "{name}");
        assert_eq!(Header::peek(&bytes).unwrap().kind.get(), kind as u16 | Header::REPLY);
    }
}

// Covers: MT-214, MT-220
#[test]
fn entries_have_the_bytes_of_the_document() {
    for (name, entry) in entries() {
        let bytes = document::bytes(name);
        assert_eq!(entry.write().as_bytes(), bytes, "{name}");
        assert_eq!(Submission::read_from_bytes(&bytes).unwrap().read(), Ok(entry), "{name}");
    }
}

// Covers: MT-220
#[test]
fn an_event_has_the_bytes_of_the_document() {
    let mut event =
        BufferEvent { buffer: BUFFER.0, cookie: COOKIE, time_ns: 1_000_000, length: 5, ..BufferEvent::ZERO };
    event.flags = EventFlags::UNLINKED;
    event.released = 1;
    event.set_sender(&peer());
    assert_eq!(event.as_bytes(), document::bytes("event"));
}

#[test]
fn every_example_of_the_document_is_tested() {
    let requests = requests().into_iter().map(|(name, _)| name);
    let replies = replies().into_iter().map(|(name, ..)| name);
    let entries = entries().into_iter().map(|(name, _)| name);
    assert!(document::names().into_iter().eq(requests.chain(replies).chain(entries).chain(["event"])));
}

#[test]
fn the_document_lists_every_kind_and_every_reason() {
    for kind in Kind::ALL {
        let row = format!("| {} | `{kind:?}` |", kind as u16);
        assert!(section("## Requests").contains(&row), "{row}");
    }
    for reason in Reason::ALL {
        let row = format!("\n| {} | ", *reason as u32);
        assert!(section("## Refusals").contains(&row), "{row}");
    }
}

/// Returns the text of the section with this headline.
fn section(headline: &str) -> &'static str {
    let (_, rest) = document::DOCUMENT.split_once(&format!("\n{headline}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}
