//! The rules by which the threads of a transfer machine agree: a pair of memory orderings, or what one hold of a lock covers. Each has
//! a name at all its places, and each is broken by a model, to show that the models would notice.
//!
//! The registry of addresses and the store of random numbers keep locks of their own, which no model looks into.

use nlx_sync::Rule;

/// SYNC buffer.association: what an operation has done to its buffer → whoever has the buffer next, be it an operation of
/// another transfer machine or nobody any more.
pub(crate) const ASSOCIATION: Rule = Rule::new("buffer.association");
/// SYNC kcore.bell: news and a sleeper in the making are both followed by a full fence before the other side's word is
/// read, so at least one of the two sees the other.
pub(crate) const BELL: Rule = Rule::new("kcore.bell");
/// SYNC kcore.note: noting an operation's MD and looking whether it was cancelled or doomed are one hold of the producer lock,
/// so either a cancel, or the wake-up after an event that doomed it, finds the MD, or the thread that notes it finds that.
pub(crate) const NOTE: Rule = Rule::new("kcore.note");
/// SYNC kcore.leave: an operation leaves its buffer before its last event is produced, so who has taken that event finds the
/// buffer free.
pub(crate) const LEAVE: Rule = Rule::new("kcore.leave");
/// SYNC kcore.stop: the last look for operations and the refusal of new ones are one hold of the lock of the ring.
pub(crate) const STOP: Rule = Rule::new("kcore.stop");

/// SYNC kcore.news: that there is news is noted under the producer lock, after the event; who finds the note and takes it
/// away rings after that, and so for all events noted until then. So of several threads with events one may ring for all.
pub(crate) const NEWS: Rule = Rule::new("kcore.news");

/// SYNC kcore.doom: the word that tells of doomed operations is cleared before they are looked for, so one that is doomed
/// after the look is told of again.
pub(crate) const DOOM: Rule = Rule::new("kcore.doom");

/// SYNC kcore.unnamed: an operation that is doomed before its MD is noted stays doomed, so the thread that notes the MD finds
/// that.
pub(crate) const UNNAMED: Rule = Rule::new("kcore.unnamed");

/// SYNC kcore.remains: what a dropped transfer machine leaves is set before it is first cleared, so either that finds LNet
/// without an MD, or the wake-up after the last event finds what is left.
pub(crate) const REMAINS: Rule = Rule::new("kcore.remains");

/// SYNC kcore.loss: a lost message is counted before the waiter is told that there is news, so who takes the news finds it
/// counted.
pub(crate) const LOSS: Rule = Rule::new("kcore.loss");
