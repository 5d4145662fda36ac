//! The domain: buffers are registered with it, and transfer machines started in it.

use std::sync::Arc;

use lnet_api::{Drive, LNet, LNetError};
use lnet_nid::{Nid, ProcessId};
use lnet_region::IoVec;
use nlx_bev_cqueue::{Halves, Heap};
use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreError, CoreTm, Limits, MatchCounters, Random, StartAddress,
    TmOptions, usable_portal,
};

use crate::buffers::Buffers;
use crate::machine::Machine;
use crate::node::{self, Node};
use crate::shared::{Shared, read};
use crate::sync::AtomicU64;

/// The Core interface of an LNet node: a domain. A node can have several, each with buffers and transfer machines of its
/// own; ids of transfer machines are unique among all of them (S-404).
pub struct Kcore {
    domain: Arc<Domain>,
}

/// What the transfer machines share.
pub(crate) struct Domain {
    pub(crate) lnet: Arc<dyn LNet>,
    pub(crate) drive: Arc<dyn Drive>,
    pub(crate) limits: Limits,
    pub(crate) buffers: Buffers,
    pub(crate) node: Arc<Node>,
    faults: Arc<FaultCounters>,
}

/// What should never happen, counted since the start. None of it is fatal (MT-229).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Events of a kind that their operation cannot have.
    pub unexpected: u64,
    /// Events of operations that were over.
    pub stale: u64,
    /// Events for which there was no room.
    pub overruns: u64,
}

#[derive(Default)]
pub(crate) struct FaultCounters {
    pub(crate) unexpected: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) overruns: AtomicU64,
}

impl Kcore {
    /// Serves the Core interface from this LNet. Who waits for events moves the network forward through `drive`, whose
    /// clock is the clock of all deadlines.
    pub fn new(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Arc<Kcore> {
        let domain = Domain {
            node: node::of(&lnet),
            lnet,
            drive,
            limits: Limits::LNET,
            buffers: Buffers::default(),
            faults: Arc::default(),
        };
        Arc::new(Kcore { domain: Arc::new(domain) })
    }

    /// What has gone wrong between LNet and this crate so far.
    pub fn faults(&self) -> Faults {
        let FaultCounters { unexpected, stale, overruns } = &*self.domain.faults;
        Faults { unexpected: read(unexpected), stale: read(stale), overruns: read(overruns) }
    }

    pub(crate) fn start_machine(
        &self,
        wanted: &StartAddress,
        options: &TmOptions,
    ) -> Result<Machine, CoreError> {
        let portal = usable_portal(wanted.portal)?;
        self.check_local(wanted)?;
        // One slot more than the events: the ring's divider holds none.
        let slots = options.events_max.clamp(1, nlx_bev_cqueue::MAX_SLOTS - 1) + 1;
        let (producer, consumer) = event_queue(slots).map_err(no_queue)?;
        let random = match options.match_counters {
            MatchCounters::Sequential => None,
            MatchCounters::Random => Some(Random::new()?),
        };
        let domain = self.domain.clone();
        let address = domain.node.registry.lock().take(wanted)?;
        let network = (domain.lnet.clone(), domain.drive.clone());
        let shared = Arc::new(Shared::new(address, network, domain.faults.clone(), producer, random));
        match domain.lnet.eq_alloc(shared.clone()) {
            Ok(eq) => {
                domain.node.enter(address, shared.notices.clone());
                let lazy = options.lazy.then_some(portal);
                if let Some(portal) = lazy {
                    domain.node.want_lazy(&*domain.lnet, portal);
                }
                Ok(Machine::new(domain, shared, consumer, eq, options.descriptors, lazy))
            }
            Err(error) => {
                domain.node.registry.lock().give_back(&address);
                Err(transport_error("make an event queue")(error))
            }
        }
    }

    /// The node has this NID with this PID (MT-223).
    fn check_local(&self, wanted: &StartAddress) -> Result<(), CoreError> {
        let StartAddress { nid, pid, .. } = *wanted;
        let own = ProcessId::new(nid, pid);
        if self.domain.lnet.local_ids().contains(&own) {
            Ok(())
        } else {
            Err(CoreError::NotLocal { nid, pid })
        }
    }
}

impl Core for Kcore {
    fn limits(&self) -> Limits {
        self.domain.limits
    }

    fn nids(&self) -> Vec<Nid> {
        let mut nids: Vec<Nid> = self.domain.lnet.local_ids().into_iter().map(|id| id.nid).collect();
        nids.sort_by_key(|nid| nid.is_loopback());
        nids
    }

    fn now_ns(&self) -> u64 {
        self.domain.drive.now_ns()
    }

    fn register(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.domain.buffers.register(memory, &self.domain.limits)
    }

    fn deregister(&self, buffer: BufferHandle) -> Result<(), CoreError> {
        self.domain.buffers.deregister(buffer)
    }

    fn tm_start(&self, address: &StartAddress, options: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError> {
        Ok(Box::new(self.start_machine(address, options)?))
    }
}

impl Domain {
    /// An address is free again.
    pub(crate) fn give_back(&self, address: &Address) {
        self.node.registry.lock().give_back(address);
    }
}

/// A queue of events that grows up to this many slots, which cost no memory until they are used.
fn event_queue(slots: u32) -> Result<Halves<BufferEvent, Heap>, nlx_bev_cqueue::Error> {
    nlx_bev_cqueue::heap(slots)
}

/// What LNet says, in the words of the Core interface, which knows no LNet.
pub(crate) fn transport_error(action: &'static str) -> impl Fn(LNetError) -> CoreError {
    move |error| CoreError::Transport { action, reason: error.to_string(), errno: error.errno() }
}

fn no_queue(error: nlx_bev_cqueue::Error) -> CoreError {
    CoreError::Transport { action: "make a queue of events", reason: error.to_string(), errno: error.errno() }
}
