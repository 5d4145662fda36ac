//! The judge of lst, LNet's self-test: a raw console and a raw test node (lst 2 to 8).
//!
//! [`Console`] sends any request to a node at a TCP address, offers lists and data, and returns the
//! replies. [`TestNode`] answers a console as a kernel node does, and misbehaves on demand.
//! [`recorded`] has the exchanges of recorded sessions.

pub mod console;
pub mod data;
pub mod message;
pub mod node;
pub mod recorded;
pub mod requests;
pub mod sha256;
mod state;

pub use console::Console;
pub use message::Lst;
pub use node::{Fault, TestNode};
pub use requests::{Sender, TestFields};
