//! The domain, in which buffers are registered and transfer machines started.

use std::sync::Arc;

use lnet_api::{Drive, LNet};
use lnet_nid::Nid;
use lnet_region::IoVec;
#[cfg(not(loom))]
use nlx_bev_cqueue::{Consumer, Producer};
use nlx_bev_cqueue::{Halves, Heap};
use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreError, CoreTm, Limits, StartAddress, TmOptions,
    usable_portal,
};
use nlx_fallible::TryArc;

use crate::buffers::BufferTable;
use crate::lnet_tm::LnetTm;
use crate::local_sink::LocalSink;
use crate::machine::KcoreTm;
use crate::network::{Anomalies, SharedNetwork};

/// The Core interface of an LNet node: a domain. A node can have several domains, each with its
/// buffers and transfer machines; ids of transfer machines are unique across all of them (S-404).
pub struct Kcore {
    domain: Arc<DomainState>,
}

/// The state that the transfer machines of a domain share.
pub(crate) struct DomainState {
    pub(crate) network: Arc<SharedNetwork>,
    pub(crate) buffers: BufferTable,
}

impl Kcore {
    /// Serves the Core interface from this LNet. Threads that wait for events drive the network
    /// through `drive`, whose clock is the clock of all deadlines.
    pub fn new(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Arc<Kcore> {
        let domain =
            DomainState { network: SharedNetwork::new(lnet, drive), buffers: BufferTable::default() };
        Arc::new(Kcore { domain: Arc::new(domain) })
    }

    /// Returns the counters of faults between LNet and this crate.
    pub fn faults(&self) -> Anomalies {
        self.domain.network.faults()
    }

    pub(crate) fn start_machine(
        &self,
        wanted: &StartAddress,
        options: &TmOptions,
    ) -> Result<KcoreTm, CoreError> {
        let DomainState { network, .. } = &*self.domain;
        usable_portal(wanted.portal)?;
        network.check_local(wanted)?;
        // One slot more than events: the ring's divider holds no event.
        let slots = options.events_max.clamp(1, nlx_bev_cqueue::MAX_SLOTS - 1) + 1;
        let random = options.match_counters.random()?;
        let spin = options.spin.unwrap_or(network.drive.spin());
        let local_sink = LocalSink::new(spin);
        let mut consuming = None;
        let lnet_tm = LnetTm::start(network, wanted, options.lazy, random, |address| {
            let (producer, consumer) = event_queue(network, address, slots)?;
            consuming = Some(consumer);
            Ok((producer, TryArc::new(local_sink)))
        })?;
        let consumer = consuming.unwrap_or_else(|| unreachable!("a machine has started with its queue"));
        tracing::debug!(address = %lnet_tm.address(), ?spin, "a transfer machine has started");
        Ok(KcoreTm::new(self.domain.clone(), lnet_tm, consumer, options.descriptors))
    }
}

impl Core for Kcore {
    fn limits(&self) -> Limits {
        self.domain.network.limits
    }

    fn nids(&self) -> Vec<Nid> {
        self.domain.network.nids()
    }

    fn now_ns(&self) -> u64 {
        self.domain.network.drive.now_ns()
    }

    fn register(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.domain.buffers.register(memory, &self.domain.network.limits)
    }

    fn deregister(&self, buffer: BufferHandle) -> Result<(), CoreError> {
        self.domain.buffers.deregister(buffer)
    }

    fn tm_start(&self, address: &StartAddress, options: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError> {
        Ok(Box::new(self.start_machine(address, options)?))
    }
}

/// Allocates an event queue that grows up to this many slots, which use no memory until needed. It
/// lies near the partition of its transfer machine, in which its events are produced (S-305).
#[cfg(not(loom))]
fn event_queue(
    network: &SharedNetwork,
    address: &Address,
    slots: u32,
) -> Result<Halves<BufferEvent, Heap>, CoreError> {
    let bytes = Heap::bytes(slots).map_err(no_queue)?;
    let memory = network.drive.memory().alloc(network.home(address), bytes);
    let memory = memory.map_err(|error| CoreError::Transport {
        action: "make a queue of events",
        reason: error.to_string(),
        errno: error.errno(),
    })?;
    let heap = Heap::mapped(slots, memory.into_map()).map_err(no_queue)?;
    let halves = || Ok((Producer::new(heap.clone())?, Consumer::new(heap.clone())?));
    halves().map_err(no_queue)
}

#[cfg(loom)]
fn event_queue(_: &SharedNetwork, _: &Address, slots: u32) -> Result<Halves<BufferEvent, Heap>, CoreError> {
    nlx_bev_cqueue::heap(slots).map_err(no_queue)
}

fn no_queue(error: nlx_bev_cqueue::Error) -> CoreError {
    CoreError::Transport { action: "make a queue of events", reason: error.to_string(), errno: error.errno() }
}
