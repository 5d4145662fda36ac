//! Handles of objects of another client, or of objects that no longer exist.

use nix::errno::Errno;
use nlx_tests::client::Client;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{self, Entry, kind};

use crate::scene::{Helper, Work};

/// Starts transfer machines of a client, and returns their handles.
fn machines(helper: &Helper, client: &mut Client, count: u32) -> Vec<u64> {
    (0..count).map(|_| client.start_tm(helper.nid(), PORTAL, 16).unwrap().handle).collect()
}

/// A client cannot name objects of another one: neither its transfer machines nor its arenas nor
/// its buffers.
// Covers: MT-233
#[test]
fn names_of_another_client() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut owner = helper.client("owner");
    let arenas: Vec<_> = (0..3).map(|_| owner.arena(1 << 20, false).unwrap()).collect();
    let tms = machines(&helper, &mut owner, 3);
    owner.submit(&Entry::register(handle(5), arenas[2].number, 0, 4096)).unwrap();
    owner.sync().unwrap();
    let mut thief = helper.client("thief");
    for tm in &tms {
        for kind in [kind::STOP_TM, kind::TM_DESCRIPTOR] {
            let refused = thief.call(kind, &tm.to_le_bytes()).unwrap_err();
            assert_eq!(refused, Errno::ENOENT);
        }
    }
    for arena in &arenas {
        let refused = thief.call(kind::RELEASE_ARENA, &wire::arena(arena.number)).unwrap_err();
        assert_eq!(refused, Errno::ENOENT);
        let register = wire::register(handle(0), &[(arena.number, 0, 64), (arena.number, 64, 64)]);
        assert_eq!(thief.call(kind::REGISTER, &register).unwrap_err(), Errno::ENOENT);
    }
    // An operation on another client's machine; one on this client's machine with another client's
    // buffer.
    thief.submit(&Entry::receive(tms[0], handle(5), 1, 1, 1)).unwrap();
    thief.sync().unwrap();
    let mut tm = thief.start_tm(helper.nid(), PORTAL, 16).unwrap();
    let receive = Entry::receive(tm.handle, handle(5), 1, 1, 1);
    thief.operate(&mut tm, &receive).unwrap();
    assert_eq!(Errno::from_raw(-thief.event(&mut tm).unwrap().status), Errno::ENOENT);
    // The owner still has everything.
    tms.iter().for_each(|&tm| owner.stop_tm(tm).unwrap());
    owner.submit(&Entry::deregister(handle(5))).unwrap();
    for arena in &arenas {
        owner.call(kind::RELEASE_ARENA, &wire::arena(arena.number)).unwrap();
    }
    work.stop();
    drop((owner, thief));
    helper.is_clean();
}

/// Handles of objects that no longer exist: of a stopped machine whose slot is used again, of a
/// released arena, of a deregistered buffer whose slot is used again.
// Covers: MT-233, MT-235
#[test]
fn stale_names() {
    let helper = Helper::start();
    let mut client = helper.client("stale");
    let mut old = Vec::new();
    for _ in 0..20 {
        let tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
        assert!(!old.contains(&tm.handle), "a name is given twice");
        client.stop_tm(tm.handle).unwrap();
        old.push(tm.handle);
    }
    let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
    for &stale in &old {
        assert_eq!(client.stop_tm(stale), Err(Errno::ENOENT));
        assert_eq!(client.call(kind::TM_DESCRIPTOR, &stale.to_le_bytes()).unwrap_err(), Errno::ENOENT);
    }
    let arena = client.arena(1 << 20, false).unwrap();
    let given_back = client.arena(1 << 20, false).unwrap().number;
    client.call(kind::RELEASE_ARENA, &wire::arena(given_back)).unwrap();
    assert_eq!(client.call(kind::RELEASE_ARENA, &wire::arena(given_back)).unwrap_err(), Errno::ENOENT);
    let again = |generation: u64| generation << 32;
    client.submit(&Entry::register(again(1), arena.number, 0, 4096)).unwrap();
    client.submit(&Entry::deregister(again(1))).unwrap();
    client.submit(&Entry::register(again(2), arena.number, 0, 4096)).unwrap();
    let stale = Entry::receive(tm.handle, again(1), 1, 1, 1);
    client.operate(&mut tm, &stale).unwrap();
    assert_eq!(Errno::from_raw(-client.event(&mut tm).unwrap().status), Errno::ENOENT);
    let receive = Entry::receive(tm.handle, again(2), 2, 1, 1);
    client.operate(&mut tm, &receive).unwrap();
    // A cancel with the old handle, or with an old cookie, does not affect it.
    client.submit(&Entry::cancel(tm.handle, again(1), 2)).unwrap();
    client.submit(&Entry::cancel(tm.handle, again(2), 1)).unwrap();
    client.sync().unwrap();
    assert_eq!(helper.number("/list/0/operations"), 1);
    // MT-235: a busy object can be neither stopped nor released.
    assert_eq!(client.stop_tm(tm.handle), Err(Errno::EBUSY));
    assert_eq!(client.call(kind::RELEASE_ARENA, &wire::arena(arena.number)).unwrap_err(), Errno::EBUSY);
    client.submit(&Entry::cancel(tm.handle, again(2), 2)).unwrap();
    assert_eq!(Errno::from_raw(-client.event(&mut tm).unwrap().status), Errno::ECANCELED);
    client.stop_tm(tm.handle).unwrap();
    // A machine that no longer exists.
    client.submit(&receive).unwrap();
    client.sync().unwrap();
    assert_eq!(helper.number("/list/0/operations"), 0);
    drop(client);
    helper.is_clean();
}
