use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{
    Channel, CmEvent, Device, DeviceChange, DialOptions, Endpoint, FabricError, Listener, PrivateData,
    Rejected, Request, Token,
};
use nlx_sync::Bell;

use super::asking::{SimListener, SimRequest};
use super::device::NAME;
use super::endpoint::SimEndpoint;
use super::habits::IbFault;
use super::host::SimFabric;
use super::state::Queue;

/// The network's state of a channel.
pub(super) struct Hearing {
    pub(super) host: usize,
    pub(super) heard: Queue<Heard>,
    pub(super) rung: bool,
    /// For threads that sleep in real time.
    pub(super) bell: Arc<Bell>,
    /// Whether a thread has asked for the descriptor: from then on it is written.
    pub(super) watched: bool,
}

impl Hearing {
    /// Whether a thread that sleeps on it is to be woken.
    pub(super) fn is_ready(&self) -> bool {
        self.rung || !self.heard.is_empty()
    }

    pub(super) fn hear(&mut self, heard: Heard) {
        self.heard.push_back(heard);
        self.wake();
    }

    pub(super) fn ring(&mut self) {
        self.rung = true;
        self.wake();
    }

    fn wake(&self) {
        if self.watched {
            // This cannot fail: it is an eventfd.
            let _ = self.bell.ring();
        }
    }

    fn silence(&mut self) {
        self.rung = false;
        if self.watched {
            // It does not block, even if the eventfd was not written.
            let _ = self.bell.silence();
        }
    }
}

/// An event of a channel.
#[derive(Debug)]
pub(super) enum Heard {
    Request { listener: Token, request: u64 },
    Resolved(Token),
    Accepted(Token, PrivateData),
    Established(Token),
    Rejected(Token, Rejected),
    Failed(Token, Errno),
    Disconnected(Token),
    Ready(Token),
    Device(DeviceChange),
}

/// A shard's handle of a channel.
pub(super) struct SimChannel {
    pub(super) fabric: SimFabric,
    pub(super) id: u64,
    pub(super) bell: Arc<Bell>,
}

impl Channel for SimChannel {
    /// For threads in real time, while another thread runs the network.
    fn fd(&self) -> BorrowedFd<'_> {
        if let Some(hearing) = self.fabric.net.lock().own.channels.get_mut(&self.id)
            && !std::mem::replace(&mut hearing.watched, true)
            && hearing.is_ready()
        {
            hearing.wake();
        }
        self.bell.as_fd()
    }

    fn ring(&self) {
        let mut guard = self.fabric.net.lock();
        let state = &mut *guard;
        let lost = state.habits.strikes(IbFault::LosesRing, &mut state.rng);
        if let Some(hearing) = state.own.channels.get_mut(&self.id).filter(|_| !lost) {
            hearing.ring();
        }
    }

    fn next(&self) -> Option<CmEvent> {
        let heard = {
            let mut state = self.fabric.net.lock();
            let hearing = state.own.channels.get_mut(&self.id)?;
            let heard = hearing.heard.pop_front();
            if heard.is_none() {
                hearing.silence();
            }
            heard?
        };
        Some(match heard {
            Heard::Request { listener, request } => {
                let request = SimRequest::new(self.fabric.clone(), request);
                CmEvent::Request { listener, request: Box::new(request) }
            }
            Heard::Resolved(token) => CmEvent::Resolved(token),
            Heard::Accepted(token, private_data) => CmEvent::Accepted(token, private_data),
            Heard::Established(token) => CmEvent::Established(token),
            Heard::Rejected(token, rejected) => CmEvent::Rejected(token, rejected),
            Heard::Failed(token, errno) => CmEvent::Failed(token, errno),
            Heard::Disconnected(token) => CmEvent::Disconnected(token),
            Heard::Ready(token) => CmEvent::Ready(token),
            Heard::Device(change) => CmEvent::Device { name: Arc::from(NAME), change },
        })
    }

    fn rest(&self) {}

    fn listen(
        &self,
        token: Token,
        _: &Arc<dyn Device>,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<Box<dyn Listener>, FabricError> {
        let id = self.fabric.listen(self.id, token, at, backlog)?;
        Ok(Box::new(SimListener { net: self.fabric.net.clone(), id }))
    }

    fn dial(
        &self,
        token: Token,
        device: &Arc<dyn Device>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        options: &DialOptions,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
        let id = self.fabric.dial(self.id, token, (from, to), options)?;
        Ok(Box::new(SimEndpoint { net: self.fabric.net.clone(), id, device: device.clone() }))
    }

    fn adopt(&self, token: Token, request: Box<dyn Request>) -> Result<Box<dyn Endpoint>, FabricError> {
        let (id, device) = self.fabric.adopt(self.id, token, &*request)?;
        // The request has been taken: dropping it rejects nothing.
        drop(request);
        Ok(Box::new(SimEndpoint { net: self.fabric.net.clone(), id, device }))
    }
}

impl Drop for SimChannel {
    fn drop(&mut self) {
        self.fabric.net.lock().own.channels.remove(&self.id);
    }
}
