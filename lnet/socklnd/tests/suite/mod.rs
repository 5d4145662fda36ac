//! The tests that run with every number of partitions.

mod calls;
mod exchange;
mod handshake;
mod held;
mod shards;
mod trouble;
mod tunables;
mod withdraw;
