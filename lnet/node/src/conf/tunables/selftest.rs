//! The tunables of LNet's self-test, module `lnet_selftest`.

use super::{ALONE, Effect, SELFTEST, Tunable};

/// The reason of a tunable whose default is the value of nlx's test nodes.
const FIXED: &str = "test nodes of nlx ('nlx lst') always use the default";

/// The reason of a number of request buffers.
const GROWS: &str = "the request buffers of nlx's test nodes grow with the load";

const fn row(name: &'static str, default: &'static str, reason: &'static str) -> Tunable {
    idle!(SELFTEST: name, default, default, reason)
}

/// The tunables of LNet's self-test (lnet-semantics 30).
pub(super) const ROWS: &[Tunable] = &[
    row("session_timeout", "100", FIXED),
    row("rpc_timeout", "64", FIXED),
    row("brw_srv_workitems", "2048", GROWS),
    row("ping_srv_workitems", "2048", GROWS),
    row("brw_inject_errors", "0", FIXED),
];
