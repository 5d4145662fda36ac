//! nlx's side of the rows.
//!
//! | module | holds |
//! | --- | --- |
//! | `bevq` | the queue of buffer events between two processes |
//! | `wake` | waking a waiter, or the consumer of a queue |
//! | `engine` | the LNet engine alone, without a network |
//! | `kcore` | the Core interface over the engine alone |
//! | `lnet` | the LNet API over TCP |
//! | `o2ib` | the same over RDMA, in the guest (with the feature `verbs`) |
//! | `xo` | the storage client's interface |
//! | `service` | the service layer over TCP |
//! | `lst` | test nodes of lst over TCP |
//! | `helper` | the costs of the helper process |
//! | `nodes` | the two nodes of a measurement |
//! | `spin` | waiting for memory to change, and computing |

pub(crate) mod bevq;
pub(crate) mod engine;
pub(crate) mod helper;
pub(crate) mod kcore;
pub(crate) mod lnet;
pub(crate) mod lst;
mod nodes;
#[cfg(feature = "verbs")]
pub(crate) mod o2ib;
pub(crate) mod service;
mod spin;
pub(crate) mod wake;
pub(crate) mod xo;

use crate::server::Serve;
use lnet::Network;
use nodes::Nodes;

/// The servers of nlx's sides.
pub(crate) const SERVERS: &[(&str, Serve)] = &[
    (bevq::TAKER, bevq::take),
    (bevq::ECHO, bevq::echo),
    (<Nodes as Network>::PINGPONG, lnet::pingpong::serve::<Nodes>),
    (<Nodes as Network>::BULK, lnet::bulk::serve::<Nodes>),
    #[cfg(feature = "verbs")]
    (<o2ib::Addresses as Network>::PINGPONG, lnet::pingpong::serve::<o2ib::Addresses>),
    #[cfg(feature = "verbs")]
    (<o2ib::Addresses as Network>::BULK, lnet::bulk::serve::<o2ib::Addresses>),
    (lnet::rate::NAME, lnet::rate::serve),
    (lnet::cost::CONNECTED, lnet::cost::serve_connected),
    (lnet::cost::PEERS, lnet::cost::serve_peers),
    (lnet::exchange::NAME, lnet::exchange::serve),
    (lnet::rate::ANSWERING, lnet::rate::serve_answers),
    (helper::process::NAME, helper::process::serve),
    (helper::clients::CROWD, helper::clients::serve_crowd),
    (helper::flood::FLOOD, helper::flood::serve_flood),
    (helper::flood::BUSY, helper::flood::serve_busy),
    (helper::stall::LEAVER, helper::stall::serve_leaver),
    (helper::stall::HOLES, helper::stall::serve_holes),
    (helper::submit::TAKER, helper::submit::take),
    (helper::submit::ECHO, helper::submit::echo),
    (lst::NODE, lst::serve),
    (service::ECHO, service::serve),
    (xo::pingpong::NAME, xo::pingpong::serve),
    (xo::rate::NAME, xo::rate::serve),
    (xo::bulk::GET_SERVER, xo::bulk::serve_get),
    (xo::bulk::PUT_SERVER, xo::bulk::serve_put),
];
