//! GETs of a kernel node that loses part of a short reply (lnet-measured, "Short replies over
//! o2ib"): all reported bytes have been written, and the workarounds work.

use std::sync::Arc;

use lnet::Ping;
use lnet_api::{Errno, EventKind, MdOptions, Sleeper};
use lnet_nid::Pid;
use lnet_o2iblnd::O2ibConfig;
use lnet_proto::ping::{Features, NiStatus, PingInfo, PingInterface};
use lnet_region::IoVec;
use nlx_testkit::buffers::{apart, at, bytes, fill, filled, gapped, pattern, whole};
use nlx_testkit::lnds::{TestBed as _, get};
use nlx_testkit::warnings::Warnings;
use proptest::prelude::*;

use super::bytes::{GET_REQ, IMMEDIATE};
use super::kernel::Kernel;
use super::stranger::Scene;
use crate::Bed;
use crate::exchange::IMMEDIATE as IMMEDIATE_MAX;

/// The number of pieces of a kernel's write by default.
const WRQ_SGE: usize = 2;

/// The contents of memory before it is written.
const UNWRITTEN: u8 = 0xee;

/// Returns the result of a GET into this memory that the kernel answers with these bytes: the
/// reported length, or the errno without a REPLY.
fn gets(scene: &Scene, kernel: &mut Kernel<'_>, sink: &IoVec, payload: &[u8]) -> Result<usize, Errno> {
    fill(sink, &vec![UNWRITTEN; sink.len()]);
    let md = scene.victim().get(scene.id(), sink, 7);
    kernel.answer_get(payload);
    let victim = scene.victim();
    let failed = || victim.outcome(EventKind::Send, md).and_then(Result::err);
    scene.until(|| victim.has(EventKind::Reply) || failed().is_some());
    let errno = failed();
    let events = victim.take();
    let reply = events.iter().find(|event| event.kind == EventKind::Reply);
    match (reply, errno) {
        (Some(reply), None) => Ok(reply.mlength as usize),
        (None, Some(errno)) => Err(errno),
        (reply, errno) => panic!("{reply:?}, {errno:?}"),
    }
}

/// Returns the ping info of a node with `nids` NIDs.
fn info(scene: &Scene, nids: u8) -> Vec<u8> {
    let first = u32::from(scene.id().nid.ipv4().unwrap());
    let nid = |number: u32| format!("{}@o2ib", std::net::Ipv4Addr::from(first + number)).parse().unwrap();
    let nis = (0..nids.into()).map(|number| PingInterface { nid: nid(number), status: NiStatus::UP });
    let info = PingInfo { features: Features::NI_STATUS, pid: Pid::LNET, sequence: 1, nis: nis.collect() };
    let mut bytes = vec![0; info.encoded_len()];
    info.emit(&mut bytes).unwrap();
    bytes
}

fn answered(scene: &Scene, ping: &mut Ping) -> Result<PingInfo, Errno> {
    let mut answer = None;
    scene.until(|| {
        answer = answer.take().or_else(|| ping.poll());
        answer.is_some()
    });
    answer.unwrap().map_err(|error| error.errno())
}

/// A ping requests a reply that fits a message, as kernels do.
// Covers: S-4
#[test]
fn a_ping_is_answered() {
    let scene = Scene::new();
    let mut kernel = Kernel::connected(&scene, WRQ_SGE);
    let sleeper = Arc::new(Sleeper::new().unwrap());
    for nids in [1, 16, 245] {
        let info_bytes = info(&scene, nids);
        let mut ping = scene.victim().engine.ping(None, scene.id(), sleeper.clone()).unwrap();
        assert_eq!(kernel.answer_get(&info_bytes), IMMEDIATE);
        assert_eq!(answered(&scene, &mut ping), Ok(PingInfo::parse(&info_bytes).unwrap()), "{nids} NIDs");
    }
    kernel.leave();
    scene.end();
}

