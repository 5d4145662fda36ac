use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{
    Completions, ConnectOptions, Device, Endpoint, FabricError, PostError, QueueSizes, ReceiveWork, SendWork,
};

use super::device::NAME;
use super::end::Phase;
use super::net::IbNet;
use super::state::State;

/// A driver's handle of one side of a connection.
pub(super) struct SimEndpoint {
    pub(super) net: IbNet,
    pub(super) id: u64,
    pub(super) device: Arc<dyn Device>,
}

impl SimEndpoint {
    fn change<T>(
        &self,
        what: &str,
        change: impl FnOnce(&mut State) -> Result<T, Errno>,
    ) -> Result<T, FabricError> {
        let result = change(&mut self.net.lock());
        result.map_err(|errno| FabricError { what: format!("{NAME}: {what}"), errno })
    }
}

impl Endpoint for SimEndpoint {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn make_queues(&mut self, sizes: &QueueSizes) -> Result<QueueSizes, FabricError> {
        self.change("make queues", |state| state.make_queues(self.id, sizes))
    }

    fn connect(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError> {
        self.change("connect", |state| state.connect(self.id, private_data, options))
    }

    fn establish(&mut self) -> Result<(), FabricError> {
        self.change("establish", |state| state.establish(self.id))
    }

    fn accept(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError> {
        self.change("accept", |state| {
            state.prepare(self.id, options)?;
            state.accept(self.id, private_data);
            Ok(())
        })
    }

    fn reject(&mut self, record: &[u8]) {
        let mut state = self.net.lock();
        if state.own.ends.get(&self.id).is_some_and(|end| end.phase != Phase::Beginning) {
            state.wrong(|| {
                "a peer is rejected that was accepted before: Linux repeats the accept for a minute"
                    .to_string()
            });
        }
        let to = state.own.ends.get_mut(&self.id).and_then(|end| Some((end.host, end.peer.take()?)));
        if let Some(to) = to {
            state.reject_with(to, record);
        }
    }

    fn disconnect(&self) {
        self.net.lock().disconnect(self.id);
    }

    fn post_receives(&self, works: &[ReceiveWork]) -> Result<(), PostError> {
        let mut state = self.net.lock();
        for (index, work) in works.iter().enumerate() {
            state.post_receive(self.id, work).map_err(|errno| PostError { index, errno })?;
        }
        Ok(())
    }

    fn post_sends(&self, works: &[SendWork<'_>]) -> Result<(), PostError> {
        let mut state = self.net.lock();
        for (index, work) in works.iter().enumerate() {
            state.post_send(self.id, work).map_err(|errno| PostError { index, errno })?;
        }
        Ok(())
    }

    fn poll(&self, done: &mut Completions) -> Result<(), Errno> {
        self.net.lock().poll(self.id, done)
    }

    fn arm(&self) -> Result<(), Errno> {
        self.net.lock().arm(self.id)
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        state.disconnect(self.id);
        state.remove(self.id);
    }
}
