//! The judge connects.

use std::net::Ipv4Addr;

use lnet_node::AcceptPolicy;
use nlx_tests::judge::{CHECKS, Policy, Report, Target};

use crate::node::Nlx;

/// Runs every check.
pub(crate) fn judge(target: &Target) -> Report {
    let mut report = Report::default();
    for check in CHECKS {
        report.add(check.name, check.enforces, check.run(target));
    }
    report
}

/// Runs every check: none may fail, and just these may say nothing about such a node.
fn pass(target: &Target, silent: &[&str]) {
    let report = judge(target);
    assert!(report.failures().is_empty(), "{:#?}", report.failures());
    let passed = report.passed();
    let not_passed: Vec<_> =
        CHECKS.iter().map(|check| check.name).filter(|name| !passed.contains(name)).collect();
    assert_eq!(not_passed, silent);
}

/// Checks that only say something from unprivileged ports.
const UNPRIVILEGED: &[&str] = &["secure", "all-identity", "all-ports"];

/// Where hellos are believed, whatever port they come from.
#[test]
fn a_node_that_believes_hellos_passes() {
    let nlx = Nlx::start(Ipv4Addr::new(127, 4, 1, 2), None, AcceptPolicy::Hello);
    pass(&nlx.target(Ipv4Addr::new(127, 4, 1, 1), Policy::Hello, false), UNPRIVILEGED);
}

#[test]
fn a_node_that_names_peers_after_their_ports_passes() {
    let nlx = Nlx::start(Ipv4Addr::new(127, 4, 2, 2), None, AcceptPolicy::All);
    let report = judge(&nlx.target(Ipv4Addr::new(127, 4, 2, 1), Policy::All, false));
    assert!(report.failures().is_empty(), "{:#?}", report.failures());
    let expected = [
        "wrong-nid",
        "request-magic",
        "unknown-version",
        "bad-hello",
        "silence",
        "address",
        "ping",
        "ping-cut",
        "ping-burst",
        "no-buffer",
        "bad-frame",
        "zc-control",
        "all-identity",
        "all-ports",
    ];
    assert_eq!(report.passed(), expected);
}

#[test]
fn a_secure_node_closes_unprivileged_connections() {
    let nlx = Nlx::start(Ipv4Addr::new(127, 4, 3, 2), None, AcceptPolicy::Secure);
    let report = judge(&nlx.target(Ipv4Addr::new(127, 4, 3, 1), Policy::Secure, false));
    assert!(report.failures().is_empty(), "{:#?}", report.failures());
    assert_eq!(report.passed(), ["address", "secure"]);
}

/// As on a real site: port 988, privileged source ports, the policies of kernel nodes.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn kernel_ports() {
    for (number, accept, policy) in
        [(4, AcceptPolicy::Secure, Policy::Secure), (5, AcceptPolicy::All, Policy::All)]
    {
        let nlx = Nlx::start(Ipv4Addr::new(127, 4, number, 2), Some(988), accept);
        pass(&nlx.target(Ipv4Addr::new(127, 4, number, 1), policy, true), UNPRIVILEGED);
        if policy == Policy::Secure {
            let unprivileged = judge(&nlx.target(Ipv4Addr::new(127, 4, number, 3), policy, false));
            assert!(unprivileged.failures().is_empty(), "{:#?}", unprivileged.failures());
        }
    }
}

/// The judge shares no code with what it judges.
#[test]
fn the_judge_knows_nothing_of_nlx() {
    let mut files = vec![format!("{}/src/judge", env!("CARGO_MANIFEST_DIR")).into()];
    let mut seen = 0;
    while let Some(path) = files.pop() {
        let path: std::path::PathBuf = path;
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("lnet_") && !text.contains("nlx::"), "{}", path.display());
        seen += 1;
    }
    assert!(seen > 10);
}
