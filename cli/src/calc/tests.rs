use super::html::page;
use super::input::peers;
use super::result::Calculation;
use super::sweep::Sweep;
use super::*;
use crate::args::{Args, Command};
use clap::Parser;

const MEGABYTE: Buffer = Buffer { fragments: 256, gaps: false };

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

#[test]
fn what_has_no_effect_or_fails_is_told() {
    assert_eq!(computed(&[]).warnings, Vec::<String>::new());
    // Each of the kernel's that nlx does not have, whether sizes of kernel nodes depend on it or not.
    for (set, why) in [
        ("map_on_demand=32", "obsolete"),
        ("ntx=2048", "each connection has message buffers of its own"),
        ("fmr_pool_size=9", "nlx registers memory once"),
        ("fmr_flush_trigger=9", "nlx registers memory once"),
        ("fmr_cache=0", "nlx registers memory once"),
        ("use_fastreg_gaps=1", "may have gaps"),
        ("ib_mtu=2048", "takes the largest MTU"),
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
        page.contains("9 values give no connection") && !page.contains("http") && !page.contains("<script")
    );
    for text in
        ["peer_credits", "x=1..2", "peer_credits=9..8", "peer_credits=1..1048576", "c.ntx=1..2", "ntx=1..2:0"]
    {
        assert!(Sweep::of(text, &sides, 1, MEGABYTE).is_err(), "{text}");
    }
}
