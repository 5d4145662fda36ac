//! Descriptors that are not memory of a helper, and whose `close` blocks.

use crate::fuse::Fuse;
use crate::people::{Attacker, User};
use crate::stage::Stage;
use crate::support::peer::hung_unless;

/// Descriptors come, as they do before Linux 6.16.
const PERMISSIVE: &str = "let_descriptors_pass = true\n";

/// Users that occupy carriers: 15 of them as many as a user may, the others what is left, and their first ones.
const CARRIER_USERS: u32 = 24;

/// TCP sockets with a linger time of an hour and unsent data, more than any queue of the helper holds: the helper goes on, and
/// ends when it is asked.
// Covers: MT-219
#[test]
#[ignore = "./test attack"]
fn sockets_that_linger() {
    let Some(mut stage) = Stage::new("linger").config(PERMISSIVE).of_any_user().open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["linger", "5000"])]);
    stage.everybody_is_served();
    stage.close_beside(attackers);
}

/// One such socket does not keep the sockets of others from being closed.
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

/// A file of the attacker's own FUSE file system, which never answers a close: not even a killed process gets past that.
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

/// Signals of a transfer machine received in a page of such a file, which is never answered for: the helper, which sends them,
/// does not wait for who receives, and ends when it is asked.
// Covers: MT-219
#[test]
#[ignore = "./test attack"]
fn signals_received_in_memory_that_never_comes() {
    let Some((stage, attackers)) = signals_in_memory_that_never_comes() else { return };
    stage.close_beside(attackers);
}

/// The same for a helper that is killed.
#[test]
#[ignore = "./test attack"]
fn a_helper_that_is_killed_beside_such_signals_ends() {
    let Some((stage, attackers)) = signals_in_memory_that_never_comes() else { return };
    the_next_one_serves(stage, attackers);
}

/// What the helper shares with clients, their doorbells above all, watched by an epoll set whose lock is held as long as such a page
/// does not come: the helper, which closes what is shared last, ends all the same when it is asked.
#[test]
#[ignore = "./test attack"]
fn shared_descriptors_watched_from_memory_that_never_comes() {
    let Some((stage, attackers)) = watches_from_memory_that_never_comes() else { return };
    stage.close_beside(attackers);
}

/// The same for a helper that is killed.
#[test]
#[ignore = "./test attack"]
fn a_helper_that_is_killed_beside_such_watches_ends() {
    let Some((stage, attackers)) = watches_from_memory_that_never_comes() else { return };
    the_next_one_serves(stage, attackers);
}

/// All that such watches have kept is given back when their process ends.
#[test]
#[ignore = "./test attack"]
fn such_watches_leave_nothing() {
    let Some((stage, attackers)) = watches_from_memory_that_never_comes() else { return };
    stage.close(attackers);
}

/// What is shared is in answers, too: one that finds nobody, and one that waits for room while its client leaves. Neither keeps a
/// descriptor that the helper would close last.
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

/// The helper is killed beside attackers: another one serves in its place, and nothing is left when they end.
fn the_next_one_serves(stage: Stage, attackers: Vec<Attacker>) {
    let helper = stage.kill_helper();
    helper.client("of the next one").sync().unwrap();
    attackers.into_iter().for_each(Attacker::kill);
    helper.is_clean();
}

/// Descriptors of a user that are not closed yet.
fn pending_closes(stage: &Stage, user: User) -> u64 {
    let status = stage.helper.status();
    let users = status["users"].as_array().unwrap().iter();
    let pending = users.filter(|found| found["uid"] == u64::from(user.uid()));
    pending.map(|user| user["held"]["pending_closes"].as_u64().unwrap_or(0)).sum()
}

/// The attack, beside which everybody is served.
fn watches_from_memory_that_never_comes() -> Option<(Stage, Vec<Attacker>)> {
    let attack = beside_memory_that_never_comes("fuse, watches", "fuse-watch", &["500", "leave"])?;
    hung_unless("closes that do not return are the attacker's", || {
        pending_closes(&attack.0, User::Attacker(0)) > 0
    });
    Some(attack)
}

/// The attack, beside which everybody is served.
fn signals_in_memory_that_never_comes() -> Option<(Stage, Vec<Attacker>)> {
    beside_memory_that_never_comes("fuse, under signals", "fuse-bell", &[])
}

/// An attack with a FUSE mount, beside which everybody is served.
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

/// More users than it takes to occupy all carriers but those that are a user's first, each with files whose `close` never returns: what
/// others leave is closed.
#[test]
#[ignore = "./test attack"]
fn carriers_of_many_users() {
    let Some(mut stage) = Stage::new("carriers of many users").config(PERMISSIVE).open() else { return };
    let fuse = match Fuse::within(stage.helper.folder()) {
        Ok(fuse) => fuse,
        Err(reason) => return nlx_skip::skipped("the attack 'carriers of many users'", &reason),
    };
    // Each mounts its own there, which nobody else sees.
    let args = fuse.args("fuse", &["100"]);
    let attacks: Vec<(User, &[&str])> =
        (0..CARRIER_USERS).map(|number| (User::Attacker(number), &args[..])).collect();
    let attackers = stage.attack(&attacks);
    stage.everybody_is_served();
    // What honest users leave is closed meanwhile.
    for user in [User::Newcomer, User::Honest] {
        hung_unless("what they shared is closed", || pending_closes(&stage, user) == 0);
    }
    stage.close(attackers);
}

/// Killed beside both kinds of descriptors, the helper ends, and another one has its port, its lock and its socket at once.
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

/// The porter is killed beside descriptors whose close never returns, in carriers or its own: another one lets clients in.
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
