//! `nlx selftest`: messages and bulk between nodes, every byte verified.
//!
//! A *console* controls *servers* and *clients* by commands, which are requests of nlx themselves
//! ([`nlx::request`]), on separate end points. By default this process is console and client, and a second one the
//! server.
//!
//! | module | holds |
//! | --- | --- |
//! | `run`, `participants`, `reach`, `process`, `helper` | nodes in this process and in a second one, or behind helpers, by the options |
//! | `console`, `findings` | the phases, and the results of the nodes |
//! | `node`, `service` | a node, and the states of its work |
//! | `command` | the commands and their answers |
//! | `client`, `server`, `data` | the work itself, on a transfer machine for data |
//! | `protocol`, `pattern` | the messages between clients and servers |
//! | `counters`, `faults` | their counters, and the messages that rules drop |
//! | `result`, `figures` | results: raw, as rates and percentiles |
//! | `report`, `html` | output: table or JSON, page |

mod client;
mod command;
mod console;
mod counters;
mod data;
mod ends;
mod faults;
mod figures;
mod findings;
mod helper;
mod html;
mod node;
mod participants;
mod pattern;
mod process;
mod protocol;
mod reach;
mod report;
mod result;
mod run;
#[cfg(test)]
mod samples;
mod serve;
mod server;
mod service;
#[cfg(test)]
mod tests;

pub(crate) use helper::run_helper;
pub(crate) use run::run;
pub(crate) use serve::run_peer;

/// The portal of the data: that of Motr's net test, not one of Lustre's.
const PORTAL: u32 = 42;

/// The portal of the commands, to which faults do not apply.
const COMMAND_PORTAL: u32 = 43;

/// Size of the largest bulk transfer: LNet's largest payload.
const BULK_BYTES: usize = 1 << 20;

/// Largest number of messages of one receive buffer.
const MESSAGES_MAX: u32 = 1024;
