//! Tests of the computation and of its output.

use super::html::page;
use super::input::peers;
use super::result::Calculation;
use super::sweep::Sweep;
use super::*;
use crate::args::{Args, Command};
use clap::Parser;

const MEGABYTE: MdPages = MdPages { fragments: 256, gaps: false };

fn args(words: &[&str]) -> CalcArgs {
    match Args::parse_from([&["nlx", "o2iblnd-calc"], words].concat()).command {
        Command::O2iblndCalc(args) => args,
        _ => unreachable!("the command is named"),
    }
}

fn computed(words: &[&str]) -> Calculation {
    let args = args(words);
    Calculation::of(peers(&args).unwrap(), args.peers, MEGABYTE).unwrap_or_else(|error| panic!("{error}"))
}

fn warned(words: &[&str], what: &str) -> bool {
    let all = computed(words);
    all.warnings.iter().any(|warning| warning.contains(what))
}

// Covers: S-507
#[test]
fn what_has_no_effect_or_fails_is_reported() {
    assert_eq!(computed(&[]).warnings, Vec::<String>::new());
    // Each tunable of the kernel that nlx does not have, whether or not sizes of kernel nodes
    // depend on it.
    for (set, why) in [
        ("map_on_demand=32", "obsolete"),
        ("ntx=2048", "each connection has separate message buffers"),
        ("fmr_pool_size=9", "nlx registers memory once"),
        ("fmr_flush_trigger=9", "nlx registers memory once"),
        ("fmr_cache=0", "nlx registers memory once"),
        ("use_fastreg_gaps=1", "may have gaps"),
        ("ib_mtu=2048", "uses the largest MTU"),
        ("ipif_name=ib1", "networks name their interfaces"),
        ("dev_failover=1", "fails over by itself"),
        ("peer_timeout=0", "does not route"),
        ("peer_buffer_credits=9", "does not route"),
        ("kernel_build=514", "nlx registers memory once"),
        ("mapping=fmr", "nlx registers memory once"),
        ("peer_credits_hiw=7", "half of them are owed"),
        ("peercredits_hiw=5", "half of them are owed"),
    ] {
        let (name, _) = set.split_once('=').unwrap();
        let all = computed(&["--a", set]);
        let [warning] = &all.warnings[..] else { panic!("{set}: {:?}", all.warnings) };
        assert!(
            warning.starts_with(&format!("a: {name} has no effect: ")) && warning.contains(why),
            "{warning}"
        );
    }
    assert!(warned(&["--a", "cksum=1"], "a: cksum changes nothing here"));
    assert!(warned(&["--b", "fmr_flush_trigger=9"], "b: fmr_flush_trigger has no effect"));
    assert!(warned(&["--b", "cksum=1"], "b: cksum changes nothing"));
    assert!(warned(&["--b", "concurrent_sends=4"], "concurrent_sends 4 is less than peer_credits 8"));
    assert!(warned(&["--peers", "33"], "credits come to 256: 33 peers"));
    assert!(!warned(&["--peers", "32"], "credits come to"));
    assert!(warned(&["--a", "max_wr=1024"], "cuts the depth from 8 to 3"));
    assert!(warned(&["--b", "max_wr=100"], "a cannot connect to b: send queue"));
}

