//! Clients that make single system calls of the helper long.

use crate::people::User;
use crate::stage::Stage;
use crate::support::peer::hung_unless;

/// Runs this attack beside honest work. A user that holds up a thread rests.
fn rests(name: &'static str, attack: &[&str]) {
    let Some(mut stage) = Stage::new(name).open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), attack)]);
    hung_unless("the attacker rests", || stage.helper.number("/door/rested") > 0);
    stage.honest_work_goes_on();
    // It is served still, but seldom.
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

/// The first page of a ring is taken away without end, and has to be taken out of very many mappings each time: the helper does not
/// touch it, for it is not sealed.
#[test]
#[ignore = "./test attack"]
fn a_shared_page_with_very_many_mappings() {
    let Some(mut stage) = Stage::new("shared page").open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["shared-page", "50000"])]);
    stage.honest_work_goes_on();
    attackers[0].did();
    stage.everybody_is_served();
    assert_eq!(stage.helper.number("/door/rested"), 0, "nobody was held up");
    stage.close(attackers);
}
