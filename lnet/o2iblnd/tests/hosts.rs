//! Hosts without devices or permissions, and their error messages (S-4). `./test verbs` runs each
//! test by its name, in a guest that lacks the device or permission that the test names.

use std::net::{Ipv4Addr, SocketAddrV4};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{ChannelToken, Fabric};
use lnet_o2iblnd::verbs::HostFabric;
use lnet_region::Region;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The memory that Debian lets an ordinary user lock.
const MEMLOCK: usize = 8 << 20;

#[test]
#[ignore = "needs a host without RDMA devices: ./test verbs"]
fn without_devices() {
    // SAFETY: nothing is posted, and each registration ends before its region.
    let host = unsafe { HostFabric::new() };
    for error in [host.open(ADDRESS).err(), host.channel().err()].map(|error| error.expect("a refusal")) {
        assert_eq!(error.errno, Errno::ENODEV, "{error}");
        assert!(error.what.contains("no RDMA device") && error.what.contains("`rdma link`"), "{error}");
    }
}

/// An ordinary user may use RDMA with memory up to the limit; beyond it, the error
/// names the limit.
#[test]
#[ignore = "needs to be an ordinary user: ./test verbs"]
fn as_ordinary_user() {
    // SAFETY: nothing is posted, and each registration ends before its region.
    let host = unsafe { HostFabric::new() };
    let device = host.open(ADDRESS).expect("the device");
    let half = Region::heap(MEMLOCK / 2).expect("memory");
    let registered = device.register(&half, true).expect("half of what may be locked");
    let error = device.register(&Region::heap(MEMLOCK).expect("memory"), true).err().expect("more than that");
    assert_eq!(error.errno, Errno::ENOMEM, "{error}");
    assert!(error.what.contains(&format!("may lock {MEMLOCK} bytes (RLIMIT_MEMLOCK)")), "{error}");
    drop(registered);
    // Memory whose registration has ended counts no longer, so other memory may be locked.
    device.register(&half, true).expect("half of what may be locked");

    let channel = host.channel().expect("a channel");
    let privileged = channel
        .listen(ChannelToken(1), &device, SocketAddrV4::new(ADDRESS, 987), 1)
        .err()
        .expect("a port of root's");
    assert_eq!(privileged.errno, Errno::EACCES, "{privileged}");
    let advice = "CAP_NET_BIND_SERVICE; or set another service, above 1023, on all nodes";
    assert!(privileged.what.contains(advice), "{privileged}");
    channel
        .listen(ChannelToken(2), &device, SocketAddrV4::new(ADDRESS, 20_987), 1)
        .expect("a port of everyone's");
}
