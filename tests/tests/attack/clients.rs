//! The places for clients.

use crate::people::User;
use crate::stage::Stage;

/// Two users take the maximum of places for clients: the honest user, a new one and root are still
/// accepted.
// Covers: MT-237
#[test]
#[ignore = "./test attack"]
fn two_users_fill_the_table() {
    let Some(mut stage) = Stage::new("clients").config("clients_max = 64\n").open() else { return };
    let many: &[&str] = &["clients", "100"];
    let attackers = stage.attack(&[(User::Attacker(0), many), (User::Attacker(1), many)]);
    stage.everybody_is_served();
    stage.close(attackers);
}

/// One user fills the places under ten of its subordinate ids: they count as one user, and others
/// are still accepted.
#[test]
#[ignore = "./test attack, under tests/systemd/run"]
fn subordinate_ids_fill_the_table() {
    let Some(mut stage) = Stage::new("subordinate ids").config("clients_max = 64\n").open() else { return };
    let many: &[&str] = &["clients", "100"];
    let attackers = (0..10).flat_map(|number| stage.attack(&[(User::Subordinate(number), many)])).collect();
    stage.everybody_is_served();
    stage.close(attackers);
}
