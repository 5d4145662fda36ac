//! `nlx selftest`: messages and bulk between nodes, every byte verified.
//!
//! A *console* drives *servers* and *clients* by commands, which are messages of nlx themselves, on end points of their own.
//! By default this process is console and client, and a second one the server.
//!
//! | module | holds |
//! | --- | --- |
//! | `run`, `world`, `reach`, `process`, `helper` | what the options make of it: nodes in this process and in a second one, or behind helpers |
//! | `console`, `findings` | the phases, and what the nodes tell about them |
//! | `node`, `service` | a node, and the states of its work |
//! | `command`, `commands`, `wire` | the commands, their end points, their bytes |
//! | `client`, `server`, `data` | the work itself, on a transfer machine for data |
//! | `protocol`, `stamp`, `pattern` | what clients and servers say to each other |
//! | `tally`, `stats`, `ring`, `random`, `faults` | what they count, and need |
//! | `result`, `figures`, `series` | what is found out: as it is, in rates and percentiles, over time |
//! | `progress`, `report`, `html` | how it is shown: while it runs, as a table or JSON, as a page |
//! | `machine` | where |

mod client;
mod command;
mod commands;
mod console;
mod data;
mod ends;
mod faults;
mod figures;
mod findings;
mod helper;
mod html;
mod machine;
mod node;
mod pattern;
mod process;
mod progress;
mod protocol;
mod random;
mod reach;
mod report;
mod result;
mod ring;
mod run;
#[cfg(test)]
mod samples;
mod series;
mod serve;
mod server;
mod service;
mod stamp;
mod stats;
mod tally;
#[cfg(test)]
mod tests;
mod wire;
mod world;

pub(crate) use helper::run_helper;
pub(crate) use run::run;
pub(crate) use serve::run_peer;

/// The portal of the data: what Motr's net test uses, far from Lustre's own.
const PORTAL: u32 = 42;

/// The portal of the commands: faults leave it alone.
const COMMAND_PORTAL: u32 = 43;

/// The largest bulk transfer: LNet's largest payload.
const BULK_BYTES: usize = 1 << 20;

/// The most messages of one receive buffer.
const MESSAGES_MAX: u32 = 1024;
