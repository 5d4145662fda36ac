//! All tests of the engine. They are compiled once for each number of partitions, which is the end
//! of this module's name.

/// The CPU partitions of the engines under test.
pub(crate) const PARTITIONS: usize = {
    let name = module_path!().as_bytes();
    (name[name.len() - 1] - b'0') as usize
};

mod chaos;
mod common;
mod credits;
mod direct;
mod dropped;
mod failures;
mod faults;
mod hostile;
mod insertion;
mod interfaces;
mod lazy;
mod limits;
mod loopback;
mod matching;
mod model;
mod nearest;
mod objects;
mod one_call;
mod parallel;
mod partitions;
mod ping;
mod queues;
mod recorded;
mod refusals;
mod statistics;
mod targets;
mod threads;
mod transfer;
mod unlink;
mod validation;
