use super::{O2IBLND, SELFTEST, Tunable, idle};

const NO_VERBS: &str = "nlx has no driver for o2ib networks";
const NO_SELFTEST: &str = "nlx does not serve LNet's self-test";

const fn verbs(name: &'static str, default: &'static str) -> Tunable {
    idle(O2IBLND, name, default, default, NO_VERBS)
}

const fn selftest(name: &'static str, default: &'static str) -> Tunable {
    idle(SELFTEST, name, default, default, NO_SELFTEST)
}

/// lnet-semantics 29 and 30.
pub(super) const ROWS: &[Tunable] = &[
    verbs("service", "987"),
    verbs("cksum", "0"),
    idle(O2IBLND, "timeout", "50", "50|0", NO_VERBS),
    verbs("nscheds", "0"),
    verbs("conns_per_peer", "1"),
    verbs("ntx", "512"),
    verbs("credits", "256"),
    verbs("peer_credits", "8"),
    verbs("peer_credits_hiw", "0"),
    verbs("peer_buffer_credits", "0"),
    verbs("peer_timeout", "180"),
    verbs("ipif_name", "ib0"),
    verbs("retry_count", "5"),
    verbs("rnr_retry_count", "6"),
    verbs("keepalive", "100"),
    verbs("ib_mtu", "0"),
    verbs("concurrent_sends", "0"),
    verbs("use_fastreg_gaps", "0"),
    verbs("map_on_demand", "1"),
    verbs("fmr_pool_size", "512"),
    verbs("fmr_flush_trigger", "384"),
    verbs("fmr_cache", "1"),
    verbs("dev_failover", "0"),
    verbs("require_privileged_port", "0"),
    verbs("use_privileged_port", "1"),
    verbs("wrq_sge", "2"),
    verbs("tos", "-1"),
    selftest("session_timeout", "100"),
    selftest("rpc_timeout", "64"),
    selftest("brw_srv_workitems", "2048"),
    selftest("ping_srv_workitems", "2048"),
    selftest("brw_inject_errors", "0"),
];
