//! `nlx o2iblnd-calc`, as a process: the numbers, not their appearance.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use support::{complaint, json_lines, run};

fn computed(arguments: &[&str]) -> Value {
    let output = run(&[&["o2iblnd-calc", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    json_lines(&output.stdout).remove(0)
}

/// S-501 to S-508 by the worked example of `docs/rdma-tunables.md`: 128 credits against 63, 1000
/// peers.
// Covers: S-508
#[test]
fn two_sides_by_options() {
    let a = "release=2.15,peer_credits=128,conns_per_peer=2,cpts=8";
    let all = computed(&["--a", a, "--b", "release=2.12,peer_credits=63", "--peers", "1000"]);
    let opened = &all["opened_by"]["a"];
    assert_eq!((&opened["depth"], &opened["fragments"]), (&63.into(), &256.into()));
    let asked: Vec<_> = opened["tries"].as_array().unwrap().iter().map(|one| one["asked"].clone()).collect();
    let expected = [(126, 257), (63, 257), (63, 256)]
        .map(|(depth, fragments)| json!({ "depth": depth, "fragments": fragments }));
    assert_eq!(asked, expected);
    assert_eq!(opened["tries"][0]["answer"]["rejected"], "MSG_QUEUE_SIZE");
    assert_eq!(opened["tries"][1]["answer"]["rejected"], "RDMA_FRAGS");
    let load = &all["sides"]["a"]["when_opened_by"]["a"];
    // 63 × (1 + 256 + 2), 2 × 63 + 2, and both.
    assert_eq!((&load["send_work_requests"], &load["receive_work_requests"]), (&16317.into(), &128.into()));
    assert_eq!((&load["completions"], &load["receive_bytes"]), (&16445.into(), &524_288.into()));
    assert_eq!((&load["connections"], &load["all_send_work_requests"]), (&2000.into(), &32_634_000.into()));
    // 16317 + 128 + 16445 entries of 64 bytes.
    assert_eq!(load["queue_bytes_least"], 64 * 32_890);
    // 63 × 64 / 128 = 31, and its peer's own half: 31.
    assert_eq!(
        (&load["high_water"], &all["sides"]["b"]["when_opened_by"]["a"]["high_water"]),
        (&31.into(), &31.into())
    );
    // Opened by the other side there is one connection to each peer.
    assert_eq!(all["sides"]["a"]["when_opened_by"]["b"]["connections"], 1000);
    let pools = &all["sides"]["a"]["pools"];
    assert_eq!((&pools["transmits"], &pools["transmit_bytes"]), (&2048.into(), &82_518_016.into()));
    assert_eq!(all["sides"]["a"]["transfer"]["work_requests"], 3);
}

/// A file gives the settings in either form; options override it.
// Covers: S-508
#[test]
fn two_sides_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let toml = write(
        "calc.toml",
        "[a]\nrelease = '2.10'\nmap_on_demand = 32\nkernel_build = 514\n[b]\npeer_credits = 16\n",
    );
    let yaml = write(
        "calc.yaml",
        "a:\n    release: '2.10'\n    map_on_demand: 32\n    kernel_build: 514\nb:\n    peer_credits: 16\n",
    );
    let of_toml = computed(&["--config", &toml]);
    assert_eq!(of_toml, computed(&["--config", &yaml]));
    assert_eq!(of_toml["opened_by"]["b"]["fragments"], 32);
    // 256 fragments are more than 32: mapped, by fast registration.
    assert_eq!(of_toml["sides"]["a"]["transfer"]["work_requests"], 3);
    let own = computed(&["--config", &toml, "--a", "map_on_demand=0"]);
    assert_eq!(
        (&own["opened_by"]["b"]["fragments"], &own["sides"]["a"]["transfer"]["work_requests"]),
        (&256.into(), &256.into())
    );
    for (name, text, words) in [
        ("bad.toml", "[a]\npeer_credits = 1\n[c]\n", "'c'"),
        ("bad.toml", "[b]\n\npeer_credit = 1\n", "line 3"),
        (
            "bad.toml",
            "[a]\nrelease = 2.10\n",
            "line 2: 'release': a whole number must stand here, or a version in quotes: \"2.10\"",
        ),
        ("bad.yaml", "a:\n    wrq_sge: 0\n", "wrq_sge=0: it must be a whole number from 1 to 255"),
    ] {
        let output = run(&["o2iblnd-calc", "--config", &write(name, text)]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(words), "{}", complaint(&output));
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (side, words) in [
        ("release=2.7", "release '2.7'"),
        ("mapping=pmr", "mapping 'pmr'"),
        ("peer_credit=8", "no tunable 'peer_credit'"),
        ("peer_credits=-1", "peer_credits=-1"),
        ("peer_credits", "KEY=VALUE"),
        ("timeout=banana", "timeout=banana: it must be a whole number from 0"),
        ("service=99999", "service=99999: it must be a whole number from 1 to 65535"),
        ("release=2.15,timeout=banana", "timeout=banana"),
        ("release=2.15,ib_mtu=77", "ib_mtu=77: it must be one of 0, 256, 512, 1024, 2048, 4096"),
        ("release=2.15,tos=256", "tos=256: it must be a whole number from -1 to 255"),
        // Values that a kernel's parameter can have, and a node of nlx refuses.
        ("timeout=86401", "timeout=86401: "),
        ("credits=65536", "credits=65536: "),
        ("peer_credits=0", "peer_credits=0: "),
        ("conns_per_peer=0", "conns_per_peer=0: "),
        ("release=2.15,ntx=4096", "fmr_pool_size=512: it must be at least ntx/4, 1024"),
    ] {
        let output = run(&["o2iblnd-calc", "--a", side, "--json"]);
        assert_eq!(output.status.code(), Some(1), "{side}");
        let error = &json_lines(&output.stdout)[0]["error"];
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        assert_eq!(error["errno"], "EINVAL");
    }
}

/// The forms for people contain the numbers, the rules and their documentation.
// Covers: S-507
#[test]
fn tables_and_reasons_have_the_numbers() {
    let text = |arguments: &[&str]| {
        let output = run(&[&["o2iblnd-calc"], arguments].concat());
        assert!(output.status.success(), "{}", complaint(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let table = text(&["--a", "peer_credits=4"]);
    assert!(
        table.contains("4 → 8") && table.contains("2\u{202f}064") && table.contains("2\u{202f}080"),
        "{table}"
    );
    let cut = text(&["--a", "release=2.15,peer_credits=128", "--b", "peer_credits=128"]);
    assert!(cut.contains("33\u{202f}022 or 33\u{202f}026"), "{cut}");
    let reasons = text(&["--a", "peer_credits=300,credits=1024", "--explain"]);
    for words in ["peer_credits 300 is 255", "lnet-semantics 31, 1", "MSG_QUEUE_SIZE", "S-506"] {
        assert!(reasons.contains(words), "{words}: {reasons}");
    }
}

// Covers: S-508
#[test]
fn a_sweep_is_computed_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("sweep.html");
    let all = computed(&["--sweep", "peer_credits=8..256:8", "--html", page.to_str().unwrap()]);
    let points = all["points"].as_array().unwrap();
    let of = |key: &str| points.iter().map(|point| point[key].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("value"), (8..=256).step_by(8).collect::<Vec<_>>());
    // Up to 255, and as far as 32768 work requests suffice: 32768 / 260 = 126 of b's.
    assert_eq!(of("depth"), (8..=256).step_by(8).map(|value| value.min(126)).collect::<Vec<_>>());
    assert!(std::fs::read_to_string(page).unwrap().contains("peer_credits, messages"));
    assert_eq!(run(&["o2iblnd-calc", "--html", "x.html"]).status.code(), Some(2));
}
