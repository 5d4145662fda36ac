//! One side of a connection, and how its device processes work requests.

use std::net::SocketAddrV4;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{
    COMPLETIONS_PER_LOOK, ChannelToken, Completions, ConnectOptions, Piece, PrivateData, QueueSizes,
    ReceiveWork, Rejected, SendKind, SendWork, WorkCompletion, WorkError,
};

use super::behaviour::IbFault;
use super::channel::ChannelEvent;
use super::requests::WITHOUT_REASON;
use super::state::{Answer, Event, Queue, State, Status};

/// The time after which a connection to a peer that does not answer breaks: seven retries, half a
/// second apart.
const SILENCE_NS: u64 = 4_000_000_000;

/// The time limit for the answer to an attempt to connect: that of Linux's connection manager.
const ANSWER_NS: u64 = 20_000_000_000;

/// The time after which a message that found no receive buffer is retried.
const NOT_READY_NS: u64 = 1_000_000;

/// The number of retries that means "no limit".
const FOR_EVER: u8 = 7;

/// The phase of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// On the active side: the route is being resolved or is known, or the request has been sent.
    /// On the passive side: the request has not been accepted.
    Beginning,
    /// One side has accepted the other.
    Standing,
    /// The connection has ended.
    Broken,
}

/// A work request that has been posted.
struct Posted {
    sequence: u64,
    id: u64,
    kind: SendKind,
    pieces: Vec<Piece>,
    inline: Option<Vec<u8>>,
    signalled: bool,
    arrives_ns: u64,
    /// True if the request has arrived at the peer's device.
    arrived: bool,
    status: Option<Status>,
}

pub(super) struct End {
    pub(super) host: usize,
    pub(super) device: u64,
    channel: u64,
    token: ChannelToken,
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
    /// The other end, once it is known.
    pub(super) peer: Option<u64>,
    pub(super) private_data: PrivateData,
    pub(super) phase: Phase,
    /// True if the active side has established the connection.
    established: bool,
    /// True if the passive side has accepted, but does not know yet that the connection is
    /// established.
    half_open: bool,
    /// True if a disconnect was sent or received.
    hung_up: bool,
    sizes: Option<QueueSizes>,
    rnr_retries: u8,
    sends: Queue<Posted>,
    /// Number of entries of the send queue that are not free yet.
    send_slots: u32,
    receives: Queue<ReceiveWork>,
    done: Queue<(WorkCompletion, u32)>,
    /// Number of completed sends that no completion has reported yet.
    silent: u32,
    armed: bool,
    next_sequence: u64,
    last_arrival_ns: u64,
    pumping: bool,
    /// The time since which the first send has not arrived, and the number of times it found no
    /// receive buffer.
    silent_since_ns: Option<u64>,
    not_ready: u8,
}

impl End {
    pub(super) fn new(
        (host, device): (usize, u64),
        channel: u64,
        token: ChannelToken,
        (local, remote): (SocketAddrV4, SocketAddrV4),
    ) -> End {
        End {
            host,
            device,
            channel,
            token,
            local,
            remote,
            peer: None,
            private_data: PrivateData::new(),
            phase: Phase::Beginning,
            established: false,
            half_open: false,
            hung_up: false,
            sizes: None,
            rnr_retries: FOR_EVER,
            sends: Queue::new(),
            send_slots: 0,
            receives: Queue::new(),
            done: Queue::new(),
            silent: 0,
            armed: false,
            next_sequence: 0,
            last_arrival_ns: 0,
            pumping: false,
            silent_since_ns: None,
            not_ready: 0,
        }
    }
}

/// Functions for connecting and disconnecting.
impl State {
    pub(super) fn resolve(&mut self, id: u64) {
        let Some(end) = self.own.ends.get(&id) else { return };
        let (channel, token) = (end.channel, end.token);
        self.push_event(channel, ChannelEvent::Resolved(token));
    }

    /// Fails an end that is being connected.
    pub(super) fn fail(&mut self, id: u64, errno: Errno) {
        let Some(end) = self.own.ends.get_mut(&id).filter(|end| end.phase == Phase::Beginning) else {
            return;
        };
        end.phase = Phase::Broken;
        let (channel, token) = (end.channel, end.token);
        self.seen.given_up += 1;
        self.push_event(channel, ChannelEvent::Failed(token, errno));
    }

