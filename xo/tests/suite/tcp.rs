//! Over TCP, from node to node.

use crate::bed::{Pair, World, partitions_of};

fn world() -> World {
    World::tcp(partitions_of(module_path!()))
}

fn pair() -> Pair {
    Pair::on(world())
}

mod bulk;
mod end_points;
mod life;
mod messages;
mod pings;
mod statistics;
mod stopping;
mod taking;
mod timeouts;
mod gone;
mod trouble;
