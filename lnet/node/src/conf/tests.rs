use lnet_api::Errno;
use proptest::prelude::*;

use super::*;
use crate::{AcceptPolicy, Rotor};

mod documented;
mod hostile;
mod round_trip;

fn nets(config: &NodeConfig) -> Vec<String> {
    config.nets().iter().map(ToString::to_string).collect()
}

fn warned(config: &NodeConfig) -> Vec<(usize, &str)> {
    let line = |warning: &ConfigWarning| warning.at.as_ref().map_or(0, |at| at.line);
    config.warnings().iter().map(|warning| (line(warning), warning.name.as_str())).collect()
}

/// The output of `lnetctl export` for a node with one interface, including statistics.
const EXPORTED: &str = include_str!("tests/exported.yaml");

/// lnet-semantics 18, lnet-measured: an exported configuration is read unchanged.
#[test]
fn what_lnetctl_exports_is_read() {
    let config = NodeConfig::from_yaml(EXPORTED).unwrap();
    assert_eq!(nets(&config), ["tcp(eth0)[0-1]", "tcp1(192.168.7.1)"]);
    let first = config.nets[0].tunables.or(lnet_nid::NetType::TCP, &config);
    assert_eq!((first.credits, first.peer_credits), (Some(512), Some(16)));
    assert_eq!((first.conns_per_peer, first.timeout_s), (Some(4), Some(40)));
    assert_eq!(config.nets[0].interfaces[0].address, Some("10.0.0.7".parse().unwrap()));
    assert_eq!(config.engine.transaction_timeout_ns, 100_000_000_000);
    // LNet's defaults cause no warning.
    let route = 1 + EXPORTED.lines().position(|line| line == "route:").unwrap();
    assert_eq!(warned(&config), [(route, "route")]);
}

/// lnet-semantics 27: the defaults of any recent release cause no warning, and other values do.
#[test]
fn of_what_has_no_effect_only_choices_are_worth_a_warning() {
    for (key, defaults, choice) in [
        ("peer_timeout", &["180"][..], "60"),
        ("retry_count", &["2", "0"], "3"),
        ("health_sensitivity", &["100", "0"], "50"),
        ("max_interfaces", &["4096", "200"], "64"),
        ("lnd_timeout", &["49", "16"], "20"),
        ("router_sensitivity", &["100"], "50"),
        ("discovery", &["1"], "0"),
    ] {
        let line = |value: &str| format!("{key}: {value}\n");
        let begin = EXPORTED.find(&format!(" {key}: ")).unwrap() + 1;
        // `peer_timeout` first occurs at the loopback interface, which is ignored, so the last one
        // is changed.
        let begin = if key == "peer_timeout" { EXPORTED.rfind(key).unwrap() } else { begin };
        let end = begin + EXPORTED[begin..].find('\n').unwrap() + 1;
        let with = |value: &str| [&EXPORTED[..begin], &line(value), &EXPORTED[end..]].concat();
        let names = |value: &str| {
            let config = NodeConfig::from_yaml(&with(value)).unwrap();
            warned(&config).into_iter().map(|(_, name)| name.to_string()).collect::<Vec<_>>()
        };
        for default in defaults {
            assert_eq!(names(default), ["route"], "{key}: {default}");
        }
        let mut chosen = names(choice);
        chosen.retain(|name| name != "route");
        assert_eq!(chosen, [key], "{choice}");
    }
}

/// One configuration in the three forms.
const YAML: &str = r#"
net:
  - net type: tcp
    local NI(s):
      - interfaces: {0: eth0}
        CPT: "[0,2]"
      - interfaces: {0: eth1}
        CPT: [0, 2]
  - net type: tcp1
    local NI(s):
      - nid: 10.0.0.7@tcp1
global: {transaction_timeout: 30}
options:
  lnet: {accept_port: 9988, accept: all, cpu_pattern: "0[0-1] 1[2-3]", portal_rotor: 1}
  ksocklnd: {min_bulk: 0x800, nagle: 1}
  nlx: {stealing: lazy-puts}
"#;

const TOML: &str = r#"
[[net]]
name = "tcp"
interfaces = ["eth0", "eth1"]
cpts = [0, 2]

