//! One end of a connection, and TCP's handling of it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use lnet_api::Errno;
use lnet_socklnd::sys::TcpFacts;

use super::behaviour::{TcpBehaviour, TcpFault};
use super::state::{Event, Packet, State};

/// The time for which a pair of addresses is blocked after a connection, at the side that closed
/// first.
const REST_NS: u64 = 60_000_000_000;

/// Data unacknowledged for this time has been retransmitted.
const REPEAT_NS: u64 = 3_000_000_000;

/// The state of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Open,
}

/// The time options of an end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) user_timeout_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) interval_ns: u64,
    pub(super) probes: u32,
}

pub(super) struct End {
    pub(super) host: usize,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) phase: Phase,
    /// The other end, once it exists.
    pub(super) peer: Option<u64>,
    /// The listener whose queue the connection will enter.
    pub(super) listener: Option<u64>,
    /// True if a program has the socket.
    pub(super) held: bool,
    /// The error that broke the connection; the program's next call consumes it.
    pub(super) error: Option<Errno>,
    pub(super) broken: bool,
    /// True if the program has shut down both directions.
    pub(super) shut: bool,
    /// True if the program has closed the end; data sent before still leaves.
    pub(super) closed: bool,
    /// The bytes to be sent, the number of bytes sent and not acknowledged, and the number of bytes
    /// for which the other end has room.
    tx: VecDeque<u8>,
    unacked: usize,
    pub(super) window: usize,
    fin_sent: bool,
    /// True if a program found the send buffer full, or fuller than the limit of `is_writable`.
    nospace: bool,
    send_buffer: usize,
    /// Bytes that have arrived and have not been read.
    rx: VecDeque<u8>,
    fin_received: bool,
    /// The arrival time of the last packet that this end has sent.
    pub(super) last_arrival_ns: u64,
    acked: u64,
    /// The time at which this end last sent data.
    sent_ns: u64,
    heard_ns: u64,
    timing: bool,
    pub(super) times: Times,
}

/// The result of a receive.
pub(super) enum Taken {
    Bytes(usize),
    Nothing,
    End,
    Broken(Errno),
}

impl End {
    pub(super) fn new(host: usize, local: SocketAddr, remote: SocketAddr, behaviour: &TcpBehaviour) -> End {
        End {
            host,
            local,
            remote,
            phase: Phase::Connecting,
            peer: None,
            listener: None,
            held: false,
            error: None,
            broken: false,
            shut: false,
            closed: false,
            tx: VecDeque::new(),
            unacked: 0,
            window: 0,
            fin_sent: false,
            nospace: false,
            send_buffer: behaviour.send_buffer,
            rx: VecDeque::new(),
            fin_received: false,
            last_arrival_ns: 0,
            acked: 0,
            sent_ns: 0,
            heard_ns: 0,
            timing: false,
            times: Times::default(),
        }
    }

    fn room(&self) -> usize {
        self.send_buffer.saturating_sub(self.tx.len() + self.unacked)
    }

    /// Returns whether a third of the buffer is free, Linux's condition for reporting that it is
    /// writable.
    fn is_writable(&self) -> bool {
        self.room() * 3 >= self.send_buffer
    }

    /// Returns whether the end is readable, writable, ending, broken.
    pub(super) fn readiness(&self) -> [bool; 4] {
        if self.phase == Phase::Connecting && !self.broken {
            return [false; 4];
        }
        let ending = self.fin_received || self.broken || self.shut;
        let broken = self.broken || (self.fin_received && self.shut);
        [!self.rx.is_empty() || ending, ending || self.is_writable(), ending, broken]
    }

    pub(super) fn unread(&self) -> usize {
        self.rx.len()
    }
}

