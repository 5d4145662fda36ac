//! How many strangers are let in: handshakes and connections, in all and from one address.

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::MAX_SHARDS;
use parking_lot::Mutex;

/// Handshakes of peers that connect, on one shard's listeners: each costs a descriptor and half a kilobyte for up to
/// `accept_timeout`. Each shard has its own, since it can only drop its own to make room for another.
pub(crate) const HANDSHAKES_MAX: usize = 256;

/// Handshakes from one address: one stalled host must not keep the others out.
pub(crate) const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;

/// Accepted connections from one address: a peer has three, or nine with four per type; many user-space nodes on one
/// host share its address.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 1024;

/// Handshakes and connections that every address may have as long as there are descriptors: a peer's, and another
/// process's on the same host. Beyond, no address may have more than is left for all others: however many descriptors
/// there are, whoever takes as many as it can leaves half of them to those who come after.
pub(crate) const MODEST: usize = 16;

/// What may be accepted of the descriptors that a process has: the rest stays for its own files, and for the connections
/// that this node opens itself, which no stranger can then prevent.
const SHARE: (usize, usize) = (3, 4);

/// Counts those who were let in, by all shards.
pub(crate) struct Admission {
    /// Handshakes and connections in all.
    most: usize,
    book: Mutex<Book>,
}

struct Book {
    /// Handshakes and connections of all.
    guests: usize,
    /// Handshakes, by the shard whose listener they came on.
    handshakes: [usize; MAX_SHARDS],
    addresses: HashMap<IpAddr, Guests, RandomState>,
}

#[derive(Default)]
struct Guests {
    handshakes: usize,
    connections: usize,
}

/// What becomes of a stranger.
pub(crate) enum Entry {
    Granted(Guest),
    /// There are too many handshakes on this shard: it may begin once another of them has been dropped.
    Full,
    /// Its address has too many handshakes or connections.
    Refused,
    /// The process has no descriptors to spare for it.
    NoRoom,
}

/// Somebody who was let in; counts until it is dropped.
pub(crate) struct Guest {
    admission: Arc<Admission>,
    ip: IpAddr,
    shard: usize,
    connected: bool,
}

impl Admission {
    /// Nobody is in. `descriptors` is how many the process may have.
    pub(crate) fn new(descriptors: usize) -> Admission {
        let book = Book { guests: 0, handshakes: [0; MAX_SHARDS], addresses: HashMap::default() };
        Admission { most: descriptors / SHARE.1 * SHARE.0, book: Mutex::new(book) }
    }

    /// Whether a handshake from this address may begin on this shard; counts it if so.
    pub(crate) fn begin(self: &Arc<Admission>, shard: usize, ip: IpAddr) -> Entry {
        let mut book = self.book.lock();
        let book = &mut *book;
        let guests = book.addresses.entry(ip).or_default();
        let left = self.most.saturating_sub(book.guests);
        let own = guests.handshakes + guests.connections;
        let entry = if guests.handshakes >= HANDSHAKES_PER_ADDRESS_MAX
            || guests.connections >= CONNECTIONS_PER_ADDRESS_MAX
        {
            Entry::Refused
        } else if left == 0 || (own >= MODEST && own >= left) {
            Entry::NoRoom
        } else if book.handshakes[shard] >= HANDSHAKES_MAX {
            Entry::Full
        } else {
            guests.handshakes += 1;
            book.handshakes[shard] += 1;
            book.guests += 1;
            Entry::Granted(Guest { admission: self.clone(), ip, shard, connected: false })
        };
        // The strangers that are turned away while others fill the house leave nothing behind.
        book.forget_if_empty(ip);
        entry
    }

    /// Handshakes of this address that are under way.
    pub(crate) fn handshakes_of(&self, ip: IpAddr) -> usize {
        self.book.lock().addresses.get(&ip).map_or(0, |guests| guests.handshakes)
    }
}

impl Guest {
    /// Where it comes from.
    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Its handshake has ended with a connection.
    pub(crate) fn connected(mut self) -> Guest {
        self.connected = true;
        let mut book = self.admission.book.lock();
        book.handshakes[self.shard] -= 1;
        if let Some(guests) = book.addresses.get_mut(&self.ip) {
            guests.handshakes -= 1;
            guests.connections += 1;
        }
        drop(book);
        self
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut book = self.admission.book.lock();
        book.guests -= 1;
        if !self.connected {
            book.handshakes[self.shard] -= 1;
        }
        if let Some(guests) = book.addresses.get_mut(&self.ip) {
            *(if self.connected { &mut guests.connections } else { &mut guests.handshakes }) -= 1;
        }
        book.forget_if_empty(self.ip);
    }
}