[[net]]
name = "tcp1"
interfaces = "10.0.0.7"

[lnet]
lnet_transaction_timeout = 30
accept_port = 9988
accept = "all"
cpu_pattern = "0[0-1] 1[2-3]"
portal_rotor = 1

[ksocklnd]
min_bulk = 0x800
nagle = true

[nlx]
stealing = "lazy-puts"
"#;

const MODPROBE: &str = r#"
# LNet
options lnet networks="tcp(eth0,eth1)[0,2],tcp1(10.0.0.7)" accept=all \
    accept_port=9988
  options lnet lnet_transaction_timeout=30 portal_rotor=1
options libcfs "cpu_pattern=0[0-1] 1[2-3]"
options ksocklnd min_bulk=2048 nagle=y
options nlx stealing=lazy-puts
softdep lnet pre: ksocklnd
"#;

// Covers: S-315
#[test]
fn the_forms_say_the_same() {
    let mut built = NodeConfig::new()
        .net("tcp(eth0,eth1)[0,2]")
        .unwrap()
        .net("tcp1(10.0.0.7)")
        .unwrap()
        .accept_port(9988)
        .accept(AcceptPolicy::All)
        .transaction_timeout(std::time::Duration::from_secs(30))
        .cpt(r#"cpu_pattern="0[0-1] 1[2-3]""#.parse().unwrap())
        .portal_rotor(Rotor::On)
        .stealing(crate::Stealing::LazyPuts);
    built.tcp().min_bulk = 2048;
    built.tcp().nagle = true;
    let expected = built.to_yaml();
    for read in [
        NodeConfig::from_yaml(YAML).unwrap(),
        NodeConfig::from_toml(TOML).unwrap(),
        NodeConfig::from_modprobe(MODPROBE).unwrap(),
    ] {
        assert_eq!(read.to_yaml(), expected);
        assert_eq!(read.warnings(), []);
    }
}

/// Every error has the line, the key, and the correct form.
#[test]
fn errors_name_the_line_and_the_key() {
    type Read = fn(&str) -> Result<NodeConfig, NodeError>;
    let (yaml, toml, modprobe): (Read, Read, Read) =
        (NodeConfig::from_yaml, NodeConfig::from_toml, NodeConfig::from_modprobe);
    for (read, text, line, key, words) in [
        (yaml, "nets:\n", 1, "nets", "no such section; there are: net"),
        (yaml, "tcp(eth0)", 1, "YAML", "'net:'"),
        (yaml, "net:\n  - tcp\n", 2, "net", "net type"),
        (yaml, "net:\n  - local NI(s):\n", 2, "net", "net type"),
        (yaml, "net:\n  - net type: ether\n", 2, "net type", "ether"),
        (yaml, "net:\n  - net type: <?>\n", 2, "net type", "one network"),
        (yaml, "net:\n  - net type: gni\n", 2, "net type", "only for tcp"),
        (yaml, "net:\n  - net type: tcp\n    local NIs:\n", 3, "local NIs", "local NI(s)"),
        (yaml, &ni("nid: 10.0.0.1@tcp1"), 4, "nid", "not of the network tcp"),
        (yaml, &ni("nid: 10.0.0@tcp"), 4, "nid", "10.0.0"),
        (yaml, &ni("interfaces: {0: 'eth0,eth1'}"), 4, "interfaces", "one interface"),
        (yaml, &ni("interfaces: {0: }"), 4, "interfaces", "words"),
        (yaml, &ni("nid: 10.0.0.1@tcp\n        interfaces: {0: a, 1: b}"), 4, "nid", "several interfaces"),
        (yaml, &ni("nid: 10.0.0.1@tcp\n        interfaces: {0: 10.0.0.2}"), 4, "nid", "10.0.0.2"),
        (yaml, &ni("CPT: [0,0]"), 4, "CPT", "named twice"),
        (yaml, &ni("interface: eth0"), 4, "interface", "interfaces"),
        (yaml, &ni("tunables: {credits: many}"), 4, "credits", "from 1 to 65535, not 'many'"),
        (yaml, &ni("tunables:\n          ntx: 512"), 5, "ntx", "o2ib"),
        (yaml, &ni("tunables:\n          nagle: 1"), 5, "nagle", "peer_credits"),
        (yaml, "global:\n  retries: 2\n", 2, "retries", "retry_count"),
        (yaml, "global:\n  transaction_timeout: 0\n", 2, "transaction_timeout", "from 1 to"),
        (yaml, "options:\n  lnet:\n    accept: maybe\n", 3, "accept", "secure, all, none, hello"),
        (yaml, "options:\n  zfs: {}\n", 2, "zfs", "no such module"),
        (yaml, "net:\n\nnet:\n", 3, "net", "second time"),
        (yaml, "net: [\n", 2, "YAML", "column"),
        (toml, "[[net]]\ninterfaces = []\n", 1, "net", "name"),
        (
            toml,
            "[[net]]\nname = \"tcp\"\ninterface = \"eth0\"\n",
            3,
            "interface",
            "no such tunable of an interface",
        ),
        (toml, "[net]\nname = \"tcp\"\n", 1, "net", "[[net]]"),
        (toml, "[lnet]\n\naccept_port = 70000\n", 3, "accept_port", "from 1 to 65535, not '70000'"),
        (toml, "[lnet]\naccept_port = 9.5\n", 2, "accept_port", "whole number"),
        (toml, "[lnet]\naccept = 1\naccept = 2\n", 3, "TOML", "duplicate"),
        (toml, "[lnet]\naccept_prot = 988\n", 2, "accept_prot", "accept_port"),
        (toml, "[lnet\n", 1, "TOML", ""),
        (modprobe, "\noptions lnet accept_port=0\n", 2, "accept_port", "from 1"),
        (modprobe, "options lnet networks=\"tcp(eth0\"\n", 1, "networks", "closing ')'"),
        (modprobe, "options lnet networks=\"gni(ib0)\"\n", 1, "networks", "only for tcp"),
        (modprobe, "options lnet networks=\"tcp(eth0)\n", 1, "networks=tcp(eth0)", "closing quote"),
        (modprobe, "options lnet accept\n", 1, "accept", "name=value"),
        (modprobe, "options\n", 1, "options", "module"),
        (modprobe, "# a\noption lnet accept=all\n", 2, "option", "options"),
        (modprobe, "options ksocklnd conns=4\n", 1, "conns", "conns_per_peer"),
    ] {
        let error = read(text).expect_err(text);
        let NodeError::Config { at, key: named, reason, .. } = &error else { panic!("{error}") };
        assert_eq!((at.line, named.as_str()), (line, key), "{text}: {error}");
        assert!(reason.contains(words), "{text}: {error}");
        assert_eq!(error.errno(), Errno::EINVAL);
        assert!(error.to_string().starts_with(&format!("line {line}: '{key}': ")), "{error}");
    }
}

/// Returns the text of a network with one NI, whose keys begin in line 4.
fn ni(keys: &str) -> String {
    format!("net:\n  - net type: tcp\n    local NI(s):\n      - {keys}\n")
}

/// The interfaces of a network may be listed in several places, each interface once.
// Covers: S-315
#[test]
fn an_interface_stands_once() {
    let text = "options lnet networks=tcp(eth0),tcp(eth1)";
    let config = NodeConfig::from_modprobe(text).unwrap();
    assert_eq!(nets(&config), ["tcp(eth0)", "tcp(eth1)"]);
    assert!(config.to_yaml().matches("net type: tcp\n").count() == 1);
    let error = config.net("tcp(eth1)").unwrap_err();
    assert!(matches!(error, NodeError::TwiceOn { .. }) && error.errno() == Errno::EINVAL, "{error}");
    assert!(NodeConfig::new().networks("tcp,tcp1,tcp").is_err());
    let yaml = "net:\n- net type: tcp\n  local NI(s):\n  - interfaces: {0: a}\n  - interfaces: {0: a}\n";
    assert!(NodeConfig::from_yaml(yaml).unwrap_err().to_string().contains("'a' twice"));
}

/// For an interface with several addresses the NID selects one; an address that it does not have is
/// refused when the node starts.
#[test]
fn a_nid_chooses_among_the_addresses_of_its_interface() {
    let nids = |nid: &str| {
        let text = ni(&format!("nid: {nid}\n        interfaces: {{0: lo}}"));
        NodeConfig::from_yaml(&text).unwrap().nids()
    };
    assert_eq!(nids("127.0.0.5@tcp").unwrap(), ["127.0.0.5@tcp".parse().unwrap()]);
    // No host has a documentation address (RFC 5737).
    let error = nids("192.0.2.1@tcp").unwrap_err();
    assert_eq!(error.errno(), Errno::ENODEV);
    assert!(error.to_string().contains("'lo'") && error.to_string().contains("192.0.2.1"), "{error}");
}

/// An NI of a running node has the tunables configured for it, and for all others the node's
/// values.
#[test]
fn an_ni_has_tunables_of_its_own() {
    let text = "options: {lnet: {accept: none}, ksocklnd: {credits: 300}}\n\
                net: [{net type: tcp, local NI(s): [\
                {nid: 127.0.2.1@tcp, tunables: {credits: 512}}, {nid: 127.0.2.2@tcp}]}]\n";
    let node = crate::Node::start(&NodeConfig::from_yaml(text).unwrap()).unwrap();
    let credits = |nid: &str| node.engine().ni_statistics(nid.parse().unwrap()).unwrap().credits;
    assert_eq!((credits("127.0.2.1@tcp"), credits("127.0.2.2@tcp")), (512, 300));
    drop(node);
    // The credits are below the default of `peer_credits`, which is not configured.
    for few in [text.replace("512", "4"), text.replace("300", "4")] {
        let config = NodeConfig::from_yaml(&few).unwrap();
        let node = crate::Node::start(&config).unwrap();
        let credits = |nid: &str| node.engine().ni_statistics(nid.parse().unwrap()).unwrap().credits;
        assert_eq!(credits("127.0.2.1@tcp").min(credits("127.0.2.2@tcp")), 4);
        drop(node);
        // The printed form is accepted as well.
        let again = NodeConfig::from_yaml(&config.to_yaml()).unwrap();
        drop(crate::Node::start(&again).unwrap());
    }
    let contradiction = text.replace("512", "4, peer_credits: 8");
    assert_eq!(
        crate::Node::start(&NodeConfig::from_yaml(&contradiction).unwrap()).unwrap_err().errno(),
        Errno::EINVAL
    );
    let wrong = text.replace("512", "512, peer_credits: 513");
    let error = crate::Node::start(&NodeConfig::from_yaml(&wrong).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("127.0.2.1@tcp: peer_credits=513"), "{error}");
    assert_eq!(error.errno(), Errno::EINVAL);
}

/// lnet-wire 23: 0 selects the number of connections by the link's speed; an NI may override it.
// Covers: S-208
#[test]
fn conns_per_peer_is_the_nis_the_nodes_or_by_the_links_speed() {
    let conns = |own: Option<u8>, nodes: u8| {
        let mut config = NodeConfig::new();
        config.tcp().conns_per_peer = nodes;
        let tunables = crate::networks::NiTunables { conns_per_peer: own, ..Default::default() };
        tunables.tcp(&config.tcp, 4).conns_per_peer
    };
    assert_eq!([conns(None, 0), conns(None, 2), conns(Some(3), 2), conns(Some(0), 2)], [4, 2, 3, 4]);
    assert_eq!(NodeConfig::new().tcp.conns_per_peer, 0);
}

#[test]
fn what_has_no_effect_is_reported_with_its_line() {
    let config = NodeConfig::from_modprobe(
        "options lnet routes=\"tcp1 10.0.0.1@tcp\" lnet_retry_count=0 forwarding=disabled\n\
         options ko2iblnd-opa peer_credits=32\noptions ko2iblnd fmr_pool_size=1024\noptions zfs zfs_arc_max=1\n",
    )
    .unwrap();
    assert_eq!(
        warned(&config),
        [(1, "routes"), (2, "ko2iblnd_opa peer_credits"), (3, "fmr_pool_size"), (4, "zfs zfs_arc_max")]
    );
    assert_eq!(config.warnings()[0].to_string(), "line 1: 'routes' has no effect: nlx uses no routers");
    let mut config = NodeConfig::new();
    config.set("lnet", "lnet_retry_count", "5").unwrap();
    assert!(config.warnings()[0].to_string().starts_with("'lnet_retry_count' has no effect: "));
    let error = config.set("ksocklnd", "nagle", "7").unwrap_err();
    assert_eq!(error.to_string(), "ksocklnd nagle=7: it must be 0 or 1, not '7'");
}

#[test]
fn what_is_set_after_reading_counts() {
    let config = NodeConfig::from_toml("[lnet]\naccept_port = 1000\nnetworks = \"tcp(a)\"").unwrap();
    let config = config.without_nets().net("tcp(b)").unwrap().accept_port(2000);
    assert_eq!((nets(&config), config.sock().accept_port), (vec!["tcp(b)".to_string()], 2000));
}

#[test]
fn files_are_known_by_name_or_first_line() {
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        NodeConfig::load(path)
    };
    let port = |config: Result<NodeConfig, NodeError>| config.unwrap().sock().accept_port;
    assert_eq!(port(load("a.yaml", "options: {lnet: {accept_port: 1}}")), 1);
    assert_eq!(port(load("a.yml", "options: {lnet: {accept_port: 2}}")), 2);
    assert_eq!(port(load("a.toml", "lnet.accept_port = 3")), 3);
    assert_eq!(port(load("lnet.conf", "# comment\noptions:\n  lnet:\n    accept_port: 4")), 4);
    assert_eq!(port(load("lustre.conf", "# comment\noptions lnet accept_port=5")), 5);
    assert_eq!(port(load("nlx", "\n[lnet]\naccept_port = 6")), 6);
    assert_eq!(port(load("empty.conf", "")), 988);
    let both = load("a.toml", "lnet.accept_port = 3").unwrap().and_load(folder.path().join("lustre.conf"));
    assert_eq!(port(both), 5);
    let error = load("b.conf", "options lnet networks=tcp(a)\noptions lnet x=1").unwrap_err();
    let file = folder.path().join("b.conf");
    assert!(error.to_string().starts_with(&format!("{}, line 2: 'x': ", file.display())), "{error}");
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lnet.conf");
    let errno = |path: &Path| NodeConfig::load(path).map_err(|error| (error.errno(), error.to_string()));
    assert_eq!(errno(&path).unwrap_err().0, Errno::ENOENT);
    assert!(errno(folder.path()).unwrap_err().1.contains("no regular file"));
    std::fs::write(&path, b"net:\n  \xff\n").unwrap();
    assert!(errno(&path).unwrap_err().1.contains("lnet.conf, line 2: it is not UTF-8"));
    std::fs::write(&path, vec![b'#'; MAX_CONFIG_BYTES + 1]).unwrap();
    assert_eq!(errno(&path).unwrap_err().0, Errno::EFBIG);
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(errno(&pipe).unwrap_err().1.contains("no regular file"));
}

