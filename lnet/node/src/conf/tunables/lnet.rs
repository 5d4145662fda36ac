//! The tunables of LNet itself, module `lnet`.

use lnet_socklnd::AcceptPolicy;

use super::{ALONE, Effect, LNET, Tunable, TunableRefusal};
use crate::conf::ip2nets;
use crate::{NodeConfig, Rotor};

const NET: &str = "all nodes of a net";

const NO_ROUTING: &str = "nlx does not route";
const NO_ROUTERS: &str = "nlx uses no routers";
const NO_HEALTH: &str = "nlx does not track the health of interfaces: it neither resends nor recovers";

const NS_PER_S: u64 = 1_000_000_000;

/// LNet's tunables (lnet-semantics 27).
pub(super) const ROWS: &[Tunable] = &[
    text(
        "networks",
        "as `tcp(eth0)[0,1],tcp1(10.0.0.7)`",
        "the node's networks with their interfaces and CPU partitions",
        NodeConfig::networks_text,
        |config, text| Ok(config.set_networks(text)?),
    ),
    text(
        "ip2nets",
        "as `tcp(eth0) 10.0.0.*; tcp1 192.168.[1-9].*`",
        "the networks of the entries with a pattern that matches an address of this host; deprecated in LNet",
        |_| String::new(),
        |config, text| Ok(config.add_nets(ip2nets::networks(text)?)?),
    ),
    number(
        "accept_port",
        "port",
        (1, 65535),
        NET,
        "the port to listen on, and on which peers are expected to listen",
        |config| config.tcp.accept_port.into(),
        |config, value| config.tcp.accept_port = value as u16,
    ),
    number(
        "accept_port_bulk",
        "port",
        (0, 65535),
        NET,
        "the port of connections other than CONTROL; 0 is the same as `accept_port`",
        |config| config.tcp.accept_port_bulk.unwrap_or(0).into(),
        |config, value| config.tcp.accept_port_bulk = (value > 0).then_some(value as u16),
    ),
    Tunable {
        module: LNET,
        name: "accept",
        unit: "",
        agree: ALONE,
        meaning: "the peers whose connections are accepted; the default is `secure`, or `hello` if the port is above 1023",
        effect: Effect::Word {
            words: &["secure", "all", "none", "hello"],
            get: |config| accept_name(config.tcp.accept_policy()),
            set: |config, word| config.tcp.accept = accept(word),
        },
    },
    number(
        "accept_backlog",
        "connections",
        (1, 65535),
        ALONE,
        "maximum number of connections that wait to be accepted",
        |config| config.tcp.backlog.into(),
        |config, value| config.tcp.backlog = value as u16,
    ),
    number(
        "accept_timeout",
        "s",
        (1, 86400),
        ALONE,
        "time limit for the connection request and hello of a peer that connects",
        |config| config.tcp.accept_timeout_s.into(),
        |config, value| config.tcp.accept_timeout_s = value as u32,
    ),
    number(
        "lnet_transaction_timeout",
        "s",
        (1, 86400),
        ALONE,
        "time limit of a GET for its REPLY, and of an acknowledged PUT for its ACK",
        |config| config.engine.transaction_timeout_ns.div_ceil(NS_PER_S) as i64,
        |config, value| config.engine.transaction_timeout_ns = value as u64 * NS_PER_S,
    ),
    number(
        "portal_rotor",
        "",
        (0, 3),
        ALONE,
        "the partition that is searched first for a message to a wildcard portal: 0 the one on which it arrived, 1 \
         each in turn, 2 in turn if routed, 3 by the source's hash if routed",
        |config| config.engine.portal_rotor as i64,
        |config, value| config.engine.portal_rotor = rotor(value),
    ),
    number(
        "local_nid_dist_zero",
        "",
        (0, 1),
        ALONE,
        "1: the node's distance to itself is 0; 0: it is 1",
        |config| config.engine.local_nid_dist_zero.into(),
        |config, value| config.engine.local_nid_dist_zero = value != 0,
    ),
    number(
        "lnet_numa_range",
        "",
        (0, u32::MAX as i64),
        ALONE,
        "NUMA distances up to this one count as equally near when an interface is chosen for a message",
        |config| config.engine.numa_range.into(),
        |config, value| config.engine.numa_range = value as u32,
    ),
    number(
        "cpu_npartitions",
        "partitions",
        (0, lnet_cpt::MAX_PARTITIONS as i64),
        ALONE,
        "number of CPU partitions; 0 chooses by the pattern or the CPUs",
        |config| config.partitions.tunables().map_or(0, |tunables| tunables.npartitions as i64),
        |config, value| config.partitions.tunables_mut().npartitions = value as usize,
    ),
    text(
        "cpu_pattern",
        "as `0[0-3] 1[4-7]`, or `N`",
        "the CPUs or NUMA nodes of each partition; overrides `cpu_npartitions`",
        |config| {
            let pattern = config.partitions.tunables().and_then(|tunables| tunables.pattern.as_ref());
            pattern.map(ToString::to_string).unwrap_or_default()
        },
        |config, text| {
            config
                .partitions
                .tunables_mut()
                .set("cpu_pattern", text)
                .map_err(|error| error.to_string().into())
        },
    ),
    idle!(LNET: "routes", "", "", NO_ROUTERS),
    idle!(LNET: "rnet_htable_size", "128", "128", NO_ROUTERS),
    idle!(LNET: "use_tcp_bonding", "0", "0", "removed from LNet"),
    idle!(LNET: "lnet_health_sensitivity", "100", "0", NO_HEALTH),
    idle!(LNET: "lnet_recovery_interval", "1", "1", NO_HEALTH),
    idle!(LNET: "lnet_recovery_limit", "0", "0", NO_HEALTH),
    idle!(LNET: "lnet_max_recovery_ping_interval", "900", "900", NO_HEALTH),
    idle!(LNET: "lnet_interfaces_max", "4096", "16|200", "a node of nlx has at most 16 interfaces"),
    idle!(LNET: "lnet_peer_discovery_disabled", "0", "0", "nlx always answers pings and pushes, and announces that it does"),
    idle!(LNET: "lnet_drop_asym_route", "0", "0", NO_ROUTERS),
    idle!(LNET: "lnet_retry_count", "2", "0", NO_HEALTH),
    idle!(LNET: "lnet_response_tracking", "3", "3", "nlx tracks every answer that is expected"),
    idle!(LNET: "lock_prim_nid", "1", "1", "nlx never changes a peer's primary NID"),
    idle!(LNET: "forwarding", "", "|disabled", NO_ROUTING),
    idle!(LNET: "tiny_router_buffers", "0", "0", NO_ROUTING),
    idle!(LNET: "small_router_buffers", "0", "0", NO_ROUTING),
    idle!(LNET: "large_router_buffers", "0", "0", NO_ROUTING),
    idle!(LNET: "peer_buffer_credits", "0", "0", NO_ROUTING),
    idle!(LNET: "auto_down", "1", "0", "nlx marks no peer as down: after the back-off, each message tries again"),
    idle!(LNET: "check_routers_before_use", "0", "0", NO_ROUTERS),
    idle!(LNET: "avoid_asym_router_failure", "1", "1", NO_ROUTERS),
    idle!(LNET: "alive_router_check_interval", "60", "60", NO_ROUTERS),
    idle!(LNET: "dead_router_check_interval", "unset", "", NO_ROUTERS),
    idle!(LNET: "live_router_check_interval", "unset", "", NO_ROUTERS),
    idle!(LNET: "router_ping_timeout", "50", "50", NO_ROUTERS),
    idle!(LNET: "router_sensitivity_percentage", "100", "100", NO_ROUTERS),
    idle!(LNET: "config_on_load", "0", "1", "a node of nlx starts with its networks"),
    idle!(LNET: "enable_sysctl_setup", "0", "0", "nlx changes no settings of the kernel"),
];

