//! Descriptors of a helper with a low limit.

use crate::people::User;
use crate::stage::Stage;

/// Three users take the maximum of descriptors of a helper with a low limit: others still get
/// theirs, and so do peers.
#[test]
#[ignore = "./test attack"]
fn three_users_take_the_descriptors() {
    let Some(mut stage) = Stage::new("descriptors").limits("ulimit -n 1024").open() else { return };
    let many: &[&str] = &["descriptors", "400"];
    let attackers = stage.attack(&[0, 1, 2].map(|number| (User::Attacker(number), many)));
    stage.everybody_is_served();
    assert_eq!(stage.visit_from_afar(), Ok(()));
    stage.close(attackers);
}
