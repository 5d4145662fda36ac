//! `nlxd`'s end of the porter's channels.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lnet_api::Errno;
use nix::sys::socket::MsgFlags;
use nlx_fallible::NoMemory;

use super::channel::{self, PorterMessage};

/// Messages that can wait for one client: that the porter drops it.
const MESSAGES_PER_CLIENT: usize = 1;

/// The channel of one service thread. It never blocks, and only [`PorterLink::reserve`] allocates.
pub(crate) struct PorterLink {
    pub(crate) channel: OwnedFd,
    /// Number of the porter in this process: a new porter does not have what was sent to an earlier
    /// one.
    pub(crate) generation: u64,
    outbox: VecDeque<(PorterMessage, Option<OwnedFd>)>,
    /// Set while the system refuses to send descriptors although there is room.
    refused: bool,
    /// Set when the porter is about to end: messages in the outbox are for the next one.
    ending: bool,
}

impl PorterLink {
    pub(super) fn new(channel: OwnedFd, generation: u64) -> PorterLink {
        PorterLink { channel, generation, outbox: VecDeque::new(), refused: false, ending: false }
    }

    /// Reserves room for all messages that can wait for `clients` clients, for a question, and for
    /// a request to accept more.
    pub(crate) fn reserve(&mut self, clients: usize) -> Result<(), NoMemory> {
        let most = clients * MESSAGES_PER_CLIENT + 2;
        self.outbox.try_reserve(most.saturating_sub(self.outbox.len())).map_err(|_| NoMemory)
    }

    /// Sends a message, now or when there is room.
    pub(crate) fn push(&mut self, message: PorterMessage) {
        self.outbox.push_back((message, None));
        self.flush();
    }

    /// Has the porter keep a client's socket or a shared descriptor, if there is room now. Returns
    /// whether it does.
    pub(crate) fn keep(&mut self, client: u64, socket: BorrowedFd<'_>) -> bool {
        let sent = self.send(PorterMessage::Keep { client }, &[socket]);
        sent.is_ok()
    }

    /// Has the porter close a client's connection or a shared descriptor, and closes this process's
    /// descriptor of it.
    ///
    /// The porter keeps its own descriptor until the one here is closed, so that the close here is
    /// not the last one. If the porter dies first, unsent drops go to the next one.
    pub(crate) fn drop_client(&mut self, client: u64, user: u32, socket: OwnedFd) {
        self.outbox.push_back((PorterMessage::Drop { client, user }, Some(socket)));
        self.flush();
    }

    /// Sends the messages for which there is room.
    pub(crate) fn flush(&mut self) {
        self.refused = false;
        if self.ending {
            return;
        }
        while let Some((message, socket)) = self.outbox.front_mut() {
            let fds = socket.as_ref().map(AsFd::as_fd);
            match channel::send(self.channel.as_fd(), *message, fds.as_slice(), MsgFlags::MSG_DONTWAIT) {
                Ok(()) => match (&message, socket.take()) {
                    (&&mut PorterMessage::Drop { client, .. }, Some(socket)) => {
                        drop(socket);
                        *message = PorterMessage::Closed { client };
                    }
                    _ => drop(self.outbox.pop_front()),
                },
                // The end of the channel is detected by the reader.
                Err(errno) => return self.refused = is_refusal(errno),
            }
        }
    }

    /// Keeps all messages in the outbox from now on. A porter that has been killed may close what
    /// it receives before this process closes its own descriptor, whose close would then be the
    /// last one.
    pub(crate) fn stop_sending(&mut self) {
        self.ending = true;
    }

    /// Returns whether a message waits for room.
    pub(crate) fn wants_room(&self) -> bool {
        !self.outbox.is_empty() && !self.refused
    }

    /// Returns whether the system refuses to send the next message. No event reports when it will
    /// accept it again.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns the next message with its descriptor; `None` if there is none now.
    ///
    /// # Errors
    /// EPIPE: the porter is gone.
    pub(crate) fn receive(&self) -> Result<Option<(PorterMessage, Option<OwnedFd>)>, Errno> {
        match channel::receive_one(self.channel.as_fd(), MsgFlags::MSG_DONTWAIT) {
            Ok(Some(received)) => Ok(Some(received)),
            Err(Errno::EAGAIN) => Ok(None),
            Ok(None) | Err(_) => Err(Errno::EPIPE),
        }
    }

    /// Takes over the sockets whose drops were not sent to an earlier porter, and calls `each` with
    /// their numbers. No other request of that porter is repeated.
    pub(crate) fn take_over(&mut self, earlier: PorterLink, mut each: impl FnMut(u64)) {
        for (message, socket) in earlier.outbox {
            if let (PorterMessage::Drop { client, .. }, Some(_)) = (message, &socket) {
                each(client);
                self.outbox.push_back((message, socket));
            }
        }
        self.flush();
    }

    fn send(&mut self, message: PorterMessage, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        if self.ending {
            return Err(Errno::EPIPE);
        }
        let sent = channel::send(self.channel.as_fd(), message, fds, MsgFlags::MSG_DONTWAIT);
        self.refused = sent.is_err_and(is_refusal);
        sent
    }
}

/// Returns whether the error means that the system refuses more descriptors in flight, or has no
/// memory: room in the channel does not help then.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// While the system refuses to send, a porter that does not answer is not replaced.
    #[test]
    fn a_refusal_ends_with_the_next_message_that_is_sent() {
        let (ours, theirs) = channel::pair().unwrap();
        let (socket, _peer) = channel::pair().unwrap();
        type Act = fn(&mut PorterLink, &OwnedFd);
        let acts: [Act; 3] = [
            |link, socket| assert!(link.keep(1, socket.as_fd())),
            |link, _| link.push(PorterMessage::Ask),
            // The refused message needs not be sent any more.
            |link, _| link.flush(),
        ];
        let mut link = PorterLink::new(ours, 1);
        for act in acts {
            link.refused = true;
            act(&mut link, &socket);
            assert!(!link.is_refused());
        }
        drop(theirs);
        link.refused = true;
        assert!(!link.keep(1, socket.as_fd()));
        assert!(!link.is_refused(), "the porter is gone: that is another error");
    }
}
