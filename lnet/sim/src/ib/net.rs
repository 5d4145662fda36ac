use lnet_o2iblnd::fabric::DeviceChange;

use super::state::IbWire;
use crate::kit::Net;

/// An RDMA network in virtual time: hosts with one device each, listeners, connections, registered
/// memory.
pub type IbNet = Net<IbWire>;

impl IbNet {
    /// Sets the port of a host's device down or up, and notifies its programs.
    pub fn set_port(&self, host: usize, up: bool) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.hosts[host].own.port_up, up) == up {
            return;
        }
        state.log(|_| format!("network: the port of host {host} is {}", if up { "up" } else { "down" }));
        state.seen.ports_down += u64::from(!up);
        state.push_device_event(host, if up { DeviceChange::PortUp } else { DeviceChange::PortDown });
    }

    /// Removes the device of a host: its queues and registrations are gone.
    pub fn unplug(&self, host: usize) {
        let mut state = self.lock();
        let Some(device) = state.hosts[host].own.device.take() else { return };
        state.seen.devices_removed += 1;
        state.log(|_| format!("network: the device of host {host} is gone"));
        let ends: Vec<u64> =
            state.own.ends.iter().filter(|(_, end)| end.device == device).map(|(id, _)| *id).collect();
        ends.into_iter().for_each(|id| state.lose(id));
        state.push_device_event(host, DeviceChange::Removed);
    }

    /// Gives a host a new device.
    pub fn plug(&self, host: usize) {
        let mut state = self.lock();
        let device = state.id();
        state.hosts[host].own.device.get_or_insert(device);
    }

    /// Returns the number of registrations.
    #[must_use]
    pub fn registrations(&self) -> usize {
        self.lock().own.memory.len()
    }

    /// Returns the number of ends of connections on a host, in any state.
    #[must_use]
    pub fn ends(&self, host: usize) -> usize {
        self.lock().own.ends.values().filter(|end| end.host == host).count()
    }
}