    pub(super) fn make_queues(&mut self, id: u64, sizes: &QueueSizes) -> Result<QueueSizes, Errno> {
        let Some(end) = self.own.ends.get_mut(&id) else { return Err(Errno::EBADF) };
        let limits = self.hosts[end.host].own.limits;
        let possible = sizes.sends <= limits.queue_entries
            && sizes.receives <= limits.queue_entries
            && sizes.completions <= 4 * limits.queue_entries
            && sizes.pieces <= limits.pieces;
        if !possible || end.sizes.is_some() {
            return Err(Errno::EINVAL);
        }
        let made = QueueSizes { inline: sizes.inline.min(limits.inline), ..*sizes };
        end.sizes = Some(made);
        Ok(made)
    }

    /// Checks and stores the options of an end that connects or accepts.
    pub(super) fn prepare(&mut self, id: u64, options: &ConnectOptions) -> Result<(), Errno> {
        let Some(end) = self.own.ends.get_mut(&id) else { return Err(Errno::EBADF) };
        if end.phase != Phase::Beginning || end.sizes.is_none() {
            return Err(Errno::EINVAL);
        }
        end.rnr_retries = options.rnr_retry_count;
        if end.peer.is_some() {
            end.phase = Phase::Standing;
            end.half_open = true;
        }
        Ok(())
    }

    pub(super) fn connect(&mut self, id: u64, data: &[u8], options: &ConnectOptions) -> Result<(), Errno> {
        self.prepare(id, options)?;
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get_mut(&id) else { return Err(Errno::EBADF) };
        end.private_data = PrivateData::from_slice(data);
        let (here, to) = (end.host, *end.remote.ip());
        let there = self.host_of(to.into()).ok_or(Errno::EHOSTUNREACH)?;
        self.schedule(now_ns + ANSWER_NS, Event::GiveUp { end: id });
        self.launch((here, there), Event::Ask { end: id });
        Ok(())
    }

    /// Handles the answer to a request.
    pub(super) fn answer(&mut self, id: u64, answer: Answer) {
        let Some(end) = self.own.ends.get(&id) else {
            // The accepting side is notified that the active side is gone.
            if let Answer::Accepted { passive, .. } = answer {
                self.schedule(self.now_ns, Event::HangUp { end: passive });
            }
            return;
        };
        let (here, to) = (end.host, *end.remote.ip());
        let Some(there) = self.host_of(to.into()) else { return };
        if !self.reaches((there, here)) {
            return self.again((there, here), Event::Answer { end: id, answer });
        }
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        let (channel, token, late) = (end.channel, end.token, end.phase != Phase::Beginning);
        match answer {
            Answer::Accepted { passive, .. } if late => {
                self.schedule(self.now_ns, Event::HangUp { end: passive });
            }
            Answer::Accepted { passive, private_data } => {
                end.peer = Some(passive);
                end.phase = Phase::Standing;
                self.push_event(channel, ChannelEvent::Accepted(token, private_data));
            }
            // The peer accepted, but gave up before it was notified that the connection is
            // established.
            Answer::Rejected(_) if end.established => self.hang_up(id),
            Answer::Rejected(_) if end.phase == Phase::Broken => {}
            Answer::Rejected(rejected) => {
                end.phase = Phase::Broken;
                self.log(|_| format!("network: rejected: {rejected:?}"));
                self.push_event(channel, ChannelEvent::Rejected(token, rejected));
            }
        }
    }

    pub(super) fn establish(&mut self, id: u64) -> Result<(), Errno> {
        let end = self.own.ends.get(&id).ok_or(Errno::EBADF)?;
        if end.phase != Phase::Standing {
            return Err(Errno::ENOTCONN);
        }
        let (here, passive) = (end.host, end.peer.ok_or(Errno::ENOTCONN)?);
        let there = self.own.ends.get(&passive).map(|end| end.host).ok_or(Errno::ENOTCONN)?;
        self.own.ends.entry(id).and_modify(|end| end.established = true);
        self.seen.established += 1;
        self.launch((here, there), Event::Establish { end: passive });
        self.pump_soon(id);
        Ok(())
    }

    pub(super) fn established(&mut self, id: u64) {
        let Some(end) = self.own.ends.get_mut(&id).filter(|end| end.phase == Phase::Standing) else { return };
        end.half_open = false;
        let (channel, token) = (end.channel, end.token);
        self.push_event(channel, ChannelEvent::Established(token));
    }

    /// Disconnects this side. For a half-open connection the connection manager sends nothing
    /// before the endpoint is destroyed.
    pub(super) fn disconnect(&mut self, id: u64) {
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        if end.half_open {
            return self.break_end(id);
        }
        let already_sent = std::mem::replace(&mut end.hung_up, true);
        let (here, peer) = (end.host, end.peer);
        self.break_end(id);
        let there = peer.and_then(|peer| Some((peer, self.own.ends.get(&peer)?.host)));
        if let Some((peer, there)) = there.filter(|_| !already_sent) {
            self.launch((here, there), Event::HangUp { end: peer });
        }
    }

