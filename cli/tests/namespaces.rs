//! Two nodes on two hosts: network namespaces joined by a virtual cable. Needs root, so `./test
//! namespaces` runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::{Command, Output};

use support::{Server, complaint};

/// A pair of hosts named after this process and a test, removed when this is dropped.
struct Hosts {
    names: [String; 2],
}

const ADDRESSES: [&str; 2] = ["10.99.7.1", "10.99.7.2"];

impl Hosts {
    fn new(test: &str) -> Hosts {
        let names = ["a", "b"].map(|side| format!("nlx-{}-{test}-{side}", std::process::id()));
        let hosts = Hosts { names };
        for name in &hosts.names {
            ip(&["netns", "add", name]);
        }
        let [a, b] = &hosts.names;
        ip(&["link", "add", "veth0", "netns", a, "type", "veth", "peer", "name", "veth0", "netns", b]);
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "addr", "add", &format!("{address}/24"), "dev", "veth0"]);
            ip(&["-n", name, "addr", "add", &format!("{}/64", six(address)), "dev", "veth0", "nodad"]);
            ip(&["-n", name, "link", "set", "veth0", "up"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        hosts
    }

    fn nlx(&self, host: usize, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], env!("CARGO_BIN_EXE_nlx")]).args(args);
        command
    }

    fn ping(&self, more: &[&str]) -> Output {
        let target = format!("{}@tcp", ADDRESSES[1]);
        self.nlx(0, &[&["ping", &target], more].concat()).output().unwrap()
    }

    fn set_cable(&self, state: &str) {
        ip(&["-n", &self.names[1], "link", "set", "veth0", state]);
    }
}

/// Returns the host's IPv6 address.
fn six(address: &str) -> String {
    format!("fd99::{}", address.rsplit('.').next().unwrap())
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {args:?}");
}

// As on a real site: interface names, port 988, privileged source ports, the policy `secure`.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn two_hosts_ping_each_other_on_the_privileged_port() {
    let hosts = Hosts::new("ping");
    let server = Server::start(hosts.nlx(1, &["serve", "--net", "tcp(veth0)"]));
    let answered = hosts.ping(&[]);
    assert!(answered.status.success(), "{}", complaint(&answered));
    assert!(String::from_utf8_lossy(&answered.stdout).contains(&format!("12345-{}@tcp", ADDRESSES[1])));
    hosts.set_cable("down");
    let cut = hosts.ping(&["--timeout", "1"]);
    assert!(!cut.status.success());
    assert!(complaint(&cut).contains(ADDRESSES[1]), "{}", complaint(&cut));
    hosts.set_cable("up");
    let again = hosts.ping(&["--timeout", "60"]);
    assert!(again.status.success(), "{}", complaint(&again));
    drop(server);
}

/// A server on one host, clients on the other; messages and bulk, every byte verified.
// Covers: MT-170, MT-187
#[test]
#[ignore = "needs root: ./test namespaces"]
fn two_hosts_test_each_other() {
    let hosts = Hosts::new("test");
    let _server = Server::start(hosts.nlx(1, &["selftest", "--server", "--net", "tcp(veth0)"]));
    let server = format!("{}@tcp", ADDRESSES[1]);
    let load = ["--count", "40", "--clients", "2", "--json"];
    let client = [&["selftest", "--client", &server, "--net", "tcp(veth0)"], &load[..]].concat();
    let output = hosts.nlx(0, &client).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["errors"]), (&true.into(), &0.into()));
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 5);
    assert!(phases.iter().all(|phase| phase["operations"] == 80), "{report}");
}

// The claim on a NID holds within one namespace: two hosts may have the same address.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn a_nid_is_claimed_per_host() {
    let hosts = Hosts::new("claim");
    let net = ["serve", "--net", "tcp(127.0.0.1)"];
    let _first = Server::start(hosts.nlx(0, &net));
    let _second = Server::start(hosts.nlx(1, &net));
    let third = hosts.nlx(1, &net).output().unwrap();
    assert!(complaint(&third).contains("127.0.0.1@tcp is held by nlx"), "{}", complaint(&third));
}

// Large NIDs, by interface address and by routing table.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn two_hosts_ping_each_other_over_ipv6() {
    let hosts = Hosts::new("six");
    let there = six(ADDRESSES[1]);
    let _server = Server::start(hosts.nlx(1, &["serve", "--net", &format!("tcp({there})")]));
    let target = format!("{there}@tcp");
    let answered = hosts.nlx(0, &["ping", &target]).output().unwrap();
    assert!(answered.status.success(), "{}", complaint(&answered));
    assert!(String::from_utf8_lossy(&answered.stdout).contains(&format!("12345-{target}")));
    let found = hosts.nlx(0, &["discover", &target, "--push"]).output().unwrap();
    assert!(found.status.success(), "{}", complaint(&found));
    assert!(String::from_utf8_lossy(&found.stdout).contains("large NIDs"));
}

