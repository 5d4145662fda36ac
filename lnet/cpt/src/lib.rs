//! CPU partitions: tables, patterns, partitioned locks, NUMA-aware memory, thread binding.
//!
//! A *CPU partition* (CPT) is a set of CPUs that share caches and memory. State that every message
//! touches is split by partition, so that a message is handled near its data and partitions do not
//! wait for one another. A [`CptTable`] maps CPUs to partitions; everything else here is indexed by
//! partition.
//!
//! This crate has no LNet concepts. The partition of a NID is computed in the crates that have
//! NIDs.
//!
//! ```
//! use lnet_cpt::{CptConfig, PercptLock, Topology, alloc_in, bind_thread, near, threads_for};
//!
//! // The tunables of this host, applied to the CPUs that this process may use.
//! let config: CptConfig = "cpu_npartitions=1".parse()?;
//! let table = config.create(Topology::machine()?)?;
//!
//! // A counter per partition; a thread that handles a message takes its partition's.
//! let messages = PercptLock::new(&table, |_cpt| 0u64, ());
//! let cpt = table.current(true).unwrap_or(0);
//! *messages.lock(cpt) += 1;
//! assert_eq!(messages.lock_all().parts_mut().map(|count| *count).sum::<u64>(), 1);
//!
//! // A pool of threads, each bound to the partition and with memory near it.
//! for _ in 0..threads_for(&table, cpt, 0) {
//!     bind_thread(&table, cpt)?;
//!     let buffer = alloc_in(&table, cpt, 64 * 1024)?;
//!     assert_eq!(buffer.len(), 64 * 1024);
//!     // Memory of the program's own allocator, when it is filled for the first time:
//!     let list: Vec<u64> = near(&table, cpt, || (0..100).collect());
//!     assert_eq!(list.len(), 100);
//! }
//! # Ok::<(), lnet_cpt::CptError>(())
//! ```
//!
//! The names in the first column are those of the design document behind S-301 to S-306.
//!
//! | C interface of the design document | here |
//! | --- | --- |
//! | `cfs_cpt_table_alloc`, `…_create`, `…_create_pattern` | [`CptTable::alloc`], [`create`](CptTable::create), [`create_pattern`](CptTable::create_pattern); from tunables [`CptConfig::create`] |
//! | `cfs_cpt_table_free` | dropping it |
//! | `cfs_cpt_set_cpu`, `…_cpumask`, `…_node`; `cfs_cpt_unset_…` | [`CptTable::set_cpu`], [`set_cpumask`](CptTable::set_cpumask), [`set_node`](CptTable::set_node); `unset_…` |
//! | `cfs_cpt_current` | [`CptTable::current`], which prefers the partition set by [`set_current`] or [`with_partition`] |
//! | `cfs_percpt_lock_alloc`, `cfs_percpt_lock`, with index −1 | [`PercptLock::new`], [`lock`](PercptLock::lock), [`lock_all`](PercptLock::lock_all) |
//! | the event queue's count per partition (S-311) | a plain number in the data of a [`PercptLock`], as in LNet's engine, which already holds the partition's lock |
//! | `cfs_cpt_malloc`, `cfs_cpt_vmalloc`, `cfs_page_cpt_alloc` | [`alloc_in`] for large blocks, [`near`] for memory of the program's allocator; both by [`PartitionMemory`] |
//! | `cfs_cpt_bind` | [`bind_thread`] |
//! | `cpu_npartitions`, `cpu_pattern` | [`CptConfig`], [`Pattern`], [`Estimate`] |
//! | `cpu_partition_table`, `cpu_partition_distance` | `Display` of [`CptTable`] and of [`Distances`] |
//!
//! Two modules use `unsafe`: `sys` (system calls that nix lacks) and `lock` (data that is shared
//! under any private lock and changed under all of them).

mod config;
mod current;
mod error;
mod estimate;
#[cfg(test)]
mod fake;
mod list;
mod lock;
mod memory;
mod pattern;
mod set;
mod sys;
mod table;
mod threads;
mod topology;

pub use config::{Conflict, CptConfig};
pub use current::{set_current, with_partition};
pub use error::CptError;
pub use estimate::Estimate;
pub use lock::{ExclusiveGuard, PercptLock, PrivateGuard};
pub use memory::{CptMemory, INTERLEAVED_BYTES, PartitionMemory, Placement, alloc_in, near};
pub use pattern::{Pattern, Without};
pub use set::{CoreSet, CpuSet, Kind, MAX_CPUS, MAX_NODES, NodeSet, NumberSet, OfCores, OfCpus, OfNodes};
pub use table::{CptTable, Distances, MAX_PARTITIONS};
pub use threads::{MAX_POOL_THREADS, bind_thread, threads_for};
pub use topology::{Cpu, LOCAL_DISTANCE, REMOTE_DISTANCE, Topology};
