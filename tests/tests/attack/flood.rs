//! Requests without end.

use crate::people::User;
use crate::stage::Stage;

/// Hundreds of connections of one user send `Sync` without end: others are served between them.
#[test]
#[ignore = "./test attack"]
fn syncs_over_hundreds_of_connections() {
    let Some(mut stage) = Stage::new("Sync flood").open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["flood", "400"])]);
    stage.everybody_is_served();
    stage.close(attackers);
}
