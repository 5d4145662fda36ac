//! How many connections of peers are let in at a time, over all peers of an NI.
//!
//! A request names the NID of whoever asks, which is that of its address, or it does not come this far. What bounds the connections of
//! one peer ([`LINKS_MAX`]) does not bound those of all. Each costs its queues at the device and its message buffers, from the moment
//! it is accepted on (`sizes`).

use std::net::Ipv4Addr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::links::LINKS_MAX;

/// Connections that are accepted and do not stand yet, of an NI: each takes its time on the network, or is given up after a quarter
/// of `timeout`. After a restart a thousand peers may come at once; with the default tunables they take some 130 MiB.
pub(crate) const OPENING_MAX: usize = 1024;

/// Connections of one address to an NI, opening or open: as many as one peer may have. One address is one peer.
pub(crate) const OF_ADDRESS_MAX: usize = LINKS_MAX;

/// Counts those that an NI has let in.
#[derive(Debug, Default)]
pub(crate) struct Admission(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    opening: usize,
    /// Connections, by the address they came from.
    addresses: HashMap<Ipv4Addr, usize, RandomState>,
}

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    /// There are too many that have not finished.
    #[error("{OPENING_MAX} connections of peers are being opened at a time, and no more")]
    Opening,
    /// It has enough.
    #[error("an address has at most {OF_ADDRESS_MAX} connections")]
    OfAddress,
}

/// A connection that was let in; counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    admission: Arc<Admission>,
    address: Ipv4Addr,
    opening: bool,
}

impl Admission {
    /// Whether a peer may connect from this address; counts it if so.
    pub(crate) fn begin(self: &Arc<Admission>, address: Ipv4Addr) -> Result<Guest, Full> {
        let mut book = self.0.lock();
        let of_address = book.addresses.get(&address).copied().unwrap_or(0);
        if of_address >= OF_ADDRESS_MAX {
            return Err(Full::OfAddress);
        }
        if book.opening >= OPENING_MAX {
            return Err(Full::Opening);
        }
        book.opening += 1;
        book.addresses.insert(address, of_address + 1);
        drop(book);
        Ok(Guest { admission: self.clone(), address, opening: true })
    }
}

impl Guest {
    /// The connection stands.
    pub(crate) fn established(mut self) -> Guest {
        self.opening = false;
        self.admission.0.lock().opening -= 1;
        self
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut book = self.admission.0.lock();
        book.opening -= usize::from(self.opening);
        if let Some(count) = book.addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                book.addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> Ipv4Addr {
        Ipv4Addr::from(0x0a00_0000 + number as u32)
    }

    fn is_empty(admission: &Admission) -> bool {
        let book = admission.0.lock();
        book.opening == 0 && book.addresses.is_empty()
    }

    #[test]
    fn an_address_has_as_many_as_a_peer() {
        let admission = Arc::new(Admission::default());
        let mut guests: Vec<Guest> =
            (0..OF_ADDRESS_MAX).map(|_| admission.begin(address(1)).unwrap().established()).collect();
        assert_eq!(admission.begin(address(1)).unwrap_err(), Full::OfAddress);
        guests.push(admission.begin(address(2)).unwrap());
        guests.remove(0);
        guests.push(admission.begin(address(1)).unwrap());
        assert_eq!(admission.begin(address(1)).unwrap_err(), Full::OfAddress);
        drop(guests);
        assert!(is_empty(&admission));
    }

    #[test]
    fn what_is_being_opened_is_bounded_and_what_stands_is_not() {
        let admission = Arc::new(Admission::default());
        let opening: Vec<Guest> =
            (0..OPENING_MAX).map(|number| admission.begin(address(number)).unwrap()).collect();
        assert_eq!(admission.begin(address(OPENING_MAX)).unwrap_err(), Full::Opening);
        let standing: Vec<Guest> = opening.into_iter().map(Guest::established).collect();
        let more = admission.begin(address(OPENING_MAX)).unwrap();
        drop((standing, more));
        assert!(is_empty(&admission));
    }
}
