//! Memory that is taken away beneath the helper, and memory that there is none of.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, Pair, mix};
use nlx_tests::client::points::Points;
use nlx_tests::client::wire::{Entry, queue};
use nlx_tests::client::{Client, PATIENCE};

use crate::scene::{Helper, Other, Work};

const PAGE: usize = 4096;
const HUGE_PAGE: u64 = 2 << 20;

/// MT-219: pages of arenas, rings and event queues are given back to the system again and again while two helpers move messages
/// between them over TCP. The helpers live, and an honest client of each sees nothing of it.
#[test]
fn holes_under_traffic() {
    let one = Helper::start();
    let other = one.another();
    let work = Work::between([&one, &other]);
    for kind in 0..4 {
        let mut lives = 0;
        while lives < 3 {
            let paths = [one.socket(), other.socket()];
            let pair = Pair::connect(
                paths.each_ref().map(|path| path.as_path()),
                [one.nid(), other.nid()],
                "holes",
                Points::harmless(),
            );
            let mut pair = pair.unwrap();
            pair.careless = true;
            // Words of its own queues become 0 too: events that it waits for then never come.
            pair.sides
                .iter_mut()
                .for_each(|side| side.client.patience = std::time::Duration::from_millis(200));
            let memories: Vec<Memory> = pair
                .sides
                .iter()
                .flat_map(|side| {
                    let all =
                        [&side.arena.memory, &side.client.ring.queue.memory, &side.tm.events.queue.memory];
                    all.into_iter()
                        .enumerate()
                        .filter(|(which, _)| kind == 3 || *which == kind)
                        .map(|(_, one)| one.clone())
                        .collect::<Vec<_>>()
                })
                .collect();
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let puncher = scope.spawn(|| {
                    let mut dice = lives;
                    while !over.load(Relaxed) {
                        dice = mix(dice);
                        let memory = &memories[dice as usize % memories.len()];
                        let pages = memory.len() / PAGE;
                        let first = (dice >> 8) as usize % pages;
                        let count = (1 + (dice >> 40) as usize % 16).min(pages - first);
                        memory.punch(first * PAGE, count * PAGE).unwrap();
                    }
                });
                let worker = scope.spawn(move || (0..20).try_for_each(|_| pair.round()));
                let outcome = worker.join();
                over.store(true, Relaxed);
                puncher.join().unwrap();
                // Holes in payload are zeros in payload: the work itself goes on.
                assert!(kind != 0 || matches!(outcome, Ok(Ok(()))), "{outcome:?}");
            });
            lives += 1;
        }
        work.advance(1);
    }
    work.stop();
    one.is_clean();
    other.is_clean();
}

/// Huge pages that the system has for as long as this lives; where it gives none, those that there are.
struct HugePages {
    before: u64,
}

impl HugePages {
    const PATH: &str = "/proc/sys/vm/nr_hugepages";

    fn reserve(count: u64) -> HugePages {
        let before = HugePages::now();
        // Only root may, and the system may have no such room.
        let _ = std::fs::write(HugePages::PATH, (before + count).to_string());
        HugePages { before }
    }

    fn now() -> u64 {
        std::fs::read_to_string(HugePages::PATH).unwrap_or_default().trim().parse().unwrap_or(0)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(HugePages::PATH, self.before.to_string());
    }
}