/// The table's content belongs to the helper; its keys and lines are kept here.
#[test]
fn the_helpers_table_is_kept_with_its_lines() {
    let text = "[lnet]\naccept_port = 9988\n[helper]\nthreads = 2\nusers = [\"a\", 7]\nhuge = true\n[[helper.policy]]\nuser = \"a\"\n";
    let config = NodeConfig::from_toml(text).unwrap();
    assert!(NodeConfig::from_toml("[[net]]\nname = \"tcp\"\n").unwrap().helper().is_none());
    let settings: Vec<_> = config.helper().unwrap().settings().collect();
    let keys: Vec<_> = settings.iter().map(|setting| (setting.key(), setting.line().line)).collect();
    assert_eq!(keys, [("threads", 4), ("users", 5), ("huge", 6), ("policy", 7)]);
    assert_eq!((settings[0].number(1, 4).unwrap(), settings[1].words().unwrap()), (2, vec!["a", "7"]));
    assert!(settings[2].switch().unwrap());
    let tables = settings[3].tables().unwrap();
    assert_eq!(tables[0].settings().next().unwrap().text().unwrap(), "a");
    let text = settings[0].number(3, 4).unwrap_err().to_string();
    assert_eq!(text, "line 4: 'threads': expected a whole number from 3 to 4, not '2'");
    assert!(settings[0].tables().is_err() && settings[1].text().is_err() && settings[0].switch().is_err());
    assert!(NodeConfig::from_toml("helper = 1\n").is_err());
}

