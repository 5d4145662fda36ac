use lnet_api::Errno;
use proptest::prelude::*;

use super::MAX_TEXT_BYTES;
use crate::{NetSpec, Networks, NodeError};

fn net(text: &str) -> String {
    text.parse::<NetSpec>().unwrap_or_else(|error| panic!("{error}")).to_string()
}

/// lnet-semantics 24: both notations of partitions, and their printed form.
// Covers: S-315
#[test]
fn every_form_of_a_network_is_read() {
    for (text, printed) in [
        ("tcp", "tcp"),
        ("tcp0", "tcp"),
        (" tcp7 ", "tcp7"),
        ("tcp(eth0)", "tcp(eth0)"),
        ("tcp( eth0 , 10.0.0.1 )", "tcp(eth0,10.0.0.1)"),
        ("tcp0(eth0)[0,2]", "tcp(eth0)[0,2]"),
        ("tcp[1]", "tcp[1]"),
        ("tcp(eth0:1)", "tcp(eth0:1)"),
        ("tcp1(eth1[0-1])", "tcp1(eth1[0-1])"),
        ("o2ib0(ib0[0-1],ib1[2-3])[4]", "o2ib(ib0[0-1],ib1[2-3])[4]"),
        ("o2ib0:0(ib0)", "o2ib(ib0)[0]"),
        ("tcp:255", "tcp[255]"),
        ("tcp[4-8/2,3,2,1]", "tcp[1-4,6,8]"),
    ] {
        assert_eq!(net(text), printed, "{text}");
    }
}

/// The line of the design with blanks, and the present form with commas.
// Covers: S-315
#[test]
fn a_line_of_networks_is_read() {
    for (text, printed) in [
        ("tcp0(eth0),tcp1(eth1)[0,2]", "tcp(eth0),tcp1(eth1)[0,2]"),
        ("o2ib0:0(ib0) o2ib1:1(ib1)", "o2ib(ib0)[0],o2ib1(ib1)[1]"),
        ("tcp0(eth0,eth1),o2ib0(ib0)[0,1]", "tcp(eth0,eth1),o2ib(ib0)[0-1]"),
        (" lo , tcp(eth0)\n", "lo,tcp(eth0)"),
        ("tcp(eth0),tcp(eth1)", "tcp(eth0),tcp(eth1)"),
    ] {
        assert_eq!(text.parse::<Networks>().unwrap().to_string(), printed, "{text}");
    }
}

/// An error is EINVAL, and has its position.
// Covers: S-315
#[test]
fn a_text_that_is_no_network_is_refused_with_its_place() {
    for (text, place, word) in [
        ("", 0, "network"),
        ("tcp(", 4, "interface"),
        ("tcp()", 4, "interface"),
        ("tcp(eth0", 8, "')'"),
        ("tcp(eth0,)", 9, "interface"),
        ("tcp(eth 0)", 8, "')'"),
        ("ether(eth0)", 0, "ether"),
        ("tcp99999(lo)", 0, "tcp99999"),
        ("*(lo)", 0, "one network"),
        ("tcp(a)b", 6, "comma"),
        ("tcp,", 4, "network"),
        ("tcp,,tcp1", 4, "network"),
        ("tcp(eth0)(eth1)", 9, "comma"),
        ("tcp(eth0),tcp1(eth0),tcp0(eth0)", 26, "'eth0' twice"),
        ("tcp[", 3, "']'"),
        ("tcp(eth0[1)", 8, "']'"),
        ("tcp[]", 4, "partition"),
        ("tcp[0,]", 6, "partition"),
        ("tcp[0,x]", 6, "number"),
        ("tcp[0,2-1]", 9, "ends before"),
        ("tcp[0-2,1]", 8, "1 is named twice"),
        ("tcp[0,256]", 6, "256"),
        ("tcp[9999999]", 4, "9999999"),
        ("tcp:(eth0)", 4, "partition"),
        ("tcp:x", 4, "partition"),
        ("tcp:0,1", 6, "1"),
        ("tcp:0(eth0)[0]", 0, "both"),
        ("tcp(ü", 6, "')'"),
    ] {
        let error = text.parse::<Networks>().expect_err(text);
        let NodeError::Network { text: named, position, reason } = &error else { panic!("{error}") };
        assert_eq!((named.as_str(), *position), (text, place), "{error}");
        assert!(reason.contains(word), "{error}");
        assert_eq!(error.errno(), Errno::EINVAL);
    }
    let two = "tcp tcp1".parse::<NetSpec>().unwrap_err();
    assert!(matches!(two, NodeError::Network { position: 4, .. }), "{two}");
    let long = "tcp,".repeat(MAX_TEXT_BYTES);
    assert!(matches!(long.parse::<Networks>(), Err(NodeError::NetworksLength { .. })));
}

/// Generates a list of partitions in brackets, or nothing.
fn list() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "\\[[0-9]{1,2}\\]", "\\[[0-4],[5-9](-2[0-9](/[1-9])?)?\\]",]
}

fn network() -> impl Strategy<Value = String> {
    let interface = ("[a-z]{1,5}[0-9]{0,2}(:[0-9])?", list()).prop_map(|(name, list)| name + &list);
    let interfaces = prop_oneof![
        Just(String::new()),
        prop::collection::vec(interface, 1..4).prop_map(|all| format!("({})", all.join(", "))),
    ];
    let cpts = |(colon, list): (Option<u8>, String)| {
        colon.map_or((String::new(), list), |n| (format!(":{n}"), String::new()))
    };
    let cpts = (prop::option::of(any::<u8>()), list()).prop_map(cpts);
    ("(tcp|o2ib|kfi)", "[0-9]{0,3}", interfaces, cpts).prop_map(
        |(name, number, interfaces, (colon, list))| format!("{name}{number}{colon}{interfaces}{list}"),
    )
}

proptest! {
    /// Networks as users write them: they print as a text that parses to the same.
    #[test]
    fn what_is_read_prints_and_reads_again(nets in prop::collection::vec(network(), 1..4), separator in "(,| |  , )") {
        let text = nets.join(&separator);
        match text.parse::<Networks>() {
            Ok(networks) => {
                prop_assert_eq!(networks.nets().len(), nets.len());
                prop_assert_eq!(networks.to_string().parse::<Networks>().unwrap(), networks);
            }
            // A repeated interface is the only possible error of such a text.
            Err(error) => prop_assert!(error.to_string().contains("twice"), "{}", error),
        }
    }

    /// Parsing any text ends, and no position is beyond it.
    #[test]
    fn any_text_is_read_or_refused(text in "([a-z]|tcp|lo|[0-9]|[(),:\\[\\]*<>? -]|\\PC){0,16}") {
        match text.parse::<Networks>() {
            Ok(networks) => prop_assert_eq!(networks.to_string().parse::<Networks>().unwrap(), networks),
            Err(NodeError::Network { position, .. }) => prop_assert!(text.is_char_boundary(position)),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
