//! Addresses of a network namespace that a test, as root, has entered.

use std::process::Command;

/// Runs `ip` of iproute2 with these arguments.
pub fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {args}");
}

/// Adds an IPv6 address to the loopback, and waits for the route to it, which the system adds a
/// moment later.
pub fn add_address(address: &str) {
    ip(&format!("-6 addr add {address}/128 dev lo nodad"));
    let is_reachable =
        |_| Command::new("ip").args(["-6", "route", "get", address]).output().unwrap().status.success();
    assert!((0..10_000).any(is_reachable), "there is no route to {address}");
}
