//! The judge as the active side, against nodes of nlx.

use std::net::{Ipv4Addr, Ipv6Addr};

use lnet_node::AcceptPolicy;
use nlx_tests::judge::info::{PingInfo, feature};
use nlx_tests::judge::session::Session;
use nlx_tests::judge::wire::kind;
use nlx_tests::judge::{CHECKS, Outcome, Policy, Report, Target};

use crate::node::Nlx;
use crate::place::{LARGE, addresses, has_ipv6};

/// Runs every check.
pub(crate) fn judge(target: &Target) -> Report {
    let mut report = Report::default();
    for check in CHECKS {
        report.add(check.name, check.enforces, check.run(target));
    }
    report
}

/// Runs every check: none may fail, and exactly those in `silent` do not apply to such a node.
pub(crate) fn pass(target: &Target, silent: &[&str]) {
    let report = judge(target);
    assert!(report.failures().is_empty(), "{:#?}", report.failures());
    let passed = report.passed();
    let not_passed: Vec<_> =
        CHECKS.iter().map(|check| check.name).filter(|name| !passed.contains(name)).collect();
    assert_eq!(sorted(not_passed), sorted(silent.to_vec()));
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

/// Checks that apply only to a judge with unprivileged ports.
pub(crate) const UNPRIVILEGED: &[&str] = &["secure", "all-identity", "all-ports"];

/// Checks of large NIDs.
pub(crate) const NOT_OVER_IPV4: &[&str] = &["hello-large", "ping-large"];

/// Checks of features that large NIDs lack: hellos before V4, requests of V1.
const ONLY_OVER_IPV4: &[&str] =
    &["hello-v3", "hello-v2", "hello-v4", "request-v2", "addresses", "version-change", "checksum"];

/// Checks of features that large NIDs lack, and checks for which the judge needs a second address:
/// over IPv6 the host has only ::1.
pub(crate) const NOT_OVER_IPV6: &[&str] = &[
    "hello-v3",
    "hello-v2",
    "hello-v4",
    "request-v2",
    "addresses",
    "version-change",
    "checksum",
    "source-pid",
    "zc-control",
    "race",
];

/// A node that trusts hellos from any port.
// Covers: S-207
#[test]
fn a_node_that_believes_hellos_passes() {
    let nlx = Nlx::start(Ipv4Addr::new(127, 4, 1, 2), None, AcceptPolicy::Hello);
    let silent = [UNPRIVILEGED, NOT_OVER_IPV4].concat();
    pass(&nlx.target(Ipv4Addr::new(127, 4, 1, 1), Policy::Hello, false), &silent);
}

/// Large NIDs with one address; `over_ipv6_as_on_a_real_site` tests the rest. The features are
/// 0x7e: except for its sequence number, a new node's information equals the recorded one of a new
/// kernel node (`recorded.rs` compares the judge with the recording).
// Covers: S-207
#[test]
fn a_node_passes_over_ipv6() {
    if !has_ipv6() {
        return;
    }
    let here = Ipv6Addr::LOCALHOST;
    let nlx = Nlx::start(here, None, AcceptPolicy::Hello);
    let target = Target { from: here.into(), ..nlx.target(LARGE, Policy::Hello, false) };
    let mut session = Session::with(&target, &[kind::CONTROL]).unwrap();
    let info = session.ping(0).unwrap();
    assert_eq!(info, PingInfo { sequence: info.sequence, ..PingInfo::of(nlx.nid(), feature::KERNEL) });
    drop(session);
    pass(&target, &[UNPRIVILEGED, NOT_OVER_IPV6].concat());
}

/// The node has the lower NID, and its connection yields; in the other tests it has the higher one.
// Covers: S-206
#[test]
fn a_lower_node_yields_in_a_race() {
    let nlx = Nlx::start(Ipv4Addr::new(127, 4, 6, 1), None, AcceptPolicy::Hello);
    let target = nlx.target(Ipv4Addr::new(127, 4, 6, 2), Policy::Hello, false);
    let race = CHECKS.iter().find(|check| check.name == "race").unwrap();
    assert_eq!(race.run(&target), Outcome::Pass);
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

/// nlx passes with port 988, privileged source ports and the policies of kernel nodes, as on real
/// sites.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn kernel_ports() {
    for (number, accept, policy) in
        [(4, AcceptPolicy::Secure, Policy::Secure), (5, AcceptPolicy::All, Policy::All)]
    {
        let nlx = Nlx::start(Ipv4Addr::new(127, 4, number, 2), Some(988), accept);
        let silent = [UNPRIVILEGED, NOT_OVER_IPV4].concat();
        pass(&nlx.target(Ipv4Addr::new(127, 4, number, 1), policy, true), &silent);
        if policy == Policy::Secure {
            let unprivileged = judge(&nlx.target(Ipv4Addr::new(127, 4, number, 3), policy, false));
            assert!(unprivileged.failures().is_empty(), "{:#?}", unprivileged.failures());
        }
    }
}

/// Large NIDs with all checks: an address for each side, port 988, privileged source ports.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn over_ipv6_as_on_a_real_site() {
    let [judge, address] = addresses();
    // Addresses other than ::1 may belong to other hosts.
    let silent = [UNPRIVILEGED, ONLY_OVER_IPV4, &["address"]].concat();
    let nlx = Nlx::start(address, Some(988), AcceptPolicy::Secure);
    pass(&nlx.target(judge, Policy::Secure, true), &silent);
    let unprivileged = super::active::judge(&nlx.target(judge, Policy::Secure, false));
    assert!(unprivileged.failures().is_empty(), "{:#?}", unprivileged.failures());
    assert_eq!(unprivileged.passed(), ["secure"]);
}

/// The judge shares no code with nlx.
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
