//! A client, as the thread that serves it sees it.

use std::os::fd::OwnedFd;

use nlx_driver_proto::Refusal;

use super::super::accounts::{Charge, Payer};
use super::super::{Answer, Credentials, Departure, Session};
use super::rate::Rate;

/// A connection.
pub(super) struct Client {
    /// The porter's number for it.
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    /// Descriptors may come with its packets, as far as the kernel is concerned.
    pub(super) may_attach: bool,
    /// Descriptors in replies that it has not received all of.
    pub(super) unread: Charge,
    pub(super) who: Credentials,
    /// The user that it counts for.
    pub(super) payer: Payer,
    pub(super) state: State,
    /// When something is to be done about it, whatever it does.
    pub(super) due_ns: Option<u64>,
    /// Its place among the clients; `None` for one that was not let in.
    pub(super) admission: Option<super::Admission>,
}

/// What is to be done with a connection.
pub(super) enum State {
    Served(Box<Served>),
    /// Its first packet is answered with this, and that is all.
    Refused(Refusal),
    /// It is cut off; its socket stays until LNet has let go.
    Departed {
        departure: Departure,
        until_ns: u64,
    },
}

/// One with a session.
pub(super) struct Served {
    pub(super) session: Session,
    pub(super) talk: Talk,
    pub(super) rate: Rate,
    pub(super) ring: Ring,
    /// When its hello must have come; `None` once it has.
    pub(super) greet_until_ns: Option<u64>,
    /// Rounds in which its ring was empty.
    pub(super) idle_rounds: u32,
    /// When the first of them was, where threads look for a while before they sleep.
    pub(super) idle_since_ns: u64,
}

/// What its socket is looked at for.
#[derive(Debug)]
pub(super) enum Talk {
    /// Its requests.
    Reading,
    /// Its end alone, until it may send more.
    Throttled,
    /// Room for this answer, until then. `crowded`: it waits because other users' clients do not read theirs, and is not cut
    /// off for it.
    Answering { answer: Answer, until_ns: u64, crowded: bool },
    /// Its end alone, until the porter has received this packet with its descriptors, or the client is due.
    Adopting { packet: Vec<u8>, _charge: Option<Charge> },
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
#[derive(Default)]
pub(super) struct Clients {
    places: Vec<Place>,
    free: Vec<usize>,
}

struct Place {
    /// How many have had it: what the system tells of an earlier one is not for this one.
    generation: u32,
    client: Option<Client>,
}

/// What a mark names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Socket(usize),
    Doorbell(usize),
}

impl Clients {
    pub(super) fn insert(&mut self, client: Client) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, client: None });
            self.places.len() - 1
        });
        self.places[place].client = Some(client);
        place
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Client> {
        let client = self.places.get_mut(place)?.client.take()?;
        self.places[place].generation = self.places[place].generation.wrapping_add(1);
        self.free.push(place);
        Some(client)
    }

    pub(super) fn get(&mut self, place: usize) -> Option<&mut Client> {
        self.places.get_mut(place)?.client.as_mut()
    }

    /// One with a session.
    pub(super) fn served(&mut self, place: usize) -> Option<&mut Served> {
        match &mut self.get(place)?.state {
            State::Served(served) => Some(served),
            State::Refused(_) | State::Departed { .. } => None,
        }
    }

    /// The places that are taken.
    pub(super) fn places(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|&place| self.places[place].client.is_some()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }

    /// What the system is told to say of a client's descriptor.
    pub(super) fn mark(&self, source: Source) -> u64 {
        let (place, bell) = match source {
            Source::Socket(place) => (place, 0),
            Source::Doorbell(place) => (place, 1),
        };
        u64::from(self.places[place].generation) << 32 | (place as u64) << 1 | bell
    }

    /// Of which client it says so; `None` for one that is gone.
    pub(super) fn source(&self, mark: u64) -> Option<Source> {
        let place = (mark as u32 >> 1) as usize;
        let known = self.places.get(place)?;
        let is_there = known.client.is_some() && u64::from(known.generation) == mark >> 32;
        is_there.then_some(if mark & 1 == 0 { Source::Socket(place) } else { Source::Doorbell(place) })
    }
}
