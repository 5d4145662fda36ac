//! Tests that a configuration prints as a text that configures the same node.

use lnet_nid::Nid;
use lnet_socklnd::NiConfig;

use super::*;
use crate::interfaces::PlannedNi;

fn interface() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,6}[0-9]{0,3}",
        "[a-z]{1,4}\\.[0-9]{1,4}",
        "10\\.[0-9]{1,2}\\.[0-9]{1,2}\\.[0-9]{1,2}",
        "fd00::[1-9a-f]{1,4}",
        "\\PC{1,4}",
    ]
}

fn network() -> impl Strategy<Value = String> {
    let list = prop_oneof![Just(String::new()), "\\[[0-9]\\]", "\\[[0-4],[5-9]\\]"];
    (any::<bool>(), 0..3u8, prop::collection::vec(interface(), 0..3), list).prop_map(
        |(verbs, number, interfaces, list)| {
            let interfaces =
                if interfaces.is_empty() { String::new() } else { format!("({})", interfaces.join(",")) };
            format!("{}{number}{interfaces}{list}", if verbs { "o2ib" } else { "tcp" })
        },
    )
}

/// Generates a tunable with an effect, and a valid value.
fn setting() -> impl Strategy<Value = (&'static Tunable, String)> {
    let acting: Vec<&'static Tunable> = Tunable::all()
        .filter(|tunable| tunable.acts() && !["networks", "ip2nets"].contains(&tunable.name()))
        .collect();
    (prop::sample::select(acting), any::<u64>()).prop_map(|(tunable, number)| {
        let value = match tunable.name() {
            "cpu_pattern" => ["", "N", "0[0-1] 1[2-3]", "N 0[0] 1[1]"][number as usize % 4].to_string(),
            "faults" => ["", "drop 1/7 put", "delay 5ms every 3 get,reply; drop ack seed 2"]
                [number as usize % 3]
                .to_string(),
            "congestion_control" => ["", "cubic", "bbr"][number as usize % 3].to_string(),
            _ => {
                let range = tunable.range();
                let words: Vec<&str> = range.split(", ").collect();
                match range.split_once(" to ").or(range.split_once(" or ")) {
                    Some((min, max)) => {
                        let (min, max): (i64, i64) = (min.parse().unwrap(), max.parse().unwrap());
                        (min + (number % (max - min + 1) as u64) as i64).to_string()
                    }
                    None => words[number as usize % words.len()].to_string(),
                }
            }
        };
        (tunable, value)
    })
}

/// Returns the NIs that a node would start, each with its configuration for the LND.
fn started(config: &NodeConfig) -> Option<Vec<(Nid, Vec<usize>, NiConfig)>> {
    let planned = config.interfaces(256).ok()?;
    let of_ni = |ni: PlannedNi| (ni.nid, ni.cpts, ni.tunables.tcp(&config.tcp, ni.conns_per_peer));
    Some(planned.into_iter().map(of_ni).collect())
}

proptest! {
    /// Any configuration, printed and parsed again, is the same configuration and starts the same
    /// NIs.
    #[test]
    fn what_is_printed_reads_as_the_same(
        nets in prop::collection::vec(network(), 0..4),
        settings in prop::collection::vec(setting(), 0..12),
    ) {
        let mut config = NodeConfig::new();
        for net in nets {
            config = config.clone().net(&net).unwrap_or(config);
        }
        for (tunable, value) in settings {
            config.set(tunable.module(), tunable.name(), &value).unwrap();
        }
        let text = config.to_yaml();
        let again = NodeConfig::from_yaml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        prop_assert_eq!(again.to_yaml(), text);
        prop_assert_eq!(again.warnings(), &[]);
        prop_assert_eq!(&again.tcp.accept_policy(), &config.tcp.accept_policy());
        prop_assert_eq!(started(&again), started(&config));
        let over_rdma = |config: &NodeConfig| {
            let nets = config.nets().iter().filter(|net| net.net.net_type() == lnet_nid::NetType::O2IB);
            nets.map(|net| config.o2ib_ni_config(net)).collect::<Vec<_>>()
        };
        prop_assert!(over_rdma(&again).iter().all(|ni| over_rdma(&config).contains(ni)));
        for tunable in Tunable::all().filter(|tunable| tunable.acts() && !["networks", "ip2nets"].contains(&tunable.name())) {
            prop_assert_eq!(tunable.value(&again), tunable.value(&config), "{}", tunable.name());
        }
    }

    /// Lines of modprobe have the same effect as `set`.
    #[test]
    fn an_option_is_a_setting(settings in prop::collection::vec(setting(), 0..12)) {
        let mut config = NodeConfig::new();
        let mut text = String::new();
        for (tunable, value) in settings {
            config.set(tunable.module(), tunable.name(), &value).unwrap();
            text += &format!("options {} {}=\"{value}\"\n", tunable.module(), tunable.name());
        }
        prop_assert_eq!(NodeConfig::from_modprobe(&text).unwrap().to_yaml(), config.to_yaml());
    }

    /// Parsing any text ends in a configuration, or in an error with a line of the text.
    #[test]
    fn any_text_is_read_or_refused(
        text in "(net|net type|local NI\\(s\\)|nid|tcp|options|lnet|accept|global|: |\n|  |- |\\[|\\]|\\{|\\}|=|\"|'|#|,|[0-9]|\\PC){0,40}"
    ) {
        for read in [NodeConfig::from_yaml, NodeConfig::from_toml, NodeConfig::from_modprobe] {
            match read(&text) {
                Ok(config) => prop_assert!(NodeConfig::from_yaml(&config.to_yaml()).is_ok()),
                Err(NodeError::Config { at, reason, .. }) => {
                    prop_assert!(at.line >= 1 && at.line <= text.lines().count() + 1, "{at}");
                    prop_assert!(!reason.is_empty());
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}
