//! Limits on accepted connections of peers, opening or open, in all and per address.

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::MAX_SHARDS;
use parking_lot::Mutex;

/// The limits on accepted connections.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionLimits {
    /// Maximum number of connections, opening and open.
    pub all: usize,
    /// Maximum number of opening connections on one listener.
    pub opening: usize,
    /// Maximum number of opening connections from one address, so that one stalled host does not
    /// keep the others out.
    pub opening_of_address: usize,
    /// Maximum number of connections from one address, opening and open.
    pub of_address: usize,
    /// The number that every address may have while there is room. Above it, no address may have
    /// more than the number that is left for all others: an address that takes all it can get
    /// leaves half of the room to those that come later.
    pub modest: usize,
}

/// The limit because of which a connection is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Too many connections are being opened on this listener; further ones may begin once one of
    /// these has been dropped.
    #[error("the limit of {0} connections that peers open at a time is reached")]
    Opening(usize),
    /// The address has too many connections.
    #[error("the limit of {0} connections from one address is reached")]
    OfAddress(usize),
    /// There is no room left for the connection.
    #[error("there is no room for further connections")]
    NoRoom,
}

/// Counts accepted connections on all listeners.
#[derive(Debug)]
pub struct Admission {
    bounds: AdmissionLimits,
    state: Mutex<AdmissionState>,
}

#[derive(Debug)]
struct AdmissionState {
    all: usize,
    /// Number of opening connections, by listener.
    opening: [usize; MAX_SHARDS],
    addresses: HashMap<IpAddr, AddressCounts, RandomState>,
}

#[derive(Debug, Default)]
struct AddressCounts {
    opening: usize,
    open: usize,
}

/// Permission for one accepted connection; it counts until it is dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    ip: IpAddr,
    listener: usize,
    open: bool,
}

impl Admission {
    /// Creates the counters, with no connections.
    pub fn new(bounds: AdmissionLimits) -> Admission {
        let state = AdmissionState { all: 0, opening: [0; MAX_SHARDS], addresses: HashMap::default() };
        Admission { bounds, state: Mutex::new(state) }
    }

    /// Admits a connection from this address on the listener with number `listener`, which is below
    /// [`MAX_SHARDS`].
    ///
    /// # Errors
    /// There are too many connections.
    pub fn begin(self: &Arc<Admission>, listener: usize, ip: IpAddr) -> Result<Permit, Full> {
        let AdmissionLimits { all, opening, opening_of_address, of_address, modest } = self.bounds;
        let mut state = self.state.lock();
        let state = &mut *state;
        let permits = state.addresses.entry(ip).or_default();
        let (own, left) = (permits.opening + permits.open, all.saturating_sub(state.all));
        let full = if permits.opening >= opening_of_address || own >= of_address {
            Some(Full::OfAddress(of_address))
        } else if left == 0 || (own >= modest && own >= left) {
            Some(Full::NoRoom)
        } else {
            (state.opening[listener] >= opening).then_some(Full::Opening(opening))
        };
        if let Some(full) = full {
            // Refused connections leave no entry behind.
            state.forget_if_empty(ip);
            return Err(full);
        }
        permits.opening += 1;
        state.opening[listener] += 1;
        state.all += 1;
        Ok(Permit { admission: self.clone(), ip, listener, open: false })
    }

    /// Returns the number of connections from this address that are being opened.
    pub fn opening_of(&self, ip: IpAddr) -> usize {
        self.state.lock().addresses.get(&ip).map_or(0, |permits| permits.opening)
    }
}

impl Permit {
    /// Returns the address from which the connection comes.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Records that the connection is open.
    #[must_use]
    pub fn opened(mut self) -> Permit {
        self.open = true;
        let mut state = self.admission.state.lock();
        state.opening[self.listener] -= 1;
        if let Some(permits) = state.addresses.get_mut(&self.ip) {
            permits.opening -= 1;
            permits.open += 1;
        }
        drop(state);
        self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        state.all -= 1;
        if !self.open {
            state.opening[self.listener] -= 1;
        }
        if let Some(permits) = state.addresses.get_mut(&self.ip) {
            *(if self.open { &mut permits.open } else { &mut permits.opening }) -= 1;
        }
        state.forget_if_empty(self.ip);
    }
}

