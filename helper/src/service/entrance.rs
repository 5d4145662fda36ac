//! Admission of clients, and room for their records. The porter accepts the sockets (`accept`); the
//! thread that receives one checks who the client is and chooses the least loaded thread
//! (`accept_client`), which makes the record (`admit`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use lnet_api::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nlx_driver_proto::{Header, PACKET_MAX, Reason, Refusal, Reply};
use nlx_fallible::{NoMemory, try_box};

use super::client::{Client, ClientState, PollSource, RequestState, RingState, ServedClient};
use super::descriptors::{LISTENER, REQUESTS};
use super::rate::Rate;
use super::schedule::REQUEST_UNITS;
use super::socket::{self, ReceiveResult};
use super::worker::{Worker, ns};
use super::{ACCEPT_BUDGET, ACCEPT_PAUSE, HELLO_TIMEOUT, PendingClient, Phase, REFUSED_MAX, ServiceShared};
use crate::accounts::{Payer, Resource};
use crate::porter::PorterMessage;
use crate::{Credentials, Session};

impl Worker {
    /// Stops accepting clients.
    pub(super) fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            // Its previous owner may still have it open.
            let _ = self.epoll.delete(&listener);
            self.paused_until_ns = None;
        }
    }

    /// Has the porter accept clients.
    pub(super) fn accept(&mut self) {
        if self.listener.is_none() || self.accepting {
            return;
        }
        if self.make_room(ACCEPT_BUDGET).is_err() {
            return self.pause(Errno::ENOMEM);
        }
        self.accepting = true;
        let first = self.shared.next_client.fetch_add(ACCEPT_BUDGET as u64, Ordering::Relaxed);
        self.link.push(PorterMessage::Accept { first, count: ACCEPT_BUDGET as u32 });
        self.await_porter();
        self.watch_listener(EpollFlags::empty());
    }

    /// Handles a client whose socket the porter has accepted and passed on; the socket is `None` if
    /// it did not fit into the table of descriptors.
    pub(super) fn accepted(&mut self, id: u64, user: u32, socket: Option<OwnedFd>) {
        let prepared = socket.map(|socket| (socket::prepare(&socket), socket));
        match prepared {
            Some((Ok((credentials, may_attach)), socket)) => {
                self.accept_client(id, socket, may_attach, credentials);
            }
            Some((Err(_), socket)) => {
                let payer = self.enter_refused(user);
                self.hand_over(id, payer, socket, None);
            }
            // The table of descriptors is full: only the porter has the socket.
            None => {
                let payer = self.enter_refused(user);
                self.drop_unseen(id, payer);
                self.pause(Errno::EMFILE);
            }
        }
    }

    /// Counts a refused client without admission; returns its payer.
    pub(super) fn enter_refused(&self, uid: u32) -> Payer {
        self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        self.shared.host.payer_of(&Credentials { pid: 0, uid, gid: u32::MAX })
    }

    /// Stops accepting clients for [`ACCEPT_PAUSE`].
    pub(super) fn pause(&mut self, errno: Errno) {
        self.shared.counters.without_descriptors.fetch_add(1, Ordering::Relaxed);
        if self.shared.may_warn() {
            tracing::warn!(%errno, "cannot accept clients for now: retrying soon");
        }
        self.paused_until_ns = Some(self.now_ns() + ns(ACCEPT_PAUSE));
        self.watch_listener(EpollFlags::empty());
    }

    pub(super) fn watch_listener(&self, flags: EpollFlags) {
        if let Some(listener) = &self.listener {
            // Cannot fail: the listener is registered.
            let _ = self.epoll.modify(listener, &mut EpollEvent::new(flags, LISTENER));
        }
    }

    /// Checks the client's rights and the limits on the number of clients, and passes the client,
    /// admitted or refused, to the thread with the fewest clients.
    pub(super) fn accept_client(
        &mut self,
        id: u64,
        socket: OwnedFd,
        may_attach: bool,
        credentials: Credentials,
    ) {
        let shared = self.shared.clone();
        let ServiceShared { counters, host, .. } = &*shared;
        let admission = if host.policy().rights_of(&credentials).is_none() {
            counters.refused_users.fetch_add(1, Ordering::Relaxed);
            Err(Refusal::of(Errno::EPERM, Reason::User, credentials.uid.into(), 0))
        } else {
            let admission = counters.admit(&credentials, host);
            counters.refused_clients.fetch_add(admission.is_err().into(), Ordering::Relaxed);
            admission
        };
        if admission.is_err() && counters.refused.fetch_add(1, Ordering::Relaxed) >= REFUSED_MAX {
            return self.hand_over(id, host.payer_of(&credentials), socket, None);
        }
        let pending = PendingClient {
            id,
            socket,
            may_attach,
            generation: self.link.generation,
            credentials,
            admission,
        };
        let worker_handles = shared.worker_handles.iter().enumerate();
        let least =
            worker_handles.min_by_key(|(_, worker_handle)| worker_handle.load.load(Ordering::Relaxed));
        if let Some((_, worker_handle)) = least.filter(|(number, _)| *number != self.number) {
            let mut pending_clients = worker_handle.pending_clients.lock();
            // Without room in that thread's queue this thread keeps the client.
            if pending_clients.try_reserve(1).is_ok() {
                worker_handle.load.fetch_add(1, Ordering::Relaxed);
                pending_clients.push_back(pending);
                drop(pending_clients);
                return worker_handle.ring();
            }
        }
        self.worker_handle().load.fetch_add(1, Ordering::Relaxed);
        self.admit(pending);
    }

    /// Takes over the clients that another thread has admitted for this one. Without memory they
    /// wait.
    pub(super) fn admit_pending(&mut self) {
        for _ in 0..ACCEPT_BUDGET {
            if self.make_room(1).is_err() {
                self.deferred_ns = Some(self.now_ns() + ns(ACCEPT_PAUSE));
                return;
            }
            let pending = self.worker_handle().pending_clients.lock().pop_front();
            let Some(pending) = pending else { return };
            self.admit(pending);
        }
        if !self.worker_handle().pending_clients.lock().is_empty() {
            self.worker_handle().ring();
        }
    }

    /// Returns the number of current and departed clients, sockets that the porter is to close, and
    /// shared descriptors.
    pub(super) fn known(&self) -> usize {
        self.clients.count() + self.lingering.len() + self.leaving.len() + self.shared_fds.len()
    }

    /// Reserves room for `more` further clients in every table that a client may enter: later
    /// insertions allocate nothing.
    pub(super) fn make_room(&mut self, more: usize) -> Result<(), NoMemory> {
        let clients = self.clients.count() + more;
        let all = self.known() + more;
        self.clients.reserve(more)?;
        self.timers.reserve(self.clients.slots() + more)?;
        self.link.reserve(all)?;
        // The lists may still have entries of clients that have gone, so room for an entry of each
        // current client is reserved beyond the present entries.
        let reserved = self.unread.try_reserve(clients);
        reserved.and_then(|()| self.lingering.try_reserve(clients)).map_err(|_| NoMemory)?;
        self.leaving.try_reserve(all - self.leaving.len()).map_err(|_| NoMemory)
    }

    /// Adds an accepted client to this thread.
    pub(super) fn admit(&mut self, pending: PendingClient) {
        let PendingClient { id, socket, may_attach, generation, credentials, admission } = pending;
        let kept = generation == self.link.generation;
        self.keeps_all &= kept;
        let greet_until_ns = self.now_ns() + ns(HELLO_TIMEOUT);
        let session = match &admission {
            Ok(_) => Session::with_shared_fds(&self.shared.host, credentials, self.shared_fds.clone()),
            Err(refusal) => Err(*refusal),
        };
        let admission = admission.ok();
        let state = match session {
            Err(refusal) => ClientState::Refused(refusal),
            Ok(session) => {
                let rate = Rate::per_second(session.quotas().requests_per_second);
                let (request_state, ring, greet_until_ns) =
                    (RequestState::Reading, RingState::None, Some(greet_until_ns));
                let served = try_box(ServedClient {
                    session,
                    request_state,
                    rate,
                    ring,
                    bell_muted: false,
                    readable: false,
                    muted: false,
                    pending: None,
                    entries: 0,
                    quiescing: None,
                    greet_until_ns,
                    idle_rounds: 0,
                    idle_since_ns: 0,
                });
                served.map_or(
                    ClientState::Refused(Refusal::new(Errno::ENOMEM, Reason::System)),
                    ClientState::Served,
                )
            }
        };
        let payer = self.shared.host.payer_of(&credentials);
        let Ok(user) = self.enter_user(payer.user) else {
            self.worker_handle().load.fetch_sub(1, Ordering::Relaxed);
            return self.hand_over(id, payer, socket, admission);
        };
        self.schedule.charge(user, REQUEST_UNITS);
        let unread = self.shared.host.accounts().open(payer, Resource::UnreadReplies);
        let slot = self.clients.insert(Client {
            id,
            socket,
            kept,
            may_attach,
            unread,
            listed: false,
            credentials,
            payer,
            user,
            queued: false,
            state,
            admission,
        });
        self.set_due(slot, Some(greet_until_ns));
        let event = EpollEvent::new(REQUESTS, self.clients.mark(PollSource::Socket(slot)));
        let Some(client) = self.clients.get(slot) else { return };
        let watched = self.epoll.add(&client.socket, event);
        if watched.is_err() || self.phase != Phase::Serving {
            self.leave(slot);
        }
    }

    /// Sends the refusal to a client that is not admitted, and ends the connection.
    pub(super) fn refuse(&mut self, slot: usize) {
        let Some(client) = self.clients.get(slot) else { return };
        let ClientState::Refused(refusal) = client.state else { return };
        // A packet with descriptors is not received, and not answered.
        if let ReceiveResult::Packet(length) = self.inbox.receive(client.socket.as_fd(), client.may_attach)
            && let Ok((header, _)) = Header::read(self.inbox.packet(length.min(PACKET_MAX)))
        {
            Reply::Refused(refusal).write(header.kind.get(), header.id.get(), &mut self.answer.packet);
            self.answer.fds.clear();
            let _ = socket::send(client.socket.as_fd(), &self.answer);
        }
        self.remove(slot);
    }
}
