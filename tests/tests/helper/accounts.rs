//! The resources that the clients of one user can take from others: ordinary users, each with a
//! different uid.

use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::stat::fstat;
use nix::unistd::Uid;
use nlx_tests::client::Client;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{self, Entry, kind};

use crate::scene::{Helper, Work, program};
use crate::support::peer::{PORT, hung_unless};

/// The uids of three users, who need no entry on this host.
const USERS: [u32; 3] = [47_001, 47_002, 47_003];

/// Returns whether this test can act as other users.
fn can_be_others(test: &str) -> bool {
    let is_root = Uid::effective().is_root();
    if !is_root {
        nlx_skip::skipped(test, "only root can be other users");
    }
    is_root
}

/// Connects as another user. The kernel keeps credentials per thread: a new thread changes its own,
/// and ends.
fn connect(socket: &Path, uid: u32) -> Result<Client, String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: three numbers, no memory. Not the C library's call, which changes all
            // threads.
            let set = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            Errno::result(set).map_err(|errno| errno.to_string())?;
            Client::connect(socket, &format!("user {uid}"))
        });
        thread.join().unwrap()
    })
}

/// Starts a helper that every user may connect to.
fn open_to_all(limits: &str, config: &str) -> Helper {
    let helper = Helper::limited_with(limits, &format!("[helper]\nmode = \"0666\"\n{config}"));
    helper.let_others_in();
    helper
}

/// Starts a machine with a queue of one event, which this process does not keep mapped.
fn start_tm(helper: &Helper, client: &mut Client, portal: u32) -> Result<u64, Errno> {
    let start = wire::start_tm(helper.nid(), portal, 0, 1, 0);
    let reply = client.call(kind::START_TM, &start)?;
    // An unsealed queue takes a descriptor.
    reply.fds.iter().try_for_each(|queue| Memory::map_and_seal(queue).map(drop))?;
    Ok(wire::u64_at(&reply.body, 0))
}

/// Connects clients of a user until one is refused, or `most` are connected.
fn crowd(helper: &Helper, uid: u32, most: usize) -> Vec<Client> {
    std::iter::from_fn(|| connect(&helper.socket(), uid).ok()).take(most).collect()
}

/// 255 connections with 256 machines each would need more mappings than a process can have: another
/// user, root, and the helper itself still get some.
#[test]
fn mappings_do_not_run_out() {
    if !can_be_others("mappings_do_not_run_out") {
        return;
    }
    let helper = open_to_all("true", "");
    let work = Work::start(&helper);
    let mut clients = crowd(&helper, USERS[0], 255);
    assert_eq!(clients.len(), 255);
    let mut started = 0;
    let mut refused = 0;
    // Portals that ordinary users may use: none of them has ids for all machines.
    let mut portals = (35..64).cycle();
    for client in &mut clients {
        // All requests beyond the share are refused with the same error.
        for _ in 0..if refused > 1_000 { 1 } else { 256 } {
            match start_tm(&helper, client, portals.next().unwrap()) {
                Ok(_) => started += 1,
                Err(errno) => {
                    assert_eq!(errno, Errno::ENOMEM, "after {started} machines");
                    refused += 1;
                }
            }
        }
    }
    assert!(started > 1_000 && refused > 0, "{started} machines");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", helper.pid())).unwrap().lines().count();
    let most: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    assert!(maps < most / 2, "{maps} mappings of {most}");
    let mut other = connect(&helper.socket(), USERS[1]).unwrap();
    other.arena(1 << 20, false).unwrap();
    let mut root = helper.client("root");
    for portal in 35..64 {
        start_tm(&helper, &mut other, portal).unwrap();
        start_tm(&helper, &mut root, portal).unwrap();
    }
    work.advance(2);
    assert_eq!(helper.number("/users/1/uid"), u64::from(USERS[0]));
    assert!(helper.number("/users/1/refused") > 0);
    assert_eq!(helper.number("/users/1/held/machines"), started);
    drop((clients, other, root));
    helper.is_clean_but_for(2);
    hung_unless("nothing counts for them", || helper.status().pointer("/users/1").is_none());
    work.stop();
}

