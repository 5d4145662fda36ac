//! Transfer machines, each with a mapping.

use crate::people::User;
use crate::stage::Stage;

/// The number of connections, and of machines of each.
const MANY: &[&str] = &["machines", "255", "256"];

/// A configuration in which mappings are the first limit of machines.
const MACHINES: &str = "[helper.capacity]\nmachines = 1_000_000\n";

/// A configuration in which memory is the first limit of machines.
const MAPPINGS: &str = "[helper.capacity]\nmachines = 1_000_000\nmappings = 1_000_000\n";

/// Two users take the maximum number of machines, until the helper could have no further mapping:
/// other users still get theirs.
#[test]
#[ignore = "./test attack"]
fn machines_until_mappings_run_out() {
    let Some(mut stage) = Stage::new("machines, mappings").config(MACHINES).open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), MANY), (User::Attacker(1), MANY)]);
    stage.everybody_is_served();
    stage.close(attackers);
}

/// Two users take machines until the helper's small address space is used up: other users still get
/// theirs, and the helper keeps running.
// Covers: MT-237
#[test]
#[ignore = "./test attack"]
fn machines_until_memory_runs_out() {
    let stage = Stage::new("machines, memory").config(MAPPINGS).limits("ulimit -v 600000");
    let Some(mut stage) = stage.open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), MANY), (User::Attacker(1), MANY)]);
    stage.everybody_is_served();
    stage.close(attackers);
}