/// The settings on which peers must agree (S-508): the port, and whether it is a privileged one.
/// The side that cannot connect gets the reason; a setting that prevents no connection is no
/// barrier.
#[test]
fn sides_that_cannot_reach_each_other_are_reported() {
    let barred = |a: &str, b: &str| {
        let all = computed(&["--a", a, "--b", b]);
        for opener in [0, 1] {
            for barrier in all.barred(opener) {
                assert!(all.warnings.contains(&barrier.text), "{:?}", all.warnings);
            }
            let line = table::text(&all);
            let line = line.lines().find(|line| line.starts_with(["a c", "b c"][opener])).unwrap();
            assert_eq!(line.contains("cannot connect"), all.barred(opener).count() > 0, "{line}");
        }
        let bars = [0, 1].map(|opener| all.barred(opener).count());
        let idle = all.warnings.iter().filter(|warning| warning.contains("changes nothing here")).count();
        (bars, all.barriers.len(), idle)
    };
    for release in ["nlx", "2.10", "2.15"] {
        let side = |set: &str| format!("release={release},{set}");
        assert_eq!(barred(&side("service=988"), "cpts=1"), ([1, 1], 1, 0), "{release}");
        assert_eq!(barred("cpts=1", &side("service=988")), ([1, 1], 1, 0), "{release}");
        assert_eq!(barred(&side("service=988"), "service=988"), ([0, 0], 0, 2), "{release}");
        let requires = side("require_privileged_port=1");
        assert_eq!(barred(&requires, "use_privileged_port=0"), ([0, 1], 1, 0), "{release}");
        assert_eq!(barred("use_privileged_port=0", &requires), ([1, 0], 1, 0), "{release}");
        assert_eq!(barred(&requires, "use_privileged_port=1"), ([0, 0], 0, 2), "{release}");
        assert_eq!(barred(&requires, "service=988,use_privileged_port=0"), ([1, 2], 2, 0), "{release}");
    }
    assert!(warned(&["--a", "service=988"], "a and b cannot connect to each other: "));
    let kept_out = ["--a", "require_privileged_port=1", "--b", "use_privileged_port=0"];
    assert!(warned(&kept_out, "b cannot connect to a: ") && !warned(&kept_out, "a cannot connect to b"));
    let reasons = explain::text(&computed(&kept_out));
    assert_eq!(reasons.matches("  b cannot connect to a: ").count(), 1, "{reasons}");
    let all = computed(&kept_out).to_json();
    let told = |opener: &str| all["opened_by"][opener]["barred"].as_array().unwrap().len();
    assert_eq!((told("a"), told("b")), (0, 1));
    let sweep =
        |sides: &[&str]| Sweep::of("peer_credits=8..16", &peers(&args(sides)).unwrap(), 1, MEGABYTE).unwrap();
    assert_eq!(sweep(&kept_out).barred.len(), 0, "a opens the connections of a sweep");
    let swept = sweep(&["--a", "service=988"]);
    let [barred] = &swept.barred[..] else { panic!("{:?}", swept.barred) };
    assert!(swept.to_string().contains(&format!("warning: {barred}")));
    assert!(page(&swept).contains("cannot connect to each other"));
}

/// Credits beyond the agreed depth are never used, and the side that has them gets a warning with
/// their number.
// Covers: S-501
#[test]
fn credits_beyond_the_depth_are_reported() {
    let idle = |words: &[&str]| {
        let all = computed(words);
        let told = all.warnings.iter().filter(|warning| warning.contains("are never used")).cloned();
        let depth = all.directions[0].outcome.as_ref().unwrap().depth;
        let expected = all.nodes.iter().filter(|node| node.adjusted.peer_credits > depth).map(|node| {
            let (name, credits) = (node.peer.name, node.adjusted.peer_credits);
            format!("{name}: {} of its {credits} peer_credits", credits - depth)
        });
        let (told, expected): (Vec<_>, Vec<_>) = (told.collect(), expected.collect());
        assert_eq!(told.len(), expected.len(), "{told:?}");
        told.iter().zip(&expected).for_each(|(told, expected)| assert!(told.starts_with(expected), "{told}"));
        told.len()
    };
    assert_eq!(idle(&["--a", "release=2.15,peer_credits=128"]), 1);
    assert_eq!(idle(&["--a", "peer_credits=16", "--b", "peer_credits=63"]), 1);
    assert_eq!(idle(&["--a", "peer_credits=16", "--b", "peer_credits=16"]), 0);
    // The device of `a` limits the depth, so credits of both sides are idle.
    assert_eq!(idle(&["--a", "max_wr=1024"]), 2);
}

