//! A session is closed in slices: each does a limited number of units of work, and all together
//! have the same result as closing at once.

use std::sync::Arc;

use lnet_fake::{CallKind, FakeLnet};
use nlx_core::OperationKind;
use nlx_helper::service::ROUND_UNITS;
use nlx_helper::{Departure, Host, HostStatus, Leftovers};
use proptest::prelude::*;

use crate::client::{Client, ROOT, operation};
use crate::worlds::scripted;

/// The objects of a client.
#[derive(Debug, Clone, Copy)]
struct Full {
    tms: u32,
    /// In flight on each transfer machine.
    operations: u32,
    /// Buffers without an operation, and unused indices between them.
    idle: u32,
    gap: u32,
    arenas: u32,
}

/// Creates a client with these objects.
fn full(host: &Arc<Host>, full: Full) -> Client {
    let mut client = Client::connect(host, ROOT);
    let arena = client.arena(1 << 20).handle;
    (1..full.arenas).for_each(|_| drop(client.arena(4096)));
    let mut place = 0;
    for _ in 0..full.tms {
        let mut tm = client.start("10.0.0.1@tcp:12345:40:*", full.operations.max(1));
        for counter in 1..=full.operations {
            let buffer = client.register(place, arena, 0, 64);
            tm.events.provision(1).unwrap();
            client.push(&operation(&tm, buffer, OperationKind::PassiveReceive, counter.into()));
            client.drain().unwrap();
            place += 1;
        }
    }
    for _ in 0..full.idle {
        place += full.gap;
        client.register(place, arena, 0, 64);
        client.drain().unwrap();
        place += 1;
    }
    let status = &host.status().clients[0];
    assert_eq!(status.operations, u64::from(full.tms * full.operations));
    assert_eq!(status.buffers, u64::from(full.tms * full.operations + full.idle));
    client
}

/// Closes it with these budgets in rotation; returns its leftovers, and the number of steps.
fn close(lnet: &FakeLnet, client: Client, budgets: &[usize]) -> (Departure, usize) {
    lnet.take_calls();
    let mut session = client.session;
    for (step, &budget) in budgets.iter().cycle().enumerate() {
        let (units, departure) = session.close_some(budget);
        let kinds = lnet.take_kinds();
        let work = kinds.iter().filter(|kind| [CallKind::MdUnlink, CallKind::EqFree].contains(kind)).count();
        assert!((1..=budget).contains(&units), "{units} units of {budget}");
        assert!(work <= units, "{work} calls in {units} units");
        assert!(units == budget || departure.is_some(), "{units} units of {budget}, and not done");
        if let Some(departure) = departure {
            assert!(matches!(session.close_some(budget), (0, None)));
            return (departure, step + 1);
        }
    }
    unreachable!("budgets come again and again")
}

/// Checks the state that another user finds once the client has gone.
fn is_clean(lnet: &FakeLnet, host: &Host) {
    let status = host.status();
    assert_eq!(status, HostStatus { totals: status.totals, ..HostStatus::default() });
    lnet.assert_quiet();
}

/// 4,096 operations, more buffers, and the maximum number of transfer machines and arenas: closing
/// takes at least as many turns as their shares, and each turn is as short as any other.
#[test]
fn a_client_with_very_much_is_closed_in_many_turns() {
    let (lnet, host) = scripted();
    let client = full(&host, Full { tms: 256, operations: 16, idle: 1000, gap: 3, arenas: 256 });
    let (departure, steps) = close(&lnet, client, &[ROUND_UNITS]);
    assert!(departure.is_over());
    assert!(steps >= (4096 + 5096 + 256 + 256) / ROUND_UNITS, "{steps} steps");
    is_clean(&lnet, &host);
}

/// Resources that LNet holds are left over, once everything is cancelled and not before.
#[test]
fn what_lnet_holds_is_counted_when_all_is_done() {
    let (lnet, host) = scripted();
    let client = full(&host, Full { tms: 2, operations: 100, idle: 0, gap: 0, arenas: 1 });
    lnet.set_busy(true);
    let mut session = client.session;
    let departure = loop {
        assert_eq!((host.status().clients.len(), host.status().leftovers), (1, Leftovers::default()));
        if let (_, Some(departure)) = session.close_some(7) {
            break departure;
        }
    };
    lnet.set_busy(false);
    let left = Leftovers { tms: 2, eqs: 2, arenas: 1, bytes: 1 << 20 };
    assert_eq!((departure.leftovers(), host.status().leftovers), (left, left));
    assert_eq!(host.status().clients, []);
}

/// A session that is dropped before the end is closed completely.
#[test]
fn a_session_that_is_dropped_during_a_call_is_closed() {
    for steps in [0, 1, 5, 40] {
        let (lnet, host) = scripted();
        let client = full(&host, Full { tms: 3, operations: 20, idle: 10, gap: 1, arenas: 3 });
        let mut session = client.session;
        (0..steps).for_each(|_| assert!(session.close_some(3).0 > 0));
        drop(session);
        // The fake's notes hold the memory, too.
        lnet.take_calls();
        is_clean(&lnet, &host);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Closing in slices does the same work, whatever a client has and however small the slices
    /// are.
    #[test]
    fn slices_do_what_closing_at_once_does(
        (tms, operations, idle, gap, arenas) in (0_u32..5, 0_u32..70, 0_u32..70, 0_u32..40, 1_u32..9),
        budgets in prop::collection::vec(1_usize..100, 1..6),
    ) {
        let (lnet, host) = scripted();
        let client = full(&host, Full { tms, operations, idle, gap, arenas });
        let (departure, steps) = close(&lnet, client, &budgets);
        prop_assert!(departure.is_over());
        // A plain count of all objects: no work is done twice.
        let all = tms * (2 * operations + 4) + tms * operations + idle * (gap + 1) + arenas + 3;
        prop_assert!(steps <= all as usize, "{steps} steps for {all} things");
        is_clean(&lnet, &host);
    }
}
