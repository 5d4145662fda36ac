//! The external reasons for which a command can fail, each provoked for real: message, step, exit
//! status.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use support::{asking, complaint, free_port, json_lines, run, serve};

/// Runs a command with output for people and for programs; both must report the same failure.
fn fails(case: &str, arguments: &[&str], step: &str, errno: &str, words: &[&str]) {
    let plain = run(arguments);
    let text = complaint(&plain);
    assert_eq!((plain.status.code(), &plain.stdout[..]), (Some(1), &b""[..]), "{case}: {text}");
    assert!(text.starts_with("nlx: "), "{case}: {text}");
    let output = run(&[arguments, &["--json"]].concat());
    assert_eq!((output.status.code(), complaint(&output).as_str()), (Some(1), ""), "{case}");
    let lines = json_lines(&output.stdout);
    let [line] = &lines[..] else { panic!("{case}: {lines:?}") };
    let error = &line["error"];
    assert_eq!(
        (error["step"].as_str(), error["errno"].as_str()),
        (Some(step), Some(errno)),
        "{case}: {line}"
    );
    let (message, advice) = (error["message"].as_str().unwrap(), error["try"].as_str().unwrap_or_default());
    for word in words {
        assert!(text.contains(word), "{case}: {text}");
        assert!(message.contains(word) || advice.contains(word), "{case}: {line}");
    }
    assert!(!advice.is_empty(), "{case} says what to try");
}

/// Listens, and calls `serve` for each connection.
fn listener(address: Ipv4Addr, port: u16, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    let listener = TcpListener::bind(SocketAddr::from((address, port))).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
}

