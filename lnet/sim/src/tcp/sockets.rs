//! Streams and listeners of a simulated host, for an LND.

use std::net::SocketAddr;

use lnet_api::Errno;
use lnet_region::{Part, PartMut};
use lnet_socklnd::sys::{Accepted, Handle, Listener, Options, RecvResult, Stream, TcpFacts};

use super::end::{Phase, Taken};
use super::host::{NS_PER_S, SimHost, times};

/// A connection's end.
pub(super) struct SimStream {
    pub(super) host: SimHost,
    pub(super) id: u64,
}

/// A listening socket.
pub(super) struct SimListener {
    pub(super) host: SimHost,
    pub(super) id: u64,
    pub(super) address: SocketAddr,
}

impl Stream for SimStream {
    fn handle(&self) -> Handle<'_> {
        Handle::Number(self.id)
    }

    fn send(&self, pieces: &[Part<'_>]) -> Result<usize, Errno> {
        let offered = pieces.iter().map(Part::len).sum();
        self.host.lock().send(self.id, offered, |mut target| {
            for piece in pieces {
                let count = piece.load(0, target);
                target = &mut target[count..];
            }
        })
    }

    fn receive(&self, buffer: &mut [u8]) -> RecvResult {
        let room = buffer.len();
        received(self.host.lock().take(self.id, room, |bytes| buffer[..bytes.len()].copy_from_slice(bytes)))
    }

    fn receive_into(&self, pieces: &mut [PartMut<'_>]) -> RecvResult {
        let room = pieces.iter().map(PartMut::len).sum();
        received(self.host.lock().take(self.id, room, |mut bytes| {
            for piece in pieces {
                let count = piece.store(0, bytes);
                bytes = &bytes[count..];
            }
        }))
    }

    fn connect_result(&self) -> Result<(), Errno> {
        let mut state = self.host.lock();
        match state.own.ends.get_mut(&self.id) {
            Some(end) => end.error.take().map_or(Ok(()), Err),
            None => Err(Errno::EBADF),
        }
    }

    fn tune(&self, options: &Options) -> Result<(), Errno> {
        let mut state = self.host.lock();
        if let Some(end) = state.own.ends.get_mut(&self.id) {
            end.times = times(options);
            if end.phase == Phase::Open {
                state.start_probes(self.id);
            }
        }
        Ok(())
    }

    fn limit_unacked(&self, seconds: u32) {
        self.host.lock().limit_unacked(self.id, u64::from(seconds) * NS_PER_S);
    }

    fn facts(&self) -> Option<TcpFacts> {
        self.host.lock().facts(self.id)
    }

    fn shutdown(&self) {
        self.host.lock().shut(self.id);
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        let state = self.host.lock();
        state
            .own
            .ends
            .get(&self.id)
            .filter(|end| end.phase == Phase::Open && !end.broken)
            .map(|end| end.remote)
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.host.lock().close(self.id);
    }
}

impl Listener for SimListener {
    fn handle(&self) -> Handle<'_> {
        Handle::Number(self.id)
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> Accepted {
        let mut guard = self.host.lock();
        let state = &mut *guard;
        if !self.host.is_alive(state) {
            return Accepted::Nobody;
        }
        let Some(listening) = state.own.listeners.get_mut(&self.id) else { return Accepted::Nobody };
        let host = &mut state.hosts[self.host.host].own;
        // Linux, too, allocates the descriptor first.
        if host.descriptors >= host.descriptors_max {
            state.seen.exhausted += 1;
            return Accepted::Exhausted(Errno::EMFILE);
        }
        let Some(id) = listening.waiting.pop_front() else { return Accepted::Nobody };
        let gone = state.rng.chance(state.behaviour.gone);
        let Some(end) = state.own.ends.get_mut(&id) else { return Accepted::Gone };
        if gone {
            state.seen.gone += 1;
            state.kill_end(id, true);
            return Accepted::Gone;
        }
        host.descriptors += 1;
        end.held = true;
        let remote = end.remote;
        state.own.tap.taken(self.host.host);
        drop(guard);
        Accepted::Connection(Box::new(SimStream { host: self.host.clone(), id }), remote)
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.host.lock().close_listener(self.id);
    }
}

fn received(taken: Taken) -> RecvResult {
    match taken {
        Taken::Bytes(count) => RecvResult::Bytes(count),
        Taken::Nothing => RecvResult::Nothing,
        Taken::End => RecvResult::End,
        Taken::Broken(errno) => RecvResult::Broken(errno),
    }
}
