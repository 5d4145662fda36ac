//! The porter's work for the clients of a thread: it accepts them, and closes their sockets.

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use lnet_api::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::descriptors::PORTER;
use super::worker::{Worker, ns};
use super::{ACCEPT_BUDGET, Admission, PORTER_PAUSE, SWEEP};
use crate::accounts::{Charge, Payer, Resource, UserId};
use crate::porter::{PorterMessage, SILENCE_MAX};

/// A descriptor that the porter is to close.
pub(super) struct Leaving {
    user: UserId,
    holds: Holds,
    /// Set if the next porter gets the descriptor with the `Drop` that was not sent to the earlier
    /// one, and needs no further copy. Set only while a porter takes over.
    taken_over: bool,
    /// For the status only: the charges in `holds` bound their number.
    _pending: Option<Charge>,
}

/// The result of reading the channel to the porter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PorterRead {
    /// There may be more messages.
    More,
    /// There is none now.
    Empty,
    /// The porter has ended, and a new one was requested.
    Ended,
}

/// A resource that is released once the descriptor is closed.
enum Holds {
    /// The place of a client.
    Place(Admission),
    /// The place of a refused client.
    Refused,
    /// A descriptor that is shared with a client.
    Descriptor(#[expect(dead_code, reason = "it is held, and dropped")] Charge),
}

impl Worker {
    /// Has the porter close the socket of a client that has gone, which keeps its place until then.
    pub(super) fn hand_over(&mut self, id: u64, payer: Payer, socket: OwnedFd, admission: Option<Admission>) {
        self.link.drop_client(id, payer.user.0, socket);
        self.note_leaving(id, payer, admission.map_or(Holds::Refused, Holds::Place));
    }

    /// Has the porter close a socket that only the porter has.
    pub(super) fn drop_unseen(&mut self, id: u64, payer: Payer) {
        self.link.push(PorterMessage::Drop { client: id, user: payer.user.0 });
        self.note_leaving(id, payer, Holds::Refused);
    }

    /// Has the porter close descriptors that sessions had shared with their clients, and need no
    /// more.
    pub(super) fn hand_over_shared(&mut self) {
        while let Some((number, fd, charge)) = self.shared_fds.pop_ended() {
            let payer = charge.payer();
            self.link.drop_client(number, payer.user.0, fd);
            self.note_leaving(number, payer, Holds::Descriptor(charge));
        }
    }

    /// Returns whether the porter has all shared descriptors: then the answer that sends one to a
    /// client may be sent.
    pub(super) fn keeps_shared(&mut self) -> bool {
        self.shared_fds.is_kept() || self.make_room(0).is_ok() && self.keep_shared()
    }

    /// Passes shared descriptors to the porter. Needs room for all that are held, because the
    /// porter must be asked later to close each of them.
    fn keep_shared(&mut self) -> bool {
        let Worker { shared_fds, link, .. } = self;
        shared_fds.keep_all(|number, fd| link.keep(number, fd))
    }

    fn note_leaving(&mut self, id: u64, payer: Payer, holds: Holds) {
        let pending = self.shared.host.accounts().charge(payer, Resource::PendingCloses, 1).ok();
        self.leaving.insert(id, Leaving { user: payer.user, holds, taken_over: false, _pending: pending });
    }

    pub(super) fn give_back(&self, leaving: Leaving) {
        match leaving.holds {
            Holds::Place(admission) => self.shared.counters.release(admission),
            Holds::Refused => _ = self.shared.counters.refused.fetch_sub(1, Ordering::Relaxed),
            Holds::Descriptor(_) => {}
        }
    }

