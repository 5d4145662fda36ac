//! Generators of messages for the property tests.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use nlx_core::{
    Address, BufferHandle, Descriptor, Errno, Limits, MatchCounter, Nid, Operation, OperationKind, Pid,
    StartAddress, TmId,
};
use nlx_driver_proto::{
    ARENA_BYTES_MAX, BUFFERS_MAX, BufferName, EVENTS_MAX, Entry, Features, Hello, Kind, NIDS_MAX, Reason,
    Refusal, Reply, Request, SEGMENTS_MAX, Segment, StartTm, VERSION, Welcome,
};
use proptest::prelude::*;

fn nid() -> impl Strategy<Value = Nid> {
    let net = || (prop::sample::select(vec!["tcp", "o2ib", "gni"]), any::<u16>());
    let on = |(name, number): (&str, u16)| format!("{name}{number}").parse().unwrap();
    prop_oneof![
        Just(Nid::LOOPBACK),
        (net(), any::<u32>()).prop_map(move |(net, bits)| Nid::new_v4(on(net), Ipv4Addr::from_bits(bits))),
        (net(), any::<u128>()).prop_map(move |(net, bits)| Nid::new_v6(on(net), Ipv6Addr::from_bits(bits))),
    ]
}

fn address() -> impl Strategy<Value = Address> {
    (nid(), any::<u32>(), any::<u32>(), 1..=4095u32).prop_map(|(nid, pid, portal, tmid)| Address {
        nid,
        pid: Pid(pid),
        portal,
        tmid: TmId::new(tmid).unwrap(),
    })
}

fn features() -> impl Strategy<Value = Features> {
    any::<u64>().prop_map(Features::from_bits_truncate)
}

fn buffer() -> impl Strategy<Value = u64> {
    (0..BUFFERS_MAX, 1..=u32::MAX).prop_map(|(index, generation)| BufferName { index, generation }.value())
}

fn segment() -> impl Strategy<Value = Segment> {
    let end = 1..=ARENA_BYTES_MAX;
    (any::<u32>(), end)
        .prop_flat_map(|(arena, end)| (Just(arena), Just(end), 0..end))
        .prop_map(|(arena, end, offset)| Segment { arena, offset, length: end - offset })
}

