//! How many strangers are let in: connections of peers that are being opened, or are open, in all and from one address.

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::MAX_SHARDS;
use parking_lot::Mutex;

/// The most connections of peers that there may be.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// In all, opening and open.
    pub all: usize,
    /// Opening, at one door.
    pub opening: usize,
    /// Opening, from one address: one stalled host must not keep the others out.
    pub opening_of_address: usize,
    /// From one address, opening and open.
    pub of_address: usize,
    /// What every address may have as long as there is room. Beyond, no address may have more than is left for all others:
    /// whoever takes as many as it can leaves half of them to those who come after.
    pub modest: usize,
}

/// Why a stranger is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Too many are being opened at this door: it may begin once another of them has been dropped.
    #[error("{0} connections of peers are being opened at a time, and no more")]
    Opening(usize),
    /// Its address has too many.
    #[error("an address has at most {0} connections")]
    OfAddress(usize),
    /// There is no room to spare for it.
    #[error("there is no room for further connections")]
    NoRoom,
}

/// Counts those who were let in, at all doors.
#[derive(Debug)]
pub struct Admission {
    bounds: Bounds,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    all: usize,
    /// Opening, by door.
    opening: [usize; MAX_SHARDS],
    addresses: HashMap<IpAddr, Guests, RandomState>,
}

#[derive(Debug, Default)]
struct Guests {
    opening: usize,
    open: usize,
}

/// Somebody who was let in; counts until it is dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    ip: IpAddr,
    door: usize,
    open: bool,
}

impl Admission {
    /// Nobody is in.
    pub fn new(bounds: Bounds) -> Admission {
        let book = Book { all: 0, opening: [0; MAX_SHARDS], addresses: HashMap::default() };
        Admission { bounds, book: Mutex::new(book) }
    }

    /// Lets in a connection from this address at this door, which is a number below [`MAX_SHARDS`].
    ///
    /// # Errors
    /// There are too many.
    pub fn begin(self: &Arc<Admission>, door: usize, ip: IpAddr) -> Result<Permit, Full> {
        let Bounds { all, opening, opening_of_address, of_address, modest } = self.bounds;
        let mut book = self.book.lock();
        let book = &mut *book;
        let permits = book.addresses.entry(ip).or_default();
        let (own, left) = (permits.opening + permits.open, all.saturating_sub(book.all));
        let full = if permits.opening >= opening_of_address || own >= of_address {
            Some(Full::OfAddress(of_address))
        } else if left == 0 || (own >= modest && own >= left) {
            Some(Full::NoRoom)
        } else {
            (book.opening[door] >= opening).then_some(Full::Opening(opening))
        };
        if let Some(full) = full {
            // The strangers that are turned away while others fill the house leave nothing behind.
            book.forget_if_empty(ip);
            return Err(full);
        }
        permits.opening += 1;
        book.opening[door] += 1;
        book.all += 1;
        Ok(Permit { admission: self.clone(), ip, door, open: false })
    }

    /// Connections of this address that are being opened.
    pub fn opening_of(&self, ip: IpAddr) -> usize {
        self.book.lock().addresses.get(&ip).map_or(0, |permits| permits.opening)
    }
}

impl Permit {
    /// Where it comes from.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Its connection is open.
    #[must_use]
    pub fn opened(mut self) -> Permit {
        self.open = true;
        let mut book = self.admission.book.lock();
        book.opening[self.door] -= 1;
        if let Some(permits) = book.addresses.get_mut(&self.ip) {
            permits.opening -= 1;
            permits.open += 1;
        }
        drop(book);
        self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut book = self.admission.book.lock();
        book.all -= 1;
        if !self.open {
            book.opening[self.door] -= 1;
        }
        if let Some(permits) = book.addresses.get_mut(&self.ip) {
            *(if self.open { &mut permits.open } else { &mut permits.opening }) -= 1;
        }
        book.forget_if_empty(self.ip);
    }
}

impl Book {
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

    const BOUNDS: Bounds =
        Bounds { all: usize::MAX, opening: 256, opening_of_address: 64, of_address: 1024, modest: 16 };

    fn ip(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    fn admission(bounds: Bounds) -> Arc<Admission> {
        Arc::new(Admission::new(bounds))
    }

    fn begin(admission: &Arc<Admission>, from: usize) -> Option<Permit> {
        admission.begin(0, ip(from)).ok()
    }

    fn is_empty(admission: &Admission) -> bool {
        let book = admission.book.lock();
        book.addresses.is_empty() && book.all == 0 && book.opening == [0; MAX_SHARDS]
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
        assert_eq!(admission.book.lock().addresses.len(), BOUNDS.opening / BOUNDS.opening_of_address);
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

    /// One address after another takes what it can get; there is room for others all the same.
    #[test]
    fn no_address_takes_all_the_room() {
        let most = 768;
        let admission = admission(Bounds { all: most, ..BOUNDS });
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
        let admission = admission(Bounds { all: 30, ..BOUNDS });
        let permits: Vec<Permit> =
            (0..100).filter_map(|from| begin(&admission, from).map(Permit::opened)).collect();
        assert_eq!(permits.len(), 30);
        assert_eq!(admission.begin(0, ip(200)).unwrap_err(), Full::NoRoom);
        drop(permits);
        assert!(is_empty(&admission));
    }
}