impl State {
    /// Sends data of a program; `copy` fills the given bytes. Returns the number of bytes accepted.
    pub(super) fn send(
        &mut self,
        id: u64,
        offered: usize,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<usize, Errno> {
        let Some(end) = self.own.ends.get_mut(&id) else { return Err(Errno::EPIPE) };
        if let Some(errno) = end.error.take() {
            return Err(errno);
        }
        if end.broken || end.shut {
            return Err(Errno::EPIPE);
        }
        if end.phase == Phase::Connecting {
            return Err(Errno::EAGAIN);
        }
        let count = end.room().min(offered);
        end.nospace |= count < offered;
        if count == 0 && offered > 0 {
            return Err(Errno::EAGAIN);
        }
        self.seen.sends_partial += u64::from(count < offered);
        let mut bytes = vec![0; count];
        copy(&mut bytes);
        self.own.tap.sent(id, &bytes);
        end.tx.extend(bytes);
        self.transmit(id);
        Ok(count)
    }

    /// Receives at most `room` bytes for a program; `copy` gets them.
    pub(super) fn take(&mut self, id: u64, room: usize, copy: impl FnOnce(&[u8])) -> Taken {
        let Some(end) = self.own.ends.get_mut(&id) else { return Taken::Broken(Errno::ECONNRESET) };
        let count = end.rx.len().min(room);
        if count > 0 {
            let bytes: Vec<u8> = end.rx.drain(..count).collect();
            copy(&bytes);
            let (host, peer, remote) = (end.host, end.peer, end.remote);
            if let (Some(peer), Some(there)) = (peer, self.host_of(remote.ip())) {
                self.launch((host, there), id, peer, Packet::Window(count));
            }
            self.own.tap.received(id, &bytes);
            return Taken::Bytes(count);
        }
        if let Some(errno) = end.error.take() {
            return Taken::Broken(errno);
        }
        if end.fin_received || end.shut || end.broken {
            return Taken::End;
        }
        Taken::Nothing
    }

    /// Sends the bytes for which the other end has room, and then the end of the stream.
    pub(super) fn transmit(&mut self, id: u64) {
        loop {
            let Some(end) = self.own.ends.get(&id) else { return };
            let Some(there) = self.host_of(end.remote.ip()) else { return };
            let hosts = (end.host, there);
            let Some(end) = self.own.ends.get_mut(&id) else { return };
            let Some(peer) = end.peer.filter(|_| end.phase == Phase::Open && !end.broken) else { return };
            let most = end.tx.len().min(end.window);
            if most == 0 {
                if !end.tx.is_empty() {
                    self.time(id);
                }
                let Some(end) = self.own.ends.get_mut(&id) else { return };
                if end.shut && end.tx.is_empty() && !end.fin_sent {
                    end.fin_sent = true;
                    self.launch(hosts, id, peer, Packet::Fin);
                }
                return;
            }
            let size = (self.rng.between(self.behaviour.segment) as usize).min(most);
            let mut bytes: Vec<u8> = end.tx.drain(..size).collect();
            end.unacked += size;
            end.window -= size;
            end.sent_ns = self.now_ns;
            self.time(id);
            self.seen.segments += 1;
            self.seen.single_bytes += u64::from(size == 1);
            if self.rng.chance(self.behaviour.resets) {
                self.seen.resets += 1;
                self.log(|state| format!("network: resets {}", state.name(id)));
                self.launch(hosts, id, peer, Packet::Reset(Errno::ECONNRESET));
                return self.reset(id, Errno::ECONNRESET);
            }
            if self.behaviour.occurs(TcpFault::DropsByte, &mut self.rng) {
                bytes.remove(self.rng.index(size));
            }
            if self.behaviour.occurs(TcpFault::ChangesByte, &mut self.rng)
                && let Some(byte) = bytes.last_mut()
            {
                *byte ^= 0x55;
            }
            if self.behaviour.occurs(TcpFault::Repeats, &mut self.rng) {
                self.launch(hosts, id, peer, Packet::Data(bytes.clone()));
            }
            self.launch(hosts, id, peer, Packet::Data(bytes));
        }
    }

    pub(super) fn data(&mut self, hosts: (usize, usize), from: u64, to: u64, bytes: Vec<u8>) {
        let back = (hosts.1, hosts.0);
        let now_ns = self.now_ns;
        let deaf = self.own.ends.get(&to).is_none_or(|end| end.shut || end.closed || end.broken);
        if deaf {
            // The receiving program has closed its socket and will not read the data.
            self.launch(back, 0, from, Packet::Reset(Errno::ECONNRESET));
            return self.reset(to, Errno::ECONNRESET);
        }
        let Some(end) = self.own.ends.get_mut(&to) else { return };
        end.heard_ns = now_ns;
        let count = bytes.len();
        end.rx.extend(bytes);
        self.launch(back, to, from, Packet::Ack(count));
        if !self.behaviour.occurs(TcpFault::LosesReadable, &mut self.rng) {
            self.notify(to);
        }
    }

    pub(super) fn acked(&mut self, id: u64, count: usize) {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.heard_ns = now_ns;
        end.unacked = end.unacked.saturating_sub(count);
        end.acked += count as u64;
        let writable = end.nospace && end.is_writable();
        if writable {
            end.nospace = false;
        }
        if writable && !self.behaviour.occurs(TcpFault::LosesWritable, &mut self.rng) {
            self.notify(id);
        }
        self.bury(id);
    }

    pub(super) fn window(&mut self, id: u64, count: usize) {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.heard_ns = now_ns;
        end.window += count;
        self.transmit(id);
    }

    pub(super) fn fin(&mut self, hosts: (usize, usize), from: u64, to: u64) {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get_mut(&to) else {
            return self.launch((hosts.1, hosts.0), 0, from, Packet::Reset(Errno::ECONNRESET));
        };
        end.heard_ns = now_ns;
        end.fin_received = true;
        self.seen.ends += 1;
        self.notify(to);
        self.bury(to);
        self.bury(from);
    }

    /// Marks the connection as broken for this end.
    pub(super) fn reset(&mut self, id: u64, errno: Errno) {
        let Some(end) = self.own.ends.get_mut(&id).filter(|end| !end.broken) else { return };
        end.broken = true;
        end.error = Some(errno);
        end.tx.clear();
        end.unacked = 0;
        self.notify(id);
        self.bury(id);
        self.give_up_half_open(id);
    }

    /// Shuts down both directions for a program.
    pub(super) fn shut(&mut self, id: u64) {
        let Some(end) = self.own.ends.get_mut(&id).filter(|end| !end.shut) else { return };
        end.shut = true;
        if end.phase == Phase::Connecting {
            end.broken = true;
        }
        self.own.tap.closed(id, self.now_ns);
        self.transmit(id);
        self.notify(id);
    }

    /// Closes an end for a program.
    pub(super) fn close(&mut self, id: u64) {
        self.forget_watch(id);
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        if std::mem::replace(&mut end.closed, true) {
            return;
        }
        if std::mem::take(&mut end.held) {
            self.hosts[end.host].own.descriptors -= 1;
        }
        if end.phase == Phase::Connecting {
            match end.broken {
                true => self.own.tap.closed(id, self.now_ns),
                false => self.own.tap.unanswered(id, (end.local.ip(), end.remote.ip()), self.now_ns),
            }
            self.own.ends.remove(&id);
            return;
        }
        self.own.tap.closed(id, self.now_ns);
        if end.unread() > 0 {
            return self.kill_end(id, true);
        }
        end.shut = true;
        self.transmit(id);
        self.bury(id);
    }

    /// Removes an end at once; the other end gets a reset if `tell`, else nothing.
    pub(super) fn kill_end(&mut self, id: u64, tell: bool) {
        self.forget_watch(id);
        let Some(end) = self.own.ends.remove(&id) else { return };
        if end.held {
            self.hosts[end.host].own.descriptors -= 1;
        }
        self.own.tap.closed(id, self.now_ns);
        if let (true, Some(peer), Some(there)) = (tell, end.peer, self.host_of(end.remote.ip())) {
            self.launch((end.host, there), 0, peer, Packet::Reset(Errno::ECONNRESET));
        }
    }

    /// Removes a closed end with no data left to send.
    fn bury(&mut self, id: u64) {
        let Some(end) = self.own.ends.get(&id).filter(|end| end.closed) else { return };
        let done = end.fin_sent && end.tx.is_empty() && end.unacked == 0;
        if end.broken || (done && end.fin_received) {
            let pair = (end.local, end.remote);
            if !end.broken {
                self.own.resting.insert(pair, self.now_ns + REST_NS);
            }
            self.own.ends.remove(&id);
        }
    }

    /// Starts the user timeout for data that is not acknowledged.
    fn time(&mut self, id: u64) {
        let Some(end) = self.own.ends.get_mut(&id).filter(|end| end.times.user_timeout_ns > 0) else {
            return;
        };
        if !std::mem::replace(&mut end.timing, true) {
            let (at_ns, acked) = (self.now_ns + end.times.user_timeout_ns, end.acked);
            self.schedule(at_ns, Event::UserTimeout { end: id, acked });
        }
    }

    /// Sets the user timeout for a program.
    pub(super) fn limit_unacked(&mut self, id: u64, user_timeout_ns: u64) {
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.times.user_timeout_ns = user_timeout_ns;
        if !end.tx.is_empty() || end.unacked > 0 {
            self.time(id);
        }
    }

    /// Returns TCP's state of an end. Sent data is acknowledged after a round trip, unless it is
    /// lost; window probes are answered, unless they are lost.
    pub(super) fn facts(&mut self, id: u64) -> Option<TcpFacts> {
        let is_open = |end: &&End| end.phase == Phase::Open && !end.broken;
        let (host, remote) = self.own.ends.get(&id).filter(is_open).map(|end| (end.host, end.remote))?;
        let reached = self.host_of(remote.ip()).is_some_and(|there| {
            self.hosts[there].up
                && [(host, there), (there, host)].into_iter().all(|hosts| self.direction(hosts).cut.is_none())
        });
        let end = self.own.ends.get(&id)?;
        let repeated = end.unacked > 0 && self.now_ns >= end.sent_ns + REPEAT_NS;
        Some(TcpFacts {
            unanswered: if repeated { 2 } else { 0 },
            probes: if reached { 0 } else { 3 },
            unacked_bytes: (end.tx.len() + end.unacked) as u64,
            ..TcpFacts::default()
        })
    }

    /// Breaks the connection if data is not acknowledged, or finds no room at the other end, within
    /// the user timeout.
    pub(super) fn user_timeout(&mut self, id: u64, acked: u64) {
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        if end.unacked == 0 && end.tx.is_empty() || end.times.user_timeout_ns == 0 {
            end.timing = false;
        } else if end.acked == acked {
            self.seen.user_timeouts += 1;
            self.reset(id, Errno::ETIMEDOUT);
        } else {
            let (at_ns, acked) = (self.now_ns + end.times.user_timeout_ns, end.acked);
            self.schedule(at_ns, Event::UserTimeout { end: id, acked });
        }
    }

    pub(super) fn start_probes(&mut self, id: u64) {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get_mut(&id) else { return };
        end.heard_ns = now_ns;
        if end.times.idle_ns > 0 {
            let at_ns = now_ns + end.times.idle_ns;
            self.schedule(at_ns, Event::Probe { end: id, failed: 0 });
        }
    }

    /// Sends a keepalive probe to the other end after a time of silence.
    pub(super) fn probe(&mut self, id: u64, failed: u32) {
        let now_ns = self.now_ns;
        let Some(end) = self.own.ends.get(&id).filter(|end| !end.broken) else { return };
        let (times, heard_ns, host, remote, peer) = (end.times, end.heard_ns, end.host, end.remote, end.peer);
        if failed == 0 && heard_ns + times.idle_ns > now_ns {
            return self.schedule(heard_ns + times.idle_ns, Event::Probe { end: id, failed });
        }
        let Some(there) = self.host_of(remote.ip()) else { return };
        let reached = self.hosts[there].up
            && [(host, there), (there, host)].into_iter().all(|hosts| self.direction(hosts).cut.is_none());
        self.seen.probes += 1;
        if reached && !peer.is_some_and(|peer| self.own.ends.contains_key(&peer)) {
            return self.reset(id, Errno::ECONNRESET);
        }
        if reached {
            if let Some(end) = self.own.ends.get_mut(&id) {
                end.heard_ns = now_ns;
            }
            return self.schedule(now_ns + times.idle_ns, Event::Probe { end: id, failed: 0 });
        }
        if failed + 1 >= times.probes {
            return self.reset(id, Errno::ETIMEDOUT);
        }
        self.schedule(now_ns + times.interval_ns, Event::Probe { end: id, failed: failed + 1 });
    }

    /// Handles retransmissions to a restarted host, on which the other end no longer exists.
    pub(super) fn retransmit_to(&mut self, host: usize) {
        let dead: Vec<u64> = self
            .own
            .ends
            .iter()
            .filter(|(_, end)| {
                let lost = end.peer.is_some_and(|peer| !self.own.ends.contains_key(&peer));
                lost && end.unacked > 0 && self.host_of(end.remote.ip()) == Some(host)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in dead {
            let at_ns = self.now_ns + self.rng.between((1_000_000, 10_000_000_000));
            let packet = Packet::Reset(Errno::ECONNRESET);
            self.schedule(at_ns, Event::Packet { hosts: (host, host), from: 0, to: id, packet });
        }
    }

    /// Returns the name of an end, with its addresses.
    pub(super) fn name(&self, id: u64) -> String {
        self.own.ends.get(&id).map_or_else(
            || format!("end {id}, which is gone"),
            |end| format!("end {id} ({} to {})", end.local, end.remote),
        )
    }
}
