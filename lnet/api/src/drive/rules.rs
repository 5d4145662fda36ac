//! The rules by which stewards, and those who keep a shard, agree who keeps watch. A model breaks each of them.

use nlx_sync::Rule;

/// SYNC watch.rest: a steward says that it rests before it looks whether anybody keeps watch.
pub(crate) const REST: Rule = Rule::new("watch.rest");

/// SYNC watch.leave: a steward that leaves the watch wakes another one.
pub(crate) const LEAVE: Rule = Rule::new("watch.leave");

/// SYNC watch.release: who has kept a shard, and lets go of it, wakes the stewards.
pub(crate) const RELEASE: Rule = Rule::new("watch.release");
