//! Transfer machines, each with a mapping.

use crate::people::User;
use crate::stage::Stage;

/// Two users start as many machines as they can, each with a mapping of the helper's, whose address space is small: others still
/// get theirs, and the helper lives.
#[test]
#[ignore = "./test attack"]
fn machines_until_memory_runs_out() {
    let Some(mut stage) = Stage::new("machines").limits("ulimit -v 1000000").open() else { return };
    let many: &[&str] = &["machines", "255", "256"];
    let attackers = stage.attack(&[(User::Attacker(0), many), (User::Attacker(1), many)]);
    stage.everybody_is_served();
    stage.close(attackers);
}
