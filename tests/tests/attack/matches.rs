//! Match entries.

use crate::people::User;
use crate::stage::Stage;

/// 64 connections of one user take match entries: others still get theirs.
// Covers: MT-237
#[test]
#[ignore = "./test attack"]
fn match_entries_of_many_connections() {
    let Some(mut stage) = Stage::new("match entries").open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["matches", "64", "65536"])]);
    stage.everybody_is_served();
    stage.close(attackers);
}
