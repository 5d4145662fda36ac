//! Between two nodes, without callbacks.

use crate::bed::{Pair, World};

fn world() -> World {
    World::named(module_path!())
}

fn pair() -> Pair {
    Pair::on(world())
}

mod awaiting;
mod bulk;
mod calling;
mod drops;
mod end_points;
mod gone;
mod large;
mod life;
mod messages;
mod pings;
mod provisioned;
mod several;
mod statistics;
mod stopping;
mod taking;
mod timeouts;
mod trouble;
