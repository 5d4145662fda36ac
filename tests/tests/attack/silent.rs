//! Peers that do not read.

use crate::people::User;
use crate::stage::Stage;
use crate::support::peer::PORT;

/// Blocked messages remain blocked for the whole test, and become blocked soon.
const CONFIG: &str = "[ksocklnd]\nsock_timeout = 600\ntx_buffer_size = 65536\n";

/// 40 NIDs of one host request more than all credits of the NI pay for, and read no answers: they
/// hold their address's share, further answers wait without credits, and messages to other peers
/// are still sent.
#[test]
#[ignore = "./test attack"]
fn peers_that_do_not_read() {
    let Some(mut stage) = Stage::new("silent peers").config(CONFIG).of_any_user().afar().open() else {
        return;
    };
    let attackers = stage.attack(&[(User::Attacker(0), &["silent", &PORT.to_string(), "40"])]);
    stage.everybody_is_served();
    // The NI after the loopback interface.
    let held_back = stage.helper.node_number("/nis/1/held_back");
    assert!(held_back > 0, "the attack was on all the while");
    stage.close(attackers);
}
