//! A device is removed while it is used (S-4). The test runs in a guest (`./test verbs`) as a
//! separate process: soft-RoCE's devices are removed only when every process that has them open has
//! ended, and so this process opens none.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use lnet_o2iblnd::verbs::HostFabric;
use nix::poll::{PollFd, PollFlags, poll};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The variable that marks the process with the open device.
const USER: &str = "NLX_VERBS_USER";

fn new_host() -> HostFabric {
    // SAFETY: nothing is registered, and nothing posted.
    unsafe { HostFabric::new() }
}

fn rdma(arguments: &[&str]) {
    let rdma = Command::new("rdma").args(arguments).status();
    assert!(rdma.expect("rdma").success(), "rdma {arguments:?}");
}

/// Everything on the device ends, and the channel is silent afterwards: no thread spins over
/// removed objects.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn the_user_of_a_device() {
    if std::env::var_os(USER).is_none() {
        return;
    }
    let host = new_host();
    let device = host.open(ADDRESS).expect("the device");
    let channel = host.channel().expect("a channel");
    let at = SocketAddrV4::new(ADDRESS, 987);
    let _listener = channel.listen(ChannelToken(1), &device, at, 8).expect("a listener");
    let options = DialOptions { resolve_ms: 5_000, tos: None };
    let from = SocketAddrV4::new(ADDRESS, 0);
    let mut endpoint = channel.dial(ChannelToken(2), &device, from, at, &options).expect("dialling");
    println!("\nusing");
    let sizes = QueueSizes { sends: 8, receives: 8, completions: 16, pieces: 1, inline: 0 };
    let (mut removed, mut disconnected) = (false, false);
    while !(removed && disconnected) {
        let Some(cm_event) = channel.next() else {
            channel.rest();
            let mut fds = [PollFd::new(channel.fd(), PollFlags::POLLIN)];
            assert_ne!(poll(&mut fds, 60_000u16), Ok(0), "hung");
            continue;
        };
        match cm_event {
            CmEvent::Resolved(ChannelToken(2)) => drop(endpoint.make_queues(&sizes).expect("queues")),
            CmEvent::Device { name, change: DeviceChange::Removed } => removed = *name == *device.name(),
            CmEvent::Device { .. } => (),
            CmEvent::Disconnected(ChannelToken(2)) => disconnected = true,
            CmEvent::Disconnected(ChannelToken(1)) => (),
            _ => panic!("something else"),
        }
    }
    while channel.next().is_some() {}
    let mut done = Completions::new();
    let _ = endpoint.poll(&mut done);
    endpoint.disconnect();
    drop(endpoint);
    assert!(channel.next().is_none());
    println!("removed");
}

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn a_device_is_removed_and_comes_back() {
    let mut user = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "--nocapture", "the_user_of_a_device"])
        .env(USER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let mut words = BufReader::new(user.stdout.take().expect("its output")).lines();
    assert!(words.any(|line| line.expect("a line") == "using"));
    rdma(&["link", "delete", "rxe0"]);
    assert!(words.any(|line| line.expect("a line") == "removed"));
    assert!(user.wait().expect("its end").success());

    let gone = new_host().open(ADDRESS).err().expect("no device");
    assert_eq!(gone.errno, Errno::ENODEV, "{gone}");
    let netdevs = std::env::var("NLX_GUEST_NETDEVS").expect("the guest's netdevs (tests/guest/run)");
    rdma(&["link", "add", "rxe0", "type", "rxe", "netdev", &netdevs]);
    let opened = new_host().open(ADDRESS);
    // The device's port may take a moment to come up.
    assert!(opened.is_ok() || opened.is_err_and(|error| error.errno == Errno::ENETDOWN));
}
