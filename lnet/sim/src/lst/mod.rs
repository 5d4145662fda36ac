//! Whole sessions of lst: consoles and test nodes over a simulated network, in virtual time.
//!
//! Each host has an engine. On it runs a console or a test node of `nlx_lst`, whose requests,
//! replies and bulk travel as the PUTs and GETs of lst 2. Consoles carry out random commands, while
//! messages are lost, hosts are cut off, and nodes and consoles die, in the middle of a command or
//! between two.
//!
//! After each command, and at the end:
//!
//! - each command has ended, with a result for each of its nodes;
//! - the counters of a node are those that its host has counted; of each test's RPCs, those that were
//!   done, have failed, or were stopped are all;
//! - after its session has ended or expired, a node has no unit, no RPC in flight, no bulk, and all
//!   of its request buffers; LNet has no descriptor and no message left; a new session has all of
//!   the node's memory.

mod host;
mod program;
mod scenario;
mod world;

pub use scenario::{LstDefect, LstScenario};

use crate::counts::counts;

counts! {
    /// Counts of events in worlds of lst.
    LstSeen {
        /// Commands that consoles began.
        commands: "commands",
        /// Commands that a console refused.
        refused: "commands that the console refuses",
        /// Nodes that have a result in a command.
        results: "results of nodes",
        /// Such results that are a refusal of the node.
        refusals: "refusals by nodes",
        /// Such results that are a failure of the RPC.
        rpc_failures: "RPCs of a console that fail",
        /// Sessions that nodes entered.
        sessions: "sessions",
        /// Such sessions that ended another one by force.
        forced: "sessions that end another one",
        /// Sessions that ended because their console was silent.
        expired_sessions: "sessions that expire at a node",
        /// Sessions that ended by their console's timeout.
        expired_consoles: "sessions that expire at their console",
        /// RPCs of units with a reply.
        answered: "RPCs of units with a reply",
        /// RPCs of units that failed.
        failed: "RPCs of units that fail",
        /// RPCs of units that timed out.
        expired: "RPCs of units that time out",
        /// RPCs of units that were aborted.
        aborted: "RPCs of units that are aborted",
        /// Requests without a reply.
        dropped: "requests that are dropped",
        /// Transfers of bulk data.
        bulk: "transfers of bulk data",
        /// Nodes that died and came back.
        nodes_died: "nodes that die",
        /// Consoles that died.
        consoles_died: "consoles that die",
        /// The consoles among them that died during a command.
        died_in_command: "consoles that die during a command",
        /// Pairs of hosts that were cut off from each other.
        cuts: "cuts",
        /// Connections that broke.
        disconnects: "connections that break",
        /// Messages that found no buffer, such as late replies.
        late: "messages without a buffer",
    }
}
