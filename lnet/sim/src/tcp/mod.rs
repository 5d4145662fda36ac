//! The whole TCP LND on a simulated TCP network.
//!
//! A [`TcpNet`] is hosts, listeners and connections in virtual time, on one thread, out of one seed. A [`SimHost`] is
//! what one start of one host offers to a [`SockLnd`](lnet_socklnd::SockLnd) in place of the system
//! ([`lnet_socklnd::sys::Net`]). So everything of the LND but its thin layer of system calls runs as it is: handshakes,
//! races, back-off, timers, shards, sending inline and from upcalls.
//!
//! | the network has | as TCP and Linux have it |
//! | --- | --- |
//! | connects that take time | three segments, the first repeated after 1, 2, 4 s and so on if it is lost, in an outage too; refused, unreachable, or given up after 127 s |
//! | listeners | with a backlog; what finds it full is not answered and comes again |
//! | buffers | bounded at both ends; a sender writes as far as there is room, segments of any size (1 byte, too) arrive in order |
//! | edges | a poller reports what has changed since it was last asked, with its *present* state, and nothing else; now and then it reports something that has not changed |
//! | ends | half-closes, resets, data for a socket that is gone, a rest of 60 s for a pair of addresses |
//! | time | TCP_USER_TIMEOUT, which counts while the other end has no room, too, and keepalive probes |
//! | scarcity | privileged ports (EACCES, EADDRINUSE), descriptors (EMFILE) |
//! | outages | directions between hosts that are cut, links that are down, hosts without power, programs that were killed |
//!
//! [`run`] makes a world out of a seed: two to four nodes with programs that do random things, drivers that sleep until
//! their poller is readable or their deadline has come (so that a lost wake-up shows), and trouble. It demands:
//!
//! - each operation ends once, with a status that it may have; each payload is the one that was sent, and comes at the
//!   most once; what is acknowledged was delivered; what could not be sent is not delivered;
//! - a message that a lazy portal holds is met by its buffer, dropped when the portal ceases to be lazy, or lost with its
//!   connection, if it is not in memory, once; and at the end of a node each message that its LND has received was taken or dropped;
//! - no node ever holds more connections to a peer than it may, nor such of two lives of the peer. This is read from the
//!   bytes of the handshakes, without any code of the LND;
//! - nobody connects before his back-off is over (lnet-wire 24: 1 s, doubling up to 60 s);
//! - [`lnet::Engine::audit`] agrees;
//! - once everything has healed, everything ends within its timeouts, everybody reaches everybody within the longest
//!   back-off and the time it takes to find out that a connection is dead, then nothing fails any more, both sides have
//!   the same connections of the same lives, and every byte sent has been received;
//! - the LND's counters say what the wire says: bytes, messages, NOOPs, connections, refusals;
//! - then nobody polls but for timers and keepalives, all credits are home, and with the last NI all sockets, leases and
//!   engines go.
//!
//! A [`TcpFault`] makes the network do what TCP never does, a [`TcpMutant`] expects what is not so: the tests see that
//! both are noticed.
//!
//! What it does not show: races of threads (one thread drives all), the system calls themselves, and what a kernel's LNet
//! would answer.
//!
//! ```
//! use lnet_sim::tcp::{TcpFault, TcpScenario, run};
//!
//! let scenario = |seed| TcpScenario { steps: 50, ..TcpScenario::from_seed(seed) };
//! assert!(run(&scenario(1))?.nodes.delivered > 0);
//! let found = (0..50).find_map(|seed| run(&scenario(seed).with_fault(TcpFault::DropsByte)).err());
//! assert!(found.is_some(), "a byte is missing, and nobody notices");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod end;
mod habits;
mod host;
mod listening;
mod net;
mod poller;
mod scenario;
mod seen;
mod sockets;
mod state;
mod tap;
mod traffic;
mod world;

pub use crate::kit::world::run;
pub use habits::{TcpFault, TcpHabits};
pub use host::SimHost;
pub use net::TcpNet;
pub use scenario::{Tcp, TcpMutant, TcpPolicy, TcpScenario};
pub use seen::TcpSeen;
pub use world::PLAIN_OPTIONS;
