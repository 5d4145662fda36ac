//! The dependencies of the crate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::process::Command;

/// Returns the workspace's crates that a package links, without itself.
fn linked(package: &str) -> BTreeSet<String> {
    let arguments =
        ["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--package", package];
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let ours = names.filter(|name| *name != package && (name.starts_with("lnet") || name.starts_with("nlx")));
    ours.map(str::to_owned).collect()
}

/// Of LNet the Core interface links the names and the memory, and nothing else; so does a client of
/// a helper, which is built on it. (`nlx-sync` has the locks of the memory, `nlx-fallible` its
/// reference counts.)
// Covers: S-1, S-405
#[test]
fn of_lnet_the_core_interface_links_names_and_memory() {
    let expected = ["lnet-nid", "lnet-region", "nlx-fallible", "nlx-sync"];
    assert_eq!(linked("nlx-core"), expected.map(str::to_owned).into());
    // The same query for a crate that links LNet finds it.
    assert!(linked("nlx-kcore").contains("lnet-api"));
}
