//! Clients that leave with many resources.

use crate::people::User;
use crate::stage::Stage;

/// The number of departures to wait for.
const DEPARTURES: u32 = 5;

/// Clients with full quotas leave, again and again: honest work continues.
#[test]
#[ignore = "./test attack"]
fn clients_with_full_quotas_leave() {
    let Some(mut stage) = Stage::new("departures").open() else { return };
    let attackers = stage.attack(&[(User::Attacker(0), &["departures", "65536", "256"])]);
    stage.honest_work_goes_on_while(|| (0..DEPARTURES).for_each(|_| drop(attackers[0].did())));
    stage.everybody_is_served();
    stage.close(attackers);
}