    /// Handles messages of the porter, a few at a time.
    pub(super) fn read_porter(&mut self) -> PorterRead {
        self.flush_link();
        // A little more than it sends for one request.
        for _ in 0..2 * ACCEPT_BUDGET {
            match self.link.receive() {
                Ok(Some((PorterMessage::Accepted { client, user }, socket))) => {
                    self.accepted(client, user, socket)
                }
                Ok(Some((PorterMessage::AcceptEnd { errno }, _))) => {
                    self.accepting = false;
                    match errno {
                        0 if self.paused_until_ns.is_none() => self.watch_listener(EpollFlags::EPOLLIN),
                        0 => {}
                        errno => self.pause(Errno::from_raw(errno)),
                    }
                }
                Ok(Some((PorterMessage::Gone { client }, _))) => {
                    if let Some(leaving) = self.leaving.remove(&client) {
                        self.give_back(leaving);
                    }
                }
                Ok(Some((PorterMessage::Here, _))) => self.asking = false,
                Ok(Some(_)) => {}
                Ok(None) => return PorterRead::Empty,
                Err(_) => {
                    self.relink();
                    return PorterRead::Ended;
                }
            }
            self.asked_ns = (self.accepting || self.asking).then(|| self.now_ns());
        }
        PorterRead::More
    }

    /// Watches the channel for room while a message waits for it.
    pub(super) fn watch_link(&mut self) {
        if self.link.is_refused() && self.retry_ns.is_none() {
            self.retry_ns = Some(self.now_ns() + ns(PORTER_PAUSE));
        }
        let waits = self.link.wants_room() || !self.keeps_all && !self.link.is_refused();
        let room = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        let wanted = EpollFlags::EPOLLIN | room;
        if self.relink_ns.is_none() && wanted != self.watched {
            self.watched = wanted;
            // Cannot fail: the channel is registered.
            let _ = self.epoll.modify(&self.link.channel, &mut EpollEvent::new(wanted, PORTER));
        }
    }

    /// Sends the messages that wait for room in the channel.
    pub(super) fn flush_link(&mut self) {
        self.retry_ns = None;
        if self.link.is_refused() && self.asked_ns.is_some() {
            self.asked_ns = Some(self.now_ns());
        }
        self.link.flush();
        if !self.keeps_all {
            self.keep_all();
        }
    }

    /// Asks the porter for a sign of life.
    pub(super) fn ask_porter(&mut self) {
        if !self.asking && self.relink_ns.is_none() && self.shared.porter.is_process() {
            self.asking = true;
            self.link.push(PorterMessage::Ask);
            self.await_porter();
        }
    }

    /// Starts the deadline for the porter's answer.
    pub(super) fn await_porter(&mut self) {
        let now_ns = self.now_ns();
        self.asked_ns.get_or_insert(now_ns);
    }

    /// Returns the deadline for the porter's answer.
    pub(super) fn silent_ns(&self) -> Option<u64> {
        // A message that the system refuses to send has not reached the porter.
        let waits = self.shared.porter.is_process() && !self.link.is_refused();
        let asked_ns = self.asked_ns.filter(|_| waits)?;
        Some(asked_ns.saturating_add(ns(SILENCE_MAX)))
    }

    /// Replaces the porter, if it has not answered in time.
    pub(super) fn replace_porter(&mut self, now_ns: u64) {
        self.read_porter();
        let Some(silent_ns) = self.silent_ns().filter(|silent_ns| *silent_ns <= now_ns) else { return };
        self.asked_ns = Some(now_ns);
        // If this process itself was stopped, so may the porter have been.
        let stood_still = now_ns - silent_ns > ns(SWEEP);
        if !stood_still && self.shared.porter.replace(self.link.generation).is_ok() {
            self.leave_porter();
            self.shared.ring_all();
        }
    }

    /// Handles all messages of the porter, which has been killed, and requests the channel of a new
    /// one. Closing the channel with unread messages would close the sockets of clients in them.
    pub(super) fn leave_porter(&mut self) {
        self.link.stop_sending();
        let read = loop {
            match self.read_porter() {
                PorterRead::More => {}
                read => break read,
            }
        };
        if read == PorterRead::Empty {
            self.relink();
        }
    }

