//! Over one node, with callbacks.

use crate::bed::{Pair, World};

fn world() -> World {
    World::named(module_path!())
}

fn pair() -> Pair {
    Pair::on(world())
}

mod bulk;
mod end_points;
mod large;
mod messages;
mod pings;
mod statistics;
mod stopping;
mod timeouts;
mod trouble;
