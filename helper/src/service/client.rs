//! A client, as the thread that serves it sees it.

use std::os::fd::OwnedFd;

use nlx_driver_proto::Refusal;
use nlx_fallible::NoMemory;
use nlx_sync::{SlotKey, Slots};

use super::rate::Rate;
use super::schedule::UserKey;
use crate::accounts::{Charge, Payer};
use crate::{Answer, Credentials, Departure, Session};

/// A connection.
pub(super) struct Client {
    /// The porter's number for it.
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    /// The porter has it, too.
    pub(super) kept: bool,
    /// Descriptors may come with its packets, as far as the kernel is concerned.
    pub(super) may_attach: bool,
    /// Descriptors in replies that it has not received all of.
    pub(super) unread: Charge,
    /// It stands in the list of those that have some.
    pub(super) listed: bool,
    pub(super) who: Credentials,
    /// The user that it counts for.
    pub(super) payer: Payer,
    /// Whose share it takes.
    pub(super) user: UserKey,
    /// It waits for its user's turn, or it is its turn.
    pub(super) queued: bool,
    pub(super) state: State,
    /// Its place among the clients; `None` for one that was not let in.
    pub(super) admission: Option<super::Admission>,
}

/// What is to be done with a connection.
pub(super) enum State {
    Served(Box<Served>),
    /// Its first packet is answered with this, and that is all.
    Refused(Refusal),
    /// Its session is being closed. If it `stays`, it is cut off, and stays until LNet has let go; else nothing is owed to it.
    Departing {
        served: Box<Served>,
        stays: bool,
    },
    /// It is cut off; its socket stays until LNet has let go.
    Departed {
        departure: Departure,
        until_ns: u64,
        /// The time to the next look at it.
        look_ns: u64,
    },
}

/// One with a session.
pub(super) struct Served {
    pub(super) session: Session,
    pub(super) talk: Talk,
    pub(super) rate: Rate,
    pub(super) ring: Ring,
    /// Its doorbell is not watched until the ring is asleep: it has rung while the ring was looked at.
    pub(super) bell_muted: bool,
    /// There may be requests in its socket.
    pub(super) readable: bool,
    /// Its socket is watched for its end alone: more requests came before those that were there had been read.
    pub(super) muted: bool,
    /// A request that is to be carried out after what stood in the ring before it.
    pub(super) pending: Option<Pending>,
    /// Entries that were carried out since it last asked for that by a request.
    pub(super) entries: usize,
    /// Nothing is read of it any more, once as many entries of its ring are carried out: for a service that drains.
    pub(super) quiescing: Option<usize>,
    /// When its hello must have come; `None` once it has.
    pub(super) greet_until_ns: Option<u64>,
    /// Rounds in which its ring was empty.
    pub(super) idle_rounds: u32,
    /// When the first of them was, where threads look for a while before they sleep.
    pub(super) idle_since_ns: u64,
}

impl Served {
    /// A reply waits for room, so that nothing more is answered.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.talk, Talk::Answering { .. })
    }
}

/// A request that has been received.
pub(super) struct Pending {
    pub(super) packet: Vec<u8>,
    /// Entries that may have stood in the ring before it.
    pub(super) entries: usize,
}

/// What its socket is looked at for.
#[derive(Debug)]
pub(super) enum Talk {
    /// Its requests.
    Reading,
    /// Its end alone, until it may send more.
    Throttled,
    /// The same, until its user may.
    Parked,
    /// Room for this answer, until then. `crowded`: it waits because other users' clients do not read theirs, and is not cut
    /// off for it.
    Answering { answer: Answer, until_ns: u64, crowded: bool },
}

/// Who looks at its submission ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    /// There is none before the hello.
    None,
    /// This thread does, in each round.
    Hot,
    /// Nobody, until the doorbell rings.
    Asleep,
}

/// The clients of a thread, each in a place of its own.
pub(super) struct Clients(Slots<Client>);

impl Default for Clients {
    fn default() -> Clients {
        // Of a mark, 31 bits are the place.
        Clients(Slots::new(1 << 31))
    }
}

/// What a mark names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Socket(usize),
    Doorbell(usize),
}

impl Clients {
    /// Makes room for so many clients more.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), NoMemory> {
        self.0.reserve(more).map_err(|_| NoMemory)
    }

    /// Gives the client's place. There must be [room](Clients::reserve) for it.
    pub(super) fn insert(&mut self, client: Client) -> usize {
        let place = self.0.next_key().index as usize;
        self.0.insert(client);
        place
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Client> {
        self.0.take(place as u32)
    }

    pub(super) fn get(&mut self, place: usize) -> Option<&mut Client> {
        self.0.at_mut(place as u32)
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.0.iter_mut().map(|(_, client)| client)
    }

    /// One with a session.
    pub(super) fn served(&mut self, place: usize) -> Option<&mut Served> {
        match &mut self.get(place)?.state {
            State::Served(served) => Some(served),
            State::Refused(_) | State::Departing { .. } | State::Departed { .. } => None,
        }
    }

    /// Places, taken or not.
    pub(super) fn places(&self) -> usize {
        self.0.used() as usize
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// A name for a client that no later one in its place has.
    pub(super) fn name(&self, place: usize) -> u64 {
        self.mark(Source::Socket(place))
    }

    /// Which client has it; `None` for one that is gone.
    pub(super) fn named(&self, name: u64) -> Option<usize> {
        match self.source(name) {
            Some(Source::Socket(place)) => Some(place),
            _ => None,
        }
    }

    /// What the system is told to say of a client's descriptor.
    pub(super) fn mark(&self, source: Source) -> u64 {
        let (place, bell) = match source {
            Source::Socket(place) => (place, 0),
            Source::Doorbell(place) => (place, 1),
        };
        u64::from(self.0.key(place as u32).generation) << 32 | (place as u64) << 1 | bell
    }

    /// Of which client it says so; `None` for one that is gone.
    pub(super) fn source(&self, mark: u64) -> Option<Source> {
        let key = SlotKey { index: mark as u32 >> 1, generation: (mark >> 32) as u32 };
        self.0.get(key)?;
        let place = key.index as usize;
        Some(if mark & 1 == 0 { Source::Socket(place) } else { Source::Doorbell(place) })
    }
}
