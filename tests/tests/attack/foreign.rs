//! Descriptors that are not memory of a helper, and whose `close` blocks.

use crate::fuse::Fuse;
use crate::people::{Attacker, User};
use crate::stage::Stage;
use crate::support::peer::hung_unless;

/// The helper receives descriptors, as before Linux 6.16.
const PERMISSIVE: &str = "let_descriptors_pass = true\n";

/// Users that occupy carriers: 15 of them with the maximum of a user, the others with the rest and
/// with their first carriers.
const CARRIER_USERS: u32 = 24;

/// TCP sockets with a linger time of an hour and unsent data, more than any queue of the helper
/// holds: the helper continues, and ends on request.
// Covers: MT-219
#[test]
#[ignore = "./test attack"]
fn sockets_that_linger() {
    let Some(mut stage) = Stage::new("linger").config(PERMISSIVE).of_any_user().open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["linger", "5000"])]);
    stage.everybody_is_served();
    stage.close_beside(attackers);
}

/// One socket whose close blocks does not prevent the closing of others' sockets.
#[test]
#[ignore = "./test attack"]
fn one_socket_that_lingers() {
    let Some(mut stage) = Stage::new("linger, one socket").config(PERMISSIVE).of_any_user().open() else {
        return;
    };
    let attackers = stage.attack(&[(User::Attacker(0), &["linger", "1"])]);
    stage.everybody_is_served();
    stage.close(attackers);
}

/// A file of the attacker's FUSE file system, which never answers a close: even a killed process
/// blocks in it.
// Covers: MT-219
#[test]
#[ignore = "./test attack"]
fn files_of_a_hostile_file_system() {
    for (name, count) in [("fuse, one descriptor", "1"), ("fuse", "5000")] {
        let attack = beside_memory_that_never_comes(name, "fuse", &[count]);
        let Some((stage, attackers)) = attack else { return };
        stage.close_beside(attackers);
    }
}

/// An attacker receives the signals of a transfer machine into a page of a file of its file system,
/// which never delivers the page: the helper, which sends them, does not wait for the receiver, and
/// ends on request.
// Covers: MT-219
#[test]
#[ignore = "./test attack"]
fn signals_received_in_memory_that_never_comes() {
    let Some((stage, attackers)) = signals_in_memory_that_never_comes() else { return };
    stage.close_beside(attackers);
}

/// A helper that is killed while signals are received into such a page ends, and its successor
/// serves.
#[test]
#[ignore = "./test attack"]
fn a_helper_that_is_killed_beside_such_signals_ends() {
    let Some((stage, attackers)) = signals_in_memory_that_never_comes() else { return };
    the_next_one_serves(stage, attackers);
}

/// An attacker watches descriptors that the helper shares with clients, mainly doorbells, by an
/// epoll set. A wait for the set blocks on a page that never arrives, and holds the lock of the
/// set. The helper, which closes shared descriptors last, ends on request all the same.
#[test]
#[ignore = "./test attack"]
fn shared_descriptors_watched_from_memory_that_never_comes() {
    let Some((stage, attackers)) = watches_from_memory_that_never_comes() else { return };
    stage.close_beside(attackers);
}

/// A helper that is killed while the lock of a set that watches its descriptors is held ends, and
/// its successor serves.
#[test]
#[ignore = "./test attack"]
fn a_helper_that_is_killed_beside_such_watches_ends() {
    let Some((stage, attackers)) = watches_from_memory_that_never_comes() else { return };
    the_next_one_serves(stage, attackers);
}

/// Everything that such watches have kept is released when their process ends.
#[test]
#[ignore = "./test attack"]
fn such_watches_leave_nothing() {
    let Some((stage, attackers)) = watches_from_memory_that_never_comes() else { return };
    stage.close(attackers);
}

/// Answers have shared descriptors, too: an answer to a closed socket, and one that waits for room
/// while its client leaves. Neither has a descriptor whose last close is the helper's.
#[test]
#[ignore = "./test attack"]
fn answers_with_such_descriptors() {
    for (name, clients, how) in [("watches, no answer", "64", "gone"), ("watches, unread", "1", "unread")] {
        let attack = beside_memory_that_never_comes(name, "fuse-watch", &[clients, how]);
        let Some((mut stage, attackers)) = attack else { return };
        stage.everybody_is_served();
        stage.close_beside(attackers);
    }
}

/// Kills the helper during the attack, and checks that its successor serves, and that nothing is
/// left when the attackers end.
fn the_next_one_serves(stage: Stage, attackers: Vec<Attacker>) {
    let helper = stage.kill_helper();
    helper.client("of the next one").sync().unwrap();
    attackers.into_iter().for_each(Attacker::kill);
    helper.is_clean();
}

