//! kcore as a whole, in every world that it works in, with one, two and four CPU partitions.
//!
//! Each test is compiled once for each world and number of partitions, which form the name of its
//! first module: `engine_2::receiving::…` runs over the engine with two partitions.
//!
//! | world | LNet | what determines the events |
//! | --- | --- | --- |
//! | `fake` | [`lnet_fake::FakeLnet`], whose events come on threads of the peers' partitions | the test, event by event |
//! | `engine` | the engine, over a network of memory alone | the test, message by message: which leaves, fails, arrives, when and in which order |
//! | `loopback` | the engine, over `0@lo` | the engine: everything ends inside the call that starts it |
//! | `tcp` | two whole nodes over TCP on `127.0.0.0/8` | the system |

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
// Intended: the suite is compiled once for each world.
#![allow(clippy::duplicate_mod)]

mod bed;

#[path = "engine.rs"]
mod engine_1;
#[path = "engine.rs"]
mod engine_2;
#[path = "engine.rs"]
mod engine_4;
#[path = "fake.rs"]
mod fake_1;
#[path = "fake.rs"]
mod fake_2;
#[path = "fake.rs"]
mod fake_4;
#[path = "loopback.rs"]
mod loopback_1;
#[path = "loopback.rs"]
mod loopback_2;
#[path = "loopback.rs"]
mod loopback_4;
#[path = "tcp.rs"]
mod tcp_1;
#[path = "tcp.rs"]
mod tcp_2;
#[path = "tcp.rs"]
mod tcp_4;
