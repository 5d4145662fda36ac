//! The descriptors of a serving thread: what each is watched for, and the reaction to its events.

use std::sync::atomic::Ordering;

use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use super::client::PollSource;
use super::worker::Worker;

/// Epoll data of descriptors that are not a client's. No client's mark is this large.
pub(super) const BELL: u64 = u64::MAX;
pub(super) const LISTENER: u64 = u64::MAX - 1;
pub(super) const SHARD: u64 = u64::MAX - 2;
pub(super) const PORTER: u64 = u64::MAX - 3;

/// Events that one system call returns.
const EVENTS: usize = 64;

/// Flags of a socket that is watched for its end alone. All descriptors of clients are
/// edge-triggered: their user's share, not the order of epoll, decides when they are served.
pub(super) const END: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLET);

/// Flags of a doorbell.
pub(super) const DOORBELL: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);

/// Flags of a socket that is watched for requests, or for room.
pub(super) const REQUESTS: EpollFlags = END.union(EpollFlags::EPOLLIN);
pub(super) const ROOM: EpollFlags = END.union(EpollFlags::EPOLLOUT);

/// Events that mean that the client has gone.
pub(super) const ENDED: EpollFlags =
    EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

impl Worker {
    /// Takes events of all descriptors, sleeping for up to `timeout`. Returns whether a client or
    /// another thread has work.
    ///
    /// All pending events are taken at once and put into the queues of users, so the order in which
    /// epoll reports the sockets of one user does not matter. No descriptor is reported twice
    /// before its client has been served.
    pub(super) fn poll_events(&mut self, timeout: EpollTimeout) -> bool {
        let mut events = [EpollEvent::empty(); EVENTS];
        let (mut found, mut timeout) = (false, timeout);
        // Each client has two descriptors, and one that reports repeatedly is muted.
        for _ in 0..=self.clients.slots() * 2 / EVENTS + 1 {
            // EINTR and every other error mean the same: try again.
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            for event in &events[..count] {
                found |= self.handle_event(event.data(), event.events());
            }
            if count < EVENTS {
                break;
            }
            timeout = EpollTimeout::ZERO;
        }
        found
    }

    fn handle_event(&mut self, mark: u64, flags: EpollFlags) -> bool {
        match mark {
            SHARD => return false,
            BELL => self.handle_bell(),
            LISTENER => self.accept(),
            PORTER => _ = self.read_porter(),
            mark => match self.clients.source(mark) {
                Some(PollSource::Socket(slot)) => self.handle_client_event(slot, flags),
                Some(PollSource::Doorbell(slot)) => self.handle_doorbell(slot),
                None => return false,
            },
        }
        true
    }

    pub(super) fn handle_bell(&mut self) {
        let _ = self.worker_handle().bell.silence();
        self.worker_handle().bells_handled.fetch_add(1, Ordering::AcqRel);
        // Another thread has replaced the porter: new clients come from the next one.
        if self.link.generation < self.shared.porter.generation() {
            self.leave_porter();
        }
        self.admit_pending();
        let phase = self.shared.phase();
        if phase > self.phase {
            self.phase = phase;
            self.shut_down();
        }
    }

    pub(super) fn watch(&mut self, slot: usize, flags: EpollFlags) {
        let mut event = EpollEvent::new(flags, self.clients.mark(PollSource::Socket(slot)));
        if let Some(client) = self.clients.get(slot) {
            // Cannot fail: the socket is registered.
            let _ = self.epoll.modify(&client.socket, &mut event);
        }
    }
}
