//! `nlx serve` and `nlx discover`, as processes: output while a node runs and when it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2, write};
use serde_json::Value;
use support::{Server, ask, complaint, free_port, json_lines, nlx, run, serve, until};

#[test]
fn a_node_tells_programs_what_it_does() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 2, 1, last));
    let port = free_port(there);
    let mut server = serve(there, port, &["--json"]);
    let greeting: Value = serde_json::from_str(&server.greeting).unwrap();
    let serving = &greeting["serving"];
    assert_eq!(serving["nids"], serde_json::json!([format!("{there}@tcp")]));
    assert_eq!((&serving["port"], &serving["accept"]), (&port.into(), &"hello".into()));
    assert_eq!(serving["pid"], server.pid());
    assert!(ask("ping", there, here, port, &["--count", "3", "--interval", "0.01"]).status.success());
    server.signal(Signal::SIGUSR1);
    let stats: Value = serde_json::from_str(&server.line()).unwrap();
    let stats = &stats["stats"];
    let seconds = stats["seconds"].as_f64().unwrap();
    for way in ["received", "sent"] {
        let rate = stats[way]["messages_per_s"].as_f64().unwrap();
        assert!((rate * seconds - 3.0).abs() < 0.01, "{stats}");
    }
    assert_eq!((&stats["dropped"], &stats["errors"]), (&0.into(), &0.into()));
    assert_eq!(stats["tcp"]["refusals"], 0);
    assert!(stats["tcp"]["accepts"].as_u64().unwrap() >= 1);
    server.signal(Signal::SIGINT);
    let (status, rest) = server.end();
    assert!(status.success());
    let stopped = &json_lines(rest.as_bytes())[0]["stopped"];
    assert_eq!((&stopped["received"]["messages"], &stopped["sent"]["messages"]), (&3.into(), &3.into()));
    let ni = &stopped["nis"][1];
    assert_eq!(ni["nid"], format!("{there}@tcp"));
    assert_eq!(
        (&ni["received"]["get"], &ni["sent"]["reply"], &ni["sent"]["put"]),
        (&3.into(), &3.into(), &0.into())
    );
    assert!(stopped["tcp"]["accepts"].as_u64().unwrap() >= 1);
    assert_eq!((&stopped["tcp"]["refusals"], &stopped["tcp"]["protocol_errors"]), (&0.into(), &0.into()));
}

/// A node with `--lst` takes part in the test of a console, as client and as server.
#[test]
fn a_node_is_a_test_node_as_well() {
    let addresses = [1, 2, 3].map(|last| Ipv4Addr::new(127, 2, 21, last));
    let port = free_port(addresses[0]);
    let _nodes = [0, 1].map(|node| serve(addresses[node], port, &["--lst"]));
    let [client, server, _] = addresses.map(|address| format!("{address}@tcp"));
    let own = format!("tcp({})", addresses[2]);
    let console = ["lst", "--net", &own, "--accept-port", &port.to_string(), "--json"].map(str::to_string);
    let words = [
        "run",
        "--from",
        &client,
        "--to",
        &server,
        "brw",
        "write",
        "size=64k",
        "check=full",
        "--duration",
        "1",
    ];
    let args: Vec<&str> = console.iter().map(String::as_str).chain(words).collect();
    let output = run(&args);
    assert!(output.status.success(), "{}", complaint(&output));
    let lines = json_lines(&output.stdout);
    let result = &lines.last().unwrap()["result"];
    assert_eq!((&result["ok"], &result["errors"]), (&true.into(), &0.into()));
    let nodes = result["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    let sent = |node: &Value| node["mib_sent_per_s"].as_f64().unwrap();
    assert!(sent(&nodes[0]) > sent(&nodes[1]), "{result}");
}

/// The spin limit of a node: the default, or the one of its command line.
#[test]
fn a_node_waits_as_its_command_line_says() {
    let spin_of = |last: u8, more: &[&str]| {
        let address = Ipv4Addr::new(127, 2, 12, last);
        let server = serve(address, free_port(address), more);
        let output =
            nlx(&["status", &server.pid().to_string(), "--json", "--timeout", "60"]).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["nodes"][0]["spin_us"].clone()
    };
    assert_eq!(
        [spin_of(1, &[]), spin_of(2, &["--spin-us", "7"]), spin_of(3, &["--spin-us", "0"])],
        [50, 7, 0]
    );
}

#[test]
fn one_message_is_no_messages() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 2, 10, last));
    let port = free_port(there);
    let server = serve(there, port, &[]);
    assert!(ask("ping", there, here, port, &[]).status.success());
    server.signal(Signal::SIGTERM);
    let (_, rest) = server.end();
    assert!(
        rest.contains(": 1 message received (0 bytes), 1 sent (") && rest.contains(" 0 errors\n"),
        "{rest}"
    );
}

/// The descriptor limit of an ordinary shell does not limit a node.
#[test]
fn a_node_uses_the_descriptors_that_the_system_allows() {
    let there = Ipv4Addr::new(127, 2, 9, 2);
    let net = format!("tcp({there})");
    let port = free_port(there).to_string();
    let script = "ulimit -S -n 64 && exec \"$0\" serve --net \"$1\" --accept-port \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_nlx"), &net, &port]).stdin(Stdio::null());
    let server = Server::start(command);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let [soft, hard] = [0, 1].map(|at| files.split_whitespace().nth(at).unwrap());
    assert_eq!(soft, hard);
}

