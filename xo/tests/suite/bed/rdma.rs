//! The guest's RDMA devices (tests/guest).

use std::process::Command;

use nlx::Nid;
use parking_lot::{Mutex, MutexGuard};

/// Exclusive use of the devices: nodes listen at the service's port.
pub(super) struct Alone(#[allow(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Alone {
    pub(super) fn new() -> Alone {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        Alone(ONE_AT_A_TIME.lock())
    }

    /// Returns a NID whose packets are all lost, because its neighbour entry is fixed.
    pub(super) fn silent(&self) -> Nid {
        const NOWHERE: &str = "10.77.0.99";
        let netdev = variable("NLX_GUEST_NETDEVS").remove(0);
        let neighbour = ["lladdr", "02:00:00:00:00:99", "nud", "permanent"];
        let mut ip = Command::new("ip");
        ip.args(["neighbour", "replace", NOWHERE, "dev", &netdev]).args(neighbour);
        assert!(ip.status().unwrap().success(), "{ip:?}");
        nid(NOWHERE)
    }
}

/// Returns the NIDs of the guest's two addresses.
pub(super) fn nids() -> [Nid; 2] {
    let nids: Vec<Nid> = variable("NLX_GUEST_ADDRESSES").iter().map(|address| nid(address)).collect();
    nids.try_into().unwrap()
}

fn nid(address: &str) -> Nid {
    format!("{address}@o2ib").parse().unwrap()
}

fn variable(name: &str) -> Vec<String> {
    let words = std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: tests/guest/run sets it"));
    words.split(' ').map(str::to_owned).collect()
}
