//! Two nodes on two hosts: network namespaces joined by a virtual cable. Needs root, so `./test namespaces` runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::{Command, Output};

use support::{Server, complaint};

/// A pair of hosts named after this process and a test, gone with this value.
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
