//! What every number of partitions must pass.

mod calls;
mod exchange;
mod handshake;
mod held;
mod shards;
mod trouble;
mod tunables;
mod withdraw;