/// More NIDs than fit the first answer: the second request has exactly their length, in a message
/// or by RDMA, through a bounce buffer or not.
#[test]
fn a_long_ping_info_arrives_by_an_exact_second_ask() {
    let scene = Scene::new();
    let mut kernel = Kernel::connected(&scene, WRQ_SGE);
    let sleeper = Arc::new(Sleeper::new().unwrap());
    for (nids, kind) in [(246, IMMEDIATE), (250, GET_REQ), (255, GET_REQ)] {
        let info_bytes = info(&scene, nids);
        let engine = &scene.victim().engine;
        let mut ping = engine.ping(None, scene.id(), sleeper.clone()).unwrap();
        kernel.answer_get(&info_bytes);
        assert_eq!(answered(&scene, &mut ping), Err(Errno::EPROTO));
        assert_eq!(ping.needs(), Some(info_bytes.len()));
        let mut ping = engine.ping_asking(None, scene.id(), sleeper.clone(), info_bytes.len()).unwrap();
        assert_eq!(kernel.answer_get(&info_bytes), kind);
        assert_eq!(answered(&scene, &mut ping), Ok(PingInfo::parse(&info_bytes).unwrap()), "{nids} NIDs");
    }
    kernel.leave();
    scene.end();
}

/// GETs of the reply's length, and GETs not longer than an IMMEDIATE's payload, arrive.
#[test]
fn exact_gets_arrive() {
    let scene = Scene::new();
    let mut kernel = Kernel::connected(&scene, WRQ_SGE);
    for length in [3977, 4096, 8193, 65_537] {
        for sink in [whole(length), at(77, length), gapped(&[1, length - 1]), apart(&[100, length - 100])] {
            let payload = pattern(length as u64, length);
            assert_eq!(gets(&scene, &mut kernel, &sink, &payload), Ok(length));
            assert!(bytes(&sink) == payload);
        }
    }
    let sink = whole(IMMEDIATE_MAX);
    for length in [1, 48, IMMEDIATE_MAX - 1, IMMEDIATE_MAX] {
        let payload = pattern(1, length);
        assert_eq!(gets(&scene, &mut kernel, &sink, &payload), Ok(length));
        assert!(bytes(&sink)[..length] == payload);
    }
    assert_eq!(scene.victim().lnd.counters().rx.short_replies, 0);
    kernel.leave();
    scene.end();
}

/// A shorter reply fails the GET, whether it was written (`wrq_sge=1`) or not: no message
/// distinguishes the two. The failure is counted, a warning names the setting to change, and the
/// connection continues.
#[test]
fn longer_gets_fail() {
    let warnings = Warnings::heard();
    let scene = Scene::new();
    let mut failed = 0;
    for wrq_sge in [1, WRQ_SGE] {
        let mut kernel = Kernel::connected(&scene, wrq_sge);
        let sink = whole(4096);
        let lengths = [1, 48, 4095];
        for length in lengths {
            let payload = pattern(length as u64, length);
            assert_eq!(gets(&scene, &mut kernel, &sink, &payload), Err(Errno::EIO), "{length} bytes");
            let written = bytes(&sink)[..length] == payload;
            assert_eq!(written, wrq_sge == 1, "the kernel is as it was measured");
        }
        failed += lengths.len() as u64;
        let counters = scene.victim().lnd.counters();
        assert_eq!(counters.rx.short_replies, failed);
        assert_eq!((counters.rx.protocol_errors, scene.victim().lnd.conn_stats().connections), (0, 2));
        let payload = pattern(9, 4096);
        assert_eq!(gets(&scene, &mut kernel, &sink, &payload), Ok(4096));
        assert!(bytes(&sink) == payload);
        // The end of a fragment is as good as the end of the memory, and an empty reply cannot lose
        // bytes.
        let two = gapped(&[4096, 5000]);
        let payload = pattern(2, 4096);
        assert_eq!(gets(&scene, &mut kernel, &two, &payload), Ok(4096));
        assert!(bytes(&two)[..4096] == payload);
        assert_eq!(gets(&scene, &mut kernel, &two, &[]), Ok(0));
        drop((sink, two));
        kernel.leave();
        scene.until(|| scene.victim().lnd.conn_stats().connections == 1);
    }
    let advice = warnings.with("a GET of 4096 bytes is answered by 1,");
    assert!(
        advice.last().is_some_and(|warning| warning.contains("EIO") && warning.contains("3976")),
        "{advice:?}"
    );
    scene.end();
}

