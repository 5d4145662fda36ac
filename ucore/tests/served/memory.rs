//! Memory that both processes have mapped.

use lnet_region::Fragment;
use nlx_core::{Core, Errno, IoVec, OperationKind, Region};
use nlx_helper::ClientQuotas;
use nlx_ucore::Ucore;

use crate::bed::*;

/// U3: arenas are created when needed, and released when unused, except for a spare one.
#[test]
fn arenas_come_with_the_need_and_go_with_it() {
    let (helper, domain) = served();
    let arenas = || helper.host.status().clients[0].arenas;
    assert_eq!(arenas(), 0);
    // Four to an arena of 1 MiB, and one that is longer than an arena.
    let mut regions: Vec<_> = (0..12).map(|_| domain.allocate(256 << 10).unwrap()).collect();
    regions.push(domain.allocate(3 << 20).unwrap());
    assert_eq!(arenas(), 4);
    assert!(regions.iter().all(|region| !region.is_shared()));
    drop(regions);
    let posted = buffer(&*domain, 1 << 10);
    domain.deregister(posted.handle).unwrap();
    // The one with the buffer's memory, and a spare one.
    assert_eq!(arenas(), 2);
}

/// Arenas have a maximum length, regions do not: a longer region lies in several arenas, also after
/// the helper was restarted.
#[test]
fn memory_longer_than_an_arena_lies_in_several() {
    let quotas = ClientQuotas { arena_bytes: 300 << 10, ..ClientQuotas::default() };
    let mut helper = Helper::with(quotas);
    let domain = Ucore::connect(&helper.options().reconnect(true)).unwrap();
    // Whole pages of an arena: four of 256 KiB, for each of the two buffers.
    let (sent, posted) = (buffer(&*domain, 1 << 20), buffer(&*domain, 1 << 20));
    assert_eq!(helper.host.status().clients[0].arenas, 8);
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 1000) as u8).collect();
    sent.fill(&bytes);
    for round in 0..2 {
        let tm = start(&*domain);
        submit(&*tm, &posted.receive(1));
        submit(&*tm, &sent.send(1 << 20, tm.address()));
        events_until(&*tm, 2).iter().for_each(assert_ok);
        assert!(posted.bytes(0, 1 << 20) == bytes, "round {round}");
        posted.fill(&[0; 1 << 20]);
        helper.stop();
        until("the machine ends", || tm.has_ended());
        helper.start_again();
        until("the client connects again", || domain.is_connected());
        tm.stop().unwrap();
    }
    for Buffer { handle, memory } in [sent, posted] {
        drop(memory);
        domain.deregister(handle).unwrap();
    }
    // The last one is released, except for a spare one.
    assert_eq!(helper.host.status().clients[0].arenas, 4);
    // The maximum number of arenas of a client; the arenas of the failed attempt are released.
    let quotas = ClientQuotas { arenas: 5, ..quotas };
    let helper = Helper::with(quotas);
    let domain = helper.client();
    assert_eq!(domain.allocate(2 << 20).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(helper.host.status().clients[0].arenas, 0);
    domain.allocate(1 << 20).unwrap();
}

#[test]
fn what_the_quota_does_not_allow_is_refused() {
    let helper = Helper::with(ClientQuotas { bytes: 1 << 20, ..ClientQuotas::default() });
    let domain = helper.client();
    // A whole arena exceeds the remaining quota; the region itself does not.
    let _most = domain.allocate(900 << 10).unwrap();
    assert_eq!(domain.allocate(200 << 10).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(domain.allocate(0).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(domain.allocate(usize::MAX).unwrap_err().errno(), Errno::EINVAL);
}

#[test]
fn a_buffer_of_many_segments_of_several_arenas() {
    let (_helper, domain) = served();
    let (sender, receiver) = (start(&*domain), start(&*domain));
    let regions: Vec<_> = (0..5).map(|_| domain.allocate(600 << 10).unwrap()).collect();
    let piece = |at: usize| Fragment::new(regions[at % 5].clone(), at * 100 + 7, 33).unwrap();
    let memory = IoVec::new((0..200).map(piece).collect::<Vec<_>>()).unwrap();
    let scattered = Buffer { handle: domain.register(&memory).unwrap(), memory };
    let bytes: Vec<u8> = (0..6600u32).map(|at| (at % 251) as u8).collect();
    scattered.fill(&bytes);
    let posted = buffer(&*domain, 8192);
    submit(&*receiver, &posted.receive(1));
    submit(&*sender, &scattered.send(6600, receiver.address()));
    let came = event(&*receiver);
    assert_ok(&came);
    assert!(posted.bytes(0, 6600) == bytes);
    assert_ok(&event(&*sender));
    domain.deregister(scattered.handle).unwrap();
}

#[test]
fn foreign_memory_is_named_as_such_and_can_be_copied() {
    let helper = Helper::start();
    let (domain, other) = (helper.client(), helper.client());
    let heap = IoVec::whole(Region::heap(4096).unwrap());
    let theirs = IoVec::whole(other.allocate(4096).unwrap());
    for foreign in [&heap, &theirs] {
        assert_eq!(domain.register(foreign).unwrap_err().errno(), Errno::EFAULT);
        let handle = domain.register_copying(foreign).unwrap();
        domain.deregister(handle).unwrap();
    }
}

/// While the helper may write to a buffer, no slice of it exists; while it may read, nothing
/// writes.
#[test]
fn an_operation_in_flight_holds_its_bytes() {
    let (_helper, domain, tm) = started();
    for make in [buffer as fn(&dyn Core, usize) -> Buffer, copying] {
        let held = make(&*domain, 1000);
        submit(&*tm, &held.receive(3));
        assert!(held.memory.read(0..1).is_err() && held.memory.write(999..1000).is_err());
        tm.cancel(held.handle, held.handle.0).unwrap();
        assert_eq!(event(&*tm).status(), Err(Errno::ECANCELED));
        assert!(held.memory.write(0..1000).is_ok());
        // Conversely, no operation writes to bytes that the client is reading.
        let reading = held.memory.read(0..10).unwrap();
        assert_eq!(tm.submit(&held.receive(3)).unwrap_err().errno(), Errno::EBUSY);
        drop(reading);
    }
    let held = buffer(&*domain, 1000);
    submit(&*tm, &held.to(OperationKind::PassiveSend { length: 500 }));
    assert!(held.memory.read(0..1000).is_ok() && held.memory.write(500..1000).is_ok());
    assert!(held.memory.write(499..500).is_err());
}