const fn number(
    name: &'static str,
    unit: &'static str,
    (min, max): (i64, i64),
    agree: &'static str,
    meaning: &'static str,
    get: fn(&NodeConfig) -> i64,
    set: fn(&mut NodeConfig, i64),
) -> Tunable {
    Tunable { module: LNET, name, unit, agree, meaning, effect: Effect::Number { min, max, get, set } }
}

const fn text(
    name: &'static str,
    grammar: &'static str,
    meaning: &'static str,
    get: fn(&NodeConfig) -> String,
    set: fn(&mut NodeConfig, &str) -> Result<(), TunableRefusal>,
) -> Tunable {
    let effect = Effect::Text { grammar, get, set };
    Tunable { module: LNET, name, unit: "", agree: ALONE, meaning, effect }
}

fn accept(word: &str) -> Option<AcceptPolicy> {
    Some(match word {
        "secure" => AcceptPolicy::Secure,
        "all" => AcceptPolicy::All,
        "none" => AcceptPolicy::None,
        _ => AcceptPolicy::Hello,
    })
}

fn accept_name(policy: AcceptPolicy) -> &'static str {
    match policy {
        AcceptPolicy::Secure => "secure",
        AcceptPolicy::All => "all",
        AcceptPolicy::None => "none",
        AcceptPolicy::Hello => "hello",
    }
}

/// Returns the mode for LNet's number, in the order of the variants.
fn rotor(number: i64) -> Rotor {
    match number {
        0 => Rotor::Off,
        1 => Rotor::On,
        2 => Rotor::RrRt,
        _ => Rotor::HashRt,
    }
}
