//! A client as the thread that serves it sees it.

use std::os::fd::OwnedFd;

use nlx_driver_proto::Refusal;
use nlx_fallible::NoMemory;
use nlx_sync::{SlotKey, Slots};

use super::rate::Rate;
use super::schedule::UserKey;
use crate::accounts::{Charge, Payer};
use crate::{Credentials, Departure, ReplyPacket, Session};

/// A client's connection.
pub(super) struct Client {
    /// The porter's number of the client.
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    /// Set while the porter has a copy of the socket.
    pub(super) kept: bool,
    /// Set if the kernel may let descriptors pass with the client's packets.
    pub(super) may_attach: bool,
    /// Charge for the descriptors in replies that the client has not received completely.
    pub(super) unread: Charge,
    /// Set while the client is in the list of clients with unread descriptors.
    pub(super) listed: bool,
    pub(super) credentials: Credentials,
    /// The account that is charged for the client.
    pub(super) payer: Payer,
    /// The user in whose turns the client is served.
    pub(super) user: UserKey,
    /// Set while the client waits for its user's turn, or is being served.
    pub(super) queued: bool,
    pub(super) state: ClientState,
    /// The client's place in the limit of clients; `None` for a client that was not admitted.
    pub(super) admission: Option<super::Admission>,
}

/// The state of a connection.
pub(super) enum ClientState {
    Served(Box<ServedClient>),
    /// The client was not admitted: its first packet is answered with this refusal; then the
    /// connection ends.
    Refused(Refusal),
    /// The session is being closed. With `stays` the client was cut off, and its socket stays open
    /// until LNet has released the client's memory; otherwise the socket is closed with the
    /// session.
    Departing {
        served: Box<ServedClient>,
        stays: bool,
    },
    /// The client is cut off and its session closed; its socket stays open until LNet has released
    /// the client's memory.
    Departed {
        departure: Departure,
        until_ns: u64,
        /// Time until the next check.
        check_ns: u64,
    },
}

/// A client with a session.
pub(super) struct ServedClient {
    pub(super) session: Session,
    pub(super) request_state: RequestState,
    pub(super) rate: Rate,
    pub(super) ring: RingState,
    /// Set while the doorbell is not watched, because it has rung while the ring was being polled;
    /// it is watched again when the ring is asleep.
    pub(super) bell_muted: bool,
    /// Set while there may be requests in the socket.
    pub(super) readable: bool,
    /// Set while the socket is watched for its end alone, because more requests came before the
    /// previous ones had been read.
    pub(super) muted: bool,
    /// A request that is to be carried out after the ring entries before it.
    pub(super) pending: Option<PendingRequest>,
    /// Entries carried out since its last sync request.
    pub(super) entries: usize,
    /// Entries that remain to be carried out in a draining service; after them nothing is read from
    /// it.
    pub(super) quiescing: Option<usize>,
    /// Deadline of the client's hello; `None` once it has come.
    pub(super) greet_until_ns: Option<u64>,
    /// Turns in which its ring was empty.
    pub(super) idle_rounds: u32,
    /// Time of the first of these, for the time that threads poll before they sleep.
    pub(super) idle_since_ns: u64,
}

impl ServedClient {
    /// Returns whether a reply waits for room, so that no further request is answered.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.request_state, RequestState::Answering { .. })
    }
}

/// A request that has been received.
pub(super) struct PendingRequest {
    pub(super) packet: Vec<u8>,
    /// Entries that may precede it in the ring.
    pub(super) entries: usize,
}

/// The state of a client's requests, which determines the events for which its socket is watched.
#[derive(Debug)]
pub(super) enum RequestState {
    /// Requests are read.
    Reading,
    /// Only the socket's end is awaited, until the client may send more requests.
    Throttled,
    /// Only the socket's end is awaited, until the user may send more requests.
    Parked,
    /// Room for this answer is awaited, until `until_ns`. With `crowded` the answer waits because
    /// other users' clients do not read theirs, and the client is not cut off for that.
    Answering { answer: ReplyPacket, until_ns: u64, crowded: bool },
}

/// The state of a client's submission ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingState {
    /// There is no ring before the hello.
    None,
    /// This thread polls the ring in each of its user's turns.
    Hot,
    /// The ring is not polled until the doorbell rings.
    Asleep,
}

/// The clients of a thread, by slot.
pub(super) struct Clients(Slots<Client>);

impl Default for Clients {
    fn default() -> Clients {
        // A mark has 31 bits for the slot.
        Clients(Slots::new(1 << 31))
    }
}

/// The descriptor that a mark names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollSource {
    Socket(usize),
    Doorbell(usize),
}

impl Clients {
    /// Reserves room for `more` further clients.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), NoMemory> {
        self.0.reserve(more).map_err(|_| NoMemory)
    }

    /// Inserts a client, for which there must be [room](Clients::reserve), and returns its slot.
    pub(super) fn insert(&mut self, client: Client) -> usize {
        let slot = self.0.next_key().index as usize;
        self.0.insert(client);
        slot
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Client> {
        self.0.take(slot as u32)
    }

    pub(super) fn get(&mut self, slot: usize) -> Option<&mut Client> {
        self.0.at_mut(slot as u32)
    }

    /// Iterates over all clients.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.0.iter_mut().map(|(_, client)| client)
    }

    /// Returns a client with a session.
    pub(super) fn served(&mut self, slot: usize) -> Option<&mut ServedClient> {
        match &mut self.get(slot)?.state {
            ClientState::Served(served) => Some(served),
            ClientState::Refused(_) | ClientState::Departing { .. } | ClientState::Departed { .. } => None,
        }
    }

    /// Returns the number of slots, in use or not.
    pub(super) fn slots(&self) -> usize {
        self.0.used() as usize
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns a name for a client that no later one in its slot has.
    pub(super) fn name(&self, slot: usize) -> u64 {
        self.mark(PollSource::Socket(slot))
    }

    /// Returns the slot of the client with this name; `None` if it is gone.
    pub(super) fn named(&self, name: u64) -> Option<usize> {
        match self.source(name) {
            Some(PollSource::Socket(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Returns the epoll data of a client's descriptor.
    pub(super) fn mark(&self, source: PollSource) -> u64 {
        let (slot, bell) = match source {
            PollSource::Socket(slot) => (slot, 0),
            PollSource::Doorbell(slot) => (slot, 1),
        };
        u64::from(self.0.key(slot as u32).generation) << 32 | (slot as u64) << 1 | bell
    }

    /// Returns the descriptor of this epoll data; `None` if its client is gone.
    pub(super) fn source(&self, mark: u64) -> Option<PollSource> {
        let key = SlotKey { index: mark as u32 >> 1, generation: (mark >> 32) as u32 };
        self.0.get(key)?;
        let slot = key.index as usize;
        Some(if mark & 1 == 0 { PollSource::Socket(slot) } else { PollSource::Doorbell(slot) })
    }
}
