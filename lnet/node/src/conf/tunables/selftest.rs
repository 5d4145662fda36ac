//! The tunables of LNet's self-test, module `lnet_selftest`.

use super::{ALONE, Effect, SELFTEST, Tunable};

const fn row(name: &'static str, default: &'static str) -> Tunable {
    idle!(SELFTEST: name, default, default, "nlx does not serve LNet's self-test")
}

/// The tunables of LNet's self-test (lnet-semantics 30).
pub(super) const ROWS: &[Tunable] = &[
    row("session_timeout", "100"),
    row("rpc_timeout", "64"),
    row("brw_srv_workitems", "2048"),
    row("ping_srv_workitems", "2048"),
    row("brw_inject_errors", "0"),
];
