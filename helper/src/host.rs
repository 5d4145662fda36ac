//! The state that all clients share.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use lnet_api::{Drive, LNet};
use nlx_core::Address;
use nlx_fallible::{NoMemory, TryArc};
use nlx_kcore::SharedNetwork;
use parking_lot::Mutex;

use super::accounts::{Accounts, AccountsConfig, Payer};
use super::client_sink::ClientSink;
use super::counters::ClientCounters;
use super::departed::SessionTeardown;
use super::owners::Owners;
use super::portal_shares::PortalShares;
use super::session;
use super::status::USERS_MAX;
use super::{
    ClientQuotas, ClientStatus, Credentials, Departure, HostStatus, Leftovers, Policy, TmStatus, Totals,
};

/// The configuration of a [`Host`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostConfig {
    /// The users that may connect, and the rights of each.
    pub policy: Policy,
    /// Quotas where the policy does not set others.
    pub quotas: ClientQuotas,
    /// Set if clients may have arenas on huge pages, as far as the host has some left.
    pub huge_pages: bool,
    /// The amounts that all clients together may hold, and the users' shares of them. Its groups
    /// come from the policy.
    pub accounts: AccountsConfig,
    /// Subordinate uids, which count for their owners.
    pub owners: Owners,
}

/// The state that all clients share: LNet, the policy, and the leftovers of departed clients.
pub struct Host {
    pub(super) network: Arc<SharedNetwork>,
    pub(super) config: HostConfig,
    pub(super) accounts: Arc<Accounts>,
    pub(super) portal_shares: Arc<PortalShares>,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    /// The last number that was assigned.
    last: u64,
    /// The connected clients, by their number.
    connected: HashMap<u64, TryArc<ClientRecord>, foldhash::fast::RandomState>,
    /// Totals of departed clients.
    past: Totals,
    /// The leftovers of departed clients.
    teardowns: Vec<TryArc<SessionTeardown>>,
}

/// A client as an operator sees it.
pub(super) struct ClientRecord {
    pub(super) client: u64,
    pub(super) credentials: Credentials,
    /// Set by its hello.
    pub(super) name: OnceLock<String>,
    pub(super) counters: TryArc<ClientCounters>,
    pub(super) tms: Mutex<HashMap<u64, (Address, TryArc<ClientSink>), foldhash::fast::RandomState>>,
}

impl Host {
    /// Creates a host that serves clients from this LNet, whose network `drive` polls.
    #[must_use]
    pub fn new(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>, config: HostConfig) -> Arc<Host> {
        let accounts = AccountsConfig { groups: config.policy.groups(), ..config.accounts.clone() };
        let accounts = Accounts::new(accounts);
        session::prepare_process();
        let portal_shares = Arc::default();
        let network = SharedNetwork::new(lnet, drive);
        Arc::new(Host { network, config, accounts, portal_shares, clients: Mutex::default() })
    }

    /// Returns the interface that polls the network and has its clock.
    #[must_use]
    pub fn drive(&self) -> &Arc<dyn Drive> {
        self.network.drive()
    }

    /// Returns the LNet that serves the clients.
    #[must_use]
    pub fn lnet(&self) -> &Arc<dyn LNet> {
        self.network.lnet()
    }

