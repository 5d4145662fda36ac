//! Whole TCP nodes under trouble: hundreds of seeds end well, and every kind of trouble occurs
//! among them.

mod harness;

use lnet_sim::Worlds;
use lnet_sim::tcp::TcpScenario;

/// The default number of runs, which the environment can override.
const SEEDS: u64 = 100;

/// For every order of events, nodes of real engines and real TCP LNDs deliver each payload once or
/// not at all, end each operation once, keep the rules of connections, and reach each other again.
// Covers: S-109, S-201, S-202, S-203, S-204, S-205, S-206, S-207, S-208, S-209, S-210, S-310, S-312
#[test]
fn seeds() {
    harness::check_seeds::<TcpScenario>((SEEDS, TcpScenario::STEPS));
}

#[test]
fn a_seed_gives_the_same_run_again() {
    harness::check_repeats::<TcpScenario>((10, 100));
}
