//! Networks over RDMA, with the commands of a user. For a host with two addresses on one RDMA
//! device, as the guest of `./test verbs` is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::Output;

use serde_json::Value;
use support::helper::Helper;
use support::store::Store;
use support::{Server, complaint, json_lines, nlx, run, status, until};

/// Not below 1024, and used by no other test.
const PORT: u16 = 19_871;

/// Returns the guest's addresses, and its device.
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

/// Checks that a self-test passes: a short one of small transfers, because the guest is slow.
/// Returns the bytes of bulk.
fn passes(arguments: &[&str]) -> u64 {
    let short = ["--duration", "1", "--size", "65536", "--concurrency", "2", "--timeout", "60"];
    let report = good(&run(&[&["selftest", "--json"], &short[..], arguments].concat())).remove(0);
    assert!(report["passed"] == true && report.to_string().contains("@o2ib"), "{report}");
    let mut bulk = 0;
    for phase in report["phases"].as_array().unwrap() {
        let [operations, size, verified] =
            ["operations", "size", "verified_bytes"].map(|key| number(&phase[key]));
        assert!(operations > 0 && number(&phase["errors"]) == 0, "{phase}");
        let name = phase["phase"].as_str().unwrap();
        // A mixed load's operations have various sizes.
        assert!(verified == operations * size || name == "mixed", "{phase}");
        bulk += if name.starts_with("bulk_") { verified } else { 0 };
    }
    bulk
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Starts two helpers, on the guest's two addresses.
fn helpers(service: u16) -> [Helper; 2] {
    here().0.map(|address| on(&address, service))
}

fn on(address: &str, service: u16) -> Helper {
    Helper::start_on(&["--net", &format!("o2ib({address})"), "--service", &service.to_string()])
}

/// Waits until the helpers have no clients, and nothing left of any.
fn are_idle(helpers: &[Helper]) {
    until("something is left over", || {
        let status = status();
        let none =
            |of: &Value| ["operations", "waiting", "receives", "bounces"].iter().all(|key| of[*key] == 0);
        helpers.iter().all(|helper| helper.is_idle(&status) && none(&helper.node(&status)["o2ib"]))
    });
}

/// Returns the sum of a counter of these helpers' nodes.
fn counted(helpers: &[Helper], key: &str) -> u64 {
    let status = status();
    helpers.iter().map(|helper| number(&helper.node(&status)["o2ib"][key])).sum()
}

/// Devices, ports and GIDs are shown, and networks by each of their names.
// Covers: S-315
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

/// Two nodes in two processes, which run the network themselves or have helpers for it.
// Covers: S-4
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn the_self_test_passes_over_rdma() {
    let ([first, second], _) = here();
    passes(&["--net", "o2ib"]);
    passes(&["--net", &format!("o2ib({second},{first})"), "--clients", "2"]);
    passes(&["--net", "o2ib", "--mode", "helper"]);
}

/// A node is pinged and its status shown, and a second one cannot have its NID.
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
    // No node listens on another port.
    let nobody = run(&["ping", &target, "--from", &from, "--service", "19872", "--timeout", "20"]);
    assert!(!nobody.status.success() && complaint(&nobody).contains(&target), "{}", complaint(&nobody));
}

/// Helpers that run already, whose programs have no network themselves; RDMA moves bulk without a
/// copy.
// Covers: S-4
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn the_self_test_passes_through_helpers_over_rdma() {
    let helpers = helpers(19_873);
    let [client, server] = helpers.each_ref().map(|helper| helper.socket.to_str().unwrap());
    let bulk = passes(&["--mode", "helper", "--socket", client, "--socket", server]);
    assert!(counted(&helpers, "bytes_written") >= bulk, "{bulk}");
    assert_eq!(["bytes_bounced_sent", "bytes_bounced_received"].map(|key| counted(&helpers, key)), [0, 0]);
    are_idle(&helpers);
}

/// Two clients of a helper put and get objects of a server behind another one: each byte is written
/// once, by the device, from one program's memory into the other's.
// Covers: S-4, S-6, S-401
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn programs_get_rdma_into_their_own_memory() {
    // The last of its transfers is also too long for a message.
    const LENGTH: usize = (3 << 20) + 5000;
    let helpers = helpers(19_874);
    let store = Store::start(&helpers[1]);
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (helper, store) = (&helpers[0], &store);
            scope.spawn(move || store.put_and_get(helper, client, LENGTH));
        }
    });
    let moved = ["bytes_written", "bytes_received_by_write"].map(|key| counted(&helpers, key));
    assert_eq!(moved, [2 * 2 * LENGTH as u64; 2]);
    assert_eq!(["bytes_bounced_sent", "bytes_bounced_received"].map(|key| counted(&helpers, key)), [0, 0]);
    drop(store);
    are_idle(&helpers);
}

/// A client is killed during its bulk, and others do not notice; then the server is killed during
/// another client's bulk. Nothing is left of either.
// Covers: S-4, S-6
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn programs_are_killed_under_rdma_load() {
    let helpers = helpers(19_875);
    let store = Store::start(&helpers[1]);
    let mut other = store.uploading(&helpers[0]);
    drop(store.uploading(&helpers[0]));
    store.put_and_get(&helpers[0], 0, 100_000);
    assert!(other.lives());
    drop(store);
    drop(other);
    are_idle(&helpers);
}

/// A helper is killed under load: its programs' waits end, and those of others continue. A helper
/// in its place works.
// Covers: S-4, S-6
#[test]
#[ignore = "needs RDMA: ./test verbs"]
fn helpers_are_killed_under_rdma_load() {
    let [asking, serving] = helpers(19_876);
    let store = Store::start(&serving);
    let clients = [(); 2].map(|()| store.uploading(&asking));
    // Dropping a helper kills it by SIGKILL.
    drop(asking);
    for client in clients {
        let why = client.fails();
        assert!(!why.contains("has not answered"), "it waited as long as it had said: {why}");
    }
    let again = on(&here().0[0], 19_876);
    store.put_and_get(&again, 0, 100_000);
    let client = store.uploading(&again);
    drop(serving);
    store.ends();
    // The client's own helper lives: without this the client would wait for an answer for its whole
    // timeout.
    drop(client);
    are_idle(&[again]);
}
