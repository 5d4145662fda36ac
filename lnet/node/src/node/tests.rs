use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lnet_api::{Errno, Md, MdOptions, Sleeper, Threshold, Unlink, wait_until};
use lnet_cpt::{CptTable, Topology};
use lnet_nid::Nid;
use lnet_region::{IoVec, Region};
use nix::sched::{CloneFlags, unshare};
use nlx_testkit::{TIME_LIMIT, until};

use crate::{DiscoverOptions, Node, NodeConfig, NodeError, PingStep};

mod traffic;
mod virtual_nodes;

const PORT: u16 = 21_944;

/// An interface's credits are divided among its partitions.
// Covers: S-307, S-315
#[test]
fn an_interface_lies_in_the_partitions_it_is_bound_to() {
    // The credits are so few that the second rule decides for all four partitions: enough for eight
    // peers (lnet-semantics 13).
    const CREDITS: u32 = 100;
    const PEER_CREDITS: u32 = 4;
    let shares = [CREDITS / 2, CREDITS, PEER_CREDITS * 8];
    let text = "tcp(127.44.0.1)[0,2],tcp1:1(127.44.0.1),tcp2(127.44.0.1)";
    let table = Arc::new(CptTable::virtual_parts(4).unwrap());
    let mut config = NodeConfig::new().networks(text).unwrap().partitions(table.clone()).accept_port(PORT);
    config.tcp().credits = CREDITS;
    config.tcp().peer_credits = PEER_CREDITS;
    let node = Node::start(&config).unwrap();
    for (&nid, share) in node.nids().iter().zip(shares) {
        let credits = node.engine().ni_statistics(nid).unwrap().credits;
        assert!(credits > 0 && credits % i64::from(share) == 0, "{nid}: {credits} in shares of {share}");
    }
    assert_eq!(node.nids().len(), shares.len());
    assert!(Arc::ptr_eq(node.partitions(), &table));
}

/// A partition that the node does not have is refused before anything starts.
// Covers: S-315
#[test]
fn a_partition_that_is_not_there_is_refused() {
    let config = NodeConfig::new().cpt("cpu_npartitions=1".parse().unwrap()).accept_port(PORT);
    let config = config.net("tcp(127.44.0.2)").unwrap().net("tcp(127.44.0.3)[0-1]").unwrap();
    let error: NodeError = Node::start(&config).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL);
    assert!(error.to_string().contains("no CPU partition 1: the node has 1"), "{error}");
}

/// The scheduler thread does not run on CPUs that the pattern leaves out.
// Covers: S-306, S-312
#[test]
fn the_scheduler_thread_runs_on_the_cpus_of_the_pattern() {
    let machine = Topology::machine().unwrap();
    let last = machine.cpus().last().unwrap();
    let pattern = format!(r#"cpu_pattern="0[{last}]""#);
    let config = NodeConfig::new().cpt(pattern.parse().unwrap()).net("tcp(127.44.0.4)").unwrap();
    let node = Node::start(&config.accept_port(PORT)).unwrap();
    assert_eq!(node.partitions().cpumask(0).to_string(), last.to_string());
    // Other tests of this process have scheduler threads too, on all CPUs, so any thread that is
    // bound as expected will do.
    let bound = fs::read_dir("/proc/self/task").unwrap().any(|task| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        status.starts_with("Name:\tlnet-sched-") && status.contains(&format!("Cpus_allowed_list:\t{last}\n"))
    });
    assert!(bound, "no scheduler thread is bound to CPU {last}");
}

fn node(net: &str, partitions: usize) -> Node {
    let table = Arc::new(CptTable::virtual_parts(partitions).unwrap());
    let config = NodeConfig::new().networks(net).unwrap().partitions(table).accept_port(PORT);
    Node::start(&config).unwrap()
}

fn nid(text: &str) -> Nid {
    text.parse().unwrap()
}

/// A thread for each shard; a node whose program threads never wait answers pings.
// Covers: S-203, S-312
#[test]
fn each_shard_has_its_thread_and_a_busy_node_answers() {
    let busy = node("tcp(127.44.0.5)", 4);
    assert_eq!(busy.threads(), busy.drive().shards());
    assert_eq!(busy.threads(), 4);
    assert!(busy.set_conns_per_peer(Some(nid("127.44.0.9@tcp")), 2).is_err());
    busy.set_conns_per_peer(None, 2).unwrap();
    for host in 6..14 {
        let asking = node(&format!("tcp(127.44.0.{host})"), 1);
        let answer = asking.ping(nid("127.44.0.5@tcp"), None, TIME_LIMIT).unwrap();
        assert_eq!(answer.nids, busy.nids());
    }
}

