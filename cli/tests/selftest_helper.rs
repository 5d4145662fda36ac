//! `nlx selftest` through helpers: the same work, the same report.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Mutex;

use serde_json::Value;
use support::helper::Helper;
use support::{complaint, run};

/// The nodes of a self-test have fixed NIDs, which only one test at a time can hold.
static NIDS: Mutex<()> = Mutex::new(());

fn passes(args: &[&str]) -> Value {
    let job = ["selftest", "--mode", "helper", "--duration", "0.3", "--json"];
    let output = run(&[&job, args].concat());
    assert!(
        output.status.success(),
        "{args:?}: {}{}",
        complaint(&output),
        String::from_utf8_lossy(&output.stdout)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["settings"]["mode"]), (&true.into(), &"helper".into()));
    report
}

/// Two nodes, each behind a helper that the self-test starts and ends; every phase, every byte,
/// with either delivery of events, and also on a helper's loopback.
// Covers: S-1, S-3, MT-215
#[test]
fn it_passes_through_helpers_of_its_own() {
    let _held = NIDS.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let page = page.to_str().unwrap();
    let report = passes(&["--size", "65537", "--concurrency", "3", "--html", page]);
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 5);
    for phase in phases {
        let number = |key: &str| phase[key].as_f64().unwrap_or_else(|| panic!("{key} of {phase}"));
        assert!(number("operations") > 0.0 && number("errors") == 0.0, "{phase}");
        if phase["phase"] != "mixed" {
            assert_eq!(number("verified_bytes"), number("operations") * number("size"));
        }
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("--mode helper"));
    passes(&["--delivery", "callback", "--clients", "2", "--cpu-npartitions", "2"]);
    let report = passes(&["--net", "lo", "--clients", "2"]);
    assert_eq!(report["settings"]["net"], "lo");
}

/// A wrong byte is detected through helpers as well.
#[test]
fn one_wrong_byte_makes_it_fail() {
    let _held = NIDS.lock().unwrap();
    let output = run(&["selftest", "--mode", "helper", "--duration", "0.3", "--json", "--spoil"]);
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["passed"], false);
    assert!(report["errors"].as_u64().unwrap() > 0);
}

/// Helpers that run already: client and server behind one, or behind separate ones.
// Covers: S-3
#[test]
fn it_passes_through_helpers_that_run_already() {
    let helpers = [1, 2].map(|host| Helper::start(&format!("tcp(127.71.1.{host})"), 21_711));
    let sockets = helpers.each_ref().map(|helper| helper.socket.to_str().unwrap());
    passes(&["--socket", sockets[0]]);
    let report = passes(&["--socket", sockets[0], "--socket", sockets[1]]);
    let server = report["servers"][0].as_str().unwrap();
    assert!(server.starts_with("127.71.1.2@tcp:"), "{server}");
}

#[test]
fn what_a_helper_cannot_do_is_refused_with_the_reason() {
    let refusals: [(&[&str], &str); 4] = [
        (&["--mode", "helper", "--faults", "drop 1/9"], "--faults are rules of a node"),
        (&["--socket", "/nowhere"], "add --mode helper"),
        (&["--mode", "helper", "--socket", "/nowhere/nlxd.sock"], "/nowhere/nlxd.sock"),
        (&["--mode", "helper", "--socket", "/a", "--net", "lo"], "--net"),
    ];
    for (args, why) in refusals {
        let output = run(&[&["selftest"], args].concat());
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        assert!(complaint(&output).contains(why), "{args:?}: {}", complaint(&output));
    }
}
