//! `nlx serve` and `nlx ping`, as processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{ask, asking, complaint, free_port, json_lines, nlx, run, serve};

fn ping(target: Ipv4Addr, from: Ipv4Addr, port: u16, more: &[&str]) -> std::process::Output {
    ask("ping", target, from, port, more)
}

#[test]
fn a_served_node_answers_with_its_nids_and_counts_it() {
    let (here, there) = (Ipv4Addr::new(127, 1, 1, 1), Ipv4Addr::new(127, 1, 1, 2));
    let port = free_port(there);
    let server = serve(there, port, &[]);
    let output = ping(there, here, port, &["--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["nids"], serde_json::json!([format!("{there}@tcp")]));
    assert_eq!(answer["pid"], 12345);
    assert_eq!(answer["from"], format!("{here}@tcp"));
    let plain = ping(there, here, port, &[]);
    // As `lctl ping` prints it.
    assert_eq!(String::from_utf8_lossy(&plain.stdout), format!("12345-0@lo\n12345-{there}@tcp\n"));
    server.signal(Signal::SIGTERM);
    let (status, rest) = server.end();
    assert!(status.success());
    assert!(rest.contains(" 0 errors"), "{rest:?}");
    // Each ping is one GET received and one REPLY sent.
    assert!(rest.contains("2 messages received") && rest.contains("2 sent"), "{rest:?}");
}

// Covers: S-202
#[test]
fn a_node_with_several_nids_names_them_all() {
    let (first, second, here) =
        (Ipv4Addr::new(127, 1, 2, 1), Ipv4Addr::new(127, 1, 2, 2), Ipv4Addr::new(127, 1, 2, 3));
    let port = free_port(first);
    let _server = serve(first, port, &["--net", &format!("tcp1({second})")]);
    let output = ping(first, here, port, &["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["nids"], serde_json::json!([format!("{first}@tcp"), format!("{second}@tcp1")]));
}

/// Partitions that are impossible on this machine are refused with the names of their tunables.
// Covers: S-315
#[test]
fn partitions_that_cannot_be_are_refused_by_name() {
    let refused = |more: &[&str]| {
        let output = run(&[&["serve", "--net", "tcp(127.1.9.1)", "--accept-port", "21999"], more].concat());
        assert!(!output.status.success());
        complaint(&output)
    };
    let absent = refused(&["--cpu-pattern", "0[8191]"]);
    assert!(absent.contains("cpu_pattern=\"0[8191]\""), "{absent}");
    let many = refused(&["--cpu-npartitions", "1000"]);
    assert!(many.contains("'1000' is not a whole number from 0 to 256"), "{many}");
    let broken = refused(&["--cpu-pattern", "0[0"]);
    assert!(broken.contains("--cpu-pattern") && broken.contains("byte 3"), "{broken}");
    let unbound = refused(&["--cpu-npartitions", "1", "--net", "tcp1(127.1.9.1)[7]"]);
    assert!(unbound.contains("tcp1(127.1.9.1)[7]") && unbound.contains("no CPU partition 7"), "{unbound}");
}

#[test]
fn a_missing_receiver_is_a_clear_error() {
    let (here, there) = (Ipv4Addr::new(127, 1, 3, 1), Ipv4Addr::new(127, 1, 3, 2));
    let output = ping(there, here, free_port(there), &[]);
    assert!(!output.status.success());
    let words = complaint(&output);
    assert!(words.contains(&format!("{there}@tcp")) && words.contains("refused"), "{words}");
}

/// A failure names its node, alone or among others.
#[test]
fn a_failure_in_json_names_the_node() {
    let (here, there) = (Ipv4Addr::new(127, 1, 14, 1), Ipv4Addr::new(127, 1, 14, 2));
    for command in ["ping", "discover"] {
        let output = ask(command, there, here, free_port(there), &["--json"]);
        assert_eq!((output.status.code(), complaint(&output).as_str()), (Some(1), ""));
        let line = &json_lines(&output.stdout)[0];
        assert_eq!(
            (&line["nid"], &line["error"]["errno"]),
            (&format!("{there}@tcp").into(), &"ECONNREFUSED".into())
        );
        let line = &json_lines(&run(&[command, "17@gni", "--json"]).stdout)[0];
        assert_eq!((&line["nid"], &line["error"]["step"]), (&"17@gni".into(), &"driver".into()));
    }
}

/// The state of the connections is reported; for a node of nlx also whether a long message gets
/// through.
#[test]
fn the_way_of_long_messages_is_reported_and_tried_if_the_node_is_nlx() {
    let (here, there) = (Ipv4Addr::new(127, 1, 16, 1), Ipv4Addr::new(127, 1, 16, 2));
    let port = free_port(there);
    let server = serve(there, port, &[]);
    let json = |more: &[&str]| {
        let output = ping(there, here, port, &[&["--json", "--size", "100K"], more].concat());
        assert!(output.status.success(), "{}", complaint(&output));
        json_lines(&output.stdout).remove(0)
    };
    let safe = json(&[]);
    assert_eq!((&safe["size"], &safe["probe_us"]), (&102_400.into(), &Value::Null));
    let connections = safe["connections"].as_array().unwrap();
    assert!(connections.iter().any(|conn| conn["type"] == "CONTROL"), "{safe}");
    for conn in connections {
        assert!(
            conn["mss"].as_u64() > Some(500) && conn["path_mtu"].as_u64() > conn["mss"].as_u64(),
            "{safe}"
        );
        assert_eq!((&conn["retransmissions"], conn["rtt_us"].is_u64()), (&0.into(), true));
    }
    assert!(json(&["--to-nlx"])["probe_us"].as_f64() > Some(0.0));
    let plain = ping(there, here, port, &["--size", "100K", "--to-nlx"]);
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(
        text.contains("\na PUT of 102\u{202f}400 bytes acknowledged in ")
            && text.contains("\nCONTROL: segments of ")
    );
    let silent = ping(there, here, port, &["--size", "1K"]);
    let text = String::from_utf8_lossy(&silent.stdout).into_owned();
    assert!(
        text.ends_with(
            "no message of 1\u{202f}024 bytes was sent: --to-nlx sends one, to a node that runs nlx\n"
        ),
        "{text}"
    );
    // One PUT for each `--to-nlx`, and no others; nothing was dropped.
    server.signal(Signal::SIGTERM);
    let rest = server.end().1;
    assert!(rest.contains("6 messages received (204800 bytes)") && rest.contains(" 0 dropped"), "{rest}");
    let alone = run(&["ping", "127.0.0.1@tcp", "--to-nlx"]);
    assert!(complaint(&alone).contains("--size <BYTES>"), "{}", complaint(&alone));
}

/// A node that accepts no such messages is distinguished from one that does not receive them.
#[test]
fn a_node_that_takes_no_probe_is_named_as_such() {
    let port = free_port(Ipv4Addr::new(127, 0, 0, 67)).to_string();
    let (net, target) = ("tcp(127.0.0.67)", "127.0.0.67@tcp");
    let mut command = nlx(&["selftest-peer", "--net", net, "--accept-port", &port]);
    let mut peer = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(peer.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut String::new()).unwrap();
    let from = ["--from", "127.0.0.68@tcp", "--accept-port", &port];
    let asked = run(&[&["ping", target, "--size", "9000", "--to-nlx", "--timeout", "1"], &from[..]].concat());
    peer.kill().unwrap();
    peer.wait().unwrap();
    assert_eq!(asked.status.code(), Some(1));
    let told = complaint(&asked);
    assert!(told.contains("a PUT of 9000 bytes was not acknowledged within 1 s"), "{told}");
    assert!(told.contains("its TCP has taken all of it") && told.contains("try: only 'nlx serve'"), "{told}");
}

/// A node that has its answer and closes causes no warning at the node that gave it.
#[test]
fn an_orderly_end_is_not_logged_as_a_failure() {
    let (here, there) = (Ipv4Addr::new(127, 1, 15, 1), Ipv4Addr::new(127, 1, 15, 2));
    let port = free_port(there);
    let (net, port_text) = (format!("tcp({there})"), port.to_string());
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = nlx(&["serve", "--net", &net, "--accept-port", &port_text]);
    command.env("NLX_LOG", "info").stderr(log.reopen().unwrap());
    let server = support::Server::start(command);
    let output = ping(there, here, port, &[]);
    assert!(output.status.success(), "{}", complaint(&output));
    // The node counts a peer whose connections have ended.
    support::until("the end of the connections", || {
        let nodes = support::status()["nodes"].as_array().unwrap().clone();
        nodes.iter().any(|node| node["pid"] == server.pid() && node["tcp"]["peers_lost"] == 1)
    });
    server.signal(Signal::SIGTERM);
    assert!(server.end().0.success());
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("started"), "{log}");
    assert!(!log.contains("RESET") && !log.contains("closed"), "{log}");
}

#[test]
fn a_node_that_never_answers_is_given_up_at_the_timeout() {
    let (here, there) = (Ipv4Addr::new(127, 1, 4, 1), Ipv4Addr::new(127, 1, 4, 2));
    // Connections complete in the listener's backlog; no process reads them.
    let listener = TcpListener::bind(SocketAddr::from((there, 0))).unwrap();
    let output = ping(there, here, listener.local_addr().unwrap().port(), &["--timeout", "0.5"]);
    assert!(!output.status.success());
    let words = complaint(&output);
    assert!(words.contains(&format!("{there}@tcp")) && words.contains("0.5"), "{words}");
}

#[test]
fn a_peer_that_talks_something_else_is_named_as_such() {
    let (here, there) = (Ipv4Addr::new(127, 1, 5, 1), Ipv4Addr::new(127, 1, 5, 2));
    let listener = TcpListener::bind(SocketAddr::from((there, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let talker = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut request = [0; 72];
        peer.read_exact(&mut request).unwrap();
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n and so on, more than a hello")
            .unwrap();
        // The other side closes as soon as it has seen enough.
        let _ = peer.read_to_end(&mut Vec::new());
    });
    let output = ping(there, here, port, &[]);
    talker.join().unwrap();
    assert!(!output.status.success());
    let words = complaint(&output);
    assert!(words.contains(&format!("{there}@tcp")) && words.contains("0x45726963"), "{words}");
}

#[test]
fn garbage_and_hang_ups_do_not_disturb_a_server() {
    let (here, there) = (Ipv4Addr::new(127, 1, 6, 1), Ipv4Addr::new(127, 1, 6, 2));
    let port = free_port(there);
    let _server = serve(there, port, &[]);
    let connect = || TcpStream::connect(SocketAddr::from((there, port))).unwrap();
    let stalled = connect();
    for garbage in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0xff; 4096],
        &[0; 16],
        b"\x00\x71\xce\xac\x01\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08",
    ] {
        let mut peer = connect();
        // The server may have closed before everything is written.
        let _ = peer.write_all(garbage);
        let _ = peer.read_to_end(&mut Vec::new());
    }
    drop(connect());
    let output = ping(there, here, port, &[]);
    assert!(output.status.success(), "{}", complaint(&output));
    drop(stalled);
}

// Covers: MT-224
#[test]
fn a_nid_that_is_held_names_its_holder() {
    let there = Ipv4Addr::new(127, 1, 7, 1);
    let port = free_port(there);
    let server = serve(there, port, &[]);
    let net = format!("tcp({there})");
    let output = run(&["serve", "--net", &net, "--accept-port", &free_port(there).to_string()]);
    assert!(!output.status.success());
    let words = complaint(&output);
    assert!(words.contains(&format!("{there}@tcp")), "{words}");
    assert!(words.contains("nlx") && words.contains(&server.pid().to_string()), "{words}");
    let pinged = ping(Ipv4Addr::new(127, 1, 7, 2), there, port, &[]);
    assert!(complaint(&pinged).contains(&server.pid().to_string()), "{}", complaint(&pinged));
}

#[test]
fn a_port_in_use_is_named() {
    let there = Ipv4Addr::new(127, 1, 8, 1);
    let holder = TcpListener::bind(SocketAddr::from((there, 0))).unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let output = run(&["serve", "--net", &format!("tcp({there})"), "--accept-port", &port]);
    assert!(!output.status.success());
    let words = complaint(&output);
    assert!(words.contains(&port) && words.contains(&there.to_string()), "{words}");
}

#[test]
fn what_cannot_be_read_is_refused_before_anything_starts() {
    let cases: [(&[&str], &str); 19] = [
        (&["ping", "*"], "one node"),
        (&["ping", "10.0.0.1@o2ib", "--from", "127.0.0.1@o2ib"], "no RDMA device"),
        (&["ping", "17@gni"], "no driver"),
        (&["ping", "127.0.0.1@tcp", "--interval", "1"], "--count"),
        (&["serve", "--net", "tcp(127.0.0.1)", "--accept-port", "0"], "0"),
        (&["ping", "999.0.0.1@tcp"], "999.0.0.1"),
        (&["ping", "10.0.0.1@ether"], "ether"),
        (&["ping", "127.0.0.1@tcp", "--timeout", "-1"], "'-1' is not a number of seconds above 0"),
        (&["ping", "127.0.0.1@tcp", "--count", "-1"], "'-1' is not a whole number from 0 to"),
        (
            &["ping", "127.0.0.1@tcp", "--accept-port", "65536"],
            "'65536' is not a whole number from 1 to 65535",
        ),
        (&["ping", "127.0.0.1@tcp", "--accept-port", "22x"], "'22x' is not a whole number from 1 to 65535"),
        (&["serve", "--cpu-npartitions", "99999999999999999999"], "is not a whole number from 0 to 256"),
        (&["serve", "--config", "/no/such/file"], "it cannot be read: no such file or directory (ENOENT)"),
        (&["serve", "--net", "tcp(nosuchif0)"], "nosuchif0"),
        (&["serve", "--net", "tcp(127.0.0.1", "--accept-port", "9000"], "tcp(127.0.0.1"),
        (&["selftest", "--size", "0"], "'0' is not a number of bytes from 1 to 1048576"),
        (&["selftest", "--size", "64kB"], "invalid value '64kB' for '--size <BYTES>'"),
        (&["selftest", "--size", "2M"], "K, M, G or KiB, MiB, GiB"),
        (&["serve", "--net", "foo(eth0)"], "no known type: these are lo, tcp, o2ib, gni"),
    ];
    for (args, word) in cases {
        let output = run(args);
        assert!(!output.status.success(), "{args:?}");
        assert!(complaint(&output).contains(word), "{args:?}: {}", complaint(&output));
    }
}

#[test]
fn the_policy_none_accepts_no_peer_and_secure_no_high_port() {
    let (here, there) = (Ipv4Addr::new(127, 1, 9, 1), Ipv4Addr::new(127, 1, 9, 2));
    let port = free_port(there);
    let closed = serve(there, port, &["--accept", "none", "--drain", "0"]);
    assert_eq!(closed.greeting, format!("serving {there}@tcp, accept none\n"), "it has no port");
    assert!(complaint(&ping(there, here, port, &[])).contains("refused"));
    drop(closed);
    let _secure = serve(there, port, &["--accept", "secure"]);
    let mut peer = TcpStream::connect(SocketAddr::from((there, port))).unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap_or(0), 0, "closed without a byte");
}

#[test]
fn a_node_pings_itself_without_a_network() {
    let output = run(&["ping", "0@lo", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["nids"], &answer["pid"]), (&serde_json::json!([]), &12345.into()));
}

#[test]
fn an_output_that_is_closed_or_full_is_no_panic() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = nlx(&["ping", "0@lo"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("standard output"), "{}", complaint(&output));
    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    let output = nlx(&["ping", "0@lo"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), complaint(&output)), (Some(1), String::new()));
}

