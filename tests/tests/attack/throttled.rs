//! Descriptors of clients that make too many requests.

use crate::people::User;
use crate::stage::Stage;

/// Few requests, so that the rates of connections and of users have an effect.
const CONFIG: &str = "let_descriptors_pass = true\nuser_requests_per_second = 2000\n[helper.quotas]\nrequests_per_second = 100\n";

/// Two users make more requests than they may, send descriptors between them, and leave with both
/// in their sockets: others are served, and nothing of it is left.
#[test]
#[ignore = "./test attack"]
fn descriptors_beside_too_many_requests() {
    let Some(mut stage) = Stage::new("throttled, with descriptors").config(CONFIG).open() else { return };
    let attackers =
        [0, 1].map(|number| stage.start(User::Attacker(number), &["throttled", "20", "200"])).into();
    stage.everybody_is_served();
    assert!(stage.helper.number("/door/throttled") > 0, "the rates were at work");
    let attackers = Stage::at_their_height(attackers);
    stage.everybody_is_served();
    stage.close(attackers);
}
