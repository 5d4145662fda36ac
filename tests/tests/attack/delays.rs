//! Clients that delay single system calls of the helper.

use crate::people::User;
use crate::stage::Stage;
use crate::support::peer::hung_unless;

/// Runs an attack during honest work, and checks that the helper pauses the attacker, because it
/// delays a thread: it is not served for a time.
fn rests(name: &'static str, attack: &[&str]) {
    let Some(mut stage) = Stage::new(name).open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), attack)]);
    hung_unless("the attacker rests", || stage.helper.number("/door/rested") > 0);
    stage.honest_work_goes_on();
    // The attacker is still served, but rarely.
    attackers[0].did();
    stage.everybody_is_served();
    stage.close(attackers);
}

/// Runs an attack during honest work, and checks that both continue.
fn goes_on(name: &'static str, attack: &[&str]) {
    let Some(mut stage) = Stage::new(name).open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), attack)]);
    stage.honest_work_goes_on();
    attackers[0].did();
    stage.everybody_is_served();
    stage.close(attackers);
}

/// Each answer wakes hundreds of thousands of watches on the client's socket.
#[test]
#[ignore = "./test attack"]
fn a_socket_with_very_many_watches() {
    rests("watches", &["watches", "8000", "100"]);
}

/// Each message from another node wakes hundreds of thousands of watches on the descriptor of the
/// client's transfer machine. The time is charged to the client's user, although messages do not
/// come in its turn, and the wake-up is not made for each message.
#[test]
#[ignore = "./test attack"]
fn a_machine_with_very_many_watches() {
    let Some(mut stage) = Stage::new("watches, machine").afar().open() else { return };
    let mut attackers = stage.attack(&[(User::Attacker(0), &["machine-watches", "8000", "100"])]);
    let machine = attackers[0].words.rsplit(' ').next().unwrap().to_string();
    let address = stage.helper.nid_text();
    attackers.push(stage.start_afar(User::Attacker(1), &["sends", &machine, &address]));
    attackers[1].wait();
    hung_unless("the attacker rests", || stage.helper.number("/door/rested") > 0);
    stage.honest_work_goes_on();
    // Messages to it still arrive.
    attackers[1].did();
    attackers[1].did();
    stage.everybody_is_served();
    stage.close(attackers);
}

/// The first page of a ring is punched out without end, and must be removed from very many mappings
/// each time: the helper does not access it, because it is not sealed.
#[test]
#[ignore = "./test attack"]
fn a_shared_page_with_very_many_mappings() {
    let Some(mut stage) = Stage::new("shared page").open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["shared-page", "50000"])]);
    stage.honest_work_goes_on();
    attackers[0].did();
    stage.everybody_is_served();
    assert_eq!(stage.helper.number("/door/rested"), 0, "no thread was delayed");
    stage.close(attackers);
}

/// Arenas that were never sealed are left behind while their pages are punched out: the helper
/// seals them before it unmaps them, separately from other memory.
#[test]
#[ignore = "./test attack"]
fn arenas_that_are_left_while_pages_are_taken_away() {
    goes_on("left arenas", &["left-arena", "2000"]);
}

/// Pages of sealed arenas are moved, which the seal does not prevent: messages that need them wait,
/// and their user rests if that is long.
#[test]
#[ignore = "./test attack"]
fn arenas_whose_pages_are_moved() {
    goes_on("moved arenas", &["moved-arena"]);
}
