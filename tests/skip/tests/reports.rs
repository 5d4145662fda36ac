//! Tests that reports of skipped tests reach the file that `./test` reads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn each_skip_is_a_line_of_the_file_of_reports() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("skips");
    let child = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_skipped_test", "--ignored"]);
        command
    };
    for _ in 0..2 {
        assert!(child().env(nlx_skip::REPORTS, &file).output().unwrap().status.success());
    }
    let line = "huge pages: there are none\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{line}{line}"));
    assert!(child().env_remove(nlx_skip::REPORTS).output().unwrap().status.success());
    // A report that cannot be written is a failure.
    assert!(!child().env(nlx_skip::REPORTS, folder.path()).output().unwrap().status.success());
}

/// Not a separate test: the test above runs it.
#[test]
#[ignore = "run by each_skip_is_a_line_of_the_file_of_reports"]
fn a_skipped_test() {
    nlx_skip::skipped("huge pages", "there are none");
}