/// Two NIs of one network device bring no more threads than one; a second device does, up to the
/// limit of `nscheds`, whose default depends on the cores of the partitions.
// Covers: S-203, S-312, S-314
#[test]
fn threads_follow_network_devices() {
    let threads = |nets: &str, nscheds: usize, table: CptTable| {
        let config = NodeConfig::new().networks(nets).unwrap().partitions(Arc::new(table));
        let mut config = config.accept_port(PORT);
        config.tcp().nscheds = nscheds;
        Node::start(&config).unwrap().threads()
    };
    let virtual_parts = || CptTable::virtual_parts(2).unwrap();
    assert_eq!(threads("tcp(127.44.0.60),tcp1(127.44.0.61)", 4, virtual_parts()), 2);
    // A separate network namespace for this thread, and for the threads and programs that it
    // starts.
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        return nlx_skip::skipped("threads of a second network device", "only root makes network namespaces");
    }
    let up = ["lo", "card"].map(|device| format!("link set {device} up"));
    let made =
        ["link add card type veth peer name other", "addr add 10.7.0.1/24 dev card"].map(str::to_string);
    for args in made.iter().chain(&up) {
        let status = Command::new("ip").args(args.split(' ')).status().expect("iproute2 is installed");
        assert!(status.success(), "ip {args}");
    }
    let nets = "tcp(127.44.0.62),tcp1(10.7.0.1)";
    assert_eq!([1, 2, 3].map(|nscheds| threads(nets, nscheds, virtual_parts())), [2, 4, 4]);
    let whole = CptTable::create(Topology::machine().unwrap(), 1).unwrap();
    assert_eq!(threads(nets, 0, virtual_parts()), 2, "a virtual partition counts as one core");
    let cores = whole.cores(0);
    assert_eq!(threads(nets, 0, whole), if cores > 1 { 2 } else { 1 });
}

/// NIs come and go while another carries traffic; peers that ping get each change under a higher
/// number.
// Covers: S-202
#[test]
fn interfaces_come_and_go_while_traffic_runs() {
    let (changing, asking) = (node("tcp(127.44.0.20)", 2), node("tcp(127.44.0.21)", 1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                asking.ping(nid("127.44.0.20@tcp"), None, TIME_LIMIT).unwrap();
            }
        });
        let sequence = || {
            let options = DiscoverOptions { timeout: TIME_LIMIT, ..DiscoverOptions::default() };
            asking.discover(nid("127.44.0.20@tcp"), &options).unwrap().sequence
        };
        for _ in 0..5 {
            let before = sequence();
            changing.add_net(&"tcp1(127.44.0.20)".parse().unwrap()).unwrap();
            let known = asking.ping(nid("127.44.0.20@tcp"), None, TIME_LIMIT).unwrap();
            assert_eq!(known.nids, [nid("127.44.0.20@tcp"), nid("127.44.0.20@tcp1")]);
            assert_eq!(changing.nids(), known.nids);
            let between = sequence();
            changing.remove_ni(nid("127.44.0.20@tcp1")).unwrap();
            let known = asking.ping(nid("127.44.0.20@tcp"), None, TIME_LIMIT).unwrap();
            assert_eq!(known.nids, changing.nids());
            assert!(before < between && between < sequence());
        }
        stop.store(true, Ordering::SeqCst);
        traffic.join().unwrap();
    });
    let gone = changing.remove_ni(nid("127.44.0.20@tcp1")).unwrap_err();
    assert_eq!(gone.errno(), Errno::EADDRNOTAVAIL);
    assert!(gone.to_string().contains("127.44.0.20@tcp1 cannot be removed"), "{gone}");
    let twice = changing.add_net(&"tcp(127.44.0.20)".parse().unwrap()).unwrap_err();
    assert!(matches!(twice, NodeError::Twice { .. }), "{twice}");
    let no_rdma = changing.add_net(&"o2ib(lo)".parse().unwrap()).unwrap_err();
    assert_eq!(no_rdma.errno(), Errno::ENODEV, "{no_rdma}");
    assert_eq!(changing.nids(), [nid("127.44.0.20@tcp")]);
}

