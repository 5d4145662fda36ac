//! Memory and threads of transfer machines on a machine of two NUMA nodes with four CPUs each,
//! which `./test verbs` starts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![cfg(feature = "in-process")]

use std::sync::{Mutex, PoisonError, mpsc};

use lnet_cpt::{Topology, bind_thread};
use nlx::{Domain, NodeConfig, Op, TmOptions, TransferMachine};
use nlx_testkit::numa::{mappings, pages_of};

/// Held by each test, because the pages of the process are counted.
static ALONE: Mutex<()> = Mutex::new(());

/// A domain of a node with a partition for each NUMA node, over TCP.
fn domain(address: &str) -> Domain {
    let config = NodeConfig::new().cpt(r#"cpu_pattern="N""#.parse().unwrap()).accept_port(21_947);
    Domain::in_process(&config.net(&format!("tcp({address})")).unwrap()).unwrap()
}

/// The address of a machine whose entries lie in this partition.
fn address(domain: &Domain, home: usize) -> String {
    // The portal is even, so the home depends only on the id.
    format!("{}:12345:30:{}", domain.nids()[0], 10 + home)
}

/// Runs `work` on a new thread that is bound to a partition.
fn bound<T: Send>(domain: &Domain, cpt: usize, work: impl FnOnce() -> T + Send) -> T {
    let table = domain.node().unwrap().partitions();
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
    for home in [0, 1] {
        let policy = format!("prefer:{home}");
        let placed = || mappings().into_iter().filter(|mapping| mapping.policy == policy).count();
        let (before, at) = (placed(), address(&domain, home));
        let start = || domain.transfer_machine(&at, TmOptions::default()).unwrap();
        let tm = bound(&domain, 1 - home, start);
        assert!(placed() > before, "{:?}", mappings());
        let allocate = || {
            let (pages, buffers) = pages_of(|| [(); BUFFERS].map(|()| tm.allocate(BYTES).unwrap()));
            drop(buffers);
            pages
        };
        let pages = bound(&domain, 1 - home, allocate);
        assert!(pages[home] * 4096 >= BUFFERS * BYTES, "{pages:?} of partition {home}");
        assert!(pages[1 - home] * 20 < pages[home], "{pages:?} of partition {home}");
    }
    // Each page of a queue is on the intended node.
    for (node, policy) in [(0, "prefer:0"), (1, "prefer:1")] {
        for mapping in mappings().into_iter().filter(|mapping| mapping.policy == policy) {
            assert!(mapping.pages.keys().eq([&node]), "{mapping:?}");
        }
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
