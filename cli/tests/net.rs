//! `nlx net show`, as a process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use serde_json::Value;
use support::{complaint, free_port, json_lines, nlx, run, serve};

fn shown(arguments: &[&str]) -> Value {
    let output = run(&[&["net", "show", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    json_lines(&output.stdout).remove(0)
}

fn text(arguments: &[&str]) -> String {
    let output = run(&[&["net", "show"], arguments].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_network_is_shown_as_it_would_be_with_what_prevents_it() {
    let here = Ipv4Addr::new(127, 4, 1, 1);
    let (net, port) = (format!("tcp7({here})[0]"), free_port(here));
    let port_text = port.to_string();
    let arguments = ["--net", &net, "--accept-port", &port_text];
    let ni = |more: &[&str]| shown(&[&arguments, more].concat())["nets"][0]["nis"][0].clone();
    let free = ni(&[]);
    assert_eq!((&free["nid"], &free["status"]), (&format!("{here}@tcp7").into(), &"free".into()));
    assert_eq!((&free["interface"], &free["address"]), (&"lo".into(), &here.to_string().into()));
    assert_eq!(
        (&free["port"], &free["accept"], &free["cpts"]),
        (&port.into(), &"hello".into(), &serde_json::json!([0]))
    );
    let listener = TcpListener::bind(SocketAddr::from((here, port))).unwrap();
    let taken = ni(&[]);
    assert!(taken["status"].as_str().unwrap().contains(&format!("port {port} is in use")), "{taken}");
    assert_eq!(ni(&["--accept", "none"])["status"], "free", "it does not listen");
    drop(listener);
    let server = serve(here, port, &["--net", &net]);
    assert_eq!(ni(&[])["status"], format!("held by nlx (pid {})", server.pid()));
}

#[test]
fn each_interface_is_explained() {
    let why = shown(&["--net", "tcp(lo)", "--why"])["nets"][0]["why"].clone();
    let reason = |address: &str| {
        why.as_array().unwrap().iter().find(|line| line["address"] == address).unwrap().clone()
    };
    assert_eq!(reason("127.0.0.1")["nid"], "127.0.0.1@tcp");
    assert_eq!(reason("127.0.0.1")["why"], "the interface is named");
    let text = text(&["--net", "tcp(127.4.2.2)", "--why"]);
    assert!(text.contains("not named") && text.contains("127.4.2.2@tcp: the address is named"), "{text}");
    // Impossible networks are explained too, and the command fails.
    let output = run(&["net", "show", "--net", "tcp(nosuchif0)", "--why"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("interface 'nosuchif0': not there"));
    assert!(complaint(&output).contains("nosuchif0"), "{}", complaint(&output));
    // A partition that this machine does not have is explained in the same way.
    let output = run(&["net", "show", "--net", "tcp(127.4.2.2)[255]"]);
    assert!(complaint(&output).contains("no CPU partition 255"), "{}", complaint(&output));
}

#[test]
fn a_file_is_read_and_options_count_more() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lnet.conf");
    std::fs::write(
        &file,
        "net:\n    - net type: tcp3\n      local NI(s):\n        - interfaces:\n              0: lo\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(shown(&["--config", file])["nets"][0]["nis"][0]["nid"], "127.0.0.1@tcp3");
    let both = shown(&["--config", file, "--net", "tcp4(127.4.3.1)", "--accept-port", "1234", "--tunables"]);
    assert_eq!(both["nets"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&both["nets"][0]["net"], &both["tunables"]["lnet"]["accept_port"]),
        (&"tcp4".into(), &"1234".into())
    );
    assert_eq!(both["tunables"]["ksocklnd"]["peer_credits"], "8");
    let yaml = text(&["--config", file, "--yaml", "--tunables"]);
    for line in [
        "net:\n    - net type: tcp3\n",
        "        - nid: 127.0.0.1@tcp3\n",
        "    ksocklnd:\n",
        "        peer_credits: \"8\"",
    ] {
        assert!(yaml.contains(line), "{yaml}");
    }
    std::fs::write(folder.path().join("bad.conf"), "net:\n  - net type: tcp\n    nonsense: 1\n").unwrap();
    let bad = run(&["net", "show", "--config", folder.path().join("bad.conf").to_str().unwrap(), "--json"]);
    assert_eq!(bad.status.code(), Some(1));
    let error = &json_lines(&bad.stdout)[0]["error"];
    assert_eq!(error["step"], "configuration");
    assert!(error["message"].as_str().unwrap().contains("nonsense"), "{error}");
}

/// Values with which no node would start, and an invalid log filter.
#[test]
fn what_no_node_would_start_with_is_not_called_free() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nlx.toml");
    std::fs::write(&file, "[[net]]\nname = 'tcp'\ninterfaces = ['127.4.5.1']\npeer_credits = 300\n").unwrap();
    for command in [&["net", "show"][..], &["serve"]] {
        let output = run(&[command, &["--config", file.to_str().unwrap(), "--json"]].concat());
        let error = &json_lines(&output.stdout)[0]["error"];
        let words = "127.4.5.1@tcp: peer_credits=300: it must be from 1 to credits, 256";
        assert_eq!((&error["message"], &error["errno"]), (&words.into(), &"EINVAL".into()), "{command:?}");
    }
    for filter in ["nlx=loud", "debgu"] {
        let output = nlx(&["ping", "0@lo"]).env("NLX_LOG", filter).output().unwrap();
        let told = complaint(&output);
        assert!(output.status.success() && told.contains(&format!("NLX_LOG={filter}: ")), "{told}");
        assert!(told.contains("try: one of off, error, warn, info, debug, trace"), "{told}");
    }
}

/// Settings of an NI that differ from the node's, and those that depend on its link.
#[test]
fn the_tunables_of_an_ni_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nlx.toml");
    let nets = "[[net]]\nname = 'tcp'\ninterfaces = ['127.4.4.1']\npeer_credits = 16\ntimeout = 7\n\
                [[net]]\nname = 'tcp1'\ninterfaces = ['127.4.4.2']\n[ksocklnd]\ntos = 8\nconns_per_peer = 3\n";
    std::fs::write(&file, nets).unwrap();
    let file = file.to_str().unwrap();
    let shown = shown(&["--config", file]);
    let ni = |net: usize| &shown["nets"][net]["nis"][0];
    assert_eq!(ni(0)["tunables"], serde_json::json!({ "credits": 256, "peer_credits": 16 }));
    assert_eq!(ni(0)["lnd_tunables"], serde_json::json!({ "conns_per_peer": 3, "timeout": 7, "tos": 8 }));
    assert_eq!(ni(1)["lnd_tunables"]["timeout"], 50);
    let yaml = text(&["--config", file, "--yaml"]);
    assert!(
        yaml.contains("          lnd tunables:\n              conns_per_peer: 3\n              timeout: 7\n")
    );
    // The defaults depend on the link, of which the loopback has none.
    let usual = text(&["--net", "tcp(lo)", "--tunables"]);
    let line = |name: &str| usual.lines().find(|line| line.contains(name)).unwrap().to_string();
    assert!(
        line("conns_per_peer").contains("127.0.0.1@tcp") && line("conns_per_peer").contains(" 1 "),
        "{usual}"
    );
}

/// On any machine: one without RDMA gets the reason, and how to set it up.
#[test]
fn devices_are_shown_and_what_they_lack() {
    let output = run(&["net", "devices", "--json"]);
    let told = json_lines(&output.stdout).remove(0);
    let usable = told["usable"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!usable)), "{told}");
    let (ports, problems) = (told["ports"].as_array().unwrap(), told["problems"].as_array().unwrap());
    assert!(usable || problems.iter().any(|problem| problem["fatal"] == true), "{told}");
    for problem in problems {
        assert!(
            !problem["what"].as_str().unwrap().is_empty() && !problem["try"].as_str().unwrap().is_empty()
        );
    }
    let devices = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    assert!(ports.len() >= devices);
    let text = run(&["net", "devices", "--gids"]);
    assert_eq!(text.status.code(), output.status.code());
    let text = String::from_utf8(text.stdout).unwrap();
    if devices == 0 {
        for words in ["this host has no RDMA device", "rdma link add rxe0", "no network over RDMA can be had"]
        {
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(complaint(&output), "", "the output has said it");
    }
}

/// A network over RDMA is explained like any other.
// Covers: S-315
#[test]
fn a_network_over_rdma_is_explained() {
    let output = run(&["net", "show", "--net", "o2ib(lo)", "--why"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("127.0.0.1") && text.contains("no RDMA device lies on it"), "{text}");
    let told = complaint(&output);
    assert!(told.contains("no RDMA device") && told.contains("'nlx net devices'"), "{told}");
}
