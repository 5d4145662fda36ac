//! Clients and servers of the protocol in virtual time, over a network that loses, duplicates, delays
//! and so reorders messages; both ends are restarted. Every run follows from its seed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod served;
mod wire;
mod world;

use std::time::Duration;

use nlx_service::Class;
use nlx_service::rpc::{
    ClientId, Delivery, Header, Kind, MessageDecision, RequestError, RequestOptions, ResponderOptions, Server,
};
use proptest::prelude::*;

use world::{MS_NS, Plan, World};

const OPTIONS: RequestOptions = RequestOptions {
    deadline: Duration::from_secs(10),
    deadline_max: Duration::from_secs(3600),
    retry_after: Duration::from_millis(100),
    retry_max: Duration::from_secs(2),
    message_max: 256,
    in_flight_max: 8,
    delivery: Delivery::AtMostOnce,
    patient: false,
};

/// A network without faults, and a fast server.
const CALM: Plan = Plan {
    clients: 10,
    calls: 200,
    lost_per_mille: 0,
    doubled_per_mille: 0,
    delay_max_ms: 20,
    served_max_ms: 5,
    slow_per_mille: 0,
    slow_ms: 0,
    client_restarts: 0,
    server_restarts: 0,
    drops_early: false,
    sessions_max: 100,
};

