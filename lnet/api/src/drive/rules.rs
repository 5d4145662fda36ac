//! The rules by which stewards, and those who drive shards, agree who keeps watch. A model breaks each of them.

use nlx_sync::Rule;

/// SYNC watch.rest: a steward says that it rests before it looks whether anybody keeps watch.
pub(crate) const REST: Rule = Rule::new("watch.rest");

/// SYNC watch.leave: a steward that leaves the watch wakes another one.
pub(crate) const LEAVE: Rule = Rule::new("watch.leave");

/// SYNC watch.release: who lets go of a shard wakes the steward that keeps watch without a timer.
pub(crate) const RELEASE: Rule = Rule::new("watch.release");

/// SYNC watch.rouse: a waiter that wakes up, and has several shards, does so too: it may stay away from all but one.
pub(crate) const ROUSE: Rule = Rule::new("watch.rouse");
