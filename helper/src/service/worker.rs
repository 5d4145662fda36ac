//! A serving thread and its loop.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use lnet_api::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nlx_sync::Spin;

use super::answers::Lingering;
use super::client::Clients;
use super::deadlines::DeadlineHeap;
use super::descriptors::{BELL, LISTENER, PORTER, SHARD};
use super::keeping::Leaving;
use super::schedule::Schedule;
use super::socket::PacketBuffer;
use super::thread_shards::ThreadShards;
use super::turn_meter::TurnMeter;
use super::user::User;
use super::{BUSY_ROUNDS, LOOK_UNITS, Phase, ServiceShared, WorkerHandle};
use crate::ReplyPacket;
use crate::porter::PorterLink;
use crate::shared_fds::SharedFds;
use crate::wakeups::gathered;

/// A thread of the service.
pub(super) struct Worker {
    pub(super) shared: Arc<ServiceShared>,
    pub(super) number: usize,
    pub(super) epoll: Epoll,
    pub(super) listener: Option<OwnedFd>,
    /// The channel to the porter.
    pub(super) link: PorterLink,
    /// The events for which the channel is watched.
    pub(super) watched: EpollFlags,
    /// Time of the next request for a new porter, after the porter has died.
    pub(super) relink_ns: Option<u64>,
    /// Time of the next attempt to send to the porter, after the system has refused one.
    pub(super) retry_ns: Option<u64>,
    /// Time of the first unanswered request to the porter.
    pub(super) asked_ns: Option<u64>,
    /// Set while a sign of life is requested from the porter.
    pub(super) asking: bool,
    /// Set while the porter has the sockets of all clients.
    pub(super) keeps_all: bool,
    /// Set while the porter is to accept clients.
    pub(super) accepting: bool,
    /// Descriptors that the thread shares with its clients.
    pub(super) shared_fds: SharedFds,
    /// Clients whose sockets or shared descriptors the porter has not closed yet.
    pub(super) leaving: HashMap<u64, Leaving, foldhash::fast::RandomState>,
    /// Names of clients that have not received all descriptors that were sent to them, and departed
    /// ones.
    pub(super) unread: Vec<u64>,
    pub(super) lingering: Vec<Lingering>,
    /// Time of the next check of unread and lingering descriptors.
    pub(super) unread_ns: u64,
    /// End of the pause in accepting, for want of descriptors.
    pub(super) paused_until_ns: Option<u64>,
    /// End of the pause in taking clients from other threads, for want of memory.
    pub(super) deferred_ns: Option<u64>,
    pub(super) clients: Clients,
    /// The order of turns.
    pub(super) schedule: Schedule<User>,
    /// Deadlines of clients, by slot.
    pub(super) timers: DeadlineHeap,
    /// Times at which requests of users are read again.
    pub(super) parked: DeadlineHeap,
    /// Times at which users that have held the thread up are served again.
    pub(super) resting: DeadlineHeap,
    pub(super) turn_meter: TurnMeter,
    network: ThreadShards,
    pub(super) inbox: PacketBuffer,
    pub(super) answer: ReplyPacket,
    pub(super) phase: Phase,
    /// Time of the next sweep over all clients.
    pub(super) sweep_ns: u64,
    /// The next client of the sweep, while it goes on.
    pub(super) sweeping: Option<usize>,
    /// The next departed client whose leftovers the sweep checks, while it goes on.
    pub(super) sweeping_leftovers: Option<usize>,
    /// The next client that is to be drained or stopped, until all are.
    pub(super) shutdown_at: Option<usize>,
    /// Number of clients whose ring is carried out for the last time.
    pub(super) quiescing: usize,
    /// Set while LNet has not released all leftovers.
    pub(super) leftovers: bool,
    /// Maximum units of work of one turn so far.
    pub(super) longest_turn: u64,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<ServiceShared>,
        number: usize,
        listener: Option<OwnedFd>,
    ) -> Result<Worker, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&shared.worker_handles[number].bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        if let Some(listener) = &listener {
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        }
        let link = shared.porter.link()?;
        epoll.add(&link.channel, EpollEvent::new(EpollFlags::EPOLLIN, PORTER))?;
        Ok(Worker {
            network: ThreadShards::new(number, shared.worker_handles.len()),
            shared,
            number,
            epoll,
            listener,
            link,
            watched: EpollFlags::EPOLLIN,
            relink_ns: None,
            retry_ns: None,
            asked_ns: None,
            asking: false,
            keeps_all: true,
            accepting: false,
            shared_fds: SharedFds::try_new(number).map_err(|_| Errno::ENOMEM)?,
            leaving: HashMap::default(),
            unread: Vec::new(),
            lingering: Vec::new(),
            unread_ns: 0,
            paused_until_ns: None,
            deferred_ns: None,
            clients: Clients::default(),
            schedule: Schedule::default(),
            timers: DeadlineHeap::default(),
            parked: DeadlineHeap::default(),
            resting: DeadlineHeap::default(),
            turn_meter: TurnMeter::default(),
            inbox: PacketBuffer::new(),
            answer: ReplyPacket::try_new().map_err(|_| Errno::ENOMEM)?,
            phase: Phase::Serving,
            sweep_ns: 0,
            sweeping: None,
            sweeping_leftovers: None,
            shutdown_at: None,
            quiescing: 0,
            leftovers: false,
            longest_turn: 0,
        })
    }

    /// Serves clients until the service stops and no client is left.
    pub(super) fn run(mut self) {
        let busy_poll_ns = ns(self.shared.config.busy_poll);
        let (mut worked_ns, mut rounds, mut units) = (self.now_ns(), 0, 0);
        let spin = Spin::new(self.shared.host.drive().spin());
        let mut spinning = spin.wait();
        while !self.is_over() {
            let polled = gathered(|| self.network.poll(&**self.shared.host.drive(), &self.epoll, SHARD));
            let round_units = self.serve_round();
            let now_ns = self.now_ns();
            self.handle_due(now_ns);
            let sweeps = self.sweep_slice();
            self.hand_over_shared();
            rounds += 1;
            units += round_units;
            let work = polled.work + round_units + usize::from(sweeps);
            if work > 0 {
                worked_ns = now_ns;
                spinning.event();
            }
            let is_busy = work > 0 || spinning.goes_on() || now_ns.saturating_sub(worked_ns) < busy_poll_ns;
            if is_busy && rounds < BUSY_ROUNDS && units < LOOK_UNITS {
                continue;
            }
            (rounds, units) = (0, 0);
            self.watch_link();
            let sleeps = !is_busy && self.prepare_sleep();
            let timeout = if sleeps { self.timeout(polled.deadline_ns) } else { EpollTimeout::ZERO };
            if sleeps {
                spinning.slept();
            }
            if self.poll_events(timeout) {
                worked_ns = self.now_ns();
                spinning.event();
            }
        }
        self.network.release(&**self.shared.host.drive(), &self.epoll);
        // The porter sees the end of the channel, and closes the remaining sockets.
        self.hand_over_shared();
        while let Some(Lingering { id, socket, payer, admission, .. }) = self.lingering.pop() {
            self.hand_over(id, payer, socket, admission);
        }
        mem::take(&mut self.leaving).into_values().for_each(|leaving| self.give_back(leaving));
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Stopping && self.clients.is_empty()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.shared.host.drive().now_ns()
    }

    pub(super) fn worker_handle(&self) -> &WorkerHandle {
        &self.shared.worker_handles[self.number]
    }

    /// Announces sleep on rings, and arms the shards. Returns false if there is work.
    fn prepare_sleep(&mut self) -> bool {
        self.rest_round() && self.network.arm(&**self.shared.host.drive())
    }
}

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}