/// Reads connection request and hello of the other side (lnet-wire 21, 22.2).
fn greeting(stream: &mut TcpStream) -> [u8; 72] {
    let mut bytes = [0; 72];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Returns the hello that answers it, from the requested NID.
fn hello(greeting: &[u8; 72]) -> [u8; 56] {
    let mut hello = [0; 56];
    hello.copy_from_slice(&greeting[16..]);
    hello[8..16].copy_from_slice(&greeting[32..40]);
    hello[16..24].copy_from_slice(&greeting[24..32]);
    // BULK_IN there is BULK_OUT here.
    hello[48] = match hello[48] {
        2 => 3,
        3 => 2,
        other => other,
    };
    hello
}

/// Reads until the other side closes.
fn listen_on(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

fn answers(
    with: impl Fn(&[u8; 72]) -> Vec<u8> + Clone + Send + 'static,
) -> impl Fn(TcpStream) + Clone + Send {
    move |mut stream| {
        let answer = with(&greeting(&mut stream));
        let _ = stream.write_all(&answer);
        listen_on(stream);
    }
}

/// The last number of its address, the case, the failed step, its errno, words of the message.
const OTHER_SERVERS: [(u8, &str, &str, &str, &[&str]); 9] = [
    (2, "reset", "handshake", "ECONNRESET", &["does not have this NID", "privileged", "accept=all"]),
    (3, "HTTP", "handshake", "EPROTO", &["\"HTTP\"", "not an LNet node", "accept_port"]),
    (4, "SSH", "handshake", "EPROTO", &["\"SSH-\"", "not an LNet node", "accept_port"]),
    (5, "version", "handshake", "EPROTO", &["hello has version 9", "which release", "2 to 4 of the hello"]),
    (6, "wrong NID", "handshake", "EPROTO", &["hello comes from 127.3.1.77@tcp", "lctl list_nids"]),
    (7, "silent", "handshake", "ETIMEDOUT", &["within 0.5 s", "no hello", "LNet node", "firewall"]),
    (8, "no answer", "answer", "ETIMEDOUT", &["within 0.5 s", "connected, but the ping is not answered"]),
    (10, "request version", "handshake", "EPROTO", &["speaks version 1 of it", "which release"]),
    (9, "refused", "connect", "ECONNREFUSED", &["refused", "no process listens", "firewall", "accept_port"]),
];

/// Starts servers that are no LNet nodes, or refuse this one.
fn start_other_servers(port: u16) {
    let there = |last| Ipv4Addr::new(127, 3, 1, last);
    listener(there(2), port, |mut stream| {
        greeting(&mut stream);
    });
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
    listener(there(3), port, answers(|_| http.to_vec()));
    listener(there(4), port, |mut stream| {
        stream.write_all(b"SSH-2.0-OpenSSH_10.0p2 Debian-7 and as much again as a hello has\r\n").unwrap();
        listen_on(stream);
    });
    listener(
        there(5),
        port,
        answers(|greeting| {
            let mut hello = hello(greeting);
            hello[4] = 9;
            hello.to_vec()
        }),
    );
    listener(
        there(6),
        port,
        answers(|greeting| {
            let mut hello = hello(greeting);
            hello[8] = 77;
            hello.to_vec()
        }),
    );
    listener(there(7), port, listen_on);
    // This node answers with a connection request of its own version (lnet-wire 21).
    listener(there(10), port, answers(|greeting| greeting[..16].to_vec()));
    listener(there(8), port, answers(|greeting| hello(greeting).to_vec()));
}

#[test]
fn other_servers_are_recognised() {
    let here = Ipv4Addr::new(127, 3, 1, 1);
    let there = |last| Ipv4Addr::new(127, 3, 1, last);
    let port = free_port(here);
    start_other_servers(port);
    for (last, case, step, errno, words) in OTHER_SERVERS {
        for command in ["ping", "discover"] {
            let arguments = asking(command, there(last), here, port);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--timeout"]).collect();
            // The other cases fail before their timeout.
            let timeout = if errno == "ETIMEDOUT" { "0.5" } else { "60" };
            let target = format!("{}@tcp", there(last));
            fails(
                case,
                &[&arguments[..], &[timeout]].concat(),
                step,
                errno,
                &[&[target.as_str()], words].concat(),
            );
        }
    }
}

#[test]
fn a_node_that_cannot_be_reached_is_reported() {
    for command in ["ping", "discover"] {
        fails("all nodes", &[command, "*"], "route", "EINVAL", &["one node"]);
        let verbs = [command, "10.0.0.1@o2ib", "--from", "127.0.0.1@o2ib"];
        fails("verbs", &verbs, "interface", "ENODEV", &["127.0.0.1", "no RDMA device", "nlx net devices"]);
        fails("no driver", &[command, "7@gni"], "driver", "EINVAL", &["7@gni", "tcp or o2ib"]);
        fails("itself", &[command, "127.0.0.1@tcp"], "route", "EADDRINUSE", &["127.0.0.1@tcp", "--from"]);
        let elsewhere = [command, "10.0.0.1@tcp", "--from", "127.0.0.1@tcp7"];
        fails(
            "another network",
            &elsewhere,
            "route",
            "EHOSTUNREACH",
            &["not on the network", "ask from a NID on tcp"],
        );
        // 0.0.0.0 means this host to the system: a listener here must not be taken for the node.
        for nobody in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
            let nid = format!("{nobody}@tcp");
            let asked = [command, &nid, "--from", "127.3.2.1@tcp"];
            fails("no host", &asked, "route", "EINVAL", &[&nid, "not the address of a host", "list_nids"]);
        }
    }
}

#[test]
fn a_node_that_cannot_be_started_says_what_stands_in_the_way() {
    let here = Ipv4Addr::new(127, 3, 3, 1);
    let port = free_port(here);
    let taken = TcpListener::bind(SocketAddr::from((here, 0))).unwrap();
    let taken_port = taken.local_addr().unwrap().port().to_string();
    let net = format!("tcp({here})");
    let serving = |more: &[&'static str]| [&["serve"], more].concat();
    let busy = ["serve", "--net", &net, "--accept-port", &taken_port];
    fails(
        "port taken",
        &busy,
        "listen",
        "EADDRINUSE",
        &[&taken_port, "not nlx", "ss -ltnp", "--accept-port"],
    );
    let server = serve(here, port, &[]);
    let (port, pid) = (port.to_string(), format!("(pid {})", server.pid()));
    let held = ["serve", "--net", &net, "--accept-port", &port];
    fails("NID held", &held, "claim", "EADDRINUSE", &[&format!("{here}@tcp is held by nlx"), &pid, "stop"]);
    let from = asking("ping", Ipv4Addr::new(127, 3, 3, 2), here, 988);
    let from: Vec<&str> = from.iter().map(String::as_str).collect();
    fails("NID held", &from, "claim", "EADDRINUSE", &["is held by nlx", &pid, "--from"]);
    let absent = ["--net", "tcp(nosuchif0)"];
    fails("no interface", &serving(&absent), "interface", "ENODEV", &["nosuchif0", "lo", "net show --why"]);
    fails("no interface", &["net", "show", "--net", "tcp(nosuchif0)"], "interface", "ENODEV", &["nosuchif0"]);
    // A documentation address (RFC 5737) of a block that no host has.
    fails("no address", &serving(&["--net", "tcp(203.0.113.77)"]), "interface", "ENODEV", &["203.0.113.77"]);
    let words = ["nosuchib0", "nlx net devices"];
    fails("verbs", &serving(&["--net", "o2ib0:0(nosuchib0)"]), "interface", "ENODEV", &words);
    fails(
        "no driver",
        &serving(&["--net", "gni(ipogif0)"]),
        "driver",
        "EINVAL",
        &["gni(ipogif0)", "tcp or o2ib"],
    );
}

/// A process without free descriptors reports that, and what to do, wherever they run out.
#[test]
fn a_process_without_descriptors_reports_it() {
    let mut refused = 0;
    // Standard input, output and error are open; with up to 16 more a ping succeeds.
    for descriptors in 4..20 {
        let mut command = std::process::Command::new("prlimit");
        command.arg(format!("--nofile={descriptors}")).arg(env!("CARGO_BIN_EXE_nlx"));
        command.args(["ping", "127.3.4.1@tcp", "--from", "127.3.4.2@tcp", "--accept-port", "9", "--json"]);
        let output = command.output().unwrap();
        let error = &json_lines(&output.stdout)[0]["error"];
        if error["errno"] != "EMFILE" {
            assert_eq!(error["errno"], "ECONNREFUSED", "{error}");
            continue;
        }
        refused += 1;
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("EMFILE") && message.to_lowercase().contains("too many open files"),
            "{error}"
        );
        assert!(error["try"].as_str().unwrap().contains("ulimit -n"), "{error}");
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn invalid_arguments_are_reported_in_json_too() {
    let output = run(&["ping", "127.0.0.1@tcp", "--count", "many", "--json"]);
    assert_eq!((output.status.code(), complaint(&output).as_str()), (Some(2), ""));
    let error = &json_lines(&output.stdout)[0]["error"];
    assert_eq!((&error["step"], &error["errno"]), (&"arguments".into(), &"EINVAL".into()));
    assert!(error["message"].as_str().unwrap().contains("many"), "{error}");
    let plain = run(&["ping"]);
    assert_eq!((plain.status.code(), complaint(&plain).contains("<NID>")), (Some(2), true));
}