#[test]
fn pings_again_and_again_end_with_the_numbers() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 1, 11, last));
    let port = free_port(there);
    let server = serve(there, port, &[]);
    let output = ping(there, here, port, &["--count", "3", "--interval", "0.01", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let lines = json_lines(&output.stdout);
    let seqs: Vec<_> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(seqs, [1, 2, 3]);
    let summary = &lines[3]["summary"];
    assert_eq!((&summary["sent"], &summary["answered"]), (&3.into(), &3.into()));
    let [min, avg, max] = ["min_us", "avg_us", "max_us"].map(|key| summary[key].as_f64().unwrap());
    assert!(0.0 < min && min <= avg && avg <= max);
    let plain = ping(there, here, port, &["--count", "2", "--interval", "0.01"]);
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(text.starts_with(&format!("answer 1 from {there}@tcp: 1 NID, ")), "{text}");
    assert!(text.contains("2 sent, 2 answered, 0% lost\nmin/avg/max "), "{text}");
    drop(server);
    let lost = ping(there, here, port, &["--count", "2", "--interval", "0.01", "--json"]);
    assert_eq!(lost.status.code(), Some(1));
    let lines = json_lines(&lost.stdout);
    assert_eq!(
        (&lines[0]["error"]["errno"], &lines[2]["summary"]["answered"]),
        (&"ECONNREFUSED".into(), &0.into())
    );
    assert_eq!(lines[2]["summary"]["min_us"], Value::Null);
}

/// With the largest possible count, and with 0.
#[test]
fn pings_without_end_are_stopped_by_a_signal() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 1, 12, last));
    let port = free_port(there);
    let _server = serve(there, port, &[]);
    for (count, signal) in [("18446744073709551615", Signal::SIGINT), ("0", Signal::SIGTERM)] {
        let arguments = asking("ping", there, here, port);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--count", count]).collect();
        let mut command = nlx(&arguments);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        std::io::BufRead::read_line(&mut output, &mut text).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
        output.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(text.contains("0% lost\nmin/avg/max"), "{text}");
    }
}

#[test]
fn several_nodes_are_pinged_and_a_missing_one_is_reported() {
    let [here, first, second] = [1, 2, 3].map(|last| Ipv4Addr::new(127, 1, 13, last));
    let port = free_port(first);
    let _server = serve(first, port, &[]);
    let other = format!("{second}@tcp");
    let output = ping(first, here, port, &[&other]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, format!("{first}@tcp:\n12345-0@lo\n12345-{first}@tcp\n"));
    assert!(complaint(&output).contains(&other) && complaint(&output).contains("refused"));
}