    /// Handles a disconnect of the other side.
    pub(super) fn hang_up(&mut self, id: u64) {
        let Some(end) = self.own.ends.get(&id) else { return };
        let (here, to) = (end.host, *end.remote.ip());
        let Some(there) = self.host_of(to.into()) else { return };
        if !self.reaches((there, here)) {
            // The disconnect is sent twice at most. If both are lost, this side has to detect the
            // end by itself.
            return;
        }
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        if std::mem::replace(&mut end.hung_up, true) {
            return;
        }
        let (channel, token) = (end.channel, end.token);
        self.seen.hang_ups += 1;
        self.break_end(id);
        self.push_event(channel, ChannelEvent::Disconnected(token));
    }

    /// Ends an end whose device is gone, and notifies its driver.
    pub(super) fn lose(&mut self, id: u64) {
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.hung_up = true;
        let (channel, token) = (end.channel, end.token);
        self.break_end(id);
        self.push_event(channel, ChannelEvent::Disconnected(token));
    }

    /// Stops the queues: all work requests in them are flushed.
    pub(super) fn break_end(&mut self, id: u64) {
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.phase = Phase::Broken;
        let sends: Vec<Posted> = end.sends.drain(..).collect();
        let receives: Vec<ReceiveWork> = end.receives.drain(..).collect();
        self.seen.flushed += (sends.len() + receives.len()) as u64;
        for send in sends {
            let status = send.status.unwrap_or(Err(WorkError::Flushed));
            self.finish_send(id, send.id, send.signalled, status);
        }
        for receive in receives {
            self.report(id, WorkCompletion { id: receive.id, length: 0, status: Err(WorkError::Flushed) }, 0);
        }
    }

    /// Destroys the endpoint. A peer that was accepted and has not established the connection is
    /// rejected without a record.
    pub(super) fn remove(&mut self, id: u64) {
        let Some(end) = self.own.ends.remove(&id) else { return };
        if let Some(peer) = end.peer.filter(|_| end.half_open && !end.hung_up) {
            self.reject((end.host, peer), Rejected::Other(WITHOUT_REASON));
        }
    }
}

/// Functions on the queues.
impl State {
    pub(super) fn post_receive(&mut self, id: u64, work: &ReceiveWork) -> Result<(), Errno> {
        let Some(end) = self.own.ends.get_mut(&id) else { return Err(Errno::EBADF) };
        let sizes = end.sizes.ok_or(Errno::EINVAL)?;
        if end.phase == Phase::Broken {
            let status = Err(WorkError::Flushed);
            self.report(id, WorkCompletion { id: work.id, length: 0, status }, 0);
            return Ok(());
        }
        if end.receives.len() as u32 >= sizes.receives {
            self.wrong(|| "more receives are posted than there is room for".to_string());
            return Err(Errno::ENOMEM);
        }
        end.receives.push_back(*work);
        Ok(())
    }

    pub(super) fn post_send(&mut self, id: u64, work: &SendWork<'_>) -> Result<(), Errno> {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get(&id) else { return Err(Errno::EBADF) };
        let (device, sizes) = (end.device, end.sizes.ok_or(Errno::EINVAL)?);
        let bytes: u32 = work.pieces.iter().map(|piece| piece.length).sum();
        if end.phase == Phase::Beginning || work.pieces.len() as u32 > sizes.pieces {
            self.wrong(|| format!("{} pieces of {}", work.pieces.len(), sizes.pieces));
            return Err(Errno::EINVAL);
        }
        if end.send_slots >= sizes.sends {
            self.wrong(|| format!("more sends are posted than the {} there is room for", sizes.sends));
            return Err(Errno::ENOMEM);
        }
        let mut inline = None;
        if work.inline {
            if bytes > sizes.inline {
                self.wrong(|| format!("{bytes} bytes inline, of {}", sizes.inline));
                return Err(Errno::EINVAL);
            }
            inline = self.gather_all(device, work.pieces);
        }
        let there = end.peer.and_then(|peer| Some(self.own.ends.get(&peer)?.host));
        let here = end.host;
        let way_ns = there.map_or(0, |there| self.delay_ns((here, there)));
        let carried_ns = u64::from(bytes) * self.behaviour.kib_ns / 1024;
        let Some(end) = self.own.ends.get_mut(&id) else { return Err(Errno::EBADF) };
        end.send_slots += 1;
        if end.phase == Phase::Broken {
            self.finish_send(id, work.id, work.signalled, Err(WorkError::Flushed));
            return Ok(());
        }
        let arrives_ns = end.last_arrival_ns.max(now_ns + way_ns) + carried_ns;
        end.last_arrival_ns = arrives_ns;
        end.next_sequence += 1;
        end.sends.push_back(Posted {
            sequence: end.next_sequence,
            id: work.id,
            kind: work.kind,
            pieces: work.pieces.to_vec(),
            inline,
            signalled: work.signalled,
            arrives_ns,
            arrived: false,
            status: None,
        });
        self.pump_soon(id);
        Ok(())
    }

