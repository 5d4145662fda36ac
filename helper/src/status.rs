//! The helper's state as an operator sees it.

use nlx_core::Address;

use super::accounts::UserStatus;
use nlx_kcore::Anomalies;

/// Users that are listed: with all amounts of each they fit into the status of a node.
pub const USERS_MAX: usize = 64;

/// The state of the helper ([`Host::status`](super::Host::status)). Each number is correct at some
/// moment of the call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostStatus {
    /// The connected clients, by their number: in the order in which they connected.
    pub clients: Vec<ClientStatus>,
    /// The users that hold something, by uid: at most [`USERS_MAX`].
    pub users: Vec<UserStatus>,
    /// Users that are not listed.
    pub users_left_out: u64,
    /// Resources of departed clients that LNet has not released.
    pub leftovers: Leftovers,
    /// Totals since the start over all clients, including connected ones.
    pub totals: Totals,
    /// Faults between LNet and the helper, which should never happen.
    pub faults: Anomalies,
}

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientStatus {
    /// The helper's number of the client.
    pub client: u64,
    /// The client's process id, as the helper sees it.
    pub pid: i32,
    /// The client's user id.
    pub uid: u32,
    /// The name from its hello; empty before.
    pub name: String,
    /// The client's transfer machines, by address.
    pub tms: Vec<TmStatus>,
    /// Registered buffers.
    pub buffers: u64,
    /// Arenas.
    pub arenas: u64,
    /// Bytes of its arenas.
    pub bytes: u64,
    /// Operations in flight.
    pub operations: u64,
    /// Totals since it connected.
    pub totals: Totals,
}

/// The state of a transfer machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmStatus {
    /// The address that it serves.
    pub address: Address,
    /// Operations in flight.
    pub operations: u64,
    /// Messages lost for want of a receive buffer.
    pub dropped: u64,
}

/// Resources of departed clients, until LNet releases them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Transfer machines: their addresses are not assigned again yet.
    pub tms: u64,
    /// Event queues of LNet.
    pub eqs: u64,
    /// Arenas that messages may still touch.
    pub arenas: u64,
    /// Bytes of these arenas.
    pub bytes: u64,
}

/// Counters that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Clients that have connected.
    pub clients: u64,
    /// Clients that were cut off.
    pub violations: u64,
    /// Requests on the socket.
    pub requests: u64,
    /// Entries of the submission ring.
    pub submissions: u64,
    /// Operations started.
    pub operations: u64,
    /// Events delivered.
    pub events: u64,
    /// Requests and operations refused by the policy.
    pub refused_by_policy: u64,
    /// Requests and operations refused by quotas.
    pub refused_by_quota: u64,
    /// Requests and operations refused for other reasons.
    pub refused: u64,
}

impl Leftovers {
    #[must_use]
    pub(super) fn and(self, other: Leftovers) -> Leftovers {
        Leftovers {
            tms: self.tms + other.tms,
            eqs: self.eqs + other.eqs,
            arenas: self.arenas + other.arenas,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl Totals {
    #[must_use]
    pub(super) fn and(self, other: Totals) -> Totals {
        Totals {
            clients: self.clients + other.clients,
            violations: self.violations + other.violations,
            requests: self.requests + other.requests,
            submissions: self.submissions + other.submissions,
            operations: self.operations + other.operations,
            events: self.events + other.events,
            refused_by_policy: self.refused_by_policy + other.refused_by_policy,
            refused_by_quota: self.refused_by_quota + other.refused_by_quota,
            refused: self.refused + other.refused,
        }
    }
}
