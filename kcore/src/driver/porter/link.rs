//! `nlxd`'s end of the porter's channels.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use lnet_api::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;
use nlx_fallible::NoMemory;

use super::channel::{self, Message};

/// What can wait of one client: that the porter keeps its socket, receives from it, drops it; and once more of a porter that has
/// taken over.
const MESSAGES_PER_CLIENT: usize = 4;

/// The channel of one service thread. It never blocks, and allocates nothing but by [`Link::reserve`].
pub(in crate::driver) struct Link {
    pub(in crate::driver) channel: OwnedFd,
    /// Counts the porters of this process: another one knows nothing of what was said to an earlier one.
    pub(in crate::driver) generation: u64,
    outbox: VecDeque<(Message, Option<OwnedFd>)>,
}

impl Link {
    pub(super) fn new(channel: OwnedFd, generation: u64) -> Link {
        Link { channel, generation, outbox: VecDeque::new() }
    }

    /// Makes room for all that can wait of so many clients, and of a request to accept more.
    pub(in crate::driver) fn reserve(&mut self, clients: usize) -> Result<(), NoMemory> {
        let most = clients * MESSAGES_PER_CLIENT + 1;
        self.outbox.try_reserve(most.saturating_sub(self.outbox.len())).map_err(|_| NoMemory)
    }

    /// Sends a message, now or when there is room.
    pub(in crate::driver) fn push(&mut self, message: Message) {
        self.outbox.push_back((message, None));
        self.flush();
    }

    /// Has the porter keep a socket.
    pub(in crate::driver) fn keep(&mut self, client: u64, socket: OwnedFd) {
        self.outbox.push_back((Message::Keep { client }, Some(socket)));
        self.flush();
    }

    /// Closes this process's descriptor of a client's socket, and has the porter close the connection.
    ///
    /// The porter's reference is there before, and stays until it has read the message: so the close here is never the last. If
    /// this porter has gone, the socket waits for the next one: then this gives true.
    pub(in crate::driver) fn drop_client(&mut self, client: u64, user: u32, socket: OwnedFd) -> bool {
        let waits = !self.is_alive();
        if waits {
            self.outbox.push_back((Message::Drop { client, user }, Some(socket)));
        } else {
            drop(socket);
            self.push(Message::Drop { client, user });
        }
        waits
    }

    /// Sends what there is room for.
    pub(in crate::driver) fn flush(&mut self) {
        while let Some((message, socket)) = self.outbox.front() {
            if let (Message::Drop { .. }, Some(_)) = (message, socket) {
                return;
            }
            let fds = socket.as_ref().map(AsFd::as_fd);
            match channel::send(self.channel.as_fd(), *message, fds.as_slice(), MsgFlags::MSG_DONTWAIT) {
                // The message holds the socket now.
                Ok(()) => drop(self.outbox.pop_front()),
                // The end of the channel is seen where it is read.
                Err(_) => return,
            }
        }
    }

    /// Whether something waits for room.
    pub(in crate::driver) fn wants_room(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next message, with its descriptor. `None`: there is none now.
    ///
    /// # Errors
    /// EPIPE: the porter is gone.
    pub(in crate::driver) fn receive(&self) -> Result<Option<(Message, Option<OwnedFd>)>, Errno> {
        match channel::receive_one(self.channel.as_fd(), MsgFlags::MSG_DONTWAIT) {
            Ok(Some(received)) => Ok(Some(received)),
            Err(Errno::EAGAIN) => Ok(None),
            Ok(None) | Err(_) => Err(Errno::EPIPE),
        }
    }

    fn is_alive(&self) -> bool {
        let mut seen = [PollFd::new(self.channel.as_fd(), PollFlags::empty())];
        poll(&mut seen, PollTimeout::ZERO) == Ok(0)
    }

    /// Takes over the sockets that an earlier porter has not been given, and drops those of them that wait for that. Nothing else
    /// of what was asked of it is asked again.
    pub(in crate::driver) fn take_over(&mut self, earlier: Link) {
        for (message, socket) in earlier.outbox {
            match (message, socket) {
                (Message::Drop { client, .. }, Some(socket)) => {
                    self.outbox.push_back((Message::Keep { client }, Some(socket)));
                    self.outbox.push_back((message, None));
                }
                (Message::Keep { .. }, Some(socket)) => self.outbox.push_back((message, Some(socket))),
                _ => {}
            }
        }
        self.flush();
    }
}
