//! MT-50, MT-234, D10: a client leaves, whatever operations it has in flight.

use lnet_api::MdHandle;
use lnet_fake::{FakeLnet, ScriptedEvent};
use nlx_helper::{HostStatus, Leftovers};

use crate::client::{Client, ROOT, one_of_each};
use crate::worlds::{loopback, scripted_client};

/// Nothing at all; then an arena, transfer machines, buffers without an operation.
// Covers: MT-50, MT-234
#[test]
fn a_client_that_has_nothing_under_way_leaves_nothing() {
    let host = loopback();
    for steps in 0..4 {
        let mut client = Client::connect(&host, ROOT);
        let arena = (steps > 0).then(|| client.arena(4096));
        let tms: Vec<_> =
            (0..if steps > 1 { 3 } else { 0 }).map(|_| client.start("0@lo:12345:40:*", 4)).collect();
        if let (Some(arena), true) = (&arena, steps > 2) {
            client.register(0, arena.handle, 0, 4096);
            client.drain().unwrap();
        }
        let departure = client.close();
        assert!(departure.is_over(), "after {steps} steps: {departure:?}");
        let status = host.status();
        assert_eq!(status, HostStatus { totals: status.totals, ..HostStatus::default() });
        let mut next = Client::connect(&host, ROOT);
        for tm in &tms {
            next.start(&tm.address.to_string(), 4);
        }
    }
}

/// Operations of all six queues in flight: those that wait end at once, those that are being sent
/// when they have left.
// Covers: S-415, MT-50, MT-234
#[test]
fn everything_in_flight_is_cancelled() {
    let (lnet, host, mut client) = scripted_client(ROOT);
    in_flight(&mut client);
    assert_eq!((host.status().clients[0].operations, lnet.objects().mds), (6, 6));
    let departure = client.close();
    assert_eq!(lnet.objects().mds, 3);
    release_all(&lnet);
    assert!(departure.is_over());
    assert_eq!(host.status().leftovers, Leftovers::default());
    lnet.assert_quiet();
}

/// LNet holds one of them: the transfer machine's address and the memory stay until it releases
/// them, and only then are dropped.
// Covers: S-404, S-415, MT-234
#[test]
fn what_lnet_holds_is_left_over_until_it_lets_go() {
    let (lnet, host, mut client) = scripted_client(ROOT);
    let tm = in_flight(&mut client);
    lnet.set_busy(true);
    let departure = client.close();
    lnet.set_busy(false);
    assert_eq!(lnet.objects().mds, 6);
    let left = Leftovers { tms: 1, eqs: 1, arenas: 1, bytes: 1 << 20 };
    assert_eq!((departure.leftovers(), host.status().leftovers, host.sweep()), (left, left, true));

    let mut next = Client::connect(&host, ROOT);
    assert!(next.try_start(&tm, 4).is_err(), "a message for it may be on its way");
    release_all(&lnet);
    assert!(departure.is_over() && !host.sweep());
    next.start(&tm, 4);
    drop(next);
    lnet.assert_quiet();
}

/// Makes LNet release everything that it still has; the memory exists until then.
fn release_all(lnet: &FakeLnet) {
    // The fake's notes hold the memory, too.
    lnet.take_calls();
    for md in (0..100).map(MdHandle).filter(|&md| lnet.has_md(md)) {
        assert_eq!(lnet.memory(md).len(), 64);
        let fitting =
            [ScriptedEvent::put(), ScriptedEvent::get(), ScriptedEvent::send(), ScriptedEvent::reply()];
        let mut fitting = fitting.into_iter().map(ScriptedEvent::last);
        let ending = fitting.find(|scripted_event| lnet.could_happen(md, scripted_event).is_ok());
        lnet.inject(md, ending.expect("something ends it"));
    }
}

/// Starts one operation of each queue; returns the address.
fn in_flight(client: &mut Client) -> String {
    let arena = client.arena(1 << 20).handle;
    let mut tm = client.start("10.0.0.1@tcp:12345:40:*", 16);
    for (place, kind) in (0u32..).zip(one_of_each()) {
        let buffer = client.register(place, arena, u64::from(place) * 64, 64);
        let counter = if kind.queue().is_passive() { 1 + u64::from(place) } else { 0 };
        client.operate(&mut tm, buffer, kind, counter);
    }
    assert!(tm.event().is_none());
    tm.address.to_string()
}

/// Dropping a session closes it.
// Covers: S-415, MT-234
#[test]
fn a_dropped_session_is_closed() {
    let (lnet, host, mut client) = scripted_client(ROOT);
    in_flight(&mut client);
    drop(client);
    release_all(&lnet);
    assert_eq!((host.status().clients.len(), host.sweep()), (0, false));
    lnet.assert_quiet();
}