impl Book {
    fn forget_if_empty(&mut self, ip: IpAddr) {
        if self.addresses.get(&ip).is_some_and(|guests| guests.handshakes + guests.connections == 0) {
            self.addresses.remove(&ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    fn admission(descriptors: usize) -> Arc<Admission> {
        Arc::new(Admission::new(descriptors))
    }

    fn begin(admission: &Arc<Admission>, from: usize) -> Option<Guest> {
        match admission.begin(0, ip(from)) {
            Entry::Granted(guest) => Some(guest),
            Entry::Full | Entry::Refused | Entry::NoRoom => None,
        }
    }

    fn is_empty(admission: &Admission) -> bool {
        let book = admission.book.lock();
        book.addresses.is_empty() && book.guests == 0 && book.handshakes == [0; MAX_SHARDS]
    }

    #[test]
    fn one_address_cannot_take_all_handshakes() {
        let admission = admission(usize::MAX);
        let mut guests: Vec<Guest> = (0..HANDSHAKES_MAX).filter_map(|_| begin(&admission, 1)).collect();
        assert_eq!(guests.len(), HANDSHAKES_PER_ADDRESS_MAX);
        assert!(begin(&admission, 2).is_some());
        guests.pop();
        assert!(begin(&admission, 1).is_some());
    }

    #[test]
    fn handshakes_are_bounded_on_each_shard() {
        let admission = admission(usize::MAX);
        let from = |number: usize| number / HANDSHAKES_PER_ADDRESS_MAX;
        let guests: Vec<Guest> =
            (0..2 * HANDSHAKES_MAX).filter_map(|number| begin(&admission, from(number))).collect();
        assert_eq!(guests.len(), HANDSHAKES_MAX);
        assert!(matches!(admission.begin(0, ip(200)), Entry::Full));
        assert!(
            matches!(admission.begin(1, ip(200)), Entry::Granted(_)),
            "the listeners of others are not shut"
        );
        assert_eq!(admission.handshakes_of(ip(0)), HANDSHAKES_PER_ADDRESS_MAX);
        assert_eq!(admission.book.lock().addresses.len(), HANDSHAKES_MAX / HANDSHAKES_PER_ADDRESS_MAX);
    }

    #[test]
    fn connections_count_until_they_are_closed() {
        let admission = admission(usize::MAX);
        let mut guests: Vec<Guest> =
            (0..CONNECTIONS_PER_ADDRESS_MAX).map(|_| begin(&admission, 1).unwrap().connected()).collect();
        assert!(matches!(admission.begin(0, ip(1)), Entry::Refused));
        guests.pop();
        assert!(begin(&admission, 1).is_some());
        guests.clear();
        assert!(is_empty(&admission));
    }

    /// One address after another takes what it can get; there is room for others all the same.
    #[test]
    fn no_address_takes_all_descriptors() {
        let admission = admission(1024);
        let take = |from: usize| {
            let guests = std::iter::from_fn(|| begin(&admission, from).map(Guest::connected));
            guests.collect::<Vec<Guest>>()
        };
        let hogs: Vec<Vec<Guest>> = (0..4).map(take).collect();
        let most = 1024 / 4 * 3;
        assert_eq!(hogs.iter().map(Vec::len).collect::<Vec<_>>(), [most / 2, most / 4, most / 8, most / 16]);
        let left = most / 16;
        assert!((10..14).all(|from| begin(&admission, from).is_some()) && left > 4);
        assert!(matches!(admission.begin(0, ip(0)), Entry::NoRoom));
        drop(hogs);
        assert!(is_empty(&admission));
    }

    #[test]
    fn descriptors_are_kept_for_connections_of_our_own() {
        let admission = admission(40);
        let guests: Vec<Guest> =
            (0..100).filter_map(|from| begin(&admission, from).map(Guest::connected)).collect();
        assert_eq!(guests.len(), 30);
        assert!(matches!(admission.begin(0, ip(200)), Entry::NoRoom));
        drop(guests);
        assert!(is_empty(&admission));
    }
}
