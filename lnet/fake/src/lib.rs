//! A scripted LNet: unit tests of whatever stands above LNet.
//!
//! [`FakeLnet`] implements the trait [`lnet_api::LNet`] without a network. It notes every call with its arguments; the test
//! says which calls fail, which events come, when and in which order; and it refuses what the real one refuses, so that
//! a program that misuses LNet fails here too (S-7, S-417).
//!
//! Use it to test *your* code: what it asks of LNet, and what it makes of every course that events can take. Courses
//! that a network shows once in a year (a REPLY before its SEND, an ACK that never comes, an unlink that races with a
//! message) take one line. Use a real node over `0@lo` or two nodes over TCP to test that messages arrive: the fake
//! carries none, and knows nothing of credits, peers, health or response timeouts.
//!
//! # A worked example
//!
//! A program sends an acknowledged PUT and, while it cannot be sent, tries again. This is all of it:
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
//! /// Sends `memory`, at most `attempts` times. On success the number of attempts it took.
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
//! // Everything was unlinked and freed, and everything that was planned has come to pass.
//! lnet.assert_quiet();
//!
//! // Every second message arrives; what is sent is seen.
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
//! `examples/mailbox.rs` is the other side: a program that waits for messages.
//!
//! # How it is used
//!
//! | you want | you say |
//! | --- | --- |
//! | to see what was asked | [`FakeLnet::calls`], [`FakeLnet::take_calls`], [`FakeLnet::puts`], … |
//! | a call to fail | [`FakeLnet::fail`], [`FakeLnet::fail_nth`] |
//! | a PUT or GET to stay in flight | nothing: that is what they do |
//! | an event, now | [`FakeLnet::inject`] with a [`ScriptedEvent`] |
//! | events inside the call that starts the operation | [`FakeLnet::complete_inside`] |
//! | something that decides for itself | [`FakeLnet::on_put`], [`FakeLnet::on_get`] with an [`Answer`] |
//! | an event that LNet would never give | [`ScriptedEvent::impossible`], [`FakeLnet::inject_stray`] |
//! | the handle of an MD that the program keeps to itself | of a posted one, by where it is posted: [`FakeLnet::matching`]; of one in use: [`FakeLnet::puts`], [`FakeLnet::gets`], or [`FakeLnet::calls_of`] with [`CallKind::MdUnlink`] |
//! | a message that comes to whoever waits for it | [`FakeLnet::matching`], then [`FakeLnet::inject`] |
//! | a message that nobody waits for | [`FakeLnet::lose_put`] |
//! | the bytes | [`FakeLnet::payload`]; [`ScriptedEvent::bytes`] writes them |
//! | an unlink that races with a message | [`FakeLnet::set_busy`] |
//! | events on other threads, as in a node of several CPU partitions | [`FakeLnet::with_partitions`] |
//! | to watch a real LNet, or to let calls of it fail | [`Spy`] |
//! | a clock | [`FakeDrive`], [`FakeClock`] |
//! | to know that nothing is left over | [`FakeLnet::assert_quiet`] |
//!
//! It is a test's tool: what is wrong in the test, or an LNet call from inside an event callback, panics with a text that
//! says what. What is wrong in the program's calls is refused with LNet's errors, unless [`FakeLnet::set_lenient`].
//!
//! # What it holds to
//!
//! Per MD, events never overlap; exactly one has `unlinked` set, and it is the last. Thresholds, `max_size`, managed
//! offsets and automatic unlinking count as in LNet (lnet-semantics 5 to 9); a PUT's memory cannot be written until its
//! SEND. Handles are never used again.

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
mod rules;
mod script;
mod scripted_event;
mod spy;
mod tables;

/// What a test needs of LNet's interface to move messages and to read the clock.
pub use lnet_api::{Clock, EventKind};

pub use answer::Answer;
pub use call::{Call, CallKind};
pub use descriptor::DEFAULT_PEER;
pub use drive::{FakeClock, FakeDrive};
pub use events::EventLog;
pub use fake::{FakeLnet, Objects};
pub use rules::OBJECTS_MAX;
pub use script::CALLS_MAX;
pub use scripted_event::ScriptedEvent;
pub use spy::Spy;
