use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{
    Channel, ChannelToken, CmEvent, ConnRequest, Device, DeviceChange, DialOptions, Endpoint, FabricError,
    Listener, PrivateData, Rejected,
};
use nlx_sync::Bell;

use super::behaviour::IbFault;
use super::device::NAME;
use super::endpoint::SimEndpoint;
use super::host::SimFabric;
use super::requests::{SimListener, SimRequest};
use super::state::Queue;

/// The network's state of a channel.
pub(super) struct ChannelState {
    pub(super) host: usize,
    pub(super) events: Queue<ChannelEvent>,
    pub(super) rung: bool,
    /// The descriptor that wakes threads that sleep in real time.
    pub(super) bell: Arc<Bell>,
    /// True if a thread has requested the descriptor. Only then is the descriptor written.
    pub(super) watched: bool,
}

impl ChannelState {
    /// Returns whether a thread that sleeps on the channel must be woken.
    pub(super) fn is_ready(&self) -> bool {
        self.rung || !self.events.is_empty()
    }

    pub(super) fn push(&mut self, event: ChannelEvent) {
        self.events.push_back(event);
        self.wake();
    }

    pub(super) fn ring(&mut self) {
        self.rung = true;
        self.wake();
    }

    fn wake(&self) {
        if self.watched {
            // This cannot fail, because the bell is an eventfd.
            let _ = self.bell.ring();
        }
    }

    fn silence(&mut self) {
        self.rung = false;
        if self.watched {
            // This does not block, even if the eventfd was not written.
            let _ = self.bell.silence();
        }
    }
}

/// An event of a channel.
#[derive(Debug)]
pub(super) enum ChannelEvent {
    Request { listener: ChannelToken, request: u64 },
    Resolved(ChannelToken),
    Accepted(ChannelToken, PrivateData),
    Established(ChannelToken),
    Rejected(ChannelToken, Rejected),
    Failed(ChannelToken, Errno),
    Disconnected(ChannelToken),
    Ready(ChannelToken),
    Device(DeviceChange),
}

/// A shard's handle of a channel.
pub(super) struct SimChannel {
    pub(super) fabric: SimFabric,
    pub(super) id: u64,
    pub(super) bell: Arc<Bell>,
}

impl Channel for SimChannel {
    /// Returns the descriptor for threads that sleep in real time while another thread runs the
    /// network.
    fn fd(&self) -> BorrowedFd<'_> {
        if let Some(channel_state) = self.fabric.net.lock().own.channels.get_mut(&self.id)
            && !std::mem::replace(&mut channel_state.watched, true)
            && channel_state.is_ready()
        {
            channel_state.wake();
        }
        self.bell.as_fd()
    }

    fn ring(&self) {
        let mut guard = self.fabric.net.lock();
        let state = &mut *guard;
        let lost = state.behaviour.occurs(IbFault::LosesRing, &mut state.rng);
        if let Some(channel_state) = state.own.channels.get_mut(&self.id).filter(|_| !lost) {
            channel_state.ring();
        }
    }

    fn next(&self) -> Option<CmEvent> {
        let event = {
            let mut state = self.fabric.net.lock();
            let channel_state = state.own.channels.get_mut(&self.id)?;
            let event = channel_state.events.pop_front();
            if event.is_none() {
                channel_state.silence();
            }
            event?
        };
        Some(match event {
            ChannelEvent::Request { listener, request } => {
                let request = SimRequest::new(self.fabric.clone(), request);
                CmEvent::Request { listener, request: Box::new(request) }
            }
            ChannelEvent::Resolved(token) => CmEvent::Resolved(token),
            ChannelEvent::Accepted(token, private_data) => CmEvent::Accepted(token, private_data),
            ChannelEvent::Established(token) => CmEvent::Established(token),
            ChannelEvent::Rejected(token, rejected) => CmEvent::Rejected(token, rejected),
            ChannelEvent::Failed(token, errno) => CmEvent::Failed(token, errno),
            ChannelEvent::Disconnected(token) => CmEvent::Disconnected(token),
            ChannelEvent::Ready(token) => CmEvent::Ready(token),
            ChannelEvent::Device(change) => CmEvent::Device { name: Arc::from(NAME), change },
        })
    }

    fn rest(&self) {}

    fn listen(
        &self,
        token: ChannelToken,
        _: &Arc<dyn Device>,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<Box<dyn Listener>, FabricError> {
        let id = self.fabric.listen(self.id, token, at, backlog)?;
        Ok(Box::new(SimListener { net: self.fabric.net.clone(), id }))
    }

    fn dial(
        &self,
        token: ChannelToken,
        device: &Arc<dyn Device>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        options: &DialOptions,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
        let id = self.fabric.dial(self.id, token, (from, to), options)?;
        Ok(Box::new(SimEndpoint { net: self.fabric.net.clone(), id, device: device.clone() }))
    }

    fn adopt(
        &self,
        token: ChannelToken,
        request: Box<dyn ConnRequest>,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
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
