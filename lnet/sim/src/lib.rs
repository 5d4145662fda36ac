//! Many LNet nodes on one thread over a simulated network with virtual time.
//!
//! [`SimNet`] is a network whose LNDs work without threads, sockets and clocks: all that happens on it stands in one
//! queue, and follows from a seed and from the calls made to it. Messages travel as the bytes they have on the wire.
//! A [`LinkModel`] says how bad the network is: delay, loss (which takes the connection along, as with TCP),
//! disconnects that both ends notice at different times, payloads cut off after their header, LNDs that hold on to
//! messages, few credits, RDMA that answers GETs by itself. Nodes crash ([`SimNet::crash`]) and are cut off
//! ([`SimNet::cut`]).
//!
//! [`run`] makes a whole world out of a seed: nodes whose programs do random things, the network that a [`Scenario`]
//! describes, and a plain model of LNet that shares nothing with the engine. After each step the model must agree:
//! each operation ends once and as predicted, buffers hold what was received, no message waits while there are
//! credits, an MD that has ended has given its memory back; and one engine after the other is asked whether its tables
//! agree ([`lnet::Engine::audit`]). At the end nothing may be left, and all credits must be back.
//!
//! [`tcp`] is the same idea one layer lower: whole nodes, each of a real engine and the real TCP LND, over a simulated
//! TCP network; and [`ib`] with the real verbs LND over simulated RDMA devices.
//!
//! It does not measure speed, and one thread finds no races: for those there are loom and real threads.
//!
//! # Your own nodes on a bad network
//!
//! Two nodes and a thousand PUTs, while the connection breaks at 5 % of the messages. Each PUT ends once, well or badly:
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
//! // Virtual time reaches an engine only by `advance`: here at every tenth of a second of it.
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
//! // Engines and their network hold each other.
//! net.crash_all();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `net.run_until(|| false)` is shorter, but swallows the timers: no time passes for the engines, so nothing is ever late.
//!
//! An [`Observer`] sees everything that passes between engines and network.
//!
//! Programs that wait need no such loop: [`SimDrive`] lets whoever waits step the network and the engines' timers.
//!
//! # Many seeds, and one again
//!
//! ```text
//! cargo test -p lnet-sim                                              # thousands of seeds
//! cargo run --release -p lnet-sim -- --seeds 100000                   # many more
//! cargo run --release -p lnet-sim -- --seeds 1 --seed 204 --steps 480 # what a failure prints
//! NLX_SIM_SEED=204 NLX_SIM_SEEDS=1 NLX_SIM_STEPS=480 cargo test -p lnet-sim --test seeds
//! cargo run --release -p lnet-sim -- tcp --seeds 10000                # worlds of whole TCP nodes
//! cargo run --release -p lnet-sim -- tcp --seeds 1 --seed 92 --steps 31
//! cargo run --release -p lnet-sim -- peers                            # bytes for each peer and each MD
//! ```
//!
//! A failure prints its seed, the fewest steps that show it, and what happened before. Or as code:
//!
//! ```
//! use lnet_sim::{Defect, Scenario, run};
//!
//! let seen = run(&Scenario::from_seed(1))?;
//! assert!(seen.messages > 0);
//! // A driver that loses messages and says nothing is found out.
//! let found = (0..100).find_map(|seed| run(&Scenario::from_seed(seed).with_defect(Defect::LosesSilently)).err());
//! assert!(found.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `net` | [`SimNet`], its LND, links, connections, what observers are told |
//! | `drive` | [`SimDrive`]: waiting in virtual time |
//! | `model` | the plain model |
//! | `world` | nodes and programs; what is checked when |
//! | `scenario`, `run` | from a seed to a world, from a world to a verdict |
//! | `kit` | worlds of whole nodes, whatever network they are on |
//! | [`tcp`], [`ib`] | the TCP and the RDMA network, and what only their nodes have |
//! | `rng` | random numbers that a seed determines |

#![deny(unsafe_code)]

mod counts;
mod drive;
pub mod ib;
mod kit;
mod model;
mod net;
mod rng;
mod run;
mod scenario;
pub mod tcp;
mod world;

pub use counts::Counts;
pub use drive::SimDrive;
pub use kit::net::{HostHandle, Net};
pub use kit::scenario::NodeScenario;
pub use kit::seen::{NodeSeen, WorldSeen};
pub use model::Mutant;
pub use net::{Defect, Judgement, Lane, LinkModel, Note, Observer, Seen, SimNet, Step};
pub use rng::Rng;
pub use run::{Failure, Worlds, run};
pub use scenario::Scenario;
pub use world::engine_config;
