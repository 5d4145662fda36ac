//! LNet's self-test (lst): the test node and the console.
//!
//! For programs that load a network and measure it together with kernel nodes: a [`console`] puts
//! test nodes into a session and has them run tests; a test [`node`] obeys consoles, of nlx and of
//! the kernel. Both are state machines without clock, thread and network. [`net`] runs them on an
//! LNet node. `nlx lst` is the program on top.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lnet_proto::lst::LnetCounters;
//! use nlx_lst::command::{Command, Defaults, parse};
//! use nlx_lst::console::{Console, Event};
//! use nlx_lst::node::{Config, Framework, Outcome};
//! use nlx_lst::{Ids, print};
//!
//! // A console and a node, with a loop in place of a network.
//! let mut console = Console::new("10.0.0.9@tcp".parse()?, Arc::new(Ids::new(0)))?;
//! let mut node = Framework::new(Config::default());
//! for line in ["new_session demo", "add_group servers 10.0.0.10@tcp"] {
//!     let Some(Command::Operation { operation, view }) = parse(line, &Defaults::default())? else {
//!         panic!("{line} is an operation");
//!     };
//!     console.begin(operation, 0)?;
//!     while let Some(rpc) = console.next_rpc() {
//!         let outcome = node.handle(rpc.service, &rpc.request, LnetCounters::default, 0);
//!         let Outcome::Reply(answer) = outcome else { panic!("{outcome:?}") };
//!         console.answered(rpc.reply_id, Ok(&answer.bytes), 0);
//!     }
//!     while let Some(event) = console.next_event() {
//!         let Event::Done(report) = event else { continue };
//!         print!("{}", print::report(&report?, &view).output);
//!     }
//! }
//! let session = node.session().expect("the group's node is in the session");
//! assert_eq!(session.name.to_string(), "demo");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it has |
//! | --- | --- |
//! | [`command`] | the command language of `lst`: lines, scripts, and plans of a whole session |
//! | [`console`] | sessions, groups, batches, tests; the RPCs of each operation and its result |
//! | [`print`](mod@print) | results as `lst` prints them, and its return codes |
//! | [`node`] | what requests do to a test node; the data services; the units of test clients |
//! | [`pattern`] | the pattern in bulk data |
//! | [`net`] | a console and a test node on an LNet node, over the service layer |
//!
//! Messages and their bytes are in `lnet_proto::lst`. `docs/lst.md` describes the use of `nlx lst`.

#![forbid(unsafe_code)]

pub mod command;
pub mod console;
mod ids;
#[cfg(not(loom))]
pub mod net;
pub mod node;
pub mod pattern;
pub mod print;

pub use ids::Ids;
