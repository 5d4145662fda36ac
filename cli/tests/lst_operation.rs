//! Test nodes of lst in operation: beside the clients of `nlxd`, in `nlx status`, with their options.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use nlx_testkit::addresses::unused;
use nlx_testkit::until;
use serde_json::Value;
use support::lst::{Node, on};
use support::{Server, complaint, free_port, nlx, serve};

/// A console with the commands of a script; it is killed when the test ends.
struct Console(Child);

impl Console {
    fn start(port: u16, script: &str) -> Console {
        let args = on(unused(), port);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["script", "-"]).collect();
        let mut child = nlx(&args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        Console(child)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the status of the node of a process.
fn node_of(pid: u32) -> Value {
    let output = nlx(&["status", &pid.to_string(), "--json", "--timeout", "60"]).output().unwrap();
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["nodes"][0].clone()
}

fn shown(pid: u32) -> String {
    let output = nlx(&["status", &pid.to_string(), "--timeout", "60"]).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the sum of a number over the partitions of a service, by its path.
fn sum(node: &Value, service: &str, path: &str) -> u64 {
    let services = node["services"].as_array().unwrap_or_else(|| panic!("{node}"));
    let found = services.iter().find(|found| found["name"] == service).unwrap();
    let partitions = found["partitions"].as_array().unwrap();
    partitions.iter().map(|partition| partition.pointer(path).unwrap().as_u64().unwrap()).sum()
}

/// Runs a ping test of a second from a console.
fn run(console: &str, port: u16, from: &str, to: &str) -> Output {
    let start = on(console.parse().unwrap(), port);
    let start: Vec<&str> = start.iter().map(String::as_str).collect();
    let run =
        ["run", "--from", from, "--to", to, "--duration", "1", "brw", "write", "size=64k", "check=full"];
    nlx(&[&start[..], &run].concat()).output().unwrap()
}

/// `nlxd` starts a test node on its NIDs, obeys the consoles of its list, and refuses and counts others.
// Covers: S-313
#[test]
fn a_helper_is_a_test_node_for_the_consoles_of_its_list() {
    let (address, console, stranger) = (unused(), unused().to_string(), unused().to_string());
    let (port, folder) = (free_port(address), tempfile::tempdir().unwrap());
    let start = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nlxd"));
        command.args(["--net", &format!("tcp({address})"), "--accept-port", &port.to_string()]);
        command.arg("--socket").arg(folder.path().join("nlxd.sock")).args(more).stdin(Stdio::null());
        command
    };
    let unnamed = start(&["--lst"]).output().unwrap();
    assert_eq!(unnamed.status.code(), Some(1));
    assert!(complaint(&unnamed).contains("no consoles") && complaint(&unnamed).contains("--lst-consoles"));
    let helper = Server::start(start(&["--lst", "--lst-consoles", &format!("{console}@tcp")]));
    let (node, nid) = (Node::start(port), format!("{address}@tcp"));
    let refused = run(&stranger, port, &node.nid, &nid);
    assert_eq!(refused.status.code(), Some(253), "{}", complaint(&refused));
    assert!(String::from_utf8_lossy(&refused.stdout).contains("Permission denied"));
    let done = run(&console, port, &node.nid, &nid);
    assert!(done.status.success(), "{}{}", complaint(&done), String::from_utf8_lossy(&done.stdout));
    let status = node_of(helper.pid());
    let lst = &status["lst"];
    assert!(lst["counters"]["refused_consoles"].as_u64() > Some(0), "{lst}");
    assert!(lst["counters"]["bulk_bytes_got"].as_u64() >= Some(65_536), "{lst}");
    assert_eq!((&lst["session"], &lst["consoles"]), (&Value::Null, &format!("{console}@tcp").into()));
    assert!(status["helper"].is_object());
    let text = shown(helper.pid());
    for words in [&format!("test node for consoles {console}@tcp"), "session      none", "may not use it: "] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    helper.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(helper.end().0.success());
}

/// Programs with a test node show their services by partition, and the session with its batches.
// Covers: S-313
#[test]
fn services_and_sessions_are_shown() {
    let address = unused();
    let port = free_port(address);
    let server = serve(
        address,
        port,
        &["--lst", "--lst-threads-max", "3", "--cpu-npartitions", "2", "--lst-cpts", "1"],
    );
    let client = Node::with(port, &["--lst-threads-min", "2"]);
    let (from, to) = (&client.nid, format!("{address}@tcp"));
    let script = format!(
        "new_session shown\nadd_group c {from}\nadd_group s {to}\n\
         add_test --from c --to s --concurrency 4 brw write size=64k\nrun batch\nsleep 600\n"
    );
    let _console = Console::start(port, &script);
    until("the test runs", || {
        let (client, server) = (node_of(client.pid()), node_of(server.pid()));
        client["lst"]["session"]["batches"][0]["running_units"] == 4
            && sum(&server, "lst-data", "/requests/replied") > 0
    });
    let (client_node, server_node) = (node_of(client.pid()), node_of(server.pid()));
    let session = &client_node["lst"]["session"];
    assert_eq!((&session["name"], &session["state"]), (&"shown".into(), &"running".into()));
    assert_eq!(session["batches"][0]["clients"], 1);
    assert_eq!(server_node["lst"]["session"]["batches"][0]["servers"], 1);
    let data = &server_node["services"][1];
    let cpts: Vec<_> =
        data["partitions"].as_array().unwrap().iter().map(|part| part["cpt"].clone()).collect();
    assert_eq!(cpts, [1], "{data}");
    for path in ["/requests/arrived", "/bulk/bytes", "/waits/count", "/service_times/count", "/queue/items"] {
        assert!(sum(&server_node, "lst-data", path) > 0, "{path}: {data}");
    }
    assert!(sum(&client_node, "lst-data", "/threads/now") >= 2);
    assert!(sum(&client_node, "lst-control", "/requests/replied") > 0);
    let text = shown(client.pid());
    for words in [
        "│ lst-control",
        "│ lst-data ",
        "test node for all consoles",
        "session      shown, running, ID ",
        "running, 4 units",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    assert!(shown(server.pid()).contains("idle; 1 test server, 0 test clients"));
}

/// Options that cannot be are refused by name, before or at the start.
#[test]
fn invalid_options_are_refused_by_name() {
    let address = unused();
    let net = format!("tcp({address})");
    let port = free_port(address).to_string();
    for (command, more, code, words) in [
        ("serve", &["--lst-bulk-max", "4"][..], 2, "--lst"),
        ("serve", &["--lst", "--lst-consoles", "10.0.0"], 2, "--lst-consoles"),
        ("serve", &["--lst", "--lst-threads-max", "513"], 2, "1 to 512"),
        ("serve", &["--lst", "--lst-cpts", "1,1"], 2, "twice"),
        ("serve", &["--lst", "--lst-cpts", "99"], 1, "CPU partition"),
        ("serve", &["--lst", "--lst-threads-min", "3", "--lst-threads-max", "2"], 1, "threads_min"),
        ("node", &["--lst-buffers-max", "1"], 2, "2 to 4096"),
    ] {
        let words_of = if command == "serve" { vec!["serve"] } else { vec!["lst", "node"] };
        let net = ["--net", net.as_str(), "--accept-port", port.as_str()];
        let output = nlx(&[&words_of[..], &net, more].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", complaint(&output));
        assert!(complaint(&output).contains(words), "{more:?}: {}", complaint(&output));
    }
}