// Tests of what depends on the host itself: its routes, and the privileges for low ports.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn a_host_without_a_route_or_privileges_says_so() {
    let hosts = Hosts::new("poor");
    let failed = |command: &mut Command, words: &[&str]| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
        assert!(words.iter().all(|word| complaint(&output).contains(word)), "{}", complaint(&output));
    };
    for target in ["10.250.0.1@tcp", "fd98::1@tcp"] {
        failed(&mut hosts.nlx(0, &["ping", target]), &[target, "no route", "ip route"]);
        let known = hosts.nlx(0, &["ping", target, "--json"]).output().unwrap();
        let text = String::from_utf8_lossy(&known.stdout).into_owned();
        assert!(text.contains("ENETUNREACH") && text.contains("\"step\":\"route\""), "{text}");
    }
    let mut poor = Command::new("ip");
    poor.args(["netns", "exec", &hosts.names[0], "setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    poor.args([env!("CARGO_BIN_EXE_nlx"), "serve", "--net", "tcp(veth0)"]);
    failed(&mut poor, &["10.99.7.1:988", "privileges", "root", "CAP_NET_BIND_SERVICE", "above 1023"]);
    // A node that only asks needs none: the node that is asked decides.
    let _server = Server::start(hosts.nlx(1, &["serve", "--net", "tcp(veth0)", "--accept", "all"]));
    let mut asks = Command::new("ip");
    asks.args(["netns", "exec", &hosts.names[0], "setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    asks.args([env!("CARGO_BIN_EXE_nlx"), "ping", "10.99.7.2@tcp"]);
    let answered = asks.output().unwrap();
    assert!(answered.status.success(), "{}", complaint(&answered));
}

/// Adds a rule of nftables on the second host, for packets that arrive.
fn filter(hosts: &Hosts, rule: &str) {
    let script = format!(
        "add table inet f; add chain inet f i {{ type filter hook input priority 0; }}; add rule inet f i {rule}"
    );
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", &hosts.names[1], "nft", &script]);
    assert!(nft.status().expect("nftables is installed").success(), "{rule}");
}

/// A path that drops long packets and sends no ICMP: pings pass, and the probe reports longer
/// messages, with the segments that get lost.
// Covers: MT-170
#[test]
#[ignore = "needs root: ./test namespaces"]
fn a_black_hole_is_found_by_its_size() {
    let hosts = Hosts::new("hole");
    let _server = Server::start(hosts.nlx(1, &["serve", "--net", "tcp(veth0)"]));
    let _tested = Server::start(
        hosts.nlx(1, &["selftest", "--server", "--net", &format!("tcp({})", six(ADDRESSES[1]))]),
    );
    let whole = hosts.ping(&["--size", "8K", "--to-nlx"]);
    assert!(whole.status.success(), "{}", complaint(&whole));
    filter(&hosts, "meta length > 1000 drop");
    let small = hosts.ping(&["--size", "8K"]);
    assert!(small.status.success(), "nothing of that size is sent: {}", complaint(&small));
    let short = hosts.ping(&["--size", "500", "--to-nlx"]);
    assert!(short.status.success(), "{}", complaint(&short));
    let lost = hosts.ping(&["--size", "8K", "--to-nlx", "--timeout", "3", "--json"]);
    assert_eq!(lost.status.code(), Some(1));
    let line: serde_json::Value = serde_json::from_slice(&lost.stdout).unwrap();
    let error = &line["error"];
    assert_eq!((&error["step"], &error["errno"]), (&"probe".into(), &"ETIMEDOUT".into()), "{line}");
    let (message, advice) = (error["message"].as_str().unwrap(), error["try"].as_str().unwrap());
    for words in
        ["a PUT of 8192 bytes", "unacknowledged bytes in segments of 1448 bytes (path MTU 1500)", "in vain"]
    {
        assert!(message.contains(words), "{line}");
    }
    assert!(advice.contains("MTU") && advice.contains("tcp_mtu_probing"), "{line}");
    // A self-test detects such a path before it begins.
    let server = format!("{}@tcp", six(ADDRESSES[1]));
    let client = ["selftest", "--client", &server, "--net", &format!("tcp({})", six(ADDRESSES[0]))];
    let stopped = hosts.nlx(0, &client).output().unwrap();
    let told = complaint(&stopped);
    assert_eq!(stopped.status.code(), Some(1));
    assert!(
        told.contains(&server)
            && told.contains("a PUT of 1048576 bytes")
            && told.contains("try: something on the way"),
        "{told}"
    );
}

/// For each effect of a firewall on a connection the failure names the step and the advice.
// Covers: MT-170
#[test]
#[ignore = "needs root: ./test namespaces"]
fn firewalls_are_distinguished() {
    let cases = [
        ("tcp dport 988 reject with tcp reset", 4, "connect", ["ECONNREFUSED"; 2], "a firewall rejects"),
        ("tcp dport 988 reject with icmpx admin-prohibited", 4, "connect", ["EHOSTUNREACH"; 2], "firewall"),
        ("tcp dport 988 reject with icmpx admin-prohibited", 6, "connect", ["EACCES"; 2], "nft list ruleset"),
        // A node that receives no hello closes after 5 s, before the self-test times out.
        (
            "tcp dport 988 meta length > 100 drop",
            4,
            "handshake",
            ["ETIMEDOUT", "ECONNRESET"],
            "a firewall between",
        ),
    ];
    for (at, (rule, family, step, errnos, advice)) in cases.into_iter().enumerate() {
        let hosts = Hosts::new(&format!("wall{at}"));
        let there = if family == 4 { ADDRESSES[1].to_string() } else { six(ADDRESSES[1]) };
        let _server = Server::start(hosts.nlx(1, &["serve", "--net", &format!("tcp({there})")]));
        filter(&hosts, rule);
        let here = if family == 4 { ADDRESSES[0].to_string() } else { six(ADDRESSES[0]) };
        let target = format!("{there}@tcp");
        let ping: &[&str] = &["ping", &target, "--timeout", "2", "--json"];
        let (net, port) = (format!("tcp({here})"), "988");
        let test: &[&str] =
            &["selftest", "--client", &target, "--net", &net, "--accept-port", port, "--json"];
        for (command, errno) in [ping, test].into_iter().zip(errnos) {
            let output = hosts.nlx(0, command).output().unwrap();
            let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let error = &line["error"];
            assert_eq!((&error["step"], &error["errno"]), (&step.into(), &errno.into()), "{rule}: {line}");
            assert!(error["try"].as_str().unwrap().contains(advice), "{rule}: {line}");
        }
    }
}

/// Clients in a container with a separate mount, PID and user namespace, into which only the folder
/// of the helper's socket is mounted: they share memory and wake-ups as usual, every byte is
/// verified, and nothing is left.
// Covers: S-6
#[test]
#[ignore = "needs root: ./test namespaces"]
fn clients_in_a_container_are_served() {
    let [outside, inside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let socket = outside.path().join("nlxd.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nlxd"));
    let address = std::net::Ipv4Addr::new(127, 8, 2, 1);
    command.args(["--net", &format!("tcp({address})"), "--accept-port"]);
    command.arg(support::free_port(address).to_string()).arg("--socket").arg(&socket);
    let server = Server::start(within(command, outside.path()));
    // The folder is mounted at another path, and hidden at its own.
    let script = "mount --bind \"$1\" \"$2\" && mount -t tmpfs none \"$1\" && [ ! -e \"$1/nlxd.sock\" ] && [ $$ = 1 ] && shift 2 \
                  && exec \"$@\"";
    let mut container = Command::new("unshare");
    container.args(["--mount", "--pid", "--user", "--map-root-user", "--fork", "sh", "-c", script, "sh"]);
    container.args([outside.path(), inside.path()]).arg(env!("CARGO_BIN_EXE_nlx"));
    container.args(["selftest", "--mode", "helper", "--clients", "2", "--count", "40", "--json", "--socket"]);
    let output = container.arg(inside.path().join("nlxd.sock")).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["errors"]), (&true.into(), &0.into()));
    // Polls until they have gone; a test that hangs is ended from outside.
    loop {
        let pid = server.pid().to_string();
        let status = support::nlx(&["status", &pid, "--json", "--timeout", "60"]);
        let output = within(status, outside.path()).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let helper = &status["nodes"][0]["helper"];
        let left = ["tms", "eqs", "arenas", "bytes"].map(|name| helper["leftovers"][name].as_u64().unwrap());
        if helper["clients"] == 0 && left == [0; 4] {
            assert_eq!(helper["totals"]["clients"], 2, "one with the server, one with its clients: {helper}");
            return;
        }
    }
}

/// Sets the folder for sockets of a command.
fn within(mut command: Command, folder: &std::path::Path) -> Command {
    command.env("XDG_RUNTIME_DIR", folder);
    command
}
