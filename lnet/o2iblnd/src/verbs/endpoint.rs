//! Connections: an endpoint over the connection manager's identifier and a queue pair.

use std::net::SocketAddrV4;
use std::sync::Arc;

use lnet_api::Errno;

use super::channel::{QueuePair, WatchedId};
use super::completions::CompletionChannel;
use super::context::DeviceContext;
use super::failed;
use super::queues::{Queues, flush};
use crate::fabric::{
    ChannelToken, Completions, ConnectOptions, Device, Endpoint, FabricError, PostError, QueueSizes,
    ReceiveWork, SendWork,
};

pub(super) struct HostEndpoint {
    token: ChannelToken,
    /// The queues. Declared before the identifier, as they must be dropped first.
    queues: Option<Queues>,
    id: WatchedId,
    device: Arc<dyn Device>,
    completions: Arc<CompletionChannel>,
    vector: u32,
    context: Arc<DeviceContext>,
}

impl HostEndpoint {
    pub(super) fn new(
        token: ChannelToken,
        id: WatchedId,
        context: Arc<DeviceContext>,
        device: Arc<dyn Device>,
        completions: Arc<CompletionChannel>,
        vector: u32,
    ) -> HostEndpoint {
        HostEndpoint { token, queues: None, id, device, completions, vector, context }
    }

    /// Begins to resolve the route to the peer.
    pub(super) fn resolve(&self, target: SocketAddrV4, within_ms: u32) -> Result<(), Errno> {
        self.id.update(|known| known.resolve_ms = Some(within_ms));
        self.id.resolve_address(target, within_ms)
    }

    fn check_origin(&self) -> Result<(), Errno> {
        if self.id.fork_guard().in_owner_process() { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn queues(&self) -> Result<&Queues, Errno> {
        self.check_origin()?;
        self.queues.as_ref().ok_or(Errno::ENOTCONN)
    }

    /// Runs `step` with the endpoint's queues; an error names the step, `what`, and the endpoint.
    fn step(&self, what: &str, step: impl FnOnce(&Queues) -> Result<(), Errno>) -> Result<(), FabricError> {
        self.queues().and_then(step).map_err(|errno| self.explain(what, errno))
    }

    fn explain(&self, what: &str, errno: Errno) -> FabricError {
        match self.id.remote() {
            Some(peer) => failed(errno, format!("{what} {peer} ({})", self.device.name())),
            None => failed(errno, format!("{what} a peer ({})", self.device.name())),
        }
    }

    fn too_much(&self, wish: &QueueSizes, errno: Errno) -> FabricError {
        let QueueSizes { sends, receives, completions, pieces, inline: _ } = wish;
        let limits = self.device.limits();
        let what = format!(
            "queues of {sends} sends with {pieces} pieces each, {receives} receives and {completions} completions: \
             {} has at most {} work requests per queue, {} pieces and {} completions (lower peer_credits, \
             concurrent_sends or wrq_sge)",
            self.device.name(),
            limits.queue_entries,
            limits.pieces,
            limits.completions
        );
        // Queues use locked memory too, so its limit may be the cause.
        match super::device::memlock().filter(|_| errno == Errno::ENOMEM) {
            Some(memlock) => failed(errno, format!("{what}; or {memlock}")),
            None => failed(errno, what),
        }
    }
}

impl Endpoint for HostEndpoint {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn make_queues(&mut self, sizes: &QueueSizes) -> Result<QueueSizes, FabricError> {
        if self.queues.is_some() {
            return Err(self.explain("making queues again for the connection with", Errno::EALREADY));
        }
        let make = || {
            self.check_origin()?;
            let (completions, vector) = (&self.completions, self.vector);
            let queues = Queues::new(self.token, &self.id, &self.context, completions, vector, sizes)?;
            queues.to_init(&self.id)?;
            Ok(queues)
        };
        let queues = make().map_err(|errno| self.too_much(sizes, errno))?;
        let made = *queues.made();
        self.id.update(|known| known.queue_pair = Some(QueuePair(queues.pair())));
        self.queues = Some(queues);
        Ok(made)
    }

    fn connect(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError> {
        self.step("connecting to", |queues| self.id.connect(private_data, queues.number(), options))
    }

    fn establish(&mut self) -> Result<(), FabricError> {
        self.step("establishing the connection to", |queues| {
            queues.to_ready(&self.id)?;
            self.id.update(|known| known.established = true);
            self.id.establish()
        })
    }

    fn accept(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError> {
        self.step("accepting the connection of", |queues| {
            queues.to_ready(&self.id)?;
            self.id.accept(private_data, queues.number(), options)
        })
    }

    fn reject(&mut self, record: &[u8]) {
        if let Err(errno) = self.check_origin().and_then(|()| self.id.reject(record)) {
            tracing::debug!(%errno, "rejecting a connection");
        }
    }

    fn disconnect(&self) {
        let Ok(queues) = self.queues() else { return };
        // SAFETY: the queue pair is valid while its owner is.
        let flushed = unsafe { flush(queues.pair()) };
        // The call fails if there is no connection any more.
        let ended = self.id.disconnect();
        tracing::trace!(?flushed, ?ended, "disconnecting");
    }

    fn post_receives(&self, works: &[ReceiveWork]) -> Result<(), PostError> {
        self.queues().map_err(unmade)?.post_receives(works)
    }

    fn post_sends(&self, works: &[SendWork<'_>]) -> Result<(), PostError> {
        self.queues().map_err(unmade)?.post_sends(works)
    }

    fn poll(&self, done: &mut Completions) -> Result<(), Errno> {
        self.queues()?.poll(done)
    }

    fn arm(&self) -> Result<(), Errno> {
        self.queues()?.arm()?;
        self.completions.note_armed();
        Ok(())
    }
}

impl Drop for HostEndpoint {
    fn drop(&mut self) {
        if self.check_origin().is_ok() {
            // Event handlers must not use the queue pair from now on.
            self.id.update(|known| known.queue_pair = None);
        }
    }
}

fn unmade(errno: Errno) -> PostError {
    PostError { index: 0, errno }
}
