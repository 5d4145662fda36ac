//! Many LNet nodes on one thread over a simulated network with virtual time.
#![forbid(unsafe_code)]
mod model;
mod net;
mod rng;
mod run;
mod scenario;
mod world;

pub use model::Mutant;
pub use net::{Defect, Judgement, Lane, LinkModel, Note, Observer, Seen, SimNet, Step};
pub use rng::Rng;
pub use run::{Failure, run};
pub use scenario::{DEFAULT_STEPS, Scenario};
pub use world::engine_config;