/// A portal has 4,095 ids: one user does not get all of them.
#[test]
fn ids_of_a_portal_are_left_for_others() {
    if !can_be_others("ids_of_a_portal_are_left_for_others") {
        return;
    }
    let helper = open_to_all("true", "");
    let mut clients = crowd(&helper, USERS[0], 16);
    let mut start_all =
        |client: &mut Client| (0..256).take_while(|_| start_tm(&helper, client, 40).is_ok()).count();
    let started: usize = clients.iter_mut().map(&mut start_all).sum();
    assert_eq!(started, (4_095 - 256) / 2);
    let mut other = connect(&helper.socket(), USERS[1]).unwrap();
    assert_eq!(start_all(&mut other), 256);
    drop((clients, other));
    helper.is_clean();
}

/// Operations occupy LNet's tables: 64 connections of one user do not fill them.
#[test]
fn match_entries_are_left_for_others() {
    if !can_be_others("match_entries_are_left_for_others") {
        return;
    }
    const OPERATIONS: u64 = 2_000;
    // Operations are charged in chunks of 64.
    const CHUNKS: u64 = 128;
    let helper = open_to_all("true", &format!("[helper.capacity]\noperations = {OPERATIONS}\n"));
    let in_flight = |client: &mut Client, most: u64| {
        let arena = client.arena(4096, false).unwrap().number;
        let mut tm = client.start_tm(helper.nid(), PORTAL, 4096).unwrap();
        for place in 0..most {
            client.submit(&Entry::register(handle(place), arena, 0, 8)).unwrap();
            let receive = Entry::receive(tm.handle, handle(place), place, 1, 1);
            client.operate(&mut tm, &receive).unwrap();
        }
        client.sync().unwrap();
    };
    let mut attackers = crowd(&helper, USERS[0], 64);
    attackers.iter_mut().for_each(|client| in_flight(client, CHUNKS));
    let held = |uid: u32| {
        let status = helper.status();
        let users = status["users"].as_array().unwrap().clone();
        let user = users.iter().find(|user| user["uid"] == uid).cloned();
        user.map_or(0, |user| user["held"]["operations"].as_u64().unwrap_or(0))
    };
    let share = OPERATIONS * 7 / 8 / 2;
    assert_eq!((helper.number("/operations"), held(USERS[0])), (share, share));
    let mut other = connect(&helper.socket(), USERS[1]).unwrap();
    in_flight(&mut other, CHUNKS);
    assert_eq!(helper.number("/operations"), share + CHUNKS);
    let mut root = helper.client("root");
    in_flight(&mut root, 1_000);
    assert_eq!(helper.number("/operations"), OPERATIONS);
    drop((attackers, other, root));
    helper.is_clean();
    assert_eq!((held(USERS[0]), held(0)), (0, 0));
}

/// Tables, buffers and queues of clients take the helper's memory: within its limit, and they are
/// released.
#[test]
fn the_memory_of_the_helper_stays_bounded() {
    if !can_be_others("the_memory_of_the_helper_stays_bounded") {
        return;
    }
    const HEAP: u64 = 64 << 20;
    let helper = open_to_all("true", &format!("[helper.capacity]\nheap_bytes = {HEAP}\n"));
    let before = helper.resident_bytes();
    let mut attackers: Vec<Client> = USERS.iter().flat_map(|&uid| crowd(&helper, uid, 64)).collect();
    for client in &mut attackers {
        let Ok(arena) = client.arena(4096, false) else { continue };
        // The last index first: the table of buffers then has its maximum length.
        for place in [60_000, 30_000, 10_000].into_iter().chain(0..2_000) {
            client.submit(&Entry::register(handle(place), arena.number, 0, 8)).unwrap();
        }
        client.sync().unwrap();
    }
    let buffers = helper.number("/buffers");
    let taken = helper.resident_bytes().saturating_sub(before);
    assert!(buffers > 1_000, "{buffers} buffers");
    assert!(taken < HEAP, "{taken} bytes for {buffers} buffers");
    assert!(helper.number("/resources/heap_bytes/held") <= HEAP);
    let mut root = helper.client("root");
    let arena = root.arena(4096, false).unwrap();
    root.submit(&Entry::register(handle(0), arena.number, 0, 8)).unwrap();
    root.sync().unwrap();
    assert_eq!(helper.number("/buffers"), buffers + 1);
    drop((attackers, root));
    helper.is_clean();
    hung_unless("all of it is back", || helper.number("/resources/heap_bytes/held") == 0);
}