    /// Requests the channel of a new porter, which takes over. Every message of the earlier one has
    /// been read.
    fn relink(&mut self) {
        (self.asked_ns, self.asking) = (None, false);
        if self.relink_ns.take().is_none() {
            let _ = self.epoll.delete(&self.link.channel);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, PORTER);
        let clients = self.known() + ACCEPT_BUDGET;
        let linked = self.shared.porter.link().and_then(|mut link| {
            link.reserve(clients).map_err(|_| Errno::ENOMEM)?;
            self.epoll.add(&link.channel, event)?;
            Ok(link)
        });
        let link = match linked {
            Ok(link) => link,
            Err(errno) => {
                if errno != Errno::EAGAIN && self.shared.may_warn() {
                    tracing::warn!(%errno, "cannot start a porter process: clients cannot connect until a retry succeeds");
                }
                self.relink_ns = Some(self.now_ns() + ns(PORTER_PAUSE));
                return;
            }
        };
        let earlier = mem::replace(&mut self.link, link);
        self.watched = EpollFlags::EPOLLIN;
        let Worker { link, leaving, .. } = self;
        link.take_over(earlier, |client| {
            if let Some(leaving) = leaving.get_mut(&client) {
                leaving.taken_over = true;
            }
        });
        // The earlier porter closes its copies when it ends, unless a close blocks. The new one has
        // no record of these clients, and answers that they are gone.
        for (&client, leaving) in leaving {
            if !mem::take(&mut leaving.taken_over) {
                link.push(PorterMessage::Drop { client, user: leaving.user.0 });
            }
        }
        self.lingering.iter_mut().for_each(|client| client.kept = false);
        self.shared_fds.porter_has_none();
        for slot in 0..self.clients.slots() {
            let Some(client) = self.clients.get(slot) else { continue };
            client.kept = false;
        }
        self.keep_all();
        if mem::take(&mut self.accepting) && self.paused_until_ns.is_none() {
            self.watch_listener(EpollFlags::EPOLLIN);
        }
    }

