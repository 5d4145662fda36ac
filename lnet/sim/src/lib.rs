//! Many LNet nodes on one thread over a simulated network with virtual time.
#![forbid(unsafe_code)]
mod net;
mod rng;
pub use net::{Defect, Judgement, Lane, LinkModel, Note, Observer, Seen, SimNet, Step};
pub use rng::Rng;
