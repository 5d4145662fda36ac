//! Hostile files: they are refused, with a line, and take only a bounded share of memory.

use super::*;
use crate::conf::doc::MAX_DEPTH;

/// Returns the line, the key and the reason of the error.
fn refused(read: fn(&str) -> Result<NodeConfig, NodeError>, text: &str) -> (usize, String, String) {
    match read(text) {
        Err(NodeError::Config { at, key, reason, .. }) => (at.line, key, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn aliases_anchors_and_tags_are_refused_where_they_stand() {
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nnet: *c\n";
    assert_eq!(refused(NodeConfig::from_yaml, bomb).0, 1);
    for (text, mark) in [
        ("net:\n  - &x {net type: tcp}\n", "&"),
        ("global:\n  &x retry_count: 2\n", "&"),
        ("net:\n  - !!map {net type: tcp}\n", "!"),
        ("global:\n  retry_count: !!int 2\n", "!"),
    ] {
        let (line, key, _) = refused(NodeConfig::from_yaml, text);
        assert_eq!((line, key.as_str()), (2, mark), "{text}");
    }
}

#[test]
fn depth_is_limited() {
    for nested in [
        format!("peer: {}{}\n", "[".repeat(50_000), "]".repeat(50_000)),
        format!("peer: {}", "{a: ".repeat(1000)),
        (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
        format!("peer:\n{}", "- ".repeat(MAX_DEPTH + 1)),
    ] {
        let (_, _, reason) = refused(NodeConfig::from_yaml, &nested);
        assert!(reason.contains("16 deep") || reason.contains("recursion"), "{reason}");
    }
    for nested in [
        format!("a = {}{}\n", "[".repeat(50_000), "]".repeat(50_000)),
        format!("a = {}{}\n", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1)),
        format!("{}a = 1", "a.".repeat(50_000)),
        format!("{}a = 1", "a.".repeat(MAX_DEPTH + 1)),
        format!("[{}a]", "a.".repeat(1000)),
    ] {
        let (line, _, reason) = refused(NodeConfig::from_toml, &nested);
        assert!(line == 1 && (reason.contains("deep") || reason.contains("recur")), "{reason}");
    }
}

#[test]
fn length_is_limited() {
    let long = format!("# {}", "x".repeat(MAX_CONFIG_BYTES));
    for read in [NodeConfig::from_yaml, NodeConfig::from_toml, NodeConfig::from_modprobe] {
        let (line, _, reason) = refused(read, &long);
        assert!(line == 1 && reason.contains("1048576"), "{reason}");
    }
}

#[test]
fn a_megabyte_of_one_thing_is_read_or_refused() {
    let fill = |piece: &str| piece.repeat((MAX_CONFIG_BYTES - 100) / piece.len());
    for text in [
        fill("\\\n"),
        fill("\n"),
        fill("options lnet routes=a\n"),
        format!("options lnet {}", fill("routes=a ")),
        format!("options lnet {}", fill("\"")),
    ] {
        let _ = NodeConfig::from_modprobe(&text);
    }
    for text in
        [fill("- "), fill("a: b\n"), fill("? "), fill("\""), fill("[],"), fill("key: {a: 1}\n"), fill("a\n")]
    {
        assert!(NodeConfig::from_yaml(&text).is_err());
    }
    let keys: String = (0..60_000).map(|key| format!("k{key}: 1\n")).collect();
    assert_eq!(refused(NodeConfig::from_yaml, &keys).0, 1);
    let _ = NodeConfig::from_yaml(&format!("peer:\n  - a: 1\n{}", fill("  - a: 1\n")));
    for text in [fill("[[net]]\n"), fill("a=1\n"), fill("[a]\n"), fill("\""), fill("a.")] {
        assert!(NodeConfig::from_toml(&text).is_err());
    }
    let many: String =
        (0..15_000).map(|net| format!("[[net]]\nname = \"tcp{net}\"\ninterfaces = [\"a\"]\n")).collect();
    assert!(NodeConfig::from_toml(&many).is_ok());
}

#[test]
fn errors_repeat_no_more_than_some_words() {
    let long = "x".repeat(1 << 19);
    let texts = [
        NodeConfig::from_yaml(&format!("{long}: 1")),
        NodeConfig::from_toml(&format!("{long} = 1")),
        NodeConfig::from_modprobe(&format!("options lnet {long}")),
        NodeConfig::from_modprobe(&format!("options lnet accept={long}")),
        NodeConfig::from_modprobe(&format!("options {long} accept=1")),
        NodeConfig::from_yaml(&format!("net: [{{net type: {long}}}]")),
        NodeConfig::from_yaml(&format!("net: [{{net type: tcp, local NI(s): [{{interfaces: '{long}'}}]}}]")),
        NodeConfig::from_yaml(&format!("net: [{{net type: tcp, local NI(s): [{{nid: '{long}'}}]}}]")),
        NodeConfig::from_yaml(&format!("net: [{{net type: tcp, local NI(s): [{{CPT: '{long}'}}]}}]")),
        NodeConfig::from_yaml(&format!("options: {{lnet: {{networks: '{long}'}}}}")),
        NodeConfig::from_yaml(&format!("options: {{lnet: {{cpu_pattern: '{long}'}}}}")),
    ];
    for outcome in texts {
        match outcome {
            Err(error) => assert!(error.to_string().len() < 8192, "{} bytes", error.to_string().len()),
            Ok(config) => assert!(config.warnings()[0].to_string().len() < 8192),
        }
    }
}
