//! The LNet engine alone: its costs without a network.
//!
//! | module | holds |
//! | --- | --- |
//! | `node` | an engine with an NI over a network that accepts every message at once and delivers none |
//! | `matching` | an arriving PUT among posted MDs; posting them |
//! | `exchange` | messages in and out, by one thread or several |
//! | `local` | PUTs and GETs of a node to itself |
//! | `cost` | bytes and allocations |

pub(crate) mod cost;
pub(crate) mod exchange;
pub(crate) mod local;
pub(crate) mod matching;
pub(crate) mod node;
