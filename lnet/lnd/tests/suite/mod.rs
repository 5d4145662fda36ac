//! Tests of the LND interface, for any kind of network.

mod ending;
mod exchange;
mod lazy;

use nlx_testkit::lnds::TestBed;

use crate::{Bed, Config, Node};

/// Runs a test on two nodes with these tunables and 1, 2 and 4 partitions, and checks that nothing
/// is left behind.
fn on_pairs(config: &Config, test: impl Fn(&Bed, [&Node; 2])) {
    for partitions in [1, 2, 4] {
        Bed::on_pair(&Config { partitions, ..config.clone() }, &test);
    }
}
