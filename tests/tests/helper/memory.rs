//! Memory whose pages are removed from under the helper, and exhausted memory.

use std::process::Command;

use nix::errno::Errno;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::PORTAL;
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Reply, kind};
use nlx_tests::client::{Client, TIME_LIMIT};

use crate::scene::{Helper, Other, Work};

const PAGE: usize = 4096;
const HUGE_PAGE: u64 = 2 << 20;

/// No page of an arena, a ring or an event queue can be removed once its client has sealed it, and
/// the work continues.
// Covers: MT-219
#[test]
fn pages_that_are_there_stay() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("holes");
    for huge in [false, true] {
        let arena = client.arena(2 * HUGE_PAGE, huge).unwrap();
        let tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
        let Client { ring, .. } = &client;
        for memory in [&arena.memory, &ring.queue.memory, &tm.events.queue.memory] {
            assert_eq!(memory.punch(0, memory.len()), Err(Errno::EPERM));
        }
        // Nor can any process map it again to remove pages.
        assert_eq!(Memory::map(&arena.fd).err(), Some(Errno::EPERM));
    }
    work.advance(1);
    work.stop();
    drop(client);
    helper.is_clean();
}

/// The helper does not access memory that its client has not sealed: it refuses requests, and
/// entries in the ring wait.
// Covers: MT-219
#[test]
fn memory_that_is_not_sealed_is_not_touched() {
    let helper = Helper::start();
    let socket = Socket::connect(&helper.socket()).unwrap();
    let ask = |kind, id, body: &[u8]| {
        socket.send(&wire::packet(kind, id, body), &[]).unwrap();
        let (packet, fds) = socket.receive(TIME_LIMIT).unwrap().expect("an answer");
        Reply::read(&packet, fds).unwrap()
    };
    let mut welcome = ask(kind::HELLO, 1, &wire::hello("unsealed", wire::VERSION)).done().unwrap();
    let ring = welcome.fds.remove(0);
    for id in 2..5 {
        assert_eq!(ask(kind::SYNC, id, &[]).done().map(drop), Err(Errno::EPERM));
    }
    // Removing its pages at any time does not delay the helper.
    let memory = Memory::map(&ring).unwrap();
    (0..100).for_each(|_| memory.punch(0, memory.len()).unwrap());
    assert_eq!(ask(kind::SYNC, 6, &[]).done().map(drop), Err(Errno::EPERM));
    drop(socket);
    helper.is_clean();
}

/// Huge pages that are reserved while this lives; if the system gives none, those that exist.
struct HugePages {
    before: u64,
}

impl HugePages {
    const PATH: &str = "/proc/sys/vm/nr_hugepages";

    fn reserve(count: u64) -> HugePages {
        let before = HugePages::now();
        // Needs root, and free memory.
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

/// A client takes huge pages until there are no more: further arenas then lie on small ones, and
/// report this. The client cannot free pages that the helper still needs.
// Covers: MT-219
#[test]
fn huge_pages_that_are_exhausted() {
    let pages = HugePages::reserve(6);
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("huge");
    let mut arenas = Vec::new();
    loop {
        let arena = client.arena(HUGE_PAGE, true).unwrap();
        // The pages are now allocated to this client.
        (0..HUGE_PAGE as usize).step_by(PAGE).for_each(|at| arena.memory.write(at, &[7; 8]));
        if !arena.huge {
            break;
        }
        arenas.push(arena);
    }
    work.advance(1);
    for arena in &arenas {
        assert_eq!(arena.memory.punch(0, HUGE_PAGE as usize), Err(Errno::EPERM));
    }
    if arenas.is_empty() {
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

/// Clients that may have little memory and few descriptors: failures affect only them.
#[test]
fn clients_at_their_limits() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    for limits in ["ulimit -v 40000", "ulimit -n 7", "ulimit -f 0", "ulimit -l 0 && ulimit -v 60000"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_helper-client")]);
        let starved = Other::spawn(shell, "greedy", &helper, &[]);
        // It prints how far it came.
        starved.line();
        work.advance(1);
        starved.kill_if_alive();
        helper.is_clean_but_for(2);
    }
    work.stop();
}

/// A client is killed for its memory use: the pages of its arenas that it has touched count as its
/// memory.
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

/// A control group with a memory limit.
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
                // Swap as well, if the system counts it.
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

/// The helper's number of descriptors is limited: a client that connects when there are none left
/// is refused, and the helper recovers afterwards.
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
    // Connected clients get one descriptor for the memory of their ring, which is sealed, and no
    // more; and they remain connected.
    let arenas: Vec<_> =
        crowd.iter_mut().flat_map(|client| [0; 2].map(|_| client.arena(4096, false))).collect();
    assert!(arenas.iter().any(Result::is_err), "there were descriptors left");
    crowd.iter_mut().for_each(|client| client.sync().unwrap());
    drop(crowd);
    work.advance(2);
    helper.is_clean_but_for(2);
    helper.holds_again(before);
    helper.client("again").arena(4096, false).unwrap();
    work.stop();
}
