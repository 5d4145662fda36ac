//! What tells the worlds of one kind of network from those of another.

use std::fmt;
use std::sync::Arc;

use lnet_api::{Errno, LNetError};
use lnet_lnd::{Network, Protocol};
use lnet_nid::Nid;

use super::net::{HostHandle, Net, Wire};
use super::world::World;
use crate::Rng;

/// How an operation may fail on any network: its connection, its peer, its NI or its time is gone.
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

/// A kind of network as the worlds of whole nodes know it: the simulated network, the LND on it, the trouble that only it has, and
/// what else must hold on it. A value of it is the part of a [`Scenario`](super::Scenario) that only such worlds have.
pub trait Transport: Clone + fmt::Debug + Sync + Sized {
    /// The simulated network.
    type Wire: Wire<Habits: Clone>;
    /// The protocol of its LND.
    type Protocol: Protocol;
    /// What a world has beside its nodes.
    type OfWorld;

    /// The command that runs such worlds, with a blank behind it.
    const COMMAND: &str;
    /// Makes its seeds other ones than those of other kinds.
    const SALT: u64;
    /// Steps of a run if nothing else is said.
    const STEPS: u64;
    /// How many NIs a node has: one of these.
    const NIS: [usize; 3];
    /// How long an ACK or REPLY may take: one of these, in nanoseconds.
    const TRANSACTION_TIMEOUTS_NS: [u64; 2];
    /// Payload sizes on either side of a boundary.
    const SIZES: &[usize];
    /// The first so many of them are more frequent.
    const USUAL_SIZES: usize;
    /// Chances in 10,000 that a message at the end is as long as it may be.
    const FILLING: u32;
    /// The most operations that a program begins at once.
    const BURST_MAX: u32;
    /// How an operation may fail on such networks alone: its device is gone, say, or there is no memory for it.
    const ERRNOS: &[Errno];
    /// How an NI may fail to start under trouble.
    const NI_ERRNOS: &[Errno];
    /// Once all is healed, some operations may still fail for so long.
    const REST_NS: u64;
    /// A driver that has found work polls again within so long.
    const POLL_NS: u64;
    /// Polls of one shard in a row that find work: more, and it polls for ever.
    const BUSY_POLLS_MAX: u32;
    /// Polls of one shard in a second in which nothing goes on: its timers, keepalives and their answers.
    const IDLE_POLLS_PER_S: u64;
    /// Whether what could not be sent is never delivered, unless it was given up.
    const UNSENT_IS_LOST: bool;
    /// Whether a PUT that waits for its buffer has left its sender, whatever its size; else it may be refused.
    const SENT_WHILE_HELD: bool;

    /// The part of a scenario that belongs to these random numbers.
    fn from_rng(rng: &mut Rng, nodes: usize, partitions: usize) -> Self;

    /// How bad the network is.
    fn habits(&self) -> &<Self::Wire as Wire>::Habits;

    /// The longest payload of a world.
    fn longest(&self, rng: &mut Rng) -> usize;

    /// The longest payload when nothing may fail any more.
    fn longest_at_end(&self) -> usize {
        usize::MAX
    }

    /// The NID of an NI of a node.
    fn nid(&self, node: usize, ni: usize) -> Nid;

    /// Whether a node may use ports below 1024.
    fn is_privileged(&self, node: usize) -> bool;

    /// Whether messages can reach a node at all.
    fn is_reached(&self, _node: usize) -> bool {
        true
    }

    /// What a world of this kind has beside its nodes, which are on the network already.
    fn of_world(&self, net: &Net<Self::Wire>) -> Self::OfWorld;

    /// The LND of a node.
    ///
    /// # Errors
    /// What the LND says.
    fn lnd(
        &self,
        node: usize,
        host: HostHandle<Self::Wire>,
    ) -> Result<Arc<Network<Self::Protocol>>, LNetError>;

    /// Peers that an LND has lost, or connections, if messages are lost with each of them.
    fn losses(lnd: &Network<Self::Protocol>) -> u64;

    /// Held messages that an LND has dropped because its limit for memory was reached.
    fn dropped_beyond(lnd: &Network<Self::Protocol>) -> u64;

    /// How many connections peers have at first, and messages under way an NI.
    fn conns_and_credits(&self, node: usize) -> (u8, usize);

    /// The timeout of the LND.
    fn timeout_ns(&self) -> u64;

    /// Once all is healed, an operation ends within this time and that of its answer.
    fn end_ns(&self) -> u64;

    /// Once all is healed, operations succeed again within this time and that of their answer.
    fn reach_ns(&self) -> u64;

    /// Rounds of operations in which some may still fail, once everybody has been reached.
    fn spare_rounds(_: &World<Self>) -> usize {
        0
    }

    /// Does something that only such networks suffer.
    ///
    /// # Errors
    /// What is not as it should be, here and below.
    fn make_trouble(world: &mut World<Self>, node: usize) -> Result<(), String>;

    /// Ends what was planned with [`World::plan_later`], or before a node starts.
    fn end_trouble(_: &mut World<Self>, _node: usize) {}

    /// Ends all trouble of this kind.
    fn heal(world: &mut World<Self>);

    /// An NI was removed.
    fn ni_removed(_: &mut World<Self>, _nid: Nid) {}

    /// Time has passed.
    fn time_passed(_: &mut World<Self>, _now_ns: u64) {}

    /// What must hold of a node at every moment.
    fn audit(_: &World<Self>, _node: usize) -> Result<(), String> {
        Ok(())
    }

    /// What must hold of a node that has ended; `killed`: not in good order.
    fn check_ended(world: &mut World<Self>, node: usize, killed: bool) -> Result<(), String>;

    /// What must hold once nothing goes on any more.
    fn check_settled(world: &mut World<Self>) -> Result<(), String>;

    /// What must hold of a node whose NIs are gone, in good order.
    fn check_given_back(world: &World<Self>, node: usize) -> Result<(), String>;

    /// What must hold when nodes, LNDs and buffers are gone.
    fn check_gone(_: &Net<Self::Wire>) -> Result<(), String> {
        Ok(())
    }
}
