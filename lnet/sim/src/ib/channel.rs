use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{
    Channel, Device, DeviceChange, DialOptions, Endpoint, FabricError, Happening, Listener, PrivateData,
    Rejected, Request, Token,
};

use super::asking::{SimListener, SimRequest};
use super::device::NAME;
use super::endpoint::SimEndpoint;
use super::host::SimFabric;
use super::state::Queue;

/// A channel, as the network has it.
pub(super) struct Hearing {
    pub(super) host: usize,
    pub(super) heard: Queue<Heard>,
    pub(super) rung: bool,
}

/// What it is to tell.
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

/// A channel, as a shard has it.
pub(super) struct SimChannel {
    pub(super) fabric: SimFabric,
    pub(super) id: u64,
}

impl Channel for SimChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        unreachable!("nobody sleeps in virtual time")
    }

    fn ring(&self) {
        if let Some(hearing) = self.fabric.net.lock().channels.get_mut(&self.id) {
            hearing.rung = true;
        }
    }

    fn next(&self) -> Option<Happening> {
        let heard = {
            let mut state = self.fabric.net.lock();
            let hearing = state.channels.get_mut(&self.id)?;
            let heard = hearing.heard.pop_front();
            if heard.is_none() {
                hearing.rung = false;
            }
            heard?
        };
        Some(match heard {
            Heard::Request { listener, request } => {
                let request = SimRequest::new(self.fabric.clone(), request);
                Happening::Request { listener, request: Box::new(request) }
            }
            Heard::Resolved(token) => Happening::Resolved(token),
            Heard::Accepted(token, private_data) => Happening::Accepted(token, private_data),
            Heard::Established(token) => Happening::Established(token),
            Heard::Rejected(token, rejected) => Happening::Rejected(token, rejected),
            Heard::Failed(token, errno) => Happening::Failed(token, errno),
            Heard::Disconnected(token) => Happening::Disconnected(token),
            Heard::Ready(token) => Happening::Ready(token),
            Heard::Device(change) => Happening::Device { name: Arc::from(NAME), change },
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
        // It has been taken: dropping it rejects nobody.
        drop(request);
        Ok(Box::new(SimEndpoint { net: self.fabric.net.clone(), id, device }))
    }
}

impl Drop for SimChannel {
    fn drop(&mut self) {
        self.fabric.net.lock().channels.remove(&self.id);
    }
}
