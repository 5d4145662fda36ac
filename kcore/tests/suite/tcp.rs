//! Over TCP, from node to node.

use crate::bed::{Pair, partitions_of};

const PARTITIONS: usize = partitions_of(module_path!());

fn pair() -> Pair {
    Pair::over_tcp(PARTITIONS)
}

mod deadlines;
mod held_messages;
mod pairs;