/// Pieces are those that the LND makes (S-508): a side that is nlx gets a warning for a `wrq_sge`
/// beyond them.
#[test]
fn pieces_are_those_that_are_made() {
    use lnet_o2iblnd::sizes::PIECES_MAX;
    let pieces = |side: &str| {
        let all = computed(&["--a", side]);
        let told = all.warnings.iter().any(|warning| warning.contains("wrq_sge"));
        (all.load(0, 0).unwrap().made.pieces, told)
    };
    for (set, made, told) in
        [(PIECES_MAX - 1, PIECES_MAX - 1, false), (PIECES_MAX, PIECES_MAX, false), (100, PIECES_MAX, true)]
    {
        assert_eq!(pieces(&format!("wrq_sge={set},max_sge=128")), (made, told));
    }
    assert_eq!(pieces("release=2.15,wrq_sge=100,max_sge=128"), (100, false));
    assert!(warned(&["--a", "wrq_sge=100"], &format!("a: wrq_sge 100 has no effect beyond {PIECES_MAX}")));
}

/// Pools of FMRs are flushed, and every form shows the trigger (S-508); other pools are not, and
/// have no such line.
#[test]
fn the_flush_time_of_pools_is_printed_in_every_form() {
    for cpts in [1, 2] {
        let all = computed(&["--a", &format!("release=2.10,mapping=fmr,cpts={cpts}")]);
        let trigger = all.nodes[0].pools.flush_trigger.unwrap();
        assert_eq!(all.to_json()["sides"]["a"]["pools"]["flush_trigger"], trigger);
        let table = table::text(&all);
        let row = table.lines().find(|line| line.contains("flushed from")).unwrap();
        assert!(row.contains(&trigger.to_string()), "{row}");
        assert!(explain::text(&all).contains(&format!("= {trigger} used registrations")));
    }
    let none = computed(&["--a", "release=2.10"]);
    assert!(!table::text(&none).contains("flushed") && !explain::text(&none).contains("flushed"));
}

/// For a side whose device has no room, the report shows the requested depth first, in each
/// release.
// Covers: S-501
#[test]
fn a_device_without_room_is_notified_of_each_release() {
    for release in ["2.12", "2.14", "2.15", "nlx"] {
        let side = format!("release={release},peer_credits=128");
        let all = computed(&["--a", &side, "--b", &side]);
        let first = &all.directions[0].tries[0];
        assert!(first.depth < first.wanted, "{release}");
        let words = format!("asks for depth {} (its device has no room for {})", first.depth, first.wanted);
        assert_eq!(first.wanted, 128, "{release}");
        assert!(explain::text(&all).contains(&words), "{release}");
    }
}

/// For a kernel's side too, `ib_mtu` is an MTU of InfiniBand or 0.
// Covers: S-508
#[test]
fn an_mtu_is_one_of_those_that_there_are() {
    let taken = |mtu: u32| peers(&args(&["--b", &format!("ib_mtu={mtu}")])).is_ok();
    let expected = |mtu: u32| mtu == 0 || mtu.is_power_of_two() && (256..=4096).contains(&mtu);
    (0..=8192).for_each(|mtu| assert_eq!(taken(mtu), expected(mtu), "{mtu}"));
}

#[test]
fn a_sweep_has_a_line_for_what_can_be_and_a_word_for_what_cannot() {
    let sides = peers(&args(&["--a", "release=2.10,max_wr=16384", "--b", "release=2.10"])).unwrap();
    let sweep = Sweep::of("peer_credits=8..128:8", &sides, 1, MEGABYTE).unwrap();
    // 257 × 63 = 16191 fits, 257 × 64 does not.
    let depths: Vec<_> = sweep.points.iter().map(|point| point.depth).collect();
    assert_eq!(depths[..7], [8, 16, 24, 32, 40, 48, 56].map(Some));
    assert!(depths[7..].iter().all(Option::is_none));
    let page = page(&sweep);
    assert_eq!(page.matches("<svg viewBox=\"0 0 560").count(), 4);
    assert!(
        page.contains("values without a connection: 9.")
            && !page.contains("http")
            && !page.contains("<script")
    );
    for text in
        ["peer_credits", "x=1..2", "peer_credits=9..8", "peer_credits=1..1048576", "c.ntx=1..2", "ntx=1..2:0"]
    {
        assert!(Sweep::of(text, &sides, 1, MEGABYTE).is_err(), "{text}");
    }
}