fn hard() -> impl Strategy<Value = Plan> {
    let network = (0..400_u32, 0..300_u32, 1..3000_u64);
    let server = (1..200_u64, 0..200_u32, 0..60_000_u64, 1..12_usize);
    let restarts = (0..4_u32, 0..3_u32);
    (network, server, restarts, any::<bool>()).prop_map(|(network, server, restarts, drops_early)| Plan {
        lost_per_mille: network.0,
        doubled_per_mille: network.1,
        delay_max_ms: network.2,
        served_max_ms: server.0,
        slow_per_mille: server.1,
        slow_ms: server.2,
        sessions_max: server.3,
        client_restarts: restarts.0,
        server_restarts: restarts.1,
        drops_early,
        ..CALM
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the network does, and whichever end is restarted: each call ends once; a request
    /// that must not run twice does not; what is answered has run, and the answer is its own.
    // Covers: S-313
    #[test]
    fn each_call_ends_once_and_runs_at_most_once(seed in any::<u64>(), plan in hard()) {
        let mut world = World::new(seed, plan, OPTIONS);
        world.run();
        for call in &world.calls {
            prop_assert_eq!(call.ends, u32::from(!call.is_abandoned), "{:?}", call);
            prop_assert!(call.ran <= 1 || call.delivery == Delivery::AtLeastOnce, "{:?}", call);
            if call.result == Some(Ok(())) {
                prop_assert!(call.ran >= 1, "{:?}", call);
            }
        }
        prop_assert_eq!(world.server.running(), 0);
        prop_assert!(world.server.sessions() <= plan.sessions_max);
    }

    /// The same seed gives the same run.
    // Covers: S-313
    #[test]
    fn a_run_follows_from_its_seed(seed in any::<u64>(), plan in hard()) {
        let run = || {
            let mut world = World::new(seed, plan, OPTIONS);
            world.run();
            (world.trace, world.now_ns)
        };
        prop_assert_eq!(run(), run());
    }

    /// Handlers that take up to thirty times the deadline: early replies come in time, every second one
    /// is lost, and no client times out. A request whose server has acknowledged it is not repeated
    /// while the time that it asked for runs.
    // Covers: S-313
    #[test]
    fn no_client_of_a_slow_server_times_out(seed in any::<u64>(), slow_ms in 10_000..300_000_u64) {
        let plan = Plan { slow_per_mille: 300, slow_ms, drops_early: true, ..CALM };
        let mut world = World::new(seed, plan, OPTIONS);
        world.run();
        for call in &world.calls {
            prop_assert_eq!((call.ends, &call.result), (1, &Some(Ok(()))), "{:?}", call);
            prop_assert!(call.ran == 1 || call.delivery == Delivery::AtLeastOnce);
        }
        prop_assert!(world.early > 0 && world.server.counters().early >= world.early);
    }
}

/// A call whose server asks for more and more time ends at the client's limit.
// Covers: S-313
#[test]
fn a_client_waits_no_longer_than_its_limit() {
    let plan = Plan { clients: 1, calls: 1, slow_per_mille: 1000, slow_ms: 10_000_000, ..CALM };
    let options = RequestOptions { deadline_max: Duration::from_secs(60), ..OPTIONS };
    let mut world = World::new(1, plan, options);
    world.run();
    let [call] = &world.calls[..] else { panic!("one call") };
    assert!(matches!(call.result, Some(Err(RequestError::Unanswered { .. }))), "{call:?}");
    assert_eq!(call.ended_ns - call.begun_ns, 60_000 * MS_NS);
}

/// The first repetition waits for as long as the server and the network need: a server that always
/// takes longer than the shortest delay gets no early repetitions after the first answer.
// Covers: S-313
#[test]
fn a_client_learns_how_fast_its_server_is() {
    let plan = Plan { clients: 1, calls: 50, slow_per_mille: 1000, slow_ms: 600, delay_max_ms: 300, ..CALM };
    let mut world = World::new(1, plan, RequestOptions { in_flight_max: 1, ..OPTIONS });
    // Half of the calls.
    world.run_until(30_000 * MS_NS);
    let before = world.counters(1);
    world.run();
    assert!(world.calls.iter().all(|call| call.result == Some(Ok(()))));
    let (round_trip_ns, service_ns) = world.estimates_ns(1);
    // The estimates are rounded to milliseconds.
    assert!((600 * MS_NS..=607 * MS_NS).contains(&service_ns), "{service_ns}");
    assert!(round_trip_ns <= 601 * MS_NS, "{round_trip_ns}");
    let after = world.counters(1);
    assert!(before.retries > 0 && after.retries == before.retries, "{before:?}, {after:?}");
}

/// A message of a client that has no other state than its number.
fn message(kind: Kind, from: u32, session: u64, sequence: u64) -> Header {
    Header {
        kind,
        class: Class::Normal,
        has_offers: false,
        attempt: 1,
        slot: 0,
        client: ClientId { number: 0, incarnation: u64::from(from) + 1 },
        session,
        sequence,
        status: 0,
        length: 0,
        time_ms: 1000,
        estimate_ms: 0,
    }
}

/// Opens a session, and has one request run; returns false if there is no room for the session.
fn visit(server: &mut Server<u32>, from: u32, answer: &[u8], now_ns: u64) -> bool {
    let session = match server.receive(&message(Kind::Open, from, 0, 0).emit(), &from, now_ns) {
        MessageDecision::Answer(Header { kind: Kind::Opened, session, .. }, _) => session,
        MessageDecision::Answer(Header { kind: Kind::Refusal, .. }, _) => return false,
        other => panic!("{other:?}"),
    };
    match server.receive(&message(Kind::Once, from, session, 1).emit(), &from, now_ns) {
        MessageDecision::Run(id, _) => assert!(server.answered(id, 0, answer, now_ns).is_some()),
        other => panic!("{other:?}"),
    }
    true
}

/// A hundred thousand clients of one service: it stores one answer for each, and neither more clients
/// nor more requests take more memory.
// Covers: S-313
#[test]
fn a_hundred_thousand_clients_take_bounded_memory() {
    const CLIENTS: u32 = 100_000;
    const ANSWER: usize = 100;
    let idle = Duration::from_secs(60);
    let options = ResponderOptions {
        sessions_max: CLIENTS as usize,
        session_idle: idle,
        ..ResponderOptions::default()
    };
    let mut server = Server::new(1, &options);
    for from in 0..CLIENTS {
        assert!(visit(&mut server, from, &[7; ANSWER], 0));
    }
    let bytes = server.answer_bytes();
    assert!((CLIENTS as usize * ANSWER..=2 * CLIENTS as usize * ANSWER).contains(&bytes), "{bytes}");
    // Nothing is idle yet: others get no session, and nothing grows.
    let others = CLIENTS..2 * CLIENTS;
    assert!(others.clone().all(|from| !visit(&mut server, from, &[7; ANSWER], 1)));
    assert_eq!(server.counters().full, u64::from(CLIENTS));
    // Later each takes the place of an idle one.
    let later_ns = idle.as_nanos() as u64;
    assert!(others.clone().all(|from| visit(&mut server, from, &[7; ANSWER], later_ns)));
    assert_eq!((server.sessions(), server.running(), server.next_ns()), (CLIENTS as usize, 0, None));
    assert_eq!(server.answer_bytes(), bytes);
    // Clients that are started anew, all at once, take the places of their former lives.
    for from in others {
        let open = Header {
            client: ClientId { number: 0, incarnation: u64::MAX },
            ..message(Kind::Open, from, 0, 0)
        };
        let verdict = server.receive(&open.emit(), &from, later_ns);
        assert!(matches!(verdict, MessageDecision::Answer(Header { kind: Kind::Opened, .. }, _)));
    }
    assert_eq!((server.sessions(), server.answer_bytes()), (CLIENTS as usize, 0));
}