/// A network of two interfaces, the second of which is in use by another node, leaves nothing
/// behind.
// Covers: S-202
#[test]
fn a_network_is_added_whole_or_not_at_all() {
    let (one, other) = (node("tcp(127.44.0.24)", 1), node("tcp(127.44.0.25)", 1));
    let error = one.add_net(&"tcp(127.44.0.26,127.44.0.25)".parse().unwrap()).unwrap_err();
    assert_eq!(error.errno(), Errno::EADDRINUSE, "{error}");
    assert_eq!(one.nids(), [nid("127.44.0.24@tcp")]);
    drop(other);
    one.add_net(&"tcp(127.44.0.26,127.44.0.25)".parse().unwrap()).unwrap();
    assert_eq!(one.nids().len(), 3);
}

/// Waits with a time limit of zero, a finite one, and none; freeing a queue ends the wait for it.
// Covers: S-311
#[test]
fn a_wait_for_events_ends_with_time_or_with_the_queue() {
    let node = node("tcp(127.44.0.30)", 1);
    let lnet = node.lnet();
    let eqs = [lnet.eq_alloc_polled(4, None).unwrap(), lnet.eq_alloc_polled(4, None).unwrap()];
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        assert_eq!(node.eq_poll(&eqs, Some(timeout)).unwrap(), None);
    }
    std::thread::scope(|scope| {
        let waiters = [0, 1, 1].map(|eq| {
            scope.spawn({
                let (node, eqs) = (&node, &eqs);
                move || node.eq_poll(&eqs[eq..], None).unwrap_err().errno()
            })
        });
        lnet.eq_free(eqs[1]).unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Errno::ENOENT);
        }
    });
    assert_eq!(node.eq_poll(&eqs[..1], Some(Duration::ZERO)).unwrap(), None);
}

/// An event that another thread's driving delivers ends the wait; of two events each of two threads
/// gets one.
// Covers: S-311
#[test]
fn events_reach_the_waiting_thread() {
    let node = node("tcp(127.44.0.31)", 1);
    let lnet = node.lnet();
    let eq = lnet.eq_alloc_polled(8, None).unwrap();
    let unlink = || {
        let memory = IoVec::whole(Region::heap(8).unwrap());
        let options = MdOptions::empty();
        let md =
            Md { memory, threshold: Threshold::Infinite, max_size: 0, options, user_ptr: 7, eq: Some(eq) };
        lnet.md_unlink(lnet.md_bind(md, Unlink::Retain).unwrap()).unwrap();
    };
    std::thread::scope(|scope| {
        let waiters = [0, 1].map(|_| scope.spawn(|| node.eq_poll(&[eq], Some(TIME_LIMIT)).unwrap().unwrap()));
        unlink();
        unlink();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().event.user_ptr, 7);
        }
    });
}

/// A shutdown ends the waits of all kinds of threads, and those for messages that never leave.
#[test]
fn a_shutdown_ends_every_wait_whatever_peers_do() {
    let node = node("tcp(127.44.0.40)", 2);
    // A peer that accepts connections and never sends anything.
    let _silent = TcpListener::bind(("127.44.0.41", PORT)).unwrap();
    let eq = node.lnet().eq_alloc_polled(4, None).unwrap();
    std::thread::scope(|scope| {
        let events = scope.spawn(|| node.eq_poll(&[eq], None));
        let waits = scope.spawn(|| {
            let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().unwrap());
            wait_until(&*node.drive(), &sleeper, None, || false)
        });
        // More pings than credits, so that most of them queue.
        let pings =
            [(); 20].map(|()| scope.spawn(|| node.ping(nid("127.44.0.41@tcp"), None, TIME_LIMIT * 2)));
        until("all pings are being sent", || node.engine().sending() >= pings.len());
        node.shutdown(Duration::from_millis(50));
        node.shutdown(Duration::ZERO);
        assert_eq!(events.join().unwrap().unwrap_err().errno(), Errno::ESHUTDOWN);
        assert!(!waits.join().unwrap());
        // The shutdown ends each ping before its timeout, and the error names the shutdown.
        for ping in pings {
            let failure = ping.join().unwrap().unwrap_err();
            assert_eq!((failure.errno, failure.step), (Errno::ESHUTDOWN, PingStep::ShutDown), "{failure}");
        }
    });
    assert_eq!((node.threads(), node.nids().len(), node.engine().sending()), (0, 0, 0));
    let late = node.ping(nid("127.44.0.41@tcp"), None, TIME_LIMIT).unwrap_err();
    assert_eq!((late.errno, late.step), (Errno::ESHUTDOWN, PingStep::ShutDown), "{late}");
    assert!(matches!(node.add_net(&"tcp(127.44.0.42)".parse().unwrap()), Err(NodeError::Ended)));
    let drive = Arc::downgrade(&node.drive);
    drop(node);
    assert!(drive.upgrade().is_none(), "a thread of the node is left");
}
