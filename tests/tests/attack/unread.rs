//! Replies with descriptors that are not read.

use crate::people::User;
use crate::stage::Stage;

/// Replies of one user remain in their sockets, and then those of another user too: descriptors in
/// transit count against the helper, which has a low limit here. Others get their replies, and are
/// not cut off.
#[test]
#[ignore = "./test attack"]
fn replies_that_stay_in_the_socket() {
    let Some(mut stage) = Stage::new("unread replies").limits("ulimit -n 1024").open() else { return };
    let unread: &[&str] = &["unread", "100"];
    let mut attackers = stage.attack(&[(User::Attacker(0), unread)]);
    stage.everybody_is_served();
    attackers.extend(stage.attack(&[(User::Attacker(1), unread)]));
    stage.everybody_is_served();
    stage.close(attackers);
}
