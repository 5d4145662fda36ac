//! Many LNet nodes on one thread over a simulated network with virtual time.
//!
//! [`SimNet`] is a network whose LNDs work without threads, sockets and clocks: all its events are
//! in one queue, and follow from a seed and from the calls made to it. Messages are sent as their
//! bytes on the wire. A [`LinkModel`] describes the defects of the network: delay, loss (which also
//! breaks the connection, as with TCP), disconnects that both ends notice at different times,
//! payloads cut off after their header, LNDs that hold on to messages, few credits, RDMA that
//! answers GETs without the engine. Nodes can crash ([`SimNet::crash`]) and be cut off
//! ([`SimNet::cut`]).
//!
//! [`run`] makes a whole world from a seed: nodes whose programs do random operations, the network
//! that a [`Scenario`] describes, and a plain model of LNet that shares no code with the engine.
//! After each step the model must agree: each operation ends once and as predicted, buffers contain
//! the received bytes, no message waits while there are credits, an MD that has ended has released
//! its memory. In turn, the engines check their tables ([`lnet::Engine::audit`]). At the end no
//! object may be left, and all credits must have been returned.
//!
//! [`tcp`] applies the same method one layer lower: whole nodes, each of a real engine and the real
//! TCP LND, over a simulated TCP network; [`ib`] does so with the real verbs LND over simulated
//! RDMA devices.
//!
//! [`lst`] plays whole sessions of LNet's self-test: consoles and test nodes of `nlx-lst` on engines
//! over the first kind of network.
//!
//! The simulator does not measure speed, and with one thread it finds no data races: loom and tests
//! with real threads do.
//!
//! # Your own nodes on a bad network
//!
//! Two nodes and a thousand PUTs, while the connection breaks at 5 % of the messages. Each PUT ends
//! once, with or without success:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use lnet::{Engine, EngineConfig};
//! use lnet_api::{AckRequest, LNet, Md, MdOptions, Put, Threshold, Unlink};
//! use lnet_nid::{MatchBits, NetType, Nid, Pid, Portal, ProcessId};
//! use lnet_region::{IoVec, Region};
//! use lnet_sim::{LinkModel, SimNet, Step};
//! use nlx_testkit::events::on_event;
//!
//! let net = SimNet::new(42, Arc::new(()));
//! let lnd = net.lnd(NetType::TCP, LinkModel { lost: 500, ..LinkModel::reliable() })?;
//! let (a, b) = (Engine::new(EngineConfig::new(Pid::LNET, 1)), Engine::new(EngineConfig::new(Pid::LNET, 2)));
//! a.add_ni("12345-10.0.0.1@tcp".parse()?, lnd.clone())?;
//! b.add_ni("12345-10.0.0.2@tcp".parse()?, lnd)?;
//!
//! let ended = Arc::new(AtomicU32::new(0));
//! let counter = ended.clone();
//! let eq = a.eq_alloc(on_event(move |event| {
//!     counter.fetch_add(u32::from(event.unlinked), Ordering::Relaxed);
//! }))?;
//! for number in 0..1000 {
//!     let memory = IoVec::whole(Region::heap(100)?);
//!     let (threshold, options) = (Threshold::Limited(1), MdOptions::empty());
//!     let md = Md { memory, threshold, max_size: 0, options, user_ptr: number, eq: Some(eq) };
//!     a.put(&Put {
//!         source: None,
//!         md: a.md_bind(md, Unlink::Auto)?,
//!         ack: AckRequest::NoAck,
//!         target: "12345-10.0.0.2@tcp".parse()?,
//!         portal: Portal::new(34)?,
//!         match_bits: MatchBits(7),
//!         offset: 0,
//!         hdr_data: number,
//!     })?;
//! }
//! // An engine's virtual time advances only by `advance`: here every tenth of a second.
//! net.after(100_000_000, 0);
//! while ended.load(Ordering::Relaxed) < 1000 {
//!     match net.step().expect("a timer at the least") {
//!         Step::Network => {}
//!         Step::Timer(number) => {
//!             a.advance(net.now_ns());
//!             b.advance(net.now_ns());
//!             net.after(100_000_000, number);
//!         }
//!     }
//! }
//! assert!(net.seen().disconnects > 0);
//! // Engines and their network hold references to each other.
//! net.crash_all();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A call of `net.run_until(|| false)` is shorter than this loop, but discards the timers: the
//! engines' time does not advance, so nothing times out.
//!
//! An [`Observer`] gets every call between engines and network.
//!
//! Programs that wait need no such loop: [`SimDrive`] lets a waiting thread step the network and
//! the engines' timers.
//!
//! # Many seeds, and one seed again
//!
//! ```text
//! cargo test -p lnet-sim                                              # thousands of seeds
//! cargo run --release -p lnet-sim -- --seeds 100000                   # many more
//! cargo run --release -p lnet-sim -- --seeds 1 --seed 204 --steps 480 # what a failure prints
//! NLX_SIM_SEED=204 NLX_SIM_SEEDS=1 NLX_SIM_STEPS=480 cargo test -p lnet-sim --test seeds
//! cargo run --release -p lnet-sim -- tcp --seeds 10000                # worlds of whole TCP nodes
//! cargo run --release -p lnet-sim -- tcp --seeds 1 --seed 92 --steps 31
//! cargo run --release -p lnet-sim -- lst --seeds 20000                # sessions of lst
//! cargo run --release -p lnet-sim -- peers                            # bytes for each peer and each MD
//! ```
//!
//! A failure prints its seed, the fewest steps that show it, and the events before it. As code:
//!
//! ```
//! use lnet_sim::{Defect, Scenario, run};
//!
//! let seen = run(&Scenario::from_seed(1))?;
//! assert!(seen.messages > 0);
//! // The model detects a driver that silently loses messages.
//! let found = (0..100).find_map(|seed| run(&Scenario::from_seed(seed).with_defect(Defect::LosesSilently)).err());
//! assert!(found.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `net` | [`SimNet`], its LND, links, connections, notes for observers |
//! | `drive` | [`SimDrive`]: waiting in virtual time |
//! | `model` | the plain model |
//! | `world` | nodes and programs; the checks after each step |
//! | `scenario`, `run` | from a seed to a world, from a world to its result |
//! | `kit` | worlds of whole nodes, for every kind of network |
//! | [`lst`] | consoles and test nodes of lst |
//! | [`tcp`], [`ib`] | the TCP and the RDMA network, and the parts specific to their nodes |

#![deny(unsafe_code)]

mod counts;
mod drive;
pub mod ib;
mod kit;
pub mod lst;
mod model;
mod net;
mod run;
mod scenario;
pub mod tcp;
mod world;

pub use counts::Counts;
pub use drive::SimDrive;
pub use kit::net::{HostHandle, Net};
pub use kit::scenario::NodeScenario;
pub use kit::seen::{NodeSeen, WorldSeen};
pub use lnet_fake::Rng;
pub use model::Mutant;
pub use net::{Defect, Judgement, Lane, LinkModel, Note, Observer, Seen, SimNet, Step};
pub use run::{Failure, Worlds, run};
pub use scenario::Scenario;
pub use world::engine_config;