/// Returns the number of a user's descriptors that are not closed yet.
fn pending_closes(stage: &Stage, user: User) -> u64 {
    let status = stage.helper.status();
    let users = status["users"].as_array().unwrap().iter();
    let pending = users.filter(|found| found["uid"] == u64::from(user.uid()));
    pending.map(|user| user["held"]["pending_closes"].as_u64().unwrap_or(0)).sum()
}

/// Starts the attack, and checks that all users are served during it.
fn watches_from_memory_that_never_comes() -> Option<(Stage, Vec<Attacker>)> {
    let attack = beside_memory_that_never_comes("fuse, watches", "fuse-watch", &["500", "leave"])?;
    hung_unless("closes that do not return are the attacker's", || {
        pending_closes(&attack.0, User::Attacker(0)) > 0
    });
    Some(attack)
}

/// Starts the attack, and checks that all users are served during it.
fn signals_in_memory_that_never_comes() -> Option<(Stage, Vec<Attacker>)> {
    beside_memory_that_never_comes("fuse, under signals", "fuse-bell", &[])
}

/// Starts an attack with a FUSE mount, and checks that all users are served during it.
fn beside_memory_that_never_comes(
    name: &'static str,
    attack: &str,
    more: &[&str],
) -> Option<(Stage, Vec<Attacker>)> {
    let mut stage = Stage::new(name).config(PERMISSIVE).open()?;
    let fuse = match Fuse::within(stage.helper.folder()) {
        Ok(fuse) => fuse,
        Err(reason) => {
            nlx_skip::skipped(&format!("the attack '{name}'"), &reason);
            return None;
        }
    };
    let attackers = stage.attack(&[(User::Attacker(0), &fuse.args(attack, more))]);
    stage.everybody_is_served();
    Some((stage, attackers))
}

/// More users than are needed to occupy all carriers except each user's first one, each with files
/// whose `close` never returns: descriptors of other users are closed.
#[test]
#[ignore = "./test attack"]
fn carriers_of_many_users() {
    let Some(mut stage) = Stage::new("carriers of many users").config(PERMISSIVE).open() else { return };
    let fuse = match Fuse::within(stage.helper.folder()) {
        Ok(fuse) => fuse,
        Err(reason) => return nlx_skip::skipped("the attack 'carriers of many users'", &reason),
    };
    // Each attacker mounts in a separate mount namespace.
    let args = fuse.args("fuse", &["100"]);
    let attacks: Vec<(User, &[&str])> =
        (0..CARRIER_USERS).map(|number| (User::Attacker(number), &args[..])).collect();
    let attackers = stage.attack(&attacks);
    stage.everybody_is_served();
    // The descriptors of honest users are closed during the attack.
    for user in [User::Newcomer, User::Honest] {
        hung_unless("what they shared is closed", || pending_closes(&stage, user) == 0);
    }
    stage.close(attackers);
}

/// A helper that is killed during both descriptor attacks ends, and its successor gets its port,
/// its lock and its socket at once.
#[test]
#[ignore = "./test attack"]
fn a_helper_that_is_killed_leaves_its_place() {
    let Some(mut stage) = Stage::new("killed beside descriptors").config(PERMISSIVE).open() else { return };
    let mut attackers = stage.attack(&[(User::Attacker(1), &["linger", "2000"])]);
    match Fuse::within(stage.helper.folder()) {
        Ok(fuse) => {
            let args = fuse.args("fuse", &["1000"]);
            attackers.extend(stage.attack(&[(User::Attacker(2), &args)]));
        }
        Err(reason) => nlx_skip::skipped("a helper killed beside files of a hostile file system", &reason),
    }
    stage.everybody_is_served();
    the_next_one_serves(stage, attackers);
}

/// A porter that is killed while closes of descriptors never return, in carriers or in the porter,
/// is replaced: the new porter accepts clients.
#[test]
#[ignore = "./test attack"]
fn a_porter_that_is_killed_beside_descriptors_is_replaced() {
    for (name, attack, more) in [
        ("fuse, porter killed", "fuse", &["20"][..]),
        ("watches, porter killed", "fuse-watch", &["60", "leave"]),
    ] {
        let Some((mut stage, attackers)) = beside_memory_that_never_comes(name, attack, more) else { return };
        let porter = stage.helper.porter();
        nix::sys::signal::kill(porter, nix::sys::signal::Signal::SIGKILL).unwrap();
        stage.everybody_is_served();
        stage.close_beside(attackers);
    }
}
