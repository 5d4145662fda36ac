use std::collections::HashSet;

use super::*;

fn spec(rows: &str) -> HashSet<&str> {
    rows.split_whitespace().collect()
}

/// lnet-semantics 27 to 29: the table has every tunable of LNet.
#[test]
fn every_tunable_of_lnet_is_known() {
    let lnet = spec(
        "networks ip2nets routes rnet_htable_size use_tcp_bonding lnet_numa_range lnet_health_sensitivity
         lnet_recovery_interval lnet_recovery_limit lnet_max_recovery_ping_interval lnet_interfaces_max
         lnet_peer_discovery_disabled lnet_drop_asym_route lnet_transaction_timeout lnet_retry_count
         lnet_response_tracking lock_prim_nid portal_rotor local_nid_dist_zero accept accept_port accept_port_bulk
         accept_backlog accept_timeout forwarding tiny_router_buffers small_router_buffers large_router_buffers
         peer_buffer_credits auto_down check_routers_before_use avoid_asym_router_failure alive_router_check_interval
         dead_router_check_interval live_router_check_interval router_ping_timeout router_sensitivity_percentage
         config_on_load enable_sysctl_setup cpu_npartitions cpu_pattern",
    );
    let socklnd = spec(
        "sock_timeout credits peer_credits peer_buffer_credits peer_timeout conns_per_peer nscheds nconnds nconnds_max
         min_reconnectms max_reconnectms eager_ack typed_conns min_bulk tx_buffer_size rx_buffer_size nagle round_robin
         keepalive keepalive_idle keepalive_count keepalive_intvl enable_csum inject_csum_error enable_irq_affinity
         nonblk_zcack zc_min_payload zc_recv zc_recv_min_nfrags skip_mr_route_setup backoff_init backoff_max protocol tos",
    );
    let o2iblnd = spec(
        "service cksum timeout nscheds conns_per_peer ntx credits peer_credits peer_credits_hiw peer_buffer_credits
         peer_timeout ipif_name retry_count rnr_retry_count keepalive ib_mtu concurrent_sends use_fastreg_gaps map_on_demand
         fmr_pool_size fmr_flush_trigger fmr_cache dev_failover require_privileged_port use_privileged_port wrq_sge tos",
    );
    for (module, expected) in [(LNET, lnet), (SOCKLND, socklnd), (O2IBLND, o2iblnd)] {
        let ours = Tunable::all().filter(|tunable| tunable.module() == module);
        assert_eq!(ours.map(Tunable::name).collect::<HashSet<_>>(), expected, "{module}");
    }
}

#[test]
fn no_tunable_is_there_twice() {
    let mut seen = HashSet::new();
    for tunable in Tunable::all() {
        assert!(seen.insert((tunable.module(), tunable.name())), "{tunable:?}");
    }
}

/// lnet-semantics 27 to 29, lnet-measured: tunables with an effect have LNet's defaults.
#[test]
fn defaults_are_lnets() {
    for (module, defaults) in [
        (
            LNET,
            "accept_port=988 accept=secure accept_backlog=127 accept_timeout=5 lnet_transaction_timeout=150",
        ),
        (LNET, "portal_rotor=3 local_nid_dist_zero=1 cpu_npartitions=0 networks="),
        (SOCKLND, "sock_timeout=50 credits=256 peer_credits=8 min_reconnectms=1000 max_reconnectms=60000"),
        (SOCKLND, "min_bulk=1024 tx_buffer_size=0 rx_buffer_size=0 nagle=0 keepalive=30 keepalive_idle=30"),
        (SOCKLND, "keepalive_count=5 keepalive_intvl=5"),
        (O2IBLND, "service=987 cksum=0 timeout=50 nscheds=0 conns_per_peer=1 credits=256 peer_credits=8"),
        (
            O2IBLND,
            "peer_credits_hiw=0 concurrent_sends=0 retry_count=5 rnr_retry_count=6 keepalive=100 wrq_sge=2",
        ),
        (O2IBLND, "require_privileged_port=0 use_privileged_port=1 tos=-1"),
    ] {
        for pair in defaults.split_whitespace() {
            let (name, default) = pair.split_once('=').unwrap();
            let tunable = Tunable::find(module, name).unwrap();
            assert!(tunable.acts() && tunable.default() == default, "{name}: {}", tunable.default());
        }
    }
}

/// Each tunable with an effect accepts every value that it prints, both limits of its range, and
/// nothing beyond them.
#[test]
fn what_acts_reads_what_it_prints_and_keeps_to_its_range() {
    for tunable in Tunable::all().filter(|tunable| tunable.acts()) {
        let mut config = NodeConfig::new();
        let mut take = |text: &str| {
            let outcome = tunable.set(&mut config, text).map_err(|refusal| refusal.reason);
            outcome.map(|_| tunable.value(&config))
        };
        assert_eq!(take(&tunable.default()).as_ref(), Ok(&tunable.default()), "{}", tunable.name());
        match tunable.effect {
            Effect::Number { min, max, .. } => {
                for good in [min, max] {
                    assert_eq!(take(&good.to_string()), Ok(good.to_string()), "{}", tunable.name());
                }
                for bad in [min - 1, max + 1] {
                    let error = take(&bad.to_string()).unwrap_err();
                    assert!(error.contains(&format!("'{bad}'")), "{error}");
                }
            }
            Effect::Word { words, .. } => {
                for word in words {
                    assert_eq!(take(word).as_deref(), Ok(*word));
                }
                assert!(take("sometimes").unwrap_err().contains(words[0]));
            }
            Effect::Text { .. } | Effect::None { .. } => {}
        }
    }
}

#[test]
fn numbers_are_read_as_people_write_them() {
    for (text, number) in [
        ("0", Some(0)),
        ("988", Some(988)),
        ("-1", Some(-1)),
        ("0x3dc", Some(988)),
        ("0XfF", Some(255)),
        ("010", None),
        ("", None),
        ("-", None),
        ("0x", None),
        ("--1", None),
        ("+1", None),
        ("1 ", None),
        ("5s", None),
        ("ff", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(read_number(text), number, "{text}");
    }
    let nagle = Tunable::find(SOCKLND, "nagle").unwrap();
    for (text, number) in [("Y", Ok(1)), ("no", Ok(0)), ("true", Ok(1)), ("off", Ok(0)), ("1", Ok(1))] {
        assert_eq!(nagle.number(text), number);
    }
    assert!(nagle.number("2").unwrap_err().contains("0 or 1"));
}

#[test]
fn the_older_home_of_cpu_partitions_is_known() {
    assert_eq!(Tunable::find("libcfs", "cpu_npartitions").unwrap().module(), LNET);
    assert!(Tunable::find("libcfs", "accept").is_none());
}
