//! Transfer machines, each with a mapping.

use crate::people::User;
use crate::stage::Stage;

/// One user starts as many machines as there is address space for: others still get theirs, and the helper lives.
#[test]
#[ignore = "./test attack"]
fn machines_until_memory_runs_out() {
    let Some(mut stage) = Stage::new("machines").limits("ulimit -v 1000000").open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["machines", "255", "256"])]);
    stage.everybody_is_served();
    stage.close(attackers);
}
