use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{Device, DeviceLimits, FabricError, RegisteredMemory};
use lnet_region::Region;

use super::memory::Registered;
use super::net::IbNet;

/// The name of each host's device.
pub(super) const NAME: &str = "sim0";

/// A device of one incarnation of a host.
pub(super) struct SimDevice {
    pub(super) net: IbNet,
    pub(super) id: u64,
    pub(super) limits: DeviceLimits,
}

/// A registration; dropping the value ends it.
struct SimMemory {
    net: IbNet,
    key: u32,
}

impl Device for SimDevice {
    fn name(&self) -> &str {
        NAME
    }

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn is_program(&self) -> bool {
        true
    }

    fn is_up(&self) -> bool {
        self.net.lock().hosts.iter().any(|host| host.own.device == Some(self.id) && host.own.port_up)
    }

    fn register(&self, region: &Region, remote: bool) -> Result<Arc<dyn RegisteredMemory>, FabricError> {
        let bytes = region.extent().1 as u64;
        let mut guard = self.net.lock();
        let state = &mut *guard;
        let refused = |errno| FabricError { what: format!("{NAME}: register {bytes} bytes"), errno };
        if !state.hosts.iter().any(|host| host.own.device == Some(self.id)) {
            return Err(refused(Errno::ENODEV));
        }
        if bytes > self.limits.memory_bytes || state.rng.chance(state.behaviour.refused_memory) {
            state.seen.registrations_refused += 1;
            return Err(refused(Errno::ENOMEM));
        }
        let mut key = state.rng.next_u64() as u32;
        while key == 0 || state.own.memory.contains_key(&key) {
            key = key.wrapping_add(1);
        }
        state.seen.registrations += 1;
        state.own.memory.insert(key, Registered::new(self.id, region, remote));
        drop(guard);
        Ok(Arc::new(SimMemory { net: self.net.clone(), key }))
    }
}

impl RegisteredMemory for SimMemory {
    fn local_key(&self) -> u32 {
        self.key
    }

    fn remote_key(&self) -> u32 {
        self.key
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        self.net.lock().own.memory.remove(&self.key);
    }
}
