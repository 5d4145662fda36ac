//! The descriptors of a serving thread: what each is watched for, and what is done when the system reports it.

use std::sync::atomic::Ordering;

use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use super::client::Source;
use super::worker::Worker;

/// What the system says of descriptors that are no client's. No client's mark is so large.
pub(super) const BELL: u64 = u64::MAX;
pub(super) const LISTENER: u64 = u64::MAX - 1;
pub(super) const SHARD: u64 = u64::MAX - 2;
pub(super) const PORTER: u64 = u64::MAX - 3;

/// Descriptors that one system call tells of.
const EVENTS: usize = 64;

/// A socket that is looked at for its end alone. All of a client's descriptors are reported once for each change: then its user's
/// share, not the system's list, decides when it is served.
pub(super) const END: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLET);

/// How a doorbell is watched.
pub(super) const DOORBELL: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);

/// And for requests, or for room.
pub(super) const REQUESTS: EpollFlags = END.union(EpollFlags::EPOLLIN);
pub(super) const ROOM: EpollFlags = END.union(EpollFlags::EPOLLOUT);

/// How a socket says that its client has gone.
pub(super) const ENDED: EpollFlags =
    EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

impl Worker {
    /// Looks at all descriptors, and sleeps meanwhile. Gives whether a client or another thread wanted something.
    ///
    /// All that the system has to tell is taken at once, and put into the queues of users: so it does not matter of how many
    /// sockets of one user it tells first. No descriptor is told of twice before its client has been served.
    pub(super) fn look(&mut self, timeout: EpollTimeout) -> bool {
        let mut events = [EpollEvent::empty(); EVENTS];
        let (mut found, mut timeout) = (false, timeout);
        // Each client has two descriptors, and one that it makes tell again and again is muted.
        for _ in 0..=self.clients.places() * 2 / EVENTS + 1 {
            // EINTR and every other answer mean the same: look again.
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            for event in &events[..count] {
                found |= self.hear_of(event.data(), event.events());
            }
            if count < EVENTS {
                break;
            }
            timeout = EpollTimeout::ZERO;
        }
        found
    }

    fn hear_of(&mut self, mark: u64, flags: EpollFlags) -> bool {
        match mark {
            SHARD => return false,
            BELL => self.hear(),
            LISTENER => self.accept(),
            PORTER => _ = self.read_porter(),
            mark => match self.clients.source(mark) {
                Some(Source::Socket(place)) => self.turn_to(place, flags),
                Some(Source::Doorbell(place)) => self.hear_doorbell(place),
                None => return false,
            },
        }
        true
    }

    pub(super) fn hear(&mut self) {
        let _ = self.desk().bell.silence();
        self.desk().heard.fetch_add(1, Ordering::AcqRel);
        // Another thread has replaced the porter: arrivals are those of the next one.
        if self.link.generation < self.shared.porter.generation() {
            self.leave_porter();
        }
        self.admit_arrivals();
        let phase = self.shared.phase();
        if phase > self.phase {
            self.phase = phase;
            self.wind_up();
        }
    }

    pub(super) fn watch(&mut self, place: usize, flags: EpollFlags) {
        let mut event = EpollEvent::new(flags, self.clients.mark(Source::Socket(place)));
        if let Some(client) = self.clients.get(place) {
            // It stands in there: this cannot fail.
            let _ = self.epoll.modify(&client.socket, &mut event);
        }
    }
}