/// lnet-semantics 24, 29; S-315: the verbs LND's tunables, of the node and of each NI, in every
/// form.
// Covers: S-315
#[test]
fn networks_over_rdma_are_configured_in_every_form() {
    let yaml = r#"
net:
  - net type: o2ib
    local NI(s):
      - nid: 10.1.0.1@o2ib
        interfaces: {0: ib0}
        tunables: {peer_timeout: 180, peer_credits: 128, peer_buffer_credits: 0, credits: 1024}
        lnd tunables:
            peercredits_hiw: 64
            map_on_demand: 0
            concurrent_sends: 256
            fmr_pool_size: 512
            fmr_flush_trigger: 384
            fmr_cache: 1
            ntx: 2048
            conns_per_peer: 2
            timeout: 10
            tos: 106
        CPT: "[0]"
options:
  ko2iblnd: {service: 1987, keepalive: 30, timeout: 20, wrq_sge: 4}
"#;
    let config = NodeConfig::from_yaml(yaml).unwrap();
    assert_eq!(warned(&config), [(15, "ntx")]);
    assert_eq!(nets(&config), ["o2ib(ib0)[0]"]);
    let own = config.o2ib_ni_config(&config.nets()[0]);
    assert_eq!((own.credits, own.peer_credits, own.peer_credits_hiw), (1024, 128, 64));
    assert_eq!((own.concurrent_sends, own.conns_per_peer), (256, 2));
    assert_eq!((own.timeout_s, own.tos, config.o2ib.timeout_s), (10, Some(106), 20));
    assert_eq!((config.o2ib.service, config.o2ib.keepalive_s, config.o2ib.wrq_sge), (1987, 30, 4));
    assert_eq!(NodeConfig::from_yaml(&config.to_yaml()).unwrap().to_yaml(), config.to_yaml());

    let toml =
        "[[net]]\nname = \"o2ib\"\ninterfaces = [\"ib0\"]\npeer_credits = 128\n[ko2iblnd]\nservice = 1987\n";
    let modprobe = "options lnet networks=o2ib(ib0)\noptions ko2iblnd service=1987 peer_credits=128\n";
    for config in [NodeConfig::from_toml(toml).unwrap(), NodeConfig::from_modprobe(modprobe).unwrap()] {
        let own = config.o2ib_ni_config(&config.nets()[0]);
        assert_eq!((own.peer_credits, config.o2ib.service, own.tos), (128, 1987, None));
    }
    let mut set = NodeConfig::new();
    set.set("ko2iblnd", "rnr_retry_count", "7").unwrap();
    assert_eq!(set.o2ib().rnr_retry_count, 7);
    let refused = set.set("ko2iblnd", "rnr_retry_count", "8").unwrap_err();
    assert!(refused.to_string().contains("from 0 to 7, not '8'"), "{refused}");
    // Obsolete tunables cause a warning only with a value that is not a default.
    set.set("ko2iblnd", "fmr_pool_size", "1024").unwrap();
    set.set("ko2iblnd", "map_on_demand", "256").unwrap();
    assert_eq!(warned(&set), [(0, "fmr_pool_size")]);
}

/// A tunable of one type of network is refused for the other.
#[test]
fn tunables_of_the_other_kind_of_network_are_refused() {
    let net = |name: &str, line: &str| format!("[[net]]\nname = \"{name}\"\n{line}\n");
    for (text, words) in [
        (net("tcp", "ntx = 5"), "it is a tunable of o2ib networks, not of tcp"),
        (net("tcp", "peercredits_hiw = 5"), "it is a tunable of o2ib networks, not of tcp"),
        (net("o2ib", "nagle = 1"), "it is a tunable of tcp networks, not of o2ib"),
        (net("o2ib", "service = 1"), "no such tunable of an interface; there are: peer_timeout"),
        (net("o2ib", "concurrent_sends = -1"), "it must be a number from 0 to 65535, not '-1'"),
    ] {
        let error = NodeConfig::from_toml(&text).unwrap_err();
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
}
