//! Over `0@lo`: the engine delivers inside the calls.

use crate::bed::{Pair, partitions_of};

const PARTITIONS: usize = partitions_of(module_path!());

fn pair() -> Pair {
    Pair::over_loopback(PARTITIONS)
}

mod at_once;
mod held_messages;
mod pairs;
