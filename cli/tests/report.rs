//! The reports of `nlx selftest`, as a user gets them. Everything in one process: no NID is held
//! that other tests need.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::Value;
use support::{complaint, nlx, run};

#[test]
fn a_page_is_written_beside_the_json_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let args = ["selftest", "--net", "lo", "--duration", "0.2", "--seed", "7", "--json", "--html"];
    let output = run(&[&args[..], &[path.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["seed"], &report["ending"]), (&7.into(), &"complete".into()));
    assert!(report["machine"]["cpus"].as_u64() > Some(0));
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<body class=\"passed\">") && page.contains("--seed 7"));
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(page.matches("<svg ").count(), 2 * phases.len());
    for phase in phases {
        let percentiles = ["min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"];
        let percentiles = percentiles.map(|key| phase[key].as_f64().unwrap());
        assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{phase}");
        let p50 = format!("<td class=\"number\">{:.1}</td>", percentiles[1]);
        assert!(page.contains(&p50), "{p50} of {phase}");
    }
}

/// Bars are for terminals: output for a program contains no cursor commands.
#[test]
fn no_bar_is_drawn_where_there_is_no_terminal() {
    let output = run(&["selftest", "--net", "lo", "--duration", "0.1"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let (table, progress) = (String::from_utf8(output.stdout.clone()).unwrap(), complaint(&output));
    assert!(!progress.contains('\u{1b}') && progress.contains("bulk read …\n"), "{progress:?}");
    assert!(table.contains("│ mixed ") && table.lines().last().unwrap().starts_with("passed: "), "{table}");
    assert!(!table.contains("lost"), "nothing was to be lost");
}

/// A report file that cannot be written is an error at once, not after an hour of testing.
#[test]
fn a_page_that_cannot_be_written_is_a_failure() {
    let output = run(&["selftest", "--net", "lo", "--html", "/no/such/folder/report.html"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(complaint(&output).contains("/no/such/folder/report.html"), "{}", complaint(&output));
    assert_eq!(nlx(&["selftest", "--server", "--html", "x"]).output().unwrap().status.code(), Some(2));
}
