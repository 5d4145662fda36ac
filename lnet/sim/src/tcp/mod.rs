//! The whole TCP LND on a simulated TCP network.
//!
//! A [`TcpNet`] simulates hosts, listeners and connections in virtual time, on one thread, from one
//! seed. A [`SimHost`] is the system layer that one start of one host offers to a
//! [`SockLnd`](lnet_socklnd::SockLnd) ([`lnet_socklnd::sys::TcpStack`]). So all of the LND except its
//! thin layer of system calls runs unchanged: handshakes, races, back-off, timers, shards, sending
//! inline and from upcalls.
//!
//! | part of the network | behaviour of TCP and Linux |
//! | --- | --- |
//! | slow connects | three segments, the first repeated after 1, 2, 4 s and so on if it is lost, in an outage too; refused, unreachable, or given up after 127 s |
//! | listeners | with a backlog; a segment that finds it full is not answered and is repeated |
//! | buffers | bounded at both ends; a sender writes as far as there is room, segments of any size (1 byte, too) arrive in order |
//! | edge triggering | a poller reports what has changed since the last call, with its *present* state, and nothing else; now and then it reports something that has not changed |
//! | ends | half-closes, resets, data for a socket that is gone, 60 s in which a pair of addresses is blocked |
//! | time | TCP_USER_TIMEOUT, which also counts while the other end has no room, and keepalive probes |
//! | scarcity | privileged ports (EACCES, EADDRINUSE), descriptors (EMFILE) |
//! | outages | directions between hosts that are cut, links that are down, hosts without power, programs that were killed |
//!
//! [`run`] makes a world from a seed: two to four nodes with programs that do random operations,
//! drivers that sleep until their poller is readable or their deadline has passed (so that a lost
//! wake-up shows), and trouble. It checks:
//!
//! - each operation ends once, with a status that it may have; each payload has the sent bytes, and
//!   arrives at most once; what is acknowledged was delivered; what could not be sent is not
//!   delivered;
//! - a message that a lazy portal holds is taken by its buffer, dropped when the portal stops being
//!   lazy, or, if it is not in memory, lost with its connection, once; and at the end of a node
//!   each message that its LND has received was taken or dropped;
//! - no node ever has more connections to a peer than it may, nor connections of two incarnations
//!   of the peer. This is read from the bytes of the handshakes, without code of the LND;
//! - no node connects before its back-off is over (lnet-wire 24: 1 s, doubling up to 60 s);
//! - [`lnet::Engine::audit`] finds no inconsistency;
//! - once everything has healed, everything ends within its timeouts, all nodes reach each other
//!   within the longest back-off and the time to notice that a connection is dead, after that
//!   operations must succeed, both sides have the same connections of the same incarnations, and
//!   every byte sent has been received;
//! - the LND's counters agree with the wire: bytes, messages, NOOPs, connections, refusals;
//! - after that drivers poll only for timers and keepalives, all credits have been returned, and
//!   with the last NI all sockets, leases and engines are freed.
//!
//! A [`TcpFault`] makes the network behave as TCP never does, a [`TcpMutant`] makes an expectation
//! wrong: the tests check that the checks find both.
//!
//! The simulation does not cover data races (one thread drives all), the system calls themselves,
//! and the behaviour of a kernel's LNet.
//!
//! ```
//! use lnet_sim::tcp::{TcpFault, TcpScenario, run};
//!
//! let scenario = |seed| TcpScenario { steps: 50, ..TcpScenario::from_seed(seed) };
//! assert!(run(&scenario(1))?.nodes.delivered > 0);
//! let found = (0..50).find_map(|seed| run(&scenario(seed).with_fault(TcpFault::DropsByte)).err());
//! assert!(found.is_some(), "the missing byte is not noticed");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod behaviour;
mod end;
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
pub use behaviour::{TcpBehaviour, TcpFault};
pub use host::SimHost;
pub use net::TcpNet;
pub use scenario::{Tcp, TcpMutant, TcpPolicy, TcpScenario};
pub use seen::TcpSeen;
pub use world::PLAIN_OPTIONS;