/// A client takes huge pages until there are no more: what it gets then lies on small ones, and says so. Then it gives them
/// back to the system beneath the helper, while others use them up: what touches them faults. Only that client is cut off.
#[test]
fn huge_pages_that_are_exhausted() {
    let pages = HugePages::reserve(6);
    let helper = Helper::start();
    let peer = helper.another();
    let work = Work::between([&helper, &peer]);
    let mut client = helper.client("huge");
    let mut arenas = Vec::new();
    loop {
        let arena = client.arena(HUGE_PAGE, true).unwrap();
        // Now the pages are there, and nobody else's.
        (0..HUGE_PAGE as usize).step_by(PAGE).for_each(|at| arena.memory.write(at, &[7; 8]));
        if !arena.huge {
            break;
        }
        arenas.push(arena);
    }
    work.advance(1);
    if let Some(arena) = arenas.first() {
        // The other side of it all, which writes into the hole.
        let mut giver = peer.client("giver");
        let given = giver.arena(1 << 20, false).unwrap();
        let mut from = giver.start_tm(peer.nid(), PORTAL, 16).unwrap();
        giver.submit(&Entry::register(1 << 32, given.number, 0, 1 << 20)).unwrap();
        let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
        client.submit(&Entry::register(1 << 32, arena.number, 0, 1 << 20)).unwrap();
        let passive = Entry::passive(queue::PASSIVE_RECEIVE, tm.handle, 1 << 32, 1, 5, 0);
        client.operate(&mut tm, &passive).unwrap();
        client.sync().unwrap();
        arena.memory.punch(0, HUGE_PAGE as usize).unwrap();
        // The page that became free is taken by another client; if it were not, the hole would be filled.
        let mut taker = helper.client("taker");
        let taken = taker.arena(HUGE_PAGE, true).unwrap();
        (0..HUGE_PAGE as usize).step_by(PAGE).for_each(|at| taken.memory.write(at, &[7; 8]));
        let descriptor = tm.address.descriptor(5, queue::PASSIVE_RECEIVE, 1 << 20);
        let active = Entry::active(queue::ACTIVE_SEND, from.handle, 1 << 32, 2, 1 << 20, &descriptor);
        giver.operate(&mut from, &active).unwrap();
        // The bytes have left; what became of them is the other side's matter.
        let event = giver.event(&mut from).unwrap();
        assert!(event.last, "{event:?}");
        if taken.huge {
            assert!(client.socket.ends(PATIENCE), "a client whose memory is gone is still served");
            taker.sync().unwrap();
        }
        giver.sync().unwrap();
    } else {
        nlx_skip::skipped(
            "huge pages that are exhausted",
            "this machine gives none: only their absence was tested",
        );
    }
    work.advance(1);
    work.stop();
    drop((arenas, client));
    helper.is_clean();
    drop(pages);
}

/// Clients that may have little memory and few descriptors: what fails, fails in them.
#[test]
fn clients_at_their_limits() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    for limits in ["ulimit -v 40000", "ulimit -n 7", "ulimit -f 0", "ulimit -l 0 && ulimit -v 60000"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_helper-client")]);
        let starved = Other::spawn(shell, "greedy", &helper, &[]);
        // It says how far it came.
        starved.line();
        work.advance(1);
        starved.kill_if_alive();
        helper.is_clean_but_for(2);
    }
    work.stop();
}

/// A client that is killed for the memory it uses: the pages of its arenas that it has touched are its own.
#[test]
fn a_client_is_killed_for_its_memory() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let Some(group) = Group::new(24 << 20) else {
        nlx_skip::skipped(
            "a client that is killed for its memory",
            "no control group with a memory limit can be made",
        );
        return work.stop();
    };
    let mut shell = Command::new("sh");
    let script = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
    shell.args(["-c", script]).arg(&group.0).arg(env!("CARGO_BIN_EXE_helper-client"));
    let hungry = Other::spawn(shell, "greedy", &helper, &[]);
    assert_eq!(hungry.died_of(), Some(nix::libc::SIGKILL));
    work.advance(1);
    helper.is_clean_but_for(2);
    work.stop();
}

/// A control group with so much memory.
struct Group(std::path::PathBuf);

impl Group {
    fn new(bytes: u64) -> Option<Group> {
        for (root, limits) in [
            ("/sys/fs/cgroup/memory", &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"][..]),
            ("/sys/fs/cgroup", &["memory.max"]),
        ] {
            let path = std::path::Path::new(root).join(format!("nlx-test-{}", std::process::id()));
            if std::fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Group(path);
            let set = |name: &&str| std::fs::write(group.0.join(name), bytes.to_string()).is_ok();
            if limits.first().is_some_and(set) {
                // Swap beside it, where that is counted.
                let _ = limits.iter().skip(1).all(set);
                return Some(group);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The helper itself may have only so many descriptors: who comes when there are none left is refused, and all is well again
/// afterwards.
#[test]
fn a_helper_without_descriptors() {
    let helper = Helper::limited("ulimit -n 80");
    let work = Work::start(&helper);
    let before = helper.holdings();
    let mut crowd: Vec<Client> = Vec::new();
    let refused = (0..60).find_map(|_| match Client::connect(&helper.socket(), "crowd") {
        Ok(client) => {
            crowd.push(client);
            None
        }
        Err(words) => Some(words),
    });
    assert!(refused.is_some(), "60 clients with two descriptors each have room in 80");
    work.advance(2);
    // Those that are in cannot have more either, and stay.
    let arenas: Vec<_> = crowd.iter_mut().map(|client| client.arena(4096, false)).collect();
    assert!(arenas.iter().any(Result::is_err), "there were descriptors left");
    crowd.iter_mut().for_each(|client| client.sync().unwrap());
    drop(crowd);
    work.advance(2);
    helper.is_clean_but_for(2);
    helper.holds_again(before);
    helper.client("again").arena(4096, false).unwrap();
    work.stop();
}
