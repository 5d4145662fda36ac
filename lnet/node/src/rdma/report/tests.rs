use std::net::Ipv6Addr;

use super::*;
use crate::PortGid;
use crate::interfaces::tests::interface;

fn gid(index: u32, gid: &str, kind: &str) -> PortGid {
    PortGid { index, gid: gid.parse::<Ipv6Addr>().unwrap(), kind: kind.to_string(), netdev: None }
}

fn device(name: &str, link: PortLinkLayer, state: &str, netdev: &str, gids: Vec<PortGid>) -> RdmaDevice {
    let port = RdmaPort {
        number: 1,
        state: state.to_string(),
        link,
        rate: String::new(),
        netdevs: vec![netdev.to_string()],
        gids,
    };
    RdmaDevice { name: name.to_string(), ports: vec![port], numa_node: None }
}

/// Returns a soft device without problems.
fn sound() -> HostInterfaces {
    let gids = vec![
        gid(0, "fe80::1", "RoCE v2"),
        gid(1, "::ffff:10.77.0.1", "IB/RoCE v1"),
        gid(2, "::ffff:10.77.0.1", "RoCE v2"),
    ];
    HostInterfaces {
        interfaces: vec![interface("eth0", true, &["10.77.0.1", "10.77.0.2"])],
        devices: vec![device("rxe0", PortLinkLayer::Ethernet, "ACTIVE", "eth0", gids)],
    }
}

fn system() -> SystemState {
    SystemState { built_without: None, ready: Ok(()), files: Vec::new(), memlock_bytes: None, listed: None }
}

