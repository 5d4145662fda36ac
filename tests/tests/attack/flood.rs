//! Requests and connections without end.

use crate::people::User;
use crate::stage::Stage;

/// Hundreds of connections of one user send `Sync` without end: others are served between them.
// Covers: MT-219
#[test]
#[ignore = "./test attack"]
fn syncs_over_hundreds_of_connections() {
    let Some(mut stage) = Stage::new("Sync flood").open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["flood", "400"])]);
    stage.everybody_is_served();
    stage.close(attackers);
}

/// Clients that connect during endless connections: half of them must not wait longer than the
/// limit below. (A client that the system has not scheduled during that time says nothing about the
/// helper.)
const COMING: u32 = 32;

/// The maximum of the attacker's connections that may come before half of the clients: more than
/// the backlog, 64, and those that come while the helper makes the client's session; less than a
/// backlog of 4,096, the system's default limit.
const AHEAD_MAX: u64 = 1000;

/// Some threads of one user connect and close in a loop: few connections wait to be accepted, so
/// that only a limited number comes before one of another user.
// Covers: MT-219
#[test]
#[ignore = "./test attack"]
fn connections_that_are_closed_at_once() {
    let Some(mut stage) = Stage::new("connects").open() else { return };
    let mut attackers = stage.attack(&[(User::Attacker(0), &["connects", "4"])]);
    let mut ahead = Vec::new();
    for _ in 0..COMING {
        let before = attackers[0].count();
        stage.helper.client("among many");
        ahead.push(attackers[0].count() - before);
    }
    ahead.sort_unstable();
    println!("connections ahead of a client: {ahead:?}");
    let median = ahead[ahead.len() / 2];
    assert!(median <= AHEAD_MAX, "{median} of {ahead:?}");
    stage.everybody_is_served();
    stage.close(attackers);
}
