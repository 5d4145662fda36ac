//! The rules by which threads hand shards over, and agree who keeps watch. A model breaks each of
//! them.

use nlx_sync::Rule;

/// SYNC watch.rest: a scheduler thread says that it rests before it looks whether anybody keeps watch.
pub(crate) const REST: Rule = Rule::new("watch.rest");

/// SYNC watch.leave: a scheduler thread that leaves the watch wakes another one.
pub(crate) const LEAVE: Rule = Rule::new("watch.leave");

/// SYNC watch.release: who lets go of a shard wakes the scheduler thread that keeps watch without a timer.
pub(crate) const RELEASE: Rule = Rule::new("watch.release");

/// SYNC watch.rouse: a waiter that wakes up, and has several shards, does so too: it may stay away
/// from all but one.
pub(crate) const ROUSE: Rule = Rule::new("watch.rouse");

/// SYNC tokens.hand-over: what a shard's last driver did is seen by its next one.
pub(crate) const HAND_OVER: Rule = Rule::new("tokens.hand-over");

/// SYNC tokens.claim: a free or left token is looked at and claimed in one step.
pub(crate) const CLAIM: Rule = Rule::new("tokens.claim");

/// SYNC tokens.take: the same for a waiter that takes it.
pub(crate) const TAKE: Rule = Rule::new("tokens.take");

/// SYNC tokens.begin: before each poll a waiter makes sure that the token is still its own, in one
/// step with the change that keeps other threads from taking it.
pub(crate) const BEGIN: Rule = Rule::new("tokens.begin");

/// SYNC tokens.doze: before a waiter sleeps on a shard it does the same.
pub(crate) const DOZE: Rule = Rule::new("tokens.doze");

/// SYNC wait.share: a waiter that has had work on several shards for long gives half of them away.
pub(crate) const SHARE: Rule = Rule::new("wait.share");

/// SYNC tokens.give: a waiter gives a shard to its scheduler thread in one step.
pub(crate) const GIVE: Rule = Rule::new("tokens.give");

/// SYNC tokens.call: it wakes the scheduler thread afterwards, not before.
pub(crate) const CALL: Rule = Rule::new("tokens.call");

/// SYNC tokens.claim-given: the scheduler thread claims in one step what it was given, for another waiter
/// may take it.
pub(crate) const CLAIM_GIVEN: Rule = Rule::new("tokens.claim-given");

/// SYNC tokens.drop: a waiter lets go of a token in one step, if the token is still its own.
pub(crate) const DROP: Rule = Rule::new("tokens.drop");

/// SYNC tokens.wake: the thread that frees a token wakes a waiter that lacks one.
pub(crate) const WAKE: Rule = Rule::new("tokens.wake");

/// SYNC tokens.pass-on: a waiter that leaves the list wakes the next one if a token is free.
pub(crate) const PASS_ON: Rule = Rule::new("tokens.pass-on");

/// SYNC tokens.waiters: freeing a token and enlisting are both followed by a full fence before the
/// other side's word is read. So the releasing thread sees the waiter, or the waiter sees the token
/// free.
pub(crate) const WAITERS: Rule = Rule::new("tokens.waiters");

/// SYNC tokens.listeners: the same for those who only listen.
pub(crate) const LISTENERS: Rule = Rule::new("tokens.listeners");

/// SYNC tokens.scheduler thread: a waiter that enlists calls the scheduler threads on duty off. Either it sees the
/// scheduler thread on duty, or that scheduler thread sees the waiter.
pub(crate) const STEWARD: Rule = Rule::new("tokens.sched_thread");