    fn gather_all(&self, device: u64, pieces: &[Piece]) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for piece in pieces {
            all.extend(self.gather(device, piece.address, piece.length, piece.key)?);
        }
        Some(all)
    }

    /// Schedules the arrival of the next work request.
    fn pump_soon(&mut self, id: u64) {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        if end.pumping || end.peer.is_none() || end.phase != Phase::Standing {
            return;
        }
        let Some(next) = end.sends.iter().find(|posted| !posted.arrived) else { return };
        end.pumping = true;
        let at_ns = next.arrives_ns.max(now_ns);
        self.schedule(at_ns, Event::Pump { end: id });
    }

    /// Handles the arrival of a work request at the peer's device.
    pub(super) fn pump(&mut self, id: u64) {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.pumping = false;
        let (here, device, peer) = (end.host, end.device, end.peer);
        let Some(place) = end.sends.iter().position(|posted| !posted.arrived) else { return };
        let Some(peer) = peer else { return };
        let there = self.own.ends.get(&peer).filter(|end| end.phase == Phase::Standing).map(|end| end.host);
        let reached = match there {
            Some(there) => self.reaches((here, there)) && self.reaches((there, here)),
            None => false,
        };
        if reached && self.rng.chance(self.behaviour.breaks) {
            self.seen.breaks += 1;
            self.log(|_| format!("network: a connection between {here} and {there:?} breaks"));
            self.refuse(id, place, WorkError::RetriesExceeded);
            return self.hang_up(peer);
        }
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        if !reached {
            let since_ns = *end.silent_since_ns.get_or_insert(now_ns);
            if now_ns >= since_ns + SILENCE_NS {
                return self.refuse(id, place, WorkError::RetriesExceeded);
            }
            end.pumping = true;
            return self.schedule(now_ns + SILENCE_NS / 8, Event::Pump { end: id });
        }
        end.silent_since_ns = None;
        let posted = &end.sends[place];
        let (sequence, kind, inline) = (posted.sequence, posted.kind, posted.inline.clone());
        let pieces = posted.pieces.clone();
        let bytes = inline.or_else(|| self.gather_all(device, &pieces));
        let Some(bytes) = bytes else {
            self.wrong(|| "a work request names memory that is not registered".to_string());
            return self.refuse(id, place, WorkError::Other(4));
        };
        let outcome = match kind {
            SendKind::Send => self.deliver(peer, &bytes),
            SendKind::Write { address, key } => self.carry_out(peer, (address, key), bytes),
        };
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        match outcome {
            Err(WorkError::NoReceiver) if end.not_ready < end.rnr_retries || end.rnr_retries == FOR_EVER => {
                end.not_ready = end.not_ready.saturating_add(1);
                end.pumping = true;
                return self.schedule(now_ns + NOT_READY_NS, Event::Pump { end: id });
            }
            Err(error) => {
                self.refuse(id, place, error);
                if error == WorkError::RemoteAccess {
                    self.hang_up(peer);
                }
                return;
            }
            Ok(()) => {}
        }
        end.not_ready = 0;
        if let Some(posted) = end.sends.get_mut(place) {
            posted.arrived = true;
        }
        let at_ns = now_ns + there.map_or(0, |there| self.delay_ns((there, here)));
        self.schedule(at_ns, Event::Complete { end: id, sequence, status: Ok(()) });
        self.pump_soon(id);
    }

    /// Delivers a message into the peer's next receive buffer.
    fn deliver(&mut self, peer: u64, bytes: &[u8]) -> Status {
        let Some(end) = self.own.ends.get_mut(&peer) else { return Err(WorkError::RetriesExceeded) };
        let device = end.device;
        let Some(receive) = end.receives.pop_front() else {
            self.wrong(|| "a message found no receive buffer: credits do not fit what is posted".to_string());
            return Err(WorkError::NoReceiver);
        };
        self.seen.sends += 1;
        let piece = receive.piece;
        if bytes.len() > piece.length as usize || !self.scatter(device, piece.address, piece.key, bytes) {
            self.wrong(|| "a message met a receive buffer that is too small or not registered".to_string());
            return Err(WorkError::Other(9));
        }
        self.report(peer, WorkCompletion { id: receive.id, length: bytes.len() as u32, status: Ok(()) }, 0);
        Ok(())
    }

    /// Carries out a write into the peer's memory.
    fn carry_out(&mut self, peer: u64, (address, key): (u64, u32), mut bytes: Vec<u8>) -> Status {
        let Some(device) = self.own.ends.get(&peer).map(|end| end.device) else {
            return Err(WorkError::RetriesExceeded);
        };
        self.seen.writes += 1;
        self.seen.written_bytes += bytes.len() as u64;
        if self.behaviour.occurs(IbFault::DropsWrite, &mut self.rng) {
            return Ok(());
        }
        if self.behaviour.occurs(IbFault::ChangesByte, &mut self.rng) && !bytes.is_empty() {
            let place = self.rng.index(bytes.len());
            bytes[place] ^= 1;
        }
        if self.write(device, address, key, &bytes) {
            return Ok(());
        }
        self.wrong(|| "a write went to memory that is not registered for peers".to_string());
        Err(WorkError::RemoteAccess)
    }

    /// Fails a work request and all work requests behind it.
    fn refuse(&mut self, id: u64, place: usize, error: WorkError) {
        self.seen.failed_works += 1;
        if let Some(posted) = self.own.ends.get_mut(&id).and_then(|end| end.sends.get_mut(place)) {
            posted.status = Some(Err(error));
        }
        // Work requests that arrived before this one have succeeded, even if that was not reported.
        if let Some(end) = self.own.ends.get_mut(&id) {
            end.sends.iter_mut().take(place).for_each(|posted| {
                posted.status.get_or_insert(Ok(()));
            });
        }
        self.break_end(id);
    }

    /// Reports to the sender that a work request has been carried out.
    pub(super) fn complete(&mut self, id: u64, sequence: u64, status: Status) {
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        let Some(posted) = end.sends.iter_mut().find(|posted| posted.sequence == sequence) else { return };
        posted.status = Some(status);
        while let Some(posted) = self.own.ends.get_mut(&id).and_then(|end| {
            end.sends.front().is_some_and(|posted| posted.status.is_some()).then(|| end.sends.pop_front())?
        }) {
            self.finish_send(id, posted.id, posted.signalled, posted.status.unwrap_or(Ok(())));
        }
    }

    fn finish_send(&mut self, id: u64, work: u64, signalled: bool, status: Status) {
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.silent += 1;
        if signalled || status.is_err() {
            let slots = std::mem::take(&mut end.silent);
            self.report(id, WorkCompletion { id: work, length: 0, status }, slots);
        }
    }

    /// Queues a completion; `slots` entries of the send queue are free once it has been polled.
    fn report(&mut self, id: u64, completion: WorkCompletion, slots: u32) {
        if self.behaviour.occurs(IbFault::LosesCompletion, &mut self.rng) {
            return;
        }
        let lost = self.behaviour.occurs(IbFault::LosesReady, &mut self.rng);
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.done.push_back((completion, slots));
        let full = end.sizes.is_some_and(|sizes| end.done.len() as u32 > sizes.completions);
        let tells = std::mem::take(&mut end.armed) && !lost;
        if full {
            self.wrong(|| "a completion queue has overflowed".to_string());
        }
        if tells {
            let at_ns = self.now_ns + self.rng.between(self.behaviour.interrupt_ns);
            self.schedule(at_ns, Event::Interrupt { end: id });
        }
    }

    /// Reports completions on the channel of an armed end.
    pub(super) fn interrupt(&mut self, id: u64) {
        let Some(end) = self.own.ends.get(&id) else { return };
        let (channel, token) = (end.channel, end.token);
        self.seen.interrupts += 1;
        self.push_event(channel, ChannelEvent::Ready(token));
    }

    pub(super) fn poll(&mut self, id: u64, done: &mut Completions) -> Result<(), Errno> {
        let end = self.own.ends.get_mut(&id).ok_or(Errno::EBADF)?;
        while done.len() < COMPLETIONS_PER_LOOK
            && let Some((completion, slots)) = end.done.pop_front()
        {
            end.send_slots = end.send_slots.saturating_sub(slots);
            done.push(completion);
        }
        Ok(())
    }

    pub(super) fn arm(&mut self, id: u64) -> Result<(), Errno> {
        let end = self.own.ends.get_mut(&id).ok_or(Errno::EBADF)?;
        end.armed = true;
        Ok(())
    }
}
