//! The differences between worlds on different kinds of networks.

use std::fmt;
use std::sync::Arc;

use lnet_api::{Errno, LNetError};
use lnet_lnd::{Network, Protocol};
use lnet_nid::Nid;

use super::net::{HostHandle, Net, Wire};
use super::world::World;
use crate::Rng;

/// The errors of an operation that are possible on any network: the connection, the peer or the NI
/// is gone, or the time is over.
pub(crate) const COMMON_ERRNOS: &[Errno] = &[
    Errno::ECONNRESET,
    Errno::ECONNREFUSED,
    Errno::ENOTCONN,
    Errno::ETIMEDOUT,
    Errno::EHOSTUNREACH,
    Errno::ESHUTDOWN,
    Errno::ENETDOWN,
    Errno::ECANCELED,
    Errno::ENODATA,
    Errno::EIO,
    Errno::ENOBUFS,
];

/// A kind of network for worlds of whole nodes: the simulated network, the LND on it, its specific
/// trouble and checks. A value of it is the part of a [`Scenario`](super::Scenario) that only such
/// worlds have.
pub trait Transport: Clone + fmt::Debug + Sync + Sized {
    /// The simulated network.
    type Wire: Wire<Behaviour: Clone>;
    /// The protocol of its LND.
    type Protocol: Protocol;
    /// The state of a world other than its nodes.
    type WorldData;

    /// The subcommand for such worlds, with a blank behind it.
    const COMMAND: &str;
    /// A number by which the random numbers of a seed differ from those of other kinds of worlds.
    const SALT: u64;
    /// The default number of steps of a run.
    const STEPS: u64;
    /// The numbers of NIs of a node, from which one is drawn.
    const NIS: [usize; 3];
    /// The limits for an ACK or REPLY in nanoseconds, one of which is drawn.
    const TRANSACTION_TIMEOUTS_NS: [u64; 2];
    /// Payload sizes on either side of a boundary.
    const SIZES: &[usize];
    /// The number of sizes, from the first, that are more frequent.
    const USUAL_SIZES: usize;
    /// Chance in 10,000 that a message at the end has the maximum length.
    const FILLING: u32;
    /// The limit for operations that a program begins at once.
    const BURST_MAX: u32;
    /// The errors of operations that only this kind of network has: the device is gone, for
    /// example, or there is no memory.
    const ERRNOS: &[Errno];
    /// The errors with which an NI may fail to start under trouble.
    const NI_ERRNOS: &[Errno];
    /// The time during which operations may still fail after all trouble has ended, in nanoseconds.
    const REST_NS: u64;
    /// The time within which a driver that has found work polls again.
    const POLL_NS: u64;
    /// The limit for consecutive polls of one shard that find work: more mean that it polls without
    /// end.
    const BUSY_POLLS_MAX: u32;
    /// Polls of one idle shard in a second: its timers, keepalives and their answers.
    const IDLE_POLLS_PER_S: u64;
    /// True if a message that could not be sent is never delivered; messages that the sender gave
    /// up are excepted.
    const UNSENT_IS_LOST: bool;
    /// True if a PUT that waits for its buffer has left its sender, whatever its size. Otherwise it
    /// may be refused.
    const SENT_WHILE_HELD: bool;

    /// Draws this part of a scenario from random numbers.
    fn from_rng(rng: &mut Rng, nodes: usize, partitions: usize) -> Self;

    /// Returns the behaviour of the network.
    fn behaviour(&self) -> &<Self::Wire as Wire>::Behaviour;

    /// Returns the maximum payload of a world.
    fn longest(&self, rng: &mut Rng) -> usize;

    /// Returns the maximum payload once operations must succeed.
    fn longest_at_end(&self) -> usize {
        usize::MAX
    }

    /// Returns the NID of an NI of a node.
    fn nid(&self, node: usize, ni: usize) -> Nid;

    /// Returns whether a node may use ports below 1024.
    fn is_privileged(&self, node: usize) -> bool;

    /// Returns whether messages can reach a node at all.
    fn is_reached(&self, _node: usize) -> bool {
        true
    }

    /// Creates the additional state of a world. The nodes are on the network already.
    fn world_data(&self, net: &Net<Self::Wire>) -> Self::WorldData;

    /// Makes the LND of a node.
    ///
    /// # Errors
    /// The LND's error.
    fn lnd(
        &self,
        node: usize,
        host: HostHandle<Self::Wire>,
    ) -> Result<Arc<Network<Self::Protocol>>, LNetError>;

    /// Returns the number of peers that an LND has lost, or of connections, if messages are lost
    /// with each of them.
    fn losses(lnd: &Network<Self::Protocol>) -> u64;

    /// Returns the number of held messages that an LND has dropped because its limit for memory was
    /// reached.
    fn dropped_beyond(lnd: &Network<Self::Protocol>) -> u64;

    /// Returns the initial number of connections per peer, and of messages in flight of an NI.
    fn conns_and_credits(&self, node: usize) -> (u8, usize);

    /// Returns the timeout of the LND.
    fn timeout_ns(&self) -> u64;

    /// Returns the time within which an operation ends, with that of its answer, after all is
    /// healed.
    fn end_ns(&self) -> u64;

    /// Returns the time within which operations succeed again, with that of their answer, after all
    /// is healed.
    fn reach_ns(&self) -> u64;

    /// Returns the number of rounds of operations of which some may still fail, after all peers
    /// have been reached.
    fn spare_rounds(_: &World<Self>) -> usize {
        0
    }

    /// Causes trouble that only this kind of network has.
    ///
    /// # Errors
    /// A failed check, here and below.
    fn make_trouble(world: &mut World<Self>, node: usize) -> Result<(), String>;

    /// Ends trouble whose end was planned with [`World::plan_later`], or before a node starts.
    fn end_trouble(_: &mut World<Self>, _node: usize) {}

    /// Ends all trouble of this kind.
    fn heal(world: &mut World<Self>);

    /// Called when an NI was removed.
    fn ni_removed(_: &mut World<Self>, _nid: Nid) {}

    /// Called when time has passed.
    fn time_passed(_: &mut World<Self>, _now_ns: u64) {}

    /// Checks a node; called at any time.
    fn audit(_: &World<Self>, _node: usize) -> Result<(), String> {
        Ok(())
    }

    /// Checks a node that has ended; `killed` is true if it was not shut down.
    fn check_ended(world: &mut World<Self>, node: usize, killed: bool) -> Result<(), String>;

    /// Checks the world after all operations have ended.
    fn check_settled(world: &mut World<Self>) -> Result<(), String>;

    /// Checks a node after its NIs were removed.
    fn check_given_back(world: &World<Self>, node: usize) -> Result<(), String>;

    /// Checks the network after nodes, LNDs and buffers were dropped.
    fn check_gone(_: &Net<Self::Wire>) -> Result<(), String> {
        Ok(())
    }
}