    /// Returns the policy: the users that may connect, and the rights of each.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.config.policy
    }

    /// Returns the quotas of a client for which the policy sets no others.
    #[must_use]
    pub fn quotas(&self) -> ClientQuotas {
        self.config.quotas
    }

    /// Returns the accounts of the clients' users.
    #[must_use]
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// Returns the user that a client's resources are charged to, and its group.
    #[must_use]
    pub fn payer_of(&self, client: &Credentials) -> Payer {
        let group = self.policy().rights_of(client).and_then(|rights| rights.group);
        Payer { user: self.config.owners.user_of(client.uid), group: group.map(|(id, _)| id) }
    }

    /// Returns a snapshot of all clients, users and totals.
    #[must_use]
    pub fn status(&self) -> HostStatus {
        let (records, totals) = {
            let clients = self.clients.lock();
            (clients.connected.values().cloned().collect::<Vec<_>>(), clients.past)
        };
        let mut clients: Vec<_> = records.iter().map(|record| record.status()).collect();
        clients.sort_by_key(|client| client.client);
        let totals = clients.iter().fold(totals, |totals, client| totals.and(client.totals));
        // Before the users are listed, so that charges for released leftovers are no longer
        // included.
        let leftovers = self.leftovers();
        let (users, all) = self.accounts.users(USERS_MAX);
        let users_left_out = (all - users.len()) as u64;
        HostStatus { clients, users, users_left_out, leftovers, totals, faults: self.network.faults() }
    }

    /// Drops leftovers that LNet has released. Returns whether any remain.
    pub fn sweep(&self) -> bool {
        self.leftovers() != Leftovers::default()
    }

    /// Drops released leftovers among those of up to `most` clients, from index `at` on. Returns
    /// the next index, or `None` after the last one.
    pub(super) fn sweep_some(&self, at: usize, most: usize) -> Option<usize> {
        let mut clients = self.clients.lock();
        let mut at = at;
        for _ in 0..most {
            match clients.teardowns.get(at) {
                None => return None,
                Some(teardown) if teardown.is_gone() => drop(clients.teardowns.swap_remove(at)),
                Some(_) => at += 1,
            }
        }
        Some(at)
    }

    /// Returns whether a departed client has leftovers that were not dropped yet.
    pub(super) fn has_leftovers(&self) -> bool {
        !self.clients.lock().teardowns.is_empty()
    }

    fn leftovers(&self) -> Leftovers {
        let mut sum = Leftovers::default();
        self.clients.lock().teardowns.retain(|teardown| {
            let left = teardown.leftovers();
            sum = sum.and(left);
            left != Leftovers::default()
        });
        sum
    }

    /// Registers a new client, and reserves capacity for its leftovers.
    pub(super) fn enter(&self, credentials: Credentials) -> Result<TryArc<ClientRecord>, NoMemory> {
        let mut clients = self.clients.lock();
        let Clients { last, connected, teardowns, .. } = &mut *clients;
        connected.try_reserve(1).map_err(|_| NoMemory)?;
        // Each connected client may become one with leftovers.
        teardowns.try_reserve(connected.len() + 1).map_err(|_| NoMemory)?;
        let record = TryArc::try_new(ClientRecord {
            client: *last + 1,
            credentials,
            name: OnceLock::new(),
            counters: TryArc::try_new(ClientCounters::default())?,
            tms: Mutex::default(),
        })?;
        *last += 1;
        connected.insert(record.client, record.clone());
        Ok(record)
    }

    /// Unregisters a client with these leftovers.
    pub(super) fn leave(&self, record: &ClientRecord, teardown: TryArc<SessionTeardown>) -> Departure {
        let mut clients = self.clients.lock();
        clients.connected.remove(&record.client);
        clients.past = clients.past.and(record.counters.totals());
        if !teardown.is_gone() {
            clients.teardowns.push(teardown.clone());
        }
        Departure(teardown)
    }
}

impl ClientRecord {
    fn status(&self) -> ClientStatus {
        let tms = self.tms.lock();
        let mut tms: Vec<_> = tms
            .values()
            .map(|(address, sink)| TmStatus {
                address: *address,
                operations: sink.operations.get(),
                dropped: sink.dropped.get(),
            })
            .collect();
        tms.sort_by_key(|tm| tm.address);
        let ClientCounters { buffers, arenas, bytes, operations, .. } = &*self.counters;
        ClientStatus {
            client: self.client,
            pid: self.credentials.pid,
            uid: self.credentials.uid,
            name: self.name.get().cloned().unwrap_or_default(),
            tms,
            buffers: buffers.get(),
            arenas: arenas.get(),
            bytes: bytes.get(),
            operations: operations.get(),
            totals: self.counters.totals(),
        }
    }
}
