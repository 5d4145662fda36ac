//! A scripted LNet for unit tests of the layers above LNet.
//!
//! [`FakeLnet`] implements the trait [`lnet_api::LNet`] without a network. It records every call
//! with its arguments. The test decides which calls fail, which events are delivered, and at which
//! time and in which order. It refuses what the real LNet refuses, so a program that misuses LNet
//! fails here too (S-7, S-417).
//!
//! Use it to test *your* code: the calls that it makes, and how it handles every order of events.
//! Cases that are very rare on a network (a REPLY before its SEND, an ACK that never comes, an
//! unlink that races with a message) take one line. Use a real node over `0@lo` or two nodes over
//! TCP to test that messages arrive: the fake transfers none, and does not model credits, peers,
//! health or response timeouts.
//!
//! # A worked example
//!
//! A program sends an acknowledged PUT and retries while the target cannot be reached. The complete
//! test:
//!
//! ```
//! use std::sync::Arc;
//!
//! use lnet_api::{
//!     AckRequest, Errno, LNet, LNetError, Md, MdOptions, Put, Threshold, Unlink,
//! };
//! use lnet_fake::{Answer, CallKind, EventLog, FakeLnet, ScriptedEvent};
//! use lnet_nid::{MatchBits, Portal, ProcessId};
//! use lnet_region::{IoVec, Region};
//!
//! /// Sends `memory`, in at most `attempts` attempts. Returns the number of attempts.
//! fn send(lnet: &dyn LNet, memory: &IoVec, to: ProcessId, attempts: u32) -> Result<u32, Errno> {
//!     let log = EventLog::new();
//!     let errno = |error: LNetError| error.errno();
//!     let eq = lnet.eq_alloc(log.clone()).map_err(errno)?;
//!     let mut result = Err(Errno::EINVAL);
//!     for attempt in 1..=attempts {
//!         // One for the PUT, one for its ACK.
//!         let md = Md {
//!             memory: memory.clone(),
//!             threshold: Threshold::Limited(2),
//!             max_size: 0,
//!             options: MdOptions::empty(),
//!             user_ptr: 0,
//!             eq: Some(eq),
//!         };
//!         let md = lnet.md_bind(md, Unlink::Auto).map_err(errno)?;
//!         let put = Put {
//!             source: None,
//!             md,
//!             ack: AckRequest::Ack,
//!             target: to,
//!             portal: Portal::new(30).expect("less than 64"),
//!             match_bits: MatchBits(7),
//!             offset: 0,
//!             hdr_data: 0,
//!         };
//!         if let Err(error) = lnet.put(&put) {
//!             lnet.md_unlink(md).map_err(errno)?;
//!             result = Err(error.errno());
//!             continue;
//!         }
//!         // A real program waits here: see `lnet_api::wait_until`.
//!         let last = log.take().pop().expect("it has ended");
//!         result = last.status.map(|()| attempt);
//!         if result != Err(Errno::EHOSTUNREACH) {
//!             break;
//!         }
//!     }
//!     lnet.eq_free(eq).map_err(errno)?;
//!     result
//! }
//!
//! let memory = IoVec::whole(Region::heap(5)?);
//! memory.write(0..5)?.copy_from(0, b"hello");
//! let to = "12345-10.0.0.2@tcp".parse()?;
//!
//! // The first attempt is refused by the call, the second fails in its SEND event, the third arrives.
//! let lnet = FakeLnet::new(&["10.0.0.1@tcp"]);
//! lnet.fail(CallKind::Put, Errno::ENOMEM);
//! lnet.complete_inside(CallKind::Put, [ScriptedEvent::send().failed(Errno::EHOSTUNREACH)]);
//! lnet.complete_inside(CallKind::Put, [ScriptedEvent::ack(), ScriptedEvent::send()]);
//! assert_eq!(send(&*lnet, &memory, to, 5), Ok(3));
//! assert!(lnet.puts().iter().all(|put| put.target == to));
//! // Everything was unlinked and freed, and every planned refusal and event was used.
//! lnet.assert_quiet();
//!
//! // Every second message arrives; the responder sees the payload.
//! let lnet = FakeLnet::new(&["10.0.0.1@tcp"]);
//! let mut number = 0;
//! lnet.on_put(move |_, payload| {
//!     assert_eq!(payload, b"hello");
//!     number += 1;
//!     if number % 2 == 0 { Answer::Done(()) } else { Answer::Fail(Errno::EHOSTUNREACH) }
//! });
//! assert_eq!(send(&*lnet, &memory, to, 5), Ok(2));
//! assert_eq!(send(&*lnet, &memory, to, 1), Err(Errno::EHOSTUNREACH));
//! lnet.assert_quiet();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/mailbox.rs` shows the receiving side: a program that waits for messages.
//!
//! # How it is used
//!
//! | purpose | method |
//! | --- | --- |
//! | see the calls that were made | [`FakeLnet::calls`], [`FakeLnet::take_calls`], [`FakeLnet::puts`], … |
//! | make a call fail | [`FakeLnet::fail`], [`FakeLnet::fail_nth`] |
//! | keep a PUT or GET in flight | none: this is the default |
//! | deliver an event now | [`FakeLnet::inject`] with a [`ScriptedEvent`] |
//! | deliver events inside the call that starts the operation | [`FakeLnet::complete_inside`] |
//! | answer operations automatically | [`FakeLnet::on_put`], [`FakeLnet::on_get`] with an [`Answer`] |
//! | deliver an event that LNet would never give | [`ScriptedEvent::impossible`], [`FakeLnet::inject_stray`] |
//! | get the handle of an MD inside the program | of a posted one, by its portal and match bits: [`FakeLnet::matching`]; of one in use: [`FakeLnet::puts`], [`FakeLnet::gets`], or [`FakeLnet::calls_of`] with [`CallKind::MdUnlink`] |
//! | deliver a message to a posted buffer | [`FakeLnet::matching`], then [`FakeLnet::inject`] |
//! | drop a message that matches no buffer | [`FakeLnet::lose_put`] |
//! | read the bytes | [`FakeLnet::payload`]; [`ScriptedEvent::bytes`] writes them |
//! | make an unlink race with a message | [`FakeLnet::set_busy`] |
//! | deliver events on other threads, as in a node of several CPU partitions | [`FakeLnet::with_partitions`] |
//! | observe a real LNet, or let its calls fail | [`Spy`] |
//! | control the clock | [`FakeDrive`], [`FakeClock`] |
//! | check that nothing is left over | [`FakeLnet::assert_quiet`] |
//! | make random choices that a seed repeats | [`Rng`] |
//!
//! Errors of the test, and an LNet call from inside an event callback, panic with a text that names
//! the error. Errors of the program's calls are refused with LNet's errors, unless
//! [`FakeLnet::set_lenient`] is in effect.
//!
//! # What it guarantees
//!
//! Per MD, events never overlap; exactly one has `unlinked` set, and it is the last. Thresholds,
//! `max_size`, managed offsets and automatic unlinking follow LNet (lnet-semantics 5 to 9); the
//! memory of a PUT cannot be written until its SEND. Handles are never reused.

#![forbid(unsafe_code)]

mod answer;
mod call;
mod calls;
mod descriptor;
mod drive;
mod dropping;
pub mod events;
mod fake;
mod partitions;
mod queue;
mod rng;
mod rules;
mod script;
mod scripted_event;
mod spy;
mod tables;

/// The parts of LNet's interface that a test needs to deliver messages and to read the clock.
pub use lnet_api::{Clock, EventKind};

pub use answer::Answer;
pub use call::{Call, CallKind};
pub use descriptor::DEFAULT_PEER;
pub use drive::{FakeClock, FakeDrive};
pub use events::EventLog;
pub use fake::{FakeLnet, Objects};
pub use rng::Rng;
pub use rules::OBJECTS_MAX;
pub use script::CALLS_MAX;
pub use scripted_event::ScriptedEvent;
pub use spy::Spy;
