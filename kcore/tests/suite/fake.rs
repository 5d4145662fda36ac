//! Over the fake LNet.

use crate::bed::{Bed, FakeWorld, partitions_of};

const PARTITIONS: usize = partitions_of(module_path!());

fn bed() -> Bed<FakeWorld> {
    Bed::new(FakeWorld::new(PARTITIONS))
}

mod accounting;
mod arguments;
mod batches;
mod buffers;
mod bulk;
mod cancelling;
mod cuts;
mod impossible;
mod inside;
mod lazy;
mod life;
mod losses;
mod messages;
mod orders;
mod refusals;
mod threads;
mod waiting;
