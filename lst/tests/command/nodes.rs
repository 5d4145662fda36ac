//! Lists of nodes.

use lnet_nid::ProcessId;
use nlx_lst::command::{CommandError, NodeList};
use nlx_lst::console::NODES_MAX;
use proptest::prelude::*;

fn members(text: &str) -> Vec<String> {
    let list: NodeList = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    list.members().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn lists_are_expanded() {
    let table: [(&str, &[&str]); 6] = [
        ("10.0.0.1", &["12345-10.0.0.1@tcp"]),
        ("10.0.0.[1-3/2]@o2ib1", &["12345-10.0.0.1@o2ib1", "12345-10.0.0.3@o2ib1"]),
        ("10.0.0.[1,3]@tcp,0@lo", &["12345-10.0.0.1@tcp", "12345-10.0.0.3@tcp", "12345-0@lo"]),
        ("10.0.0.1@tcp 10.0.0.2@tcp,10.0.0.1@tcp", &["12345-10.0.0.1@tcp", "12345-10.0.0.2@tcp"]),
        ("20000-10.0.0.[1-2]@tcp", &["20000-10.0.0.1@tcp", "20000-10.0.0.2@tcp"]),
        ("U5-10.0.0.1@tcp 10.0.0.1@tcp", &["U5-10.0.0.1@tcp", "12345-10.0.0.1@tcp"]),
    ];
    for (text, nodes) in table {
        assert_eq!(members(text), nodes, "{text}");
    }
    assert_eq!(members("10.0.0.[1-4,8]@tcp").len(), 5);
}

#[test]
fn lists_that_are_wrong_or_too_long_are_refused() {
    for (text, part) in [
        ("", "a list of nodes"),
        (" , ", "a list of nodes"),
        ("10.0.0.[1-@tcp", "10.0.0.[1-@tcp"),
        ("host@tcp", "host"),
        ("10.0.0.1@xyz", "xyz"),
        ("99999999999-10.0.0.1@tcp", "99999999999"),
    ] {
        let error = text.parse::<NodeList>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    for text in ["*@tcp", "10.0.0.0/8@tcp", "10.[0-1].*.*@tcp", "10.0.*.*@tcp 10.1.0.1@tcp"] {
        let error = text.parse::<NodeList>().unwrap().members().unwrap_err();
        assert!(error.to_string().contains(&NODES_MAX.to_string()), "{text}: {error}");
    }
    assert_eq!(members("10.0.*.*@tcp").len(), NODES_MAX);
    let many = "10.0.0.1@tcp ".repeat(1025);
    let error = many.parse::<NodeList>().unwrap_err();
    assert!(matches!(error, CommandError::TooMany { limit: 1024, .. }));
}

fn octet() -> impl Strategy<Value = String> {
    prop_oneof![
        (0u8..255).prop_map(|number| number.to_string()),
        proptest::collection::vec((0u8..200, 0u8..3, 1u8..3), 1..4).prop_map(|items| {
            let item = |(from, more, step): &(u8, u8, u8)| format!("{from}-{}/{step}", from + more);
            format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(","))
        }),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let pid = prop_oneof![2 => Just(String::new()), 1 => (0..100_000u32).prop_map(|pid| format!("{pid}-"))];
    let net = prop_oneof![Just("tcp"), Just("o2ib3"), Just("tcp7")];
    (pid, octet(), octet(), net)
        .prop_map(|(pid, third, fourth, net)| format!("{pid}10.0.{third}.{fourth}@{net}"))
}

proptest! {
    #[test]
    fn lists_print_and_parse_to_equal_ones(
        expressions in proptest::collection::vec(expression(), 1..5),
        separator in prop_oneof![Just(" "), Just(","), Just(" , ")],
    ) {
        let list: NodeList = expressions.join(separator).parse().unwrap();
        let again: NodeList = list.to_string().parse().unwrap();
        prop_assert_eq!(&again, &list);
        prop_assert_eq!(again.members().unwrap(), list.members().unwrap());
        // Each node that the list names is itself a list of one.
        for node in list.members().unwrap() {
            let one: NodeList = node.to_string().parse().unwrap();
            prop_assert_eq!(one.members().unwrap(), vec![node] as Vec<ProcessId>);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        let _ = text.parse::<NodeList>().map(|list| list.members());
    }

    #[test]
    fn no_text_of_the_letters_of_lists_panics(text in "[0-9\\[\\],/.*@ tcplo-]{0,40}") {
        if let Ok(list) = text.parse::<NodeList>() {
            prop_assert_eq!(list.to_string().parse::<NodeList>().unwrap(), list);
        }
    }
}
