//! Peers that do not read.

use crate::people::User;
use crate::stage::Stage;
use crate::support::peer::PORT;

/// 40 NIDs of one host ask and read no answers: messages to other peers still leave.
#[test]
#[ignore = "./test attack"]
fn peers_that_do_not_read() {
    let Some(mut stage) = Stage::new("silent peers").of_any_user().afar().open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["silent", &PORT.to_string(), "40"])]);
    stage.everybody_is_served();
    stage.close(attackers);
}