    /// Passes sockets and shared descriptors that the porter lacks to it, as far as there is room,
    /// so that no close in this process is the last one.
    pub(super) fn keep_all(&mut self) {
        let Worker { clients, lingering, link, .. } = self;
        let all = clients.iter_mut().map(|client| (&mut client.kept, client.id, &client.socket));
        let lingering = lingering.iter_mut().map(|client| (&mut client.kept, client.id, &client.socket));
        self.keeps_all = all.chain(lingering).filter(|(kept, ..)| !**kept).all(|(kept, id, socket)| {
            *kept = link.keep(id, socket.as_fd());
            *kept
        });
        self.keeps_all &= self.keeps_shared();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    use lnet_fake::{FakeDrive, FakeLnet};
    use nix::sys::socket::{MsgFlags, recv};
    use parking_lot::Mutex;

    use super::super::{ServiceConfig, ServiceShared, WorkerHandle};
    use super::*;
    use crate::porter::{Porter, RESTART_PAUSE, pair, receive_one, send};
    use crate::{Host, HostConfig};

    const USER: u32 = 7;

    /// A thread that is not run, and the porters' ends of their first channels.
    struct Bed {
        worker: Worker,
        mains: Arc<Mutex<Vec<OwnedFd>>>,
    }

    impl Bed {
        fn new() -> Bed {
            let mains = Arc::new(Mutex::new(Vec::new()));
            let started = mains.clone();
            let porter = Porter::start(move || {
                let (ours, theirs) = pair()?;
                started.lock().push(theirs);
                Ok(ours)
            });
            let host = Host::new(FakeLnet::new(&["0@lo"]), FakeDrive::new(), HostConfig::default());
            let worker_handles = Box::new([WorkerHandle::new().unwrap()]);
            let shared = ServiceShared::new(host, worker_handles, porter.unwrap(), ServiceConfig::default());
            let worker = Worker::new(Arc::new(shared), 0, None).unwrap();
            Bed { worker, mains }
        }

        /// Returns the last porter's end of the one channel that the thread has requested.
        fn link(&self) -> OwnedFd {
            let mains = self.mains.lock();
            let mut received = received(mains.last().unwrap());
            let (message, channel) = received.pop().unwrap();
            assert_eq!((message, received.len()), (PorterMessage::Channel, 0));
            channel.unwrap()
        }

        /// Ends the last porter, after the pause that another start needs.
        fn end_porter(&self) {
            std::thread::sleep(RESTART_PAUSE);
            self.mains.lock().pop();
        }
    }

    /// Receives all pending messages.
    fn received(channel: &OwnedFd) -> Vec<(PorterMessage, Option<OwnedFd>)> {
        let next = || receive_one(channel.as_fd(), MsgFlags::MSG_DONTWAIT).ok().flatten();
        std::iter::from_fn(next).collect()
    }

    /// If those clients were lost, they would see the end of their connections, and a close here
    /// could be the last one.
    #[test]
    fn clients_that_the_earlier_porter_accepted_come_in_when_another_thread_has_replaced_it() {
        const COUNT: u64 = 2 * ACCEPT_BUDGET as u64 + 1;
        for ended in [false, true] {
            let mut bed = Bed::new();
            bed.worker.make_room(COUNT as usize).unwrap();
            let mut link = Some(bed.link());
            let mut peers = Vec::new();
            for client in 1..=COUNT {
                let (socket, peer) = pair().unwrap();
                let message = PorterMessage::Accepted { client, user: USER };
                send(link.as_ref().unwrap().as_fd(), message, &[socket], MsgFlags::empty()).unwrap();
                peers.push(peer);
            }
            link.take_if(|_| ended);
            bed.end_porter();
            bed.worker.shared.porter.replace(1).unwrap();
            bed.worker.handle_bell();
            assert_eq!((bed.worker.link.generation, bed.worker.clients.count() as u64), (2, COUNT));
            let kept = received(&bed.link());
            assert_eq!(kept.len() as u64, COUNT, "the next porter has all of them");
            assert!(kept.iter().all(|(message, _)| matches!(message, PorterMessage::Keep { .. })));
            for peer in peers {
                let end = recv(peer.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT);
                assert_eq!(end, Err(Errno::EAGAIN), "it is connected");
            }
        }
    }

    /// A porter answers at once that an unknown client is closed. After the first `Drop` a carrier
    /// may still be closing the client's socket, while the porter has no record of the client any
    /// more.
    #[test]
    fn the_next_porter_is_to_drop_each_client_once() {
        const GIVEN: u64 = 1;
        const WAITING: u64 = 2;
        let mut bed = Bed::new();
        bed.worker.make_room(2).unwrap();
        for client in [GIVEN, WAITING] {
            // The porter has ended before the second client is dropped.
            let _link = (client == GIVEN).then(|| bed.link());
            let payer = bed.worker.enter_refused(USER);
            bed.worker.hand_over(client, payer, pair().unwrap().0, None);
        }
        // Messages without a socket come in any order.
        let order = |(message, _): &(PorterMessage, bool)| *message == drop_of(GIVEN);
        let mut porter_ends = || {
            bed.end_porter();
            assert_eq!(bed.worker.read_porter(), PorterRead::Ended);
            let messages = received(&bed.link()).into_iter();
            let mut messages: Vec<_> = messages.map(|(message, fd)| (message, fd.is_some())).collect();
            messages.sort_by_key(order);
            messages
        };
        let closed = PorterMessage::Closed { client: WAITING };
        let expected = [(drop_of(WAITING), true), (closed, false), (drop_of(GIVEN), false)];
        assert_eq!(porter_ends(), expected);
        assert_eq!(porter_ends(), [(drop_of(WAITING), false), (drop_of(GIVEN), false)]);
    }

    fn drop_of(client: u64) -> PorterMessage {
        PorterMessage::Drop { client, user: USER }
    }
}
