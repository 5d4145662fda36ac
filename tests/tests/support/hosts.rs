//! Two hosts: network namespaces joined by a virtual cable. Needs root.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::peer::Peer;

pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 8, 1), Ipv4Addr::new(10, 99, 8, 2)];

/// A pair of hosts, removed when this is dropped.
pub struct Hosts {
    names: [String; 2],
}

impl Hosts {
    pub fn new() -> Hosts {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let pair = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|side| format!("nlx-{}-{pair}-{side}", std::process::id()));
        let hosts = Hosts { names };
        for name in &hosts.names {
            run("ip", &["netns", "add", name]);
        }
        let [a, b] = &hosts.names;
        run("ip", &["link", "add", "veth0", "netns", a, "type", "veth", "peer", "name", "veth0", "netns", b]);
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            run("ip", &["-n", name, "addr", "add", &format!("{address}/24"), "dev", "veth0"]);
            run("ip", &["-n", name, "link", "set", "veth0", "up"]);
            run("ip", &["-n", name, "link", "set", "lo", "up"]);
        }
        hosts
    }

    /// Starts a node of this host, as on a real site: port 988, privileged source ports, the policy
    /// `secure`.
    pub fn peer(&self, host: usize, options: &str) -> Peer {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.names[host], env!("CARGO_BIN_EXE_nlx-peer")]);
        Peer::spawn(program, &[ADDRESSES[host]], &format!("port=988 {options}"))
    }

    /// Sets the second host's end of the cable `up` or `down`.
    pub fn set_cable(&self, state: &str) {
        run("ip", &["-n", &self.names[1], "link", "set", "veth0", state]);
    }

    /// Makes both hosts drop this percentage of incoming packets, each independently.
    pub fn lose(&self, percent: u32) {
        for name in &self.names {
            let chain = "add chain ip nlx input { type filter hook input priority 0 ; }";
            let rule =
                format!("add rule ip nlx input iifname veth0 numgen random mod 100 < {percent} counter drop");
            for command in ["add table ip nlx", chain, &rule] {
                run("ip", &["netns", "exec", name, "nft", command]);
            }
        }
    }

    /// Stops the loss; returns the number of packets dropped.
    pub fn stop_losing(&self) -> u64 {
        let lost = self.names.iter().map(|name| {
            let rules = run("ip", &["netns", "exec", name, "nft", "list table ip nlx"]);
            run("ip", &["netns", "exec", name, "nft", "delete table ip nlx"]);
            let after = rules.split("counter packets ").nth(1).and_then(|text| text.split(' ').next());
            after
                .and_then(|count| count.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("no counter in {rules}"))
        });
        lost.sum()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|why| panic!("{program}: {why}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