/// An error between two lines appears in the second, once.
#[test]
fn trouble_is_reported_while_it_happens() {
    let there = Ipv4Addr::new(127, 2, 6, 2);
    let port = free_port(there);
    let mut server = serve(there, port, &[]);
    let mut stranger = TcpStream::connect((there, port)).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // The refusal is counted before the connection is closed, with or without an answer.
    let _ = stranger.read_to_end(&mut Vec::new());
    for told in [true, false] {
        server.signal(Signal::SIGUSR1);
        let line = server.line();
        assert_eq!(line.contains("0 errors, connections refused: 1 in "), told, "{line}");
    }
}

#[test]
fn a_node_tells_people_what_it_does() {
    let there = Ipv4Addr::new(127, 2, 2, 2);
    let mut server = serve(there, free_port(there), &["--stats", "0.05"]);
    for _ in 0..2 {
        let line = server.line();
        assert!(
            line.starts_with("in 0.0 msg/s 0.000 MB/s | out 0.0 msg/s")
                && line.contains("0 peers, 0 connections"),
            "{line}"
        );
    }
    server.signal(Signal::SIGTERM);
    let (status, rest) = server.end();
    assert!(status.success());
    for word in
        ["stopped after", "0 messages received", "127.2.2.2@tcp", "connections accepted", "protocol errors"]
    {
        assert!(rest.contains(word), "{rest}");
    }
}

/// Logs that go to a file are plain text.
#[test]
fn a_log_in_a_file_has_no_colours() {
    let there = Ipv4Addr::new(127, 2, 7, 2);
    let port = free_port(there).to_string();
    let mut command =
        nlx(&["ping", "127.2.7.3@tcp", "--from", &format!("{there}@tcp"), "--accept-port", &port]);
    let output = command.env("NLX_LOG", "debug").output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("NI is up") && !log.contains('\u{1b}'), "{log}");
}

/// A first signal requests an orderly end, which hangs here: the output is not read.
#[test]
fn a_second_signal_ends_it_at_once() {
    let there = Ipv4Addr::new(127, 2, 3, 2);
    let port = free_port(there).to_string();
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while write(&writer, &[b'x'; 1024]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let net = format!("tcp({there})");
    let mut command = nlx(&["serve", "--net", &net, "--accept-port", &port]);
    let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let thread_is_there = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let name = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.unwrap().path().join("comm"))
        };
        threads.filter_map(|thread| name(thread).ok()).any(|name| name.trim() == "nlx-signals")
    };
    until("the thread of the signals is there", thread_is_there);
    // Two signals at the same time count as one.
    let mut status = None;
    until("the program ends", || {
        status = child.try_wait().unwrap();
        if status.is_none() {
            kill(pid, Signal::SIGTERM).unwrap();
        }
        status.is_some()
    });
    let status = status.unwrap();
    assert_eq!((status.code(), status.signal()), (Some(128 + 15), None));
    drop(reader);
}

#[test]
fn a_node_is_discovered_and_gets_a_push() {
    let [here, first, second] = [1, 2, 3].map(|last| Ipv4Addr::new(127, 2, 4, last));
    let port = free_port(first);
    let server = serve(first, port, &["--net", &format!("tcp1({second})")]);
    let output = ask("discover", first, here, port, &["--push", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let found = &json_lines(&output.stdout)[0];
    assert_eq!((&found["primary_nid"], &found["features"]), (&format!("{first}@tcp").into(), &"0x1e".into()));
    assert_eq!((&found["multi_rail"], &found["discovery"]), (&true.into(), &true.into()));
    let nids: Vec<_> = found["peer_ni"].as_array().unwrap().iter().map(|ni| ni["nid"].clone()).collect();
    assert_eq!(nids, [format!("{first}@tcp"), format!("{second}@tcp1")]);
    assert_eq!((&found["push"], &found["asked_bytes"]), (&"acknowledged".into(), &serde_json::json!([272])));
    let plain = ask("discover", first, here, port, &[]);
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    // As `lnetctl discover` prints it.
    let lines =
        ["discover:\n    - primary nid: ", "      Multi-Rail: True\n", "      peer ni:\n        - nid: "];
    assert!(lines.iter().all(|line| text.contains(line)) && !text.contains("push"), "{text}");
    server.signal(Signal::SIGTERM);
    let (_, rest) = server.end();
    // A GET and a PUT, their REPLY and ACK, and the GET without a push.
    assert!(rest.contains("3 messages received") && rest.contains("3 sent"), "{rest}");
}

#[test]
fn an_output_without_a_reader_ends_it_quietly() {
    let there = Ipv4Addr::new(127, 2, 5, 2);
    let (net, port) = (format!("tcp({there})"), free_port(there).to_string());
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut command = nlx(&["serve", "--net", &net, "--accept-port", &port, "--stats", "0.01"]);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    drop((command, reader));
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(1), ""));
}
