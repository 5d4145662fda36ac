//! Checks that the servers on other hosts can be reached, before a test begins.

use std::time::Duration;

use lnet_node::{Interrupt, Node, PingStep};
use nlx::Address;

use super::console::COMMAND_TIMEOUT;
use crate::failure::Failure;

/// Time that a bulk transfer gets to cross the network once. TCP has repeated a lost segment four
/// times by then.
const CROSSING: Duration = Duration::from_secs(5);

/// Pings each server, then sends it a PUT of the size of a bulk transfer.
///
/// # Errors
/// The failed step with its advice, as of `nlx ping`.
pub(super) fn check(
    node: &Node,
    servers: &[String],
    bytes: u32,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    for server in servers {
        let nid = server.parse::<Address>()?.nid;
        node.ping_unless(interrupt, nid, None, COMMAND_TIMEOUT)
            .map_err(|failure| Failure::of_ping(&failure))?;
        if let Err(failure) = node.probe_unless(interrupt, nid, None, bytes as usize, CROSSING) {
            // A server that takes no probes may be one of another version.
            if failure.step != PingStep::Answer {
                return Err(Failure::of_ping(&failure));
            }
            tracing::debug!(%failure, "the path to a server was not measured");
        }
    }
    Ok(())
}
