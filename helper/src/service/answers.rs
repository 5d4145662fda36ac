//! Answers: sending them, keeping them until there is room, and counting their descriptors until
//! they are received.

use std::mem;
use std::os::fd::{AsFd, OwnedFd};

use lnet_api::Errno;

use super::client::RequestState;
use super::descriptors::{END, REQUESTS, ROOM};
use super::worker::{Worker, ns};
use super::{Admission, CROWD_LOOK, Phase, UNREAD_BLAMED, socket};
use crate::ReplyPacket;
use crate::accounts::{Charge, Payer, Resource};

/// A departed client that has not received all descriptors that were sent to it.
pub(super) struct Lingering {
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    /// Set while the porter has a copy of the socket.
    pub(super) kept: bool,
    pub(super) payer: Payer,
    pub(super) admission: Option<Admission>,
    pub(super) _unread: Charge,
}

/// The reason why an answer was not sent.
enum Unsent {
    /// The socket has no room.
    NoRoom,
    /// Too many descriptors are unread, and this user's own clients are to blame
    /// ([`UNREAD_BLAMED`]).
    OwnCrowd,
    /// Too many descriptors are unread because of other users, or the porter does not have the
    /// shared ones yet.
    OthersCrowd,
    /// The client is gone.
    Gone,
    /// The system refuses to send it.
    Failed(Errno),
}

impl Worker {
    /// Sends the current answer.
    pub(super) fn send_answer(&mut self, slot: usize) {
        let answer = mem::take(&mut self.answer);
        let sent = self.send(slot, &answer);
        self.answer = answer;
        match sent {
            Ok(()) => self.answer.fds.clear(),
            Err(Unsent::Gone) => {
                self.answer.fds.clear();
                self.leave(slot);
            }
            Err(Unsent::Failed(errno)) => {
                self.answer.fds.clear();
                self.cut_off(slot, &format_args!("its answer cannot be sent: {errno}"));
            }
            Err(unsent) => self.keep_answer(slot, &unsent),
        }
    }

    /// Sends an answer, whose descriptors count until the client has received them. The porter has
    /// the shared ones before they are sent.
    fn send(&mut self, slot: usize, answer: &ReplyPacket) -> Result<(), Unsent> {
        let count = answer.fds.len() as u64;
        if count > 0 {
            if !self.keeps_shared() {
                return Err(Unsent::OthersCrowd);
            }
            self.check_unread(slot);
        }
        let Some(client) = self.clients.get(slot) else { return Err(Unsent::Gone) };
        if client.unread.grow(count).is_err() {
            let held = self.shared.host.accounts().held_by(client.payer.user);
            let is_own = held.of(Resource::UnreadReplies) >= UNREAD_BLAMED;
            return Err(if is_own { Unsent::OwnCrowd } else { Unsent::OthersCrowd });
        }
        let sent = socket::send(client.socket.as_fd(), answer);
        match sent {
            Ok(()) if count > 0 && !mem::replace(&mut client.listed, true) => {
                self.unread.push(self.clients.name(slot));
            }
            Ok(()) => {}
            Err(_) => client.unread.shrink(count),
        }
        sent.map_err(|errno| match errno {
            Errno::EAGAIN => Unsent::NoRoom,
            // The user's share is not exceeded: the kernel refuses because of other users.
            Errno::ETOOMANYREFS => Unsent::OthersCrowd,
            Errno::EPIPE | Errno::ECONNRESET => Unsent::Gone,
            errno => Unsent::Failed(errno),
        })
    }

    /// Clears the count of unread descriptors of a client that has received everything.
    fn check_unread(&mut self, slot: usize) {
        let Some(client) = self.clients.get(slot) else { return };
        if client.unread.count() > 0 && socket::is_all_read(client.socket.as_fd()) {
            client.unread.shrink(client.unread.count());
        }
    }

    /// Clears the counts of unread descriptors of all clients that have received everything.
    /// Removes the sockets of departed clients that have received everything or are gone.
    pub(super) fn check_all_unread(&mut self) {
        let mut unread = mem::take(&mut self.unread);
        unread.retain(|&name| {
            let Some(slot) = self.clients.named(name) else { return false };
            self.check_unread(slot);
            self.clients.get(slot).is_some_and(|client| {
                client.listed = client.unread.count() > 0;
                client.listed
            })
        });
        self.unread = unread;
        let mut index = 0;
        while let Some(client) = self.lingering.get(index) {
            if socket::is_all_read(client.socket.as_fd()) {
                let Lingering { id, socket, payer, admission, .. } = self.lingering.swap_remove(index);
                self.hand_over(id, payer, socket, admission);
            } else {
                index += 1;
            }
        }
    }

    /// Keeps the answer because this client, or other clients, do not read. No request of the
    /// client is read until the answer is sent.
    fn keep_answer(&mut self, slot: usize, unsent: &Unsent) {
        let Ok(fresh) = ReplyPacket::try_new() else {
            self.answer.fds.clear();
            return self.cut_off(slot, &"there is no memory to keep its answer in");
        };
        let answer = mem::replace(&mut self.answer, fresh);
        let until_ns = self.now_ns() + ns(self.shared.config.reply_timeout);
        if let Some(served) = self.clients.served(slot) {
            served.request_state = RequestState::Answering { answer, until_ns, crowded: false };
        }
        self.wait_for_room(slot, unsent);
    }

    /// Schedules the next attempt. The client's socket reports when it has room; nothing reports
    /// that others have received descriptors, so that is polled.
    fn wait_for_room(&mut self, slot: usize, unsent: &Unsent) {
        let is_reported = matches!(unsent, Unsent::NoRoom);
        let again_ns = self.now_ns() + ns(CROWD_LOOK);
        let Some(served) = self.clients.served(slot) else { return };
        let RequestState::Answering { until_ns, crowded, .. } = &mut served.request_state else { return };
        *crowded = matches!(unsent, Unsent::OthersCrowd);
        let due_ns = match (is_reported, *crowded) {
            (true, _) => *until_ns,
            (false, true) => again_ns,
            (false, false) => again_ns.min(*until_ns),
        };
        self.set_due(slot, Some(due_ns));
        self.watch(slot, if is_reported { ROOM } else { END });
    }

    pub(super) fn answer_now(&mut self, slot: usize) {
        let Some(served) = self.clients.served(slot) else { return };
        let RequestState::Answering { answer, .. } = &mut served.request_state else { return };
        let answer = mem::take(answer);
        let sent = self.send(slot, &answer);
        let serving = self.phase == Phase::Serving;
        let Some(served) = self.clients.served(slot) else { return };
        match sent {
            Ok(()) => {
                served.request_state = RequestState::Reading;
                served.muted = false;
                let due_ns = served.greet_until_ns.filter(|_| serving);
                self.set_due(slot, due_ns);
                // Reports the requests that have come since.
                self.watch(slot, if serving { REQUESTS } else { END });
                self.queue(slot);
            }
            Err(Unsent::Gone) => self.leave(slot),
            Err(Unsent::Failed(errno)) => {
                self.cut_off(slot, &format_args!("its answer cannot be sent: {errno}"));
            }
            Err(unsent) => {
                if let RequestState::Answering { answer: kept, .. } = &mut served.request_state {
                    *kept = answer;
                }
                self.wait_for_room(slot, &unsent);
            }
        }
    }

    pub(super) fn waits_for_readers(&self) -> bool {
        !self.unread.is_empty() || !self.lingering.is_empty()
    }
}