/// A queue that its client has protected against sealing remains mapped, and counts for its user,
/// after its machine and its client are gone: a user who repeats this uses up that user's share.
#[test]
fn queues_that_can_never_be_sealed_stay_counted() {
    let helper = Helper::start();
    let held = || ["mappings", "queue_bytes"].map(|name| helper.number(&format!("/resources/{name}/held")));
    let before = held();
    for count in 1..=3 {
        let mut client = helper.client("locks");
        let request = wire::start_tm(helper.nid(), PORTAL, 0, 1000, 0);
        let mut started = client.call(kind::START_TM, &request).unwrap();
        let memory = started.fds.pop().unwrap();
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SEAL)).unwrap();
        client.stop_tm(wire::u64_at(&started.body, 0)).unwrap();
        drop(client);
        let size = fstat(&memory).unwrap().st_size as u64;
        helper.is_clean();
        let all = [before[0] + count, before[1] + count * size];
        hung_unless("nothing else is held", || held().iter().zip(all).all(|(held, all)| *held <= all));
        assert_eq!(held(), all);
    }
}

/// Neither two users nor three fill the table of clients: the next user and root still find places.
#[test]
fn places_are_left_for_others_and_for_root() {
    if !can_be_others("places_are_left_for_others_and_for_root") {
        return;
    }
    let helper = open_to_all("true", "clients_max = 48\n");
    // 48 less 6 for root; each user takes half of what is left.
    let crowds = USERS.map(|uid| crowd(&helper, uid, 48));
    assert_eq!(crowds.each_ref().map(Vec::len), [21, 10, 5]);
    let refused = connect(&helper.socket(), USERS[0]).unwrap_err();
    assert!(refused.contains("EUSERS"), "{refused}");
    let root = crowd(&helper, 0, 48);
    assert_eq!(root.len(), 48 - 21 - 10 - 5);
    drop(crowds);
    helper.is_clean_but_for(root.len() as u64);
}

/// Three users take all descriptors that they get: the network keeps its part, and accepts
/// connections.
#[test]
fn descriptors_are_left_for_the_network() {
    if !can_be_others("descriptors_are_left_for_the_network") {
        return;
    }
    let helper = open_to_all("ulimit -n 256", "");
    let mut clients = Vec::new();
    for uid in USERS {
        for mut client in crowd(&helper, uid, 256) {
            while client.arena(4096, false).is_ok() {}
            clients.push(client);
        }
    }
    let held = helper.number("/resources/descriptors/held");
    assert!(held > 40 && held <= 96, "{held} descriptors are the clients'");
    assert_eq!(helper.number("/door/without_descriptors"), 0);
    for _ in 0..3 {
        let nid = format!("{}@tcp", helper.address);
        let mut ping = Command::new(program("nlx"));
        let from = crate::support::peer::address();
        ping.args(["ping", &nid, "--from", &format!("{from}@tcp"), "--accept-port", &PORT.to_string()]);
        let output = ping.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    helper.client("root").arena(4096, false).unwrap();
    drop(clients);
    helper.is_clean();
}