impl AdmissionState {
    fn forget_if_empty(&mut self, ip: IpAddr) {
        if self.addresses.get(&ip).is_some_and(|permits| permits.opening + permits.open == 0) {
            self.addresses.remove(&ip);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    const BOUNDS: AdmissionLimits = AdmissionLimits {
        all: usize::MAX,
        opening: 256,
        opening_of_address: 64,
        of_address: 1024,
        modest: 16,
    };

    fn ip(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    fn admission(bounds: AdmissionLimits) -> Arc<Admission> {
        Arc::new(Admission::new(bounds))
    }

    fn begin(admission: &Arc<Admission>, from: usize) -> Option<Permit> {
        admission.begin(0, ip(from)).ok()
    }

    fn is_empty(admission: &Admission) -> bool {
        let state = admission.state.lock();
        state.addresses.is_empty() && state.all == 0 && state.opening == [0; MAX_SHARDS]
    }

    #[test]
    fn one_address_cannot_open_all() {
        let admission = admission(BOUNDS);
        let mut permits: Vec<Permit> = (0..BOUNDS.opening).filter_map(|_| begin(&admission, 1)).collect();
        assert_eq!(permits.len(), BOUNDS.opening_of_address);
        assert!(begin(&admission, 2).is_some());
        permits.pop();
        assert!(begin(&admission, 1).is_some());
    }

    #[test]
    fn what_is_being_opened_is_bounded_at_each_door_and_what_stands_is_not() {
        let admission = admission(BOUNDS);
        let from = |number: usize| number / BOUNDS.opening_of_address;
        let permits: Vec<Permit> =
            (0..2 * BOUNDS.opening).filter_map(|number| begin(&admission, from(number))).collect();
        assert_eq!(permits.len(), BOUNDS.opening);
        assert_eq!(admission.begin(0, ip(200)).unwrap_err(), Full::Opening(BOUNDS.opening));
        assert!(admission.begin(1, ip(200)).is_ok(), "the doors of others are not shut");
        assert_eq!(admission.opening_of(ip(0)), BOUNDS.opening_of_address);
        assert_eq!(admission.state.lock().addresses.len(), BOUNDS.opening / BOUNDS.opening_of_address);
        let open: Vec<Permit> = permits.into_iter().map(Permit::opened).collect();
        let more = begin(&admission, 200).unwrap();
        drop((open, more));
        assert!(is_empty(&admission));
    }

    #[test]
    fn connections_count_until_they_are_closed() {
        let admission = admission(BOUNDS);
        let full = Full::OfAddress(BOUNDS.of_address);
        let mut permits: Vec<Permit> =
            (0..BOUNDS.of_address).map(|_| begin(&admission, 1).unwrap().opened()).collect();
        assert_eq!(admission.begin(0, ip(1)).unwrap_err(), full);
        permits.pop();
        permits.push(begin(&admission, 1).unwrap());
        assert_eq!(admission.begin(0, ip(1)).unwrap_err(), full);
        permits.clear();
        assert!(is_empty(&admission));
    }

    /// Addresses that each take all they can get, one after the other, still leave room for others.
    #[test]
    fn no_address_takes_all_the_room() {
        let most = 768;
        let admission = admission(AdmissionLimits { all: most, ..BOUNDS });
        let take = |from: usize| {
            let permits = std::iter::from_fn(|| begin(&admission, from).map(Permit::opened));
            permits.collect::<Vec<Permit>>()
        };
        let hogs: Vec<Vec<Permit>> = (0..4).map(take).collect();
        assert_eq!(hogs.iter().map(Vec::len).collect::<Vec<_>>(), [most / 2, most / 4, most / 8, most / 16]);
        let left = most / 16;
        assert!((10..14).all(|from| begin(&admission, from).is_some()) && left > 4);
        assert_eq!(admission.begin(0, ip(0)).unwrap_err(), Full::NoRoom);
        drop(hogs);
        assert!(is_empty(&admission));
    }

    #[test]
    fn no_more_are_let_in_than_there_is_room_for() {
        let admission = admission(AdmissionLimits { all: 30, ..BOUNDS });
        let permits: Vec<Permit> =
            (0..100).filter_map(|from| begin(&admission, from).map(Permit::opened)).collect();
        assert_eq!(permits.len(), 30);
        assert_eq!(admission.begin(0, ip(200)).unwrap_err(), Full::NoRoom);
        drop(permits);
        assert!(is_empty(&admission));
    }
}
