//! An LNet that does nothing, and a node that needs no driving.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lnet_api::{
    Clock, Distance, Drive, DropWatcher, EqHandle, EventHandler, Get, Handler, LNet, LNetError, Md, MdHandle,
    MeHandle, MeSpec, Polled, Put, Tokens, Unlink,
};
use lnet_nid::{Nid, Portal, ProcessId};
use parking_lot::Mutex;

/// An LNet that accepts everything and does nothing: a measurement over it is that of the caller
/// alone. It keeps the last event queue's handler, and the mark of the last MD.
#[derive(Default)]
pub(crate) struct NullLnet {
    handles: AtomicU64,
    handler: Mutex<Option<Handler>>,
    user_ptr: AtomicU64,
}

impl NullLnet {
    /// Returns the handler of the last event queue.
    pub(super) fn handler(&self) -> Option<Handler> {
        self.handler.lock().clone()
    }

    /// Returns the mark of the last MD, by which its events name it.
    pub(super) fn user_ptr(&self) -> u64 {
        self.user_ptr.load(Ordering::Relaxed)
    }

    fn handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn take(&self, md: &Md) -> MdHandle {
        self.user_ptr.store(md.user_ptr, Ordering::Relaxed);
        MdHandle(self.handle())
    }
}

impl LNet for NullLnet {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        *self.handler.lock() = Some(handler);
        Ok(EqHandle(self.handle()))
    }

    fn eq_alloc_polled(
        &self,
        _: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError> {
        *self.handler.lock() = handler.map(Handler::Shared);
        Ok(EqHandle(self.handle()))
    }

    fn eq_poll(&self, _: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        Ok(None)
    }

    fn eq_free(&self, _: EqHandle) -> Result<(), LNetError> {
        Ok(())
    }

    fn me_attach(&self, _: &MeSpec) -> Result<MeHandle, LNetError> {
        Ok(MeHandle(self.handle()))
    }

    fn me_insert(&self, _: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.me_attach(me)
    }

    fn me_unlink(&self, _: MeHandle) -> Result<(), LNetError> {
        Ok(())
    }

    fn md_attach(&self, _: MeHandle, md: Md, _: Unlink) -> Result<MdHandle, LNetError> {
        Ok(self.take(&md))
    }

    fn md_bind(&self, md: Md, _: Unlink) -> Result<MdHandle, LNetError> {
        Ok(self.take(&md))
    }

    fn md_unlink(&self, _: MdHandle) -> Result<(), LNetError> {
        Ok(())
    }

    fn put(&self, _: &Put) -> Result<(), LNetError> {
        Ok(())
    }

    fn get(&self, _: &Get) -> Result<(), LNetError> {
        Ok(())
    }

    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        Ok(Some(self.take(&put.md)))
    }

    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        Ok(Some(self.take(&get.md)))
    }

    fn set_lazy(&self, _: Portal, _: bool) {}

    fn watch_drops(&self, _: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        Ok(())
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        Ok(Distance { hops: 0, order: 0, source: nid })
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        vec![ProcessId::lnet(Nid::LOOPBACK)]
    }
}

/// A node without a network, on the system's clock.
pub(crate) struct IdleDrive {
    begin: Instant,
    tokens: Tokens,
}

impl IdleDrive {
    pub(crate) fn new() -> Arc<IdleDrive> {
        Arc::new(IdleDrive { begin: Instant::now(), tokens: Tokens::new(0) })
    }
}

impl Clock for IdleDrive {
    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
}

impl Drive for IdleDrive {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}
