//! How many strangers are let in: handshakes and connections, in all and from one address.

use std::net::IpAddr;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Handshakes of peers that connect, in all: each costs a descriptor and half a kilobyte for up to `accept_timeout`.
pub(crate) const HANDSHAKES_MAX: usize = 256;

/// Handshakes from one address: one stalled host must not keep the others out.
pub(crate) const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;

/// Accepted connections from one address: a peer has three, or nine with four per type; many user-space nodes on one
/// host share its address.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 1024;

/// Counts those who were let in.
#[derive(Default)]
pub(crate) struct Admission {
    handshakes: usize,
    addresses: HashMap<IpAddr, Guests, RandomState>,
}

/// What becomes of a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Granted,
    /// There are too many handshakes in all: it may begin once another has been dropped.
    Full,
    /// Its address has too many handshakes or connections.
    Refused,
}

#[derive(Default)]
struct Guests {
    handshakes: usize,
    connections: usize,
}

impl Admission {
    /// Whether a handshake from this address may begin; counts it if so.
    pub(crate) fn begin(&mut self, ip: IpAddr) -> Entry {
        let guests = self.addresses.entry(ip).or_default();
        let entry = if guests.handshakes >= HANDSHAKES_PER_ADDRESS_MAX
            || guests.connections >= CONNECTIONS_PER_ADDRESS_MAX
        {
            Entry::Refused
        } else if self.handshakes >= HANDSHAKES_MAX {
            Entry::Full
        } else {
            guests.handshakes += 1;
            self.handshakes += 1;
            Entry::Granted
        };
        // The strangers that are turned away while others fill the house leave nothing behind.
        self.forget_if_empty(ip);
        entry
    }

    /// Handshakes of this address that are under way.
    pub(crate) fn handshakes_of(&self, ip: IpAddr) -> usize {
        self.addresses.get(&ip).map_or(0, |guests| guests.handshakes)
    }

    /// A handshake has ended, with a connection or without.
    pub(crate) fn end(&mut self, ip: IpAddr, connected: bool) {
        let Some(guests) = self.addresses.get_mut(&ip) else { return };
        self.handshakes -= 1;
        guests.handshakes -= 1;
        guests.connections += usize::from(connected);
        self.forget_if_empty(ip);
    }

    /// An accepted connection has been closed.
    pub(crate) fn closed(&mut self, ip: IpAddr) {
        if let Some(guests) = self.addresses.get_mut(&ip) {
            guests.connections -= 1;
        }
        self.forget_if_empty(ip);
    }

    fn forget_if_empty(&mut self, ip: IpAddr) {
        if self.addresses.get(&ip).is_some_and(|guests| guests.handshakes + guests.connections == 0) {
            self.addresses.remove(&ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_address_cannot_take_all_handshakes() {
        let mut admission = Admission::default();
        let begun = (0..HANDSHAKES_MAX).filter(|_| admission.begin(ip(1)) == Entry::Granted).count();
        assert_eq!(begun, HANDSHAKES_PER_ADDRESS_MAX);
        assert_eq!(admission.begin(ip(2)), Entry::Granted);
        admission.end(ip(1), false);
        assert_eq!(admission.begin(ip(1)), Entry::Granted);
    }

    #[test]
    fn handshakes_are_bounded_in_all() {
        let mut admission = Admission::default();
        let from = |number: usize| ip((number / HANDSHAKES_PER_ADDRESS_MAX) as u8);
        let begun =
            (0..2 * HANDSHAKES_MAX).filter(|number| admission.begin(from(*number)) == Entry::Granted).count();
        assert_eq!((begun, admission.begin(ip(200))), (HANDSHAKES_MAX, Entry::Full));
        assert_eq!(admission.handshakes_of(ip(0)), HANDSHAKES_PER_ADDRESS_MAX);
        assert_eq!(admission.addresses.len(), HANDSHAKES_MAX / HANDSHAKES_PER_ADDRESS_MAX);
    }

    #[test]
    fn connections_count_until_they_are_closed() {
        let mut admission = Admission::default();
        for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
            assert_eq!(admission.begin(ip(1)), Entry::Granted);
            admission.end(ip(1), true);
        }
        assert_eq!(admission.begin(ip(1)), Entry::Refused);
        admission.closed(ip(1));
        assert_eq!(admission.begin(ip(1)), Entry::Granted);
        admission.end(ip(1), false);
        for _ in 1..CONNECTIONS_PER_ADDRESS_MAX {
            admission.closed(ip(1));
        }
        assert!(admission.addresses.is_empty() && admission.handshakes == 0);
    }
}
