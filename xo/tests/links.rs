//! The crates that a client links.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::process::Command;

/// Returns the workspace's crates that `nlx` links with these features, except `nlx`.
fn linked(features: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--package", "nlx"])
        .args(["--no-default-features", "--features", features])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let ours = names.filter(|name| *name != "nlx" && (name.starts_with("lnet") || name.starts_with("nlx")));
    ours.map(str::to_owned).collect()
}

/// Of LNet, a client of the helper links only names and memory, and no crate that uses a network.
// Covers: S-1, S-405
#[test]
fn of_lnet_a_client_of_the_helper_links_names_and_memory() {
    let ours = linked("helper");
    let of_lnet: Vec<_> = ours.iter().filter(|name| name.starts_with("lnet")).collect();
    assert_eq!(of_lnet, ["lnet-nid", "lnet-region"]);
    assert!(ours.contains("nlx-ucore") && !ours.contains("nlx-kcore"), "{ours:?}");
    // The same check of a client with the stack inside it finds the other crates.
    assert!(
        linked("in-process").is_superset(&["lnet", "lnet-socklnd", "nlx-kcore"].map(str::to_owned).into())
    );
}

/// A program with the stack inside it links neither the helper, which is a socket server, nor the
/// helper's protocol.
#[test]
fn a_program_with_the_stack_inside_it_links_no_helper() {
    let of_the_helper = |ours: BTreeSet<String>| -> Vec<String> {
        let names = ["nlx-driver-proto", "nlx-helper", "nlx-ucore"].map(str::to_owned);
        names.into_iter().filter(|name| ours.contains(name)).collect()
    };
    assert!(of_the_helper(linked("in-process")).is_empty());
    assert_eq!(of_the_helper(linked("helper")), ["nlx-driver-proto", "nlx-ucore"]);
}