fn problem_texts(report: &RdmaReport) -> Vec<String> {
    report.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_sound_host_has_no_problems_and_says_which_gid_is_used() {
    let report = report(&sound(), &system());
    assert!(report.is_usable() && report.problems.is_empty(), "{:?}", problem_texts(&report));
    let port = &report.ports[0];
    assert_eq!(
        (port.nid.unwrap().to_string().as_str(), port.gid, port.first),
        ("10.77.0.1@o2ib", Some(2), true)
    );
    assert!(port.why.contains("eth0") && port.why.contains("RoCE v2"), "{}", port.why);
    assert_eq!(port.interfaces[0].1.len(), 2);
    // Information from the library takes precedence over that from files.
    let gids = vec![ListedGid {
        port: 1,
        index: 1,
        usage: "used: set to v1".into(),
        used_by: Some("10.77.0.1".parse().unwrap()),
    }];
    let listed = Some(vec![ListedDevice { device: "rxe0".into(), note: None, gids }]);
    let report = super::report(&sound(), &SystemState { listed, ..system() });
    assert_eq!(report.ports[0].gid, Some(1));
    assert!(report.ports[0].why.contains("set to v1"));
}

#[test]
fn each_fault_is_reported_with_advice() {
    let without = |host: HostInterfaces| HostInterfaces { devices: Vec::new(), ..host };
    let v1 = |mut host: HostInterfaces| {
        host.devices[0].ports[0].gids.truncate(2);
        host
    };
    let no_gid = |mut host: HostInterfaces| {
        host.devices[0].ports[0].gids.truncate(1);
        host
    };
    let down = |mut host: HostInterfaces| {
        host.devices[0].ports[0].state = "DOWN".into();
        host
    };
    let bare = |mut host: HostInterfaces| {
        host.interfaces[0].addresses.clear();
        host
    };
    let file = |errno| {
        let path = PathBuf::from("/dev/infiniband/rdma_cm");
        SystemState { files: vec![DeviceFile { path, module: "rdma_ucm", access: Err(errno) }], ..system() }
    };
    let no_library = || {
        let why = "libibverbs.so.1 is not installed (Debian: apt install libibverbs1)".to_string();
        SystemState { ready: Err((why, Errno::ENOSYS)), ..system() }
    };
    let listed = |listed: Vec<ListedDevice>| SystemState { listed: Some(listed), ..system() };
    let closed =
        ListedDevice { device: "rxe0".into(), note: Some("it cannot be opened".into()), gids: Vec::new() };
    let fatal = true;
    for (host, system, usable, words) in [
        (without(sound()), system(), !fatal, &["devices: ", "no RDMA device", "rdma link add rxe0"][..]),
        (sound(), no_library(), !fatal, &["driver: ", "libibverbs.so.1", "apt install"]),
        (sound(), file(Errno::ENOENT), !fatal, &["/dev/infiniband/rdma_cm", "modprobe rdma_ucm", "--device"]),
        (sound(), file(Errno::EACCES), !fatal, &["/dev/infiniband/rdma_cm", "EACCES", "0666"]),
        (down(sound()), system(), !fatal, &["rxe0/1", "DOWN", "ip link set eth0 up"]),
        (bare(sound()), system(), !fatal, &["rxe0/1", "eth0 has no IPv4 address", "ip address add"]),
        (v1(sound()), system(), fatal, &["rxe0/1", "RoCE v1 only", "cma_roce_mode"]),
        (no_gid(sound()), system(), fatal, &["rxe0/1", "no GID for 10.77.0.1"]),
        (sound(), listed(Vec::new()), fatal, &["rxe0", "no driver", "ibverbs-providers"]),
        (sound(), listed(vec![closed]), fatal, &["rxe0", "cannot be opened"]),
        (
            sound(),
            SystemState { memlock_bytes: Some(8 << 20), ..system() },
            fatal,
            &["memlock", "8388608 bytes", "ulimit -l", "LimitMEMLOCK"],
        ),
    ] {
        let report = report(&host, &system);
        let problem_texts = problem_texts(&report);
        assert_eq!(problem_texts.len(), 1, "{words:?}: {problem_texts:?}");
        assert!(words.iter().all(|word| problem_texts[0].contains(word)), "{words:?}: {problem_texts:?}");
        assert_eq!(report.is_usable(), usable, "{problem_texts:?}");
    }
}

#[test]
fn a_program_built_without_rdma_says_so_whatever_the_host_has() {
    let without = SystemState { built_without: Some(crate::rdma::WITHOUT_VERBS), ..system() };
    for host in [sound(), HostInterfaces { devices: Vec::new(), ..sound() }] {
        let report = report(&host, &without);
        let problem_texts = problem_texts(&report);
        assert_eq!(problem_texts.len(), 1, "{problem_texts:?}");
        assert!(
            problem_texts[0].contains("built without RDMA; build it with the feature 'verbs'"),
            "{problem_texts:?}"
        );
        assert!(!report.is_usable());
    }
    assert!(crate::rdma::no_device(without.built_without).contains("built without RDMA"));
}

#[test]
fn enough_locked_memory_is_no_problem_and_without_devices_none_matters() {
    let memlock_bytes = Some(MEMLOCK_SUGGESTED_BYTES);
    assert!(report(&sound(), &SystemState { memlock_bytes, ..system() }).problems.is_empty());
    let host = HostInterfaces { devices: Vec::new(), ..sound() };
    let few =
        SystemState { memlock_bytes: Some(1), ready: Err(("no device".into(), Errno::ENODEV)), ..system() };
    assert_eq!(report(&host, &few).problems.len(), 1);
}

/// A port's problem is not fatal while another port is usable.
#[test]
fn one_good_port_is_enough() {
    let mut host = sound();
    host.devices.push(device("mlx5_0", PortLinkLayer::InfiniBand, "DOWN", "ib0", Vec::new()));
    host.interfaces.push(interface("ib0", true, &["10.1.0.1"]));
    let report = report(&host, &system());
    assert!(report.is_usable() && report.problems.len() == 1 && !report.problems[0].fatal);
    assert!(!report.ports[1].first && report.ports[1].why.contains("mlx5_0/1 is DOWN"));
}

#[test]
fn this_host_is_looked_at_whatever_it_has() {
    let report = RdmaReport::of_host().unwrap();
    assert_eq!(report.ports.len(), RdmaDevice::all().iter().map(|device| device.ports.len()).sum::<usize>());
    assert!(report.is_usable() || !report.problems.is_empty());
}
