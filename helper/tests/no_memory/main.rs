//! Without memory the helper refuses the client that needs it: the helper does not end, and nothing
//! of the client is left.
//!
//! Scripts of everything that a client can do are run repeatedly, with one allocation of the helper
//! after another failing: of a session alone (`session`), and of a whole service (`service`). LNet
//! and the client always have memory.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod service;
mod session;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use lnet_api::{
    Distance, DropWatcher, EqHandle, EventHandler, Get, Handler, LNet, LNetError, Md, MdHandle, MeHandle,
    MeSpec, Polled, Put, Unlink,
};
use lnet_fake::FakeLnet;
use lnet_nid::{Nid, Portal, ProcessId};
use nlx_helper::{Host, HostStatus};
use nlx_testkit::heap::WatchedHeap;

thread_local! {
    /// Number of this thread's allocations until one fails; `None`: none fails.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Number of allocations that have failed.
    static FAILED: Cell<usize> = const { Cell::new(0) };
    /// Set in the threads of a service.
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Number of the service's allocations until one fails; [`NEVER`]: none fails.
static SERVICE_LEFT: AtomicUsize = AtomicUsize::new(NEVER);
/// Number of them that have failed.
static SERVICE_FAILED: AtomicUsize = AtomicUsize::new(0);

const NEVER: usize = usize::MAX;

fn refuses() -> bool {
    if SERVES.get() {
        return refuses_service();
    }
    let left = LEFT.get();
    LEFT.set(left.and_then(|left| left.checked_sub(1)));
    let refuses = left == Some(0);
    FAILED.set(FAILED.get() + usize::from(refuses));
    refuses
}

fn refuses_service() -> bool {
    let left = SERVICE_LEFT.fetch_update(Relaxed, Relaxed, |left| match left {
        NEVER => None,
        0 => Some(NEVER),
        left => Some(left - 1),
    });
    let refuses = left == Ok(0);
    SERVICE_FAILED.fetch_add(refuses.into(), Relaxed);
    refuses
}

#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap { gives: |_| !refuses(), takes: |_| {} };

/// Runs code that is not the helper's, without failing allocations.
fn without_failures<R>(work: impl FnOnce() -> R) -> R {
    let before = (LEFT.replace(None), SERVES.replace(false));
    let result = work();
    LEFT.set(before.0);
    SERVES.set(before.1);
    result
}

/// Runs a call of the helper in which one allocation fails, after `left` that succeed; later ones
/// succeed again.
fn starving<R>(left: &mut Option<usize>, call: impl FnOnce() -> R) -> R {
    LEFT.set(*left);
    let result = call();
    *left = LEFT.replace(None);
    result
}

/// The network, whose allocations never fail. Handlers are the helper's, and must allocate nothing.
struct Calm(Arc<FakeLnet>);

impl LNet for Calm {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        without_failures(|| self.0.eq_alloc_for(handler))
    }

    fn eq_alloc_polled(
        &self,
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError> {
        without_failures(|| self.0.eq_alloc_polled(count, handler))
    }

    fn eq_poll(&self, eqs: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        without_failures(|| self.0.eq_poll(eqs))
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        without_failures(|| self.0.eq_free(eq))
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        without_failures(|| self.0.me_attach(me))
    }

    fn me_insert(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        without_failures(|| self.0.me_insert(beside, me))
    }

    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError> {
        without_failures(|| self.0.me_unlink(me))
    }

    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        without_failures(|| self.0.md_attach(me, md, unlink))
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        without_failures(|| self.0.md_bind(md, unlink))
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        without_failures(|| self.0.md_unlink(md))
    }

    fn put(&self, put: &Put) -> Result<(), LNetError> {
        without_failures(|| self.0.put(put))
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        without_failures(|| self.0.get(get))
    }

    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        without_failures(|| self.0.bind_put(put))
    }

    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        without_failures(|| self.0.bind_get(get))
    }

    fn set_lazy(&self, portal: Portal, lazy: bool) {
        without_failures(|| self.0.set_lazy(portal, lazy));
    }

    fn watch_drops(&self, watcher: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        without_failures(|| self.0.watch_drops(watcher))
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        without_failures(|| self.0.distance(nid))
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        without_failures(|| self.0.local_ids())
    }

    fn for_each_local_id(&self, look: &mut dyn FnMut(ProcessId)) {
        self.local_ids().into_iter().for_each(look);
    }
}

fn is_clean(host: &Host) {
    let status = host.status();
    assert_eq!(status, HostStatus { totals: status.totals, ..HostStatus::default() });
    assert!(host.accounts().held().is_zero(), "{:?}", host.accounts());
}

#[test]
fn the_allocator_refuses_as_requested() {
    let attempt = || Vec::<u8>::new().try_reserve_exact(100).is_ok();
    let mut left = Some(1);
    assert!(starving(&mut left, || attempt() && !attempt() && attempt()));
    assert!(left.is_none() && attempt());
}