fn start() -> impl Strategy<Value = StartTm> {
    (address(), any::<bool>(), 1..=EVENTS_MAX, any::<bool>()).prop_map(
        |(address, any_id, events_max, lazy)| {
            let address = StartAddress::from(address);
            let tmid = address.tmid.filter(|_| !any_id);
            StartTm { address: StartAddress { tmid, ..address }, events_max, lazy }
        },
    )
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        ("\\PC{0,40}", features())
            .prop_map(|(name, features)| { Request::Hello(Hello { features, ..Hello::new(&name) }) }),
        (1..=ARENA_BYTES_MAX, any::<bool>(), any::<u32>()).prop_map(|(bytes, huge, near)| {
            Request::CreateArena { bytes, huge, near: NonZeroU32::new(near) }
        }),
        any::<u32>().prop_map(|arena| Request::ReleaseArena { arena }),
        (buffer(), prop::collection::vec(segment(), 1..=SEGMENTS_MAX))
            .prop_map(|(buffer, segments)| Request::Register { buffer, segments }),
        start().prop_map(Request::StartTm),
        any::<u64>().prop_map(|tm| Request::StopTm { tm }),
        any::<u64>().prop_map(|tm| Request::TmDescriptor { tm }),
        Just(Request::Sync),
        Just(Request::Nids),
    ]
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let own = Limits::LNET;
    let sizes = (0..=own.buffer_bytes_max, 0..=own.segment_bytes_max, 0..=own.segments_max);
    let counts = (0..=own.descriptor_bytes_max, 0..=own.messages_max, 0..=own.buffers_max);
    (sizes, counts, features(), any::<[u32; 4]>(), any::<[u64; 4]>()).prop_map(
        |(sizes, counts, features, [tms_max, operations_max, events_max, arenas_max], longs)| {
            let mut limits = Limits::LNET;
            (limits.buffer_bytes_max, limits.segment_bytes_max, limits.segments_max) = sizes;
            (limits.descriptor_bytes_max, limits.messages_max, limits.buffers_max) = counts;
            let [client, bytes_max, arena_bytes_max, now_ns] = longs;
            let version = VERSION;
            let (tms, arenas) = ((tms_max, operations_max, events_max), (arenas_max, bytes_max));
            Welcome {
                version,
                features,
                client,
                limits,
                tms_max: tms.0,
                operations_max: tms.1,
                events_max: tms.2,
                arenas_max: arenas.0,
                bytes_max: arenas.1,
                now_ns,
                arena_bytes_max,
            }
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let errno = prop::sample::select((1..=133).map(Errno::from_raw).collect::<Vec<_>>())
        .prop_filter("one that there is", |errno| *errno != Errno::UnknownErrno);
    (errno, prop::sample::select(Reason::ALL), any::<u64>(), any::<u64>())
        .prop_map(|(errno, reason, value, limit)| Refusal { errno, reason, value, limit })
}

/// Generates a reply, and the kind of a request to which it can belong.
pub(crate) fn reply() -> impl Strategy<Value = (u16, Reply)> {
    let done = [Kind::ReleaseArena, Kind::Register, Kind::StopTm, Kind::TmDescriptor, Kind::Sync];
    let arena = [Kind::CreateArena];
    let kind = |kinds: Vec<Kind>| prop::sample::select(kinds).prop_map(|kind| kind as u16);
    prop_oneof![
        // Also to requests of unknown kinds.
        (0..0x8000u16, refusal()).prop_map(|(kind, refusal)| (kind, Reply::Refused(refusal))),
        kind(done.to_vec()).prop_map(|kind| (kind, Reply::Done)),
        welcome().prop_map(|welcome| (Kind::Hello as u16, Reply::Welcome(welcome))),
        (kind(arena.to_vec()), any::<u32>(), 1..=ARENA_BYTES_MAX, any::<bool>())
            .prop_map(|(kind, arena, bytes, huge)| (kind, Reply::Arena { arena, bytes, huge })),
        (any::<u64>(), address(), any::<u32>()).prop_map(|(tm, address, near)| {
            (Kind::StartTm as u16, Reply::Started { tm, address, near: NonZeroU32::new(near) })
        }),
        prop::collection::vec(nid(), 0..=NIDS_MAX).prop_map(|nids| (Kind::Nids as u16, Reply::Nids(nids))),
    ]
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), Descriptor::COMPATIBLE_LEN),
        prop::collection::vec(any::<u8>(), Descriptor::EXTENDED_LEN),
    ]
    .prop_map(|bytes| Descriptor::from_bytes(&bytes).unwrap())
}

fn kind() -> impl Strategy<Value = OperationKind> {
    prop_oneof![
        (any::<u64>(), 1..=u32::MAX).prop_map(|(min_receive_size, max_messages)| OperationKind::Receive {
            min_receive_size,
            max_messages
        }),
        (any::<u64>(), address()).prop_map(|(length, to)| OperationKind::Send { length, to }),
        Just(OperationKind::PassiveReceive),
        any::<u64>().prop_map(|length| OperationKind::PassiveSend { length }),
        descriptor().prop_map(|descriptor| OperationKind::ActiveReceive { descriptor }),
        (descriptor(), any::<u64>())
            .prop_map(|(descriptor, length)| OperationKind::ActiveSend { descriptor, length }),
    ]
}

pub(crate) fn entry() -> impl Strategy<Value = Entry> {
    let operate = (any::<[u64; 3]>(), kind(), 1..=MatchCounter::LAST.get()).prop_map(
        |([tm, buffer, cookie], kind, counter)| {
            let counter = if kind.queue().is_passive() { counter } else { 0 };
            let operation = Operation { buffer: BufferHandle(buffer), cookie, kind };
            Entry::Operate { tm, operation, counter: MatchCounter::new(counter).unwrap() }
        },
    );
    prop_oneof![
        4 => operate,
        1 => any::<[u64; 3]>().prop_map(|[tm, buffer, cookie]| Entry::Cancel {
            tm,
            buffer: BufferHandle(buffer),
            cookie
        }),
        1 => (buffer(), segment())
            .prop_map(|(buffer, segment)| Entry::Register { buffer: BufferHandle(buffer), segment }),
        1 => any::<u64>().prop_map(|buffer| Entry::Deregister { buffer: BufferHandle(buffer) }),
    ]
}