/// Nodes of nlx write every byte that they count, and identify each other as such.
#[test]
fn nodes_of_nlx_get_what_there_is() {
    let scene = Scene::new();
    let [a, b] = &scene.nodes;
    for [a, b] in [[a, b], [b, a]] {
        for (length, room) in [(1, 4096), (48, 4096), (4095, 4096), (5000, 1 << 20)] {
            for sink in [whole(room), apart(&[50, room - 50])] {
                get(&scene.bed, [a, b], &filled(whole(length), 1), &sink);
            }
        }
        assert_eq!(a.lnd.counters().rx.short_replies, 0);
    }
    scene.end();
}

/// Returns memory of these pieces: in one region, from an odd offset on, or each piece in a
/// separate region, which takes a bounce buffer.
fn memory(way: usize, lengths: &[usize]) -> IoVec {
    match way {
        0 => gapped(lengths),
        1 => at(13, lengths.iter().sum()),
        _ => apart(lengths),
    }
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1usize..300, 1usize..9000], 1..6)
}

proptest! {
    #![proptest_config(some_cases())]

    /// For every memory of a GET and every length of the reply, all reported bytes have been
    /// written.
    // Covers: S-4
    #[test]
    fn what_is_reported_was_written(
        gots in prop::collection::vec((0usize..3, pieces(), 0usize..50_000), 1..6), wrq_sge in 1usize..5,
    ) {
        let scene = simulated();
        let mut kernel = Kernel::connected(&scene, wrq_sge);
        for (way, lengths, length) in gots {
            let sink = memory(way, &lengths);
            let payload = pattern(3, length);
            match gets(&scene, &mut kernel, &sink, &payload) {
                Ok(reported) => {
                    prop_assert_eq!(reported, length.min(sink.len()));
                    prop_assert!(bytes(&sink)[..reported] == payload[..reported]);
                }
                Err(errno) => prop_assert!(errno == Errno::EIO && length < sink.len()),
            }
        }
        kernel.leave();
        scene.end();
    }

    /// A PUT_ACK describes exactly the requested bytes, truncated or not, so that a PUT of the
    /// kernel is written whole.
    // Covers: S-4
    #[test]
    fn puts_arrive_whole(
        puts in prop::collection::vec((0usize..3, pieces(), 3977usize..50_000), 1..6), wrq_sge in 1usize..5,
    ) {
        let scene = simulated();
        let victim = scene.victim();
        let mut kernel = Kernel::connected(&scene, wrq_sge);
        for (way, lengths, length) in puts {
            let sink = memory(way, &lengths);
            let payload = pattern(4, length);
            let wanted = length.min(sink.len());
            victim.post(&sink, 8, MdOptions::OP_PUT | MdOptions::TRUNCATE);
            prop_assert_eq!(kernel.put(&payload, 8), wanted);
            scene.until(|| victim.count(EventKind::Put) == (1, 1));
            prop_assert_eq!(victim.take()[0].mlength as usize, wanted);
            prop_assert!(bytes(&sink)[..wanted] == payload[..wanted]);
        }
        kernel.leave();
        scene.end();
    }
}

/// Returns the number of cases: few in the guest, whose processor is emulated. The tests use
/// simulated devices there too.
fn some_cases() -> ProptestConfig {
    let cases = if std::env::var_os("NLX_GUEST").is_some() { 2 } else { 48 };
    ProptestConfig { cases, ..ProptestConfig::default() }
}

fn simulated() -> Scene {
    let bed = Bed::simulated();
    let nodes = bed.pair(&O2ibConfig::default());
    Scene::of(bed, nodes)
}
