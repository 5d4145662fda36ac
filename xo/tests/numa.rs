//! Memory and threads of transfer machines on a machine of two NUMA nodes with four CPUs each,
//! which `./test verbs` starts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![cfg(all(feature = "in-process", feature = "helper"))]

use std::sync::{Mutex, PoisonError, mpsc};

use lnet_cpt::{CptTable, Topology, bind_thread};
use nlx::{BufferPoolOptions, Colour, Domain, Node, NodeConfig, Op, TmOptions, TransferMachine};
use nlx_testkit::numa::{mappings, pages_of, shared_mappings};

#[path = "support/helper.rs"]
mod support;

/// Held by each test, because the pages of the process are counted.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the configuration of a node over TCP with a partition for each NUMA node.
fn config(address: &str) -> NodeConfig {
    let config = NodeConfig::new().cpt(r#"cpu_pattern="N""#.parse().unwrap()).accept_port(21_947);
    config.net(&format!("tcp({address})")).unwrap()
}

fn domain(address: &str) -> Domain {
    Domain::in_process(&config(address)).unwrap()
}

/// Returns the address of a machine whose entries lie in this partition.
fn address(domain: &Domain, home: usize) -> String {
    // The portal is even, so the home depends only on the id.
    format!("{}:12345:30:{}", domain.nids()[0], 10 + home)
}

/// Runs `work` on a new thread that is bound to a partition.
fn bound<T: Send>(table: &CptTable, cpt: usize, work: impl FnOnce() -> T + Send) -> T {
    let bound = || {
        bind_thread(table, cpt).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(bound).join().unwrap())
}

/// The event queue of a machine, and buffers allocated for it, lie on the NUMA node of its
/// partition, whichever thread starts it.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn queues_and_buffers_lie_on_the_node_of_their_machine() {
    const BUFFERS: usize = 8;
    const BYTES: usize = 1 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let domain = domain("127.47.0.5");
    let table = domain.node().unwrap().partitions();
    for home in [0, 1] {
        let policy = format!("prefer:{home}");
        let placed = || mappings().into_iter().filter(|mapping| mapping.policy == policy).count();
        let (before, at) = (placed(), address(&domain, home));
        let start = || domain.transfer_machine(&at, TmOptions::default()).unwrap();
        let tm = bound(table, 1 - home, start);
        assert!(placed() > before, "{:?}", mappings());
        let allocate = || {
            let (buffers, _allocated) = pages_of(|| [(); BUFFERS].map(|()| tm.allocate(BYTES).unwrap()));
            let pool = domain.pool(BufferPoolOptions::new(BYTES)).unwrap();
            let (pooled, added) = pages_of(|| tm.near(|| pool.provision(BUFFERS)));
            assert_eq!(added, Ok(BUFFERS));
            [buffers, pooled]
        };
        for pages in bound(table, 1 - home, allocate) {
            assert!(pages[home] * 4096 >= BUFFERS * BYTES, "{pages:?} of partition {home}");
            assert!(pages[1 - home] * 20 < pages[home], "{pages:?} of partition {home}");
        }
    }
    // Each page of a queue is on the intended node.
    for (node, policy) in [(0, "prefer:0"), (1, "prefer:1")] {
        for mapping in mappings().into_iter().filter(|mapping| mapping.policy == policy) {
            assert!(mapping.pages.keys().eq([&node]), "{mapping:?}");
        }
    }
}

/// The event queues of a helper's client, its buffers and its pools lie on the NUMA node of their
/// machine's partition, whichever thread of the client allocates them and touches them first.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn memory_of_clients_lies_on_the_node_of_their_machine() {
    const BUFFERS: usize = 4;
    const BYTES: usize = 1 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let node = Node::start(&config("127.47.0.8")).unwrap();
    let (helper, table) = (support::Helper::over(&node), node.partitions());
    let domain = helper.domain();
    for home in [0, 1] {
        let policy = format!("prefer:{home}");
        let placed = |name: &str| {
            let of_home = shared_mappings(name).into_iter().filter(|mapping| mapping.policy == policy);
            of_home.map(|mapping| mapping.pages).collect::<Vec<_>>()
        };
        assert_eq!(placed("nlx-bev-cqueue"), []);
        assert_eq!(placed("nlx-region"), []);
        let at = address(&domain, home);
        bound(table, 1 - home, || {
            let tm = domain.transfer_machine(&at, TmOptions::default()).unwrap();
            let queues = placed("nlx-bev-cqueue");
            assert!(!queues.is_empty() && queues.iter().all(|pages| pages.keys().eq([&home])), "{queues:?}");
            let pool = domain.pool(BufferPoolOptions::new(BYTES)).unwrap();
            assert_eq!(tm.near(|| pool.provision(BUFFERS)), Ok(BUFFERS));
            let pooled = || pool.get(Colour::Any).unwrap().unwrap();
            let mut buffers = [(); BUFFERS].map(|()| [tm.allocate(BYTES).unwrap(), pooled()]);
            buffers.as_flattened_mut().iter_mut().for_each(|buffer| buffer.write().unwrap().fill(7));
            let arenas = placed("nlx-region");
            assert!(arenas.iter().all(|pages| pages.keys().eq([&home])), "{arenas:?}");
            let pages: usize = arenas.iter().flat_map(|pages| pages.values()).sum();
            assert!(pages * 4096 >= 2 * BUFFERS * BYTES, "{arenas:?}");
        });
    }
}

/// The event thread of a machine runs on the NUMA node of its partition; messages arrive there over
/// TCP.
// Covers: S-306
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn event_threads_run_on_the_node_of_their_machine() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (domain, peer) = (domain("127.47.0.6"), domain("127.47.0.7"));
    let sender: TransferMachine = peer.transfer_machine(&address(&peer, 0), TmOptions::default()).unwrap();
    for home in [0, 1] {
        let (tx, rx) = mpsc::channel();
        let called = move |_: &nlx::Machine, _| {
            let _ = tx.send(Topology::machine().unwrap().cpus().clone());
        };
        let tm = domain.machine().callbacks(called).start(&address(&domain, home)).unwrap();
        tm.start(Op::receive(tm.allocate(64).unwrap())).unwrap();
        let to = sender.end_point(&tm.address().to_string()).unwrap();
        sender.start(Op::send(sender.allocate(64).unwrap(), &to)).unwrap();
        sender.wait(None).unwrap();
        assert_eq!(rx.recv().unwrap(), *domain.node().unwrap().partitions().cpumask(home));
    }
}
