//! Networks over RDMA, as a user has them. For a host with two addresses on one RDMA device, as the guest of `./test verbs` is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::Output;

use serde_json::Value;
use support::helper::Helper;
use support::{Server, complaint, json_lines, nlx, run};

/// Not below 1024, and no other test's.
const PORT: u16 = 19_871;

/// The guest's addresses, and its device.
fn here() -> ([String; 2], String) {
    let words = |name: &str| std::env::var(name).unwrap().split(' ').map(str::to_string).collect::<Vec<_>>();
    let addresses = words("NLX_GUEST_ADDRESSES");
    (addresses.try_into().unwrap(), words("NLX_GUEST_DEVICES").remove(0))
}

fn good(output: &Output) -> Vec<Value> {
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", complaint(output));
    json_lines(&output.stdout)
}

/// Every byte of a self-test is right: a short one of small transfers, for the guest is slow.
fn passes(arguments: &[&str]) {
    let short = ["--duration", "1", "--size", "65536", "--concurrency", "2", "--timeout", "60"];
    let outcome = good(&run(&[&["selftest", "--json"], &short[..], arguments].concat())).remove(0);
    assert!(outcome.to_string().contains("@o2ib"), "{outcome}");
}

/// S-315: devices, ports and GIDs are shown, and networks by each of their names.
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn the_devices_and_networks_of_the_guest_are_shown() {
    let ([first, second], device) = here();
    let told = good(&run(&["net", "devices", "--json"])).remove(0);
    let port = &told["ports"][0];
    assert_eq!((&port["device"], &port["state"]), (&device.as_str().into(), &"ACTIVE".into()), "{told}");
    assert_eq!(port["nid"], format!("{first}@o2ib"));
    assert!(port["gid"].is_u64() && port["why"].as_str().unwrap().contains("used"), "{told}");
    for name in [device.as_str(), port["interfaces"][0]["name"].as_str().unwrap(), first.as_str()] {
        let shown = good(&run(&["net", "show", "--json", "--net", &format!("o2ib({name})")])).remove(0);
        assert_eq!(shown["nets"][0]["nis"][0]["nid"], format!("{first}@o2ib"), "{name}");
    }
    let both = good(&run(&[
        "net",
        "show",
        "--json",
        "--net",
        &format!("o2ib0:0({first})"),
        "--net",
        &format!("o2ib1({second})"),
    ]));
    assert_eq!(both[0]["nets"][1]["nis"][0]["nid"], format!("{second}@o2ib1"));
}

/// S-4: two nodes in two processes, which run the network themselves or have helpers that do.
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn the_self_test_passes_over_rdma() {
    let ([first, second], _) = here();
    passes(&["--net", "o2ib"]);
    passes(&["--net", &format!("o2ib({second},{first})"), "--clients", "2"]);
    passes(&["--net", "o2ib", "--mode", "helper"]);
}

/// A node is asked, tells how it is, and a second one cannot have its NID.
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn a_node_over_rdma_is_pinged_and_looked_at() {
    let ([first, second], device) = here();
    let (net, service) = (format!("o2ib({device})"), PORT.to_string());
    let server = Server::start(nlx(&["serve", "--net", &net, "--service", &service]));
    let (target, from) = (format!("{first}@o2ib"), format!("{second}@o2ib"));
    let asked = ["ping", &target, "--from", &from, "--service", &service, "--json"];
    let answer = good(&run(&asked)).remove(0);
    assert!(answer.to_string().contains(&target), "{answer}");
    let pid = server.pid().to_string();
    let status = good(&run(&["status", &pid, "--json"])).remove(0);
    let o2ib = &status["nodes"][0]["o2ib"];
    assert_eq!(o2ib["service"], PORT, "{status}");
    assert!(o2ib["accepts"].as_u64().unwrap() >= 1, "{status}");
    let text = String::from_utf8(run(&["status", &pid]).stdout).unwrap();
    assert!(text.contains("over RDMA"), "{text}");
    let held = run(&["serve", "--net", &net, "--service", &service]);
    assert!(!held.status.success() && complaint(&held).contains("is held by nlx"), "{}", complaint(&held));
    // Nobody listens on another port.
    let nobody = run(&["ping", &target, "--from", &from, "--service", "19872", "--timeout", "20"]);
    assert!(!nobody.status.success() && complaint(&nobody).contains(&target), "{}", complaint(&nobody));
}

/// `nlxd` with a network over RDMA: its clients need none.
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn a_helper_serves_a_network_over_rdma() {
    let (_, device) = here();
    let helper = Helper::start_on(&["--net", &format!("o2ib({device})"), "--service", "19873"]);
    let socket = helper.socket.to_str().unwrap();
    passes(&["--mode", "helper", "--socket", socket]);
}
