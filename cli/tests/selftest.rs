//! `nlx selftest`, as a process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Mutex;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{complaint, nlx, run};

/// Both nodes of a self-test have fixed NIDs, which only one test at a time can hold.
static NIDS: Mutex<()> = Mutex::new(());

/// Two nodes in two processes.
// Covers: S-3, S-5, S-417, MT-169, MT-172, MT-187, MT-188, MT-211
#[test]
fn it_verifies_every_phase_and_says_so_in_json() {
    let _held = NIDS.lock().unwrap();
    let output = run(&["selftest", "--duration", "0.3", "--size", "65537", "--concurrency", "3", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["passed"], true);
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(names, ["ping_pong", "message_rate", "bulk_read", "bulk_write", "mixed"]);
    for phase in phases {
        let number = |key: &str| phase[key].as_f64().unwrap_or_else(|| panic!("{key} of {phase}"));
        assert!(number("operations") > 0.0 && number("mb_per_s") > 0.0);
        assert_eq!(number("errors"), 0.0);
        // A mixed load's operations have various sizes.
        if phase["phase"] != "mixed" {
            assert_eq!(number("verified_bytes"), number("operations") * number("size"));
        }
        assert!(number("p50_us") > 0.0 && number("p50_us") <= number("p99_us"));
    }
}

/// Each CPU is a separate partition, by number and by pattern.
// Covers: S-315
#[test]
fn it_passes_with_a_partition_for_each_cpu() {
    let _held = NIDS.lock().unwrap();
    let mask = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpus = (0..nix::sched::CpuSet::count()).filter(|&cpu| mask.is_set(cpu).unwrap());
    let groups: Vec<String> = cpus.enumerate().map(|(cpt, cpu)| format!("{cpt}[{cpu}]")).collect();
    for tunable in [["--cpu-npartitions", &groups.len().to_string()], ["--cpu-pattern", &groups.join(" ")]] {
        let output = run(&[&["selftest", "--duration", "0.2", "--json"][..], &tunable].concat());
        assert!(output.status.success(), "{tunable:?}: {}", complaint(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["passed"], true, "{tunable:?}");
    }
}

// Covers: MT-63, MT-188
#[test]
fn one_wrong_byte_makes_it_fail_and_is_reported() {
    let _held = NIDS.lock().unwrap();
    let output = run(&["selftest", "--duration", "0.3", "--json", "--spoil"]);
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["passed"], false);
    for phase in report["phases"].as_array().unwrap() {
        let spoiled = phase["phase"] != "bulk_write";
        assert_eq!(phase["errors"].as_u64().unwrap() > 0, spoiled, "{phase}");
        assert_eq!(phase["first_error"].as_str().is_some_and(|error| error.contains("wrong bytes")), spoiled);
        assert!(phase["operations"].as_u64().unwrap() > 0, "the rest is right");
    }
}

/// Messages dropped and delayed over TCP: the report has exactly the injected losses.
#[test]
fn losses_are_those_that_were_injected() {
    let _held = NIDS.lock().unwrap();
    let faults = "drop 1/40; delay 1ms..5ms 1/10 put";
    let load = ["--count", "60", "--duration", "60", "--seed", "9", "--timeout", "2"];
    let output = run(&[&["selftest", "--json", "--faults", faults][..], &load].concat());
    assert!(output.status.success(), "{}{}", complaint(&output), String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["errors"]), (&true.into(), &0.into()));
    let mut losses = 0;
    for phase in report["phases"].as_array().unwrap() {
        assert_eq!(phase["losses"], phase["losses_injected"], "{phase}");
        assert_eq!(phase["operations"].as_u64().unwrap() + phase["losses"].as_u64().unwrap(), 60);
        losses += phase["losses"].as_u64().unwrap();
    }
    let rules = report["rules"].as_array().unwrap();
    let total = |key: &str| rules.iter().map(|rule| rule[key].as_u64().unwrap()).sum::<u64>();
    assert!(losses > 0 && total("delayed") > 0);
    assert_eq!(total("dropped"), losses);
}

/// A loss without a rule is a failure.
#[test]
fn a_loss_that_was_not_injected_is_a_failure() {
    let slow = ["--count", "4", "--timeout", "0.2", "--server-delay", "0.5", "--json"];
    let output = run(&[&["selftest", "--net", "lo"][..], &slow].concat());
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let read = &report["phases"].as_array().unwrap()[2];
    assert_eq!(
        (&read["phase"], &read["errors"], &read["losses"]),
        (&"bulk_read".into(), &4.into(), &0.into())
    );
}

#[test]
fn rules_that_cannot_be_are_refused_before_anything_starts() {
    for rules in ["lose everything", "drop put portal 43", "delay 1s"] {
        let output = run(&["selftest", "--faults", rules]);
        assert_eq!(output.status.code(), Some(1), "{rules}");
        assert!(
            complaint(&output).contains("--faults") && output.stdout.is_empty(),
            "{}",
            complaint(&output)
        );
    }
    // Over the loopback messages would not be late, and the report would not show that.
    let output = run(&["selftest", "--net", "lo", "--faults", "drop 1/9; delay 1ms put"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("loopback cannot be delayed"), "{}", complaint(&output));
}

// Covers: MT-188
#[test]
fn a_killed_peer_fails_it_instead_of_hanging_it() {
    let _held = NIDS.lock().unwrap();
    let mut child =
        nlx(&["selftest", "--duration", "600"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("ping pong"), "{line:?}");
    kill(child_of(child.id()), Signal::SIGKILL).unwrap();
    assert!(!child.wait().unwrap().success());
}

/// Returns the only child of a process.
fn child_of(parent: u32) -> Pid {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    Pid::from_raw(children.split_whitespace().next().unwrap().parse().unwrap())
}
