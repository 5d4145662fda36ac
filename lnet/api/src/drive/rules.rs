//! The rules for handing shards over between threads, and for the scheduler threads' watch. For
//! each rule there is a model that fails without it.

use nlx_sync::Rule;

/// SYNC watch.rest: a scheduler thread announces that it rests before it checks whether another
/// keeps watch.
pub(crate) const REST: Rule = Rule::new("watch.rest");

/// SYNC watch.leave: a scheduler thread that leaves the watch wakes another one.
pub(crate) const LEAVE: Rule = Rule::new("watch.leave");

/// SYNC watch.release: a thread that releases a shard wakes the scheduler thread that keeps watch
/// without a timer.
pub(crate) const RELEASE: Rule = Rule::new("watch.release");

/// SYNC watch.rouse: a waiter that wakes up with several shards also wakes that scheduler thread,
/// as it may not poll all of them again.
pub(crate) const ROUSE: Rule = Rule::new("watch.rouse");

/// SYNC tokens.hand-over: a shard's next driver sees the writes of its last one.
pub(crate) const HAND_OVER: Rule = Rule::new("tokens.hand-over");

/// SYNC tokens.claim: a free or left token is checked and claimed in one step.
pub(crate) const CLAIM: Rule = Rule::new("tokens.claim");

/// SYNC tokens.take: a waiter checks and takes a token in one step.
pub(crate) const TAKE: Rule = Rule::new("tokens.take");

/// SYNC tokens.begin: before each poll a waiter verifies that the token is still its own, in one
/// step with the change that keeps other threads from taking it.
pub(crate) const BEGIN: Rule = Rule::new("tokens.begin");

/// SYNC tokens.doze: before a waiter sleeps on a shard it verifies the token in the same way.
pub(crate) const DOZE: Rule = Rule::new("tokens.doze");

/// SYNC wait.share: a waiter that has had work on several shards for a millisecond gives half of
/// them to other threads.
pub(crate) const SHARE: Rule = Rule::new("wait.share");

/// SYNC tokens.give: a waiter gives a shard to its scheduler thread in one step.
pub(crate) const GIVE: Rule = Rule::new("tokens.give");

/// SYNC tokens.call: the waiter wakes the scheduler thread after the giving, not before.
pub(crate) const CALL: Rule = Rule::new("tokens.call");

/// SYNC tokens.claim-given: the scheduler thread claims a token that it was given in one step,
/// because another waiter may take it.
pub(crate) const CLAIM_GIVEN: Rule = Rule::new("tokens.claim-given");

/// SYNC tokens.drop: a waiter releases a token in one step, if the token is still its own.
pub(crate) const DROP: Rule = Rule::new("tokens.drop");

/// SYNC tokens.wake: the thread that frees a token wakes a waiter that lacks one.
pub(crate) const WAKE: Rule = Rule::new("tokens.wake");

/// SYNC tokens.pass-on: a waiter that leaves the list wakes the next one if a token is free.
pub(crate) const PASS_ON: Rule = Rule::new("tokens.pass-on");

/// SYNC tokens.waiters: freeing a token and joining the list of waiters are both followed by a full
/// fence before the other side's word is read. So the releasing thread sees the waiter, or the
/// waiter sees the token free.
pub(crate) const WAITERS: Rule = Rule::new("tokens.waiters");

/// SYNC tokens.listeners: as `tokens.waiters`, for the list of listeners.
pub(crate) const LISTENERS: Rule = Rule::new("tokens.listeners");

/// SYNC tokens.sched_thread: a waiter that joins the list calls off the scheduler threads on duty.
/// Either it sees the scheduler thread on duty, or that scheduler thread sees the waiter.
pub(crate) const SCHED_THREAD: Rule = Rule::new("tokens.sched_thread");
