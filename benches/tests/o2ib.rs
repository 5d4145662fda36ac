//! The rows over RDMA, in the guest (`./test verbs`).

use std::process::Command;

use serde_json::Value;

fn bench(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_nlx-bench")).args(args).output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("the output is text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Transfers from and into registered memory copy nothing, register nothing and allocate nothing; a
/// connection's queues and receive buffers are those that `nlx o2iblnd-calc` computes.
// Covers: S-401, S-504, S-506
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn what_is_counted_is_what_was_calculated() {
    let rows = [
        "o2ib/syscalls-pingpong",
        "o2ib/copies",
        "o2ib/registrations",
        "alloc/message-o2ib",
        "o2ib/queue-sends",
        "o2ib/queue-receives",
        "o2ib/queue-completions",
        "o2ib/receives-posted",
        "o2ib/receive-bytes",
    ];
    let lines = bench(&[&["--quick", "--json"], &rows[..]].concat());
    assert_eq!(lines.iter().map(|line| &line["row"]).collect::<Vec<_>>(), rows);
    for line in &lines {
        println!("{line}");
    }
    assert!(lines.iter().all(|line| line["met"] == true), "{lines:#?}");
}

/// Each row with a program of perftest gives a ratio. Only a quiet machine can check its goal.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn each_row_is_measured_beside_perftest() {
    let rows = [
        "o2ib/pingpong-64",
        "o2ib/pingpong-64-polling",
        "o2ib/put-1m",
        "o2ib/put-1m-polling",
        "o2ib/get-1m",
        "o2ib/get-1m-polling",
    ];
    let lines = bench(&[&["--quick", "--json"], &rows[..]].concat());
    assert_eq!(lines.iter().map(|line| &line["row"]).collect::<Vec<_>>(), rows);
    for line in &lines {
        println!("{line}");
        assert!(line["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{line}");
    }
}
