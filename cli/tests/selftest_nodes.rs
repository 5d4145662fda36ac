//! `nlx selftest` with nodes of every kind: in one process, on several hosts, with many clients,
//! and interrupted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{Server, complaint, free_port, nlx, run};

fn report(args: &[&str]) -> Value {
    let output = run(&[&["selftest", "--json"], args].concat());
    assert!(output.status.success(), "{}{}", complaint(&output), String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["errors"]), (&true.into(), &0.into()));
    report
}

fn phase<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["phases"].as_array().unwrap().iter().find(|phase| phase["phase"] == name).unwrap()
}

/// Several clients, an exact count of operations each, events by callbacks.
// Covers: MT-168, MT-171, MT-173
#[test]
fn clients_do_exactly_what_they_are_assigned() {
    for delivery in ["wait", "callback"] {
        let told =
            ["--net", "lo", "--clients", "3", "--count", "40", "--size", "5000", "--delivery", delivery];
        let report = report(&told);
        for phase in report["phases"].as_array().unwrap() {
            assert_eq!((&phase["operations"], &phase["clients"]), (&120.into(), &3.into()), "{delivery}");
        }
    }
}

/// The seed determines order and sizes of a mixed load.
#[test]
fn a_seed_gives_the_same_load_again() {
    let bytes = |seed| {
        let report = report(&["--net", "lo", "--count", "60", "--seed", seed]);
        phase(&report, "mixed")["verified_bytes"].as_u64().unwrap()
    };
    assert_eq!(bytes("5"), bytes("5"));
    assert_ne!(bytes("5"), bytes("6"));
}

/// The two hosts of these tests: addresses that no other test uses.
struct Hosts {
    server: Server,
    port: String,
    server_net: &'static str,
    client_net: &'static str,
}

impl Hosts {
    fn new(server: u8, server_net: &'static str, client_net: &'static str) -> Hosts {
        let port = free_port(Ipv4Addr::new(127, 0, 0, server)).to_string();
        let command =
            nlx(&["selftest", "--server", "--net", &format!("tcp({server_net})"), "--accept-port", &port]);
        Hosts { server: Server::start(command), port, server_net, client_net }
    }

    fn client(&self) -> Vec<String> {
        let net = format!("tcp({})", self.client_net);
        let server = format!("{}@tcp", self.server_net);
        ["--client", &server, "--net", &net, "--accept-port", &self.port].map(str::to_string).to_vec()
    }
}

/// A server and a client that only know each other's address; the server then serves the next
/// client.
// Covers: MT-170, MT-187
#[test]
fn a_server_serves_one_client_after_the_other() {
    let hosts = Hosts::new(61, "127.0.0.61", "127.0.0.62");
    let address = hosts.server.greeting.trim().trim_start_matches("serving at ").to_string();
    assert_eq!(address, "127.0.0.61@tcp:12345:43:1");
    let client = hosts.client();
    let client: Vec<&str> = client.iter().map(String::as_str).collect();
    for clients in ["1", "2"] {
        let more = ["--count", "50", "--size", "70000", "--clients", clients];
        let report = report(&[&client[..], &more].concat());
        assert!(report["servers"][0].as_str().unwrap().starts_with("127.0.0.61@tcp:12345:42:"));
        assert_eq!(report["clients"].as_array().unwrap().len().to_string(), clients);
    }
    hosts.server.signal(Signal::SIGTERM);
    let (status, _) = hosts.server.end();
    assert!(status.success());
}

/// Waits for the line that reports that a phase has begun.
fn begun(child: &mut Child) -> BufReader<std::process::ChildStderr> {
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("ping pong"), "{line:?}");
    errors
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// The two modes of a self-test, and the module that starts its machines.
const MODES: [(&str, &str); 2] = [("in-process", "nlx_kcore"), ("helper", "nlx_ucore")];

/// Values of `--spin-us`, and the limits in microseconds that they mean.
const SPINS: [(&[&str], u64); 3] = [(&[], 50), (&["--spin-us", "7"], 7), (&["--spin-us", "0"], 0)];

