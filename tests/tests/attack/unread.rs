//! Replies with descriptors that nobody reads.

use crate::people::User;
use crate::stage::Stage;

/// Replies of two users stay in their sockets: descriptors on their way count against the helper, which may have few here.
#[test]
#[ignore = "./test attack"]
fn replies_that_stay_in_the_socket() {
    let Some(mut stage) = Stage::new("unread replies").limits("ulimit -n 1024").open() else { return };
    let unread: &[&str] = &["unread", "100"];
    let attackers = stage.attack(&[(User::Attacker(0), unread), (User::Attacker(1), unread)]);
    stage.everybody_is_served();
    stage.close(attackers);
}
