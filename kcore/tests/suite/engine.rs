//! Over the engine, on a network that the test controls.

use crate::bed::{Bed, EngineWorld, Pair, partitions_of};

const PARTITIONS: usize = partitions_of(module_path!());

fn bed() -> Bed<EngineWorld> {
    Bed::new(EngineWorld::new(PARTITIONS))
}

fn pair() -> Pair {
    Pair::over_memory(PARTITIONS)
}

mod accounting;
mod arguments;
mod batches;
mod buffers;
mod bulk;
mod cancelling;
mod cuts;
mod lazy;
mod life;
mod locks;
mod losses;
mod messages;
mod orders;
mod pairs;
mod races;
mod refusals;
mod waiting;