/// The spin limit of the command line is that of every machine, in both processes and both modes.
#[test]
fn machines_wait_as_the_command_line_says() {
    let [client, server] = ["127.0.0.71", "127.0.0.72"];
    let net = format!("tcp({client},{server})");
    for (mode, module) in MODES {
        for (option, spin_us) in SPINS {
            let job = ["selftest", "--mode", mode, "--net", &net, "--count", "1"];
            let mut command = nlx(&[&job, option].concat());
            let output = command.env("NLX_LOG", "nlx_kcore=debug,nlx_ucore=debug").output().unwrap();
            let told = complaint(&output);
            assert!(output.status.success(), "{told}");
            let started: Vec<_> = told.lines().filter(|line| line.contains("machine has started")).collect();
            let spin = format!(" spin={:?}", Duration::from_micros(spin_us));
            for line in &started {
                assert!(line.contains(module) && line.ends_with(&spin), "{mode}, {option:?}: {line}");
            }
            for end in [client, server] {
                let address = format!(" address={end}@tcp:");
                assert!(started.iter().any(|line| line.contains(&address)), "{mode}: {end}: {told}");
            }
        }
    }
}

/// The nodes of a self-test have that limit too: those of its own processes, and those of the
/// helpers that it starts.
#[test]
fn nodes_wait_as_the_command_line_says() {
    for (mode, _) in MODES {
        for (option, spin_us) in SPINS {
            let job =
                ["selftest", "--mode", mode, "--net", "tcp(127.0.0.73,127.0.0.74)", "--duration", "600"];
            let mut command = nlx(&[&job, option].concat());
            let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let _errors = begun(&mut child);
            let status = support::status();
            let nodes = status["nodes"].as_array().unwrap().iter();
            let own = nodes.filter(|node| is_of(child.id(), node["pid"].as_u64().unwrap()));
            let limits: Vec<_> = own.map(|node| node["spin_us"].as_u64()).collect();
            kill(pid(&child), Signal::SIGINT).unwrap();
            child.wait().unwrap();
            assert_eq!(limits, [Some(spin_us); 2], "{mode}: {option:?}");
        }
    }
}

/// Returns whether a process is this one of a self-test, or was started by it.
fn is_of(selftest: u32, process: u64) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
    process == u64::from(selftest) || parent == Some(&selftest.to_string())
}

/// A server on another host that dies is named, and nothing hangs.
// Covers: MT-170
#[test]
fn a_server_that_dies_is_named() {
    let hosts = Hosts::new(63, "127.0.0.63", "127.0.0.64");
    let client = hosts.client();
    let mut command = nlx(&["selftest", "--duration", "600"]);
    let mut child = command.args(&client).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut errors = begun(&mut child);
    drop(hosts);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("127.0.0.63@tcp"), "{said:?}");
}

/// Ctrl-C during a test: the report so far, and the matching exit status.
#[test]
fn an_interrupt_ends_it_with_the_report_so_far() {
    for net in ["lo", "tcp"] {
        let mut command = nlx(&["selftest", "--net", net, "--duration", "600", "--clients", "2"]);
        // No other test in this file uses the addresses of --net tcp.
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut errors = begun(&mut child);
        kill(pid(&child), Signal::SIGINT).unwrap();
        let output = child.wait_with_output().unwrap();
        let mut said = String::new();
        errors.read_to_string(&mut said).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("interrupted"), "{said:?}");
        assert!(!output.stdout.is_empty());
    }
}

/// A server that is not there is an error that names it, the step and the advice, as of `nlx ping`:
/// at the first attempt that is refused, also through a helper.
// Covers: MT-170
#[test]
fn a_server_that_is_not_there_is_named() {
    let port = free_port(Ipv4Addr::new(127, 0, 0, 66)).to_string();
    let client = [
        "selftest",
        "--client",
        "127.0.0.65@tcp",
        "--net",
        "tcp(127.0.0.66)",
        "--accept-port",
        &port,
        "--json",
    ];
    for (mode, step, advice) in
        [("in-process", "connect", "no process listens"), ("helper", "send", "'nlx ping 127.0.0.65@tcp'")]
    {
        let output = run(&[&client[..], &["--mode", mode]].concat());
        assert_eq!(output.status.code(), Some(1), "{mode}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = if mode == "helper" { failed(&said) } else { said["error"].to_string() };
        for words in ["127.0.0.65@tcp", "ECONNREFUSED", advice] {
            assert!(error.contains(words), "{mode}: {said}");
        }
        assert!(mode == "helper" || said["error"]["step"] == step, "{said}");
    }
    let plain = run(&client[..7]);
    let told = complaint(&plain);
    assert!(
        told.contains("connection refused (ECONNREFUSED)") && told.contains("try: no process listens"),
        "{told}"
    );
}

/// Returns the failure in the report of a self-test that could not continue.
fn failed(report: &Value) -> String {
    assert_eq!(report["ending"], "failed");
    report["failure"].as_str().unwrap().to_string()
}
