//! What an operator sees.

use nlx_core::Address;

use super::accounts::UserStatus;
use nlx_kcore::Faults;

/// Users that are listed: with all that each holds they fit into the status of a node.
pub const USERS_MAX: usize = 64;

/// How things stand ([`Host::status`](super::Host::status)). Plain numbers, each right at some moment of the call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostStatus {
    /// The clients that are connected, in the order in which they came.
    pub clients: Vec<ClientStatus>,
    /// The users that hold something, by uid: at most [`USERS_MAX`].
    pub users: Vec<UserStatus>,
    /// Users that are not listed.
    pub users_left_out: u64,
    /// What clients that are gone have left until LNet lets go of it.
    pub leftovers: Leftovers,
    /// Since the start, over all clients, those connected included.
    pub totals: Totals,
    /// What should never happen between LNet and the helper.
    pub faults: Faults,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientStatus {
    /// The helper's number for it.
    pub client: u64,
    /// Its process, as the helper sees it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// What it calls itself; empty before its hello.
    pub name: String,
    /// Its transfer machines, by address.
    pub tms: Vec<TmStatus>,
    /// Registered buffers.
    pub buffers: u64,
    /// Arenas.
    pub arenas: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Operations in flight.
    pub operations: u64,
    /// What it has done since it connected.
    pub totals: Totals,
}

/// A transfer machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmStatus {
    /// Its address.
    pub address: Address,
    /// Operations in flight.
    pub operations: u64,
    /// Messages lost for want of a receive buffer.
    pub dropped: u64,
}

/// What clients that are gone have left: it is forgotten as LNet lets go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Transfer machines: their addresses are not given again.
    pub tms: u64,
    /// Event queues of LNet.
    pub eqs: u64,
    /// Arenas that messages may still touch.
    pub arenas: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Numbers that only grow.
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
    /// Events given.
    pub events: u64,
    /// Requests and operations refused by the policy.
    pub refused_by_policy: u64,
    /// Those refused by quotas.
    pub refused_by_quota: u64,
    /// Those refused for other reasons.
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
