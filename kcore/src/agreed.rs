//! The synchronisation rules of a transfer machine's threads: pairs of memory orderings, and
//! critical sections that a single lock acquisition must cover. Each rule has a name that appears
//! at all its places in the code. For each rule a model breaks it and must fail, which proves that
//! the models would detect a mistake.
//!
//! The registry of addresses and the store of random numbers have separate locks, which no model
//! covers.

use nlx_sync::Rule;

/// SYNC buffer.association: an operation's accesses to its buffer happen before those of the next
/// owner, which may be an operation of another transfer machine, or the deregistration.
pub(crate) const ASSOCIATION: Rule = Rule::new("buffer.association");
/// SYNC kcore.bell: noting news and creating a sleeper are each followed by a full fence before the
/// other side's word is read, so at least one of the two sees the other.
pub(crate) const BELL: Rule = Rule::new("kcore.bell");
/// SYNC kcore.note: storing an operation's MD and checking whether it is to be unlinked (cancelled,
/// or failed before it was sent) happen under one acquisition of the producer lock. So either a
/// cancel, or the wake-up after the event of the failure, finds the MD, or the thread that stores
/// the MD finds the flag.
pub(crate) const NOTE: Rule = Rule::new("kcore.note");
/// SYNC kcore.leave: an operation releases its buffer before its last event is produced, so a
/// thread that has taken that event finds the buffer free.
pub(crate) const LEAVE: Rule = Rule::new("kcore.leave");
/// SYNC kcore.stop: the last check for operations and the refusal of new ones happen under one
/// acquisition of the ring's lock.
pub(crate) const STOP: Rule = Rule::new("kcore.stop");

/// SYNC kcore.news: news is noted under the producer lock, after the event. The thread that takes
/// the note rings afterwards, and so covers all events noted until then: of several threads with
/// events, one may ring for all.
pub(crate) const NEWS: Rule = Rule::new("kcore.news");

/// SYNC kcore.unlink_due: the flag for MDs to unlink is cleared before the search for them, so an
/// operation that fails after the search sets the flag again.
pub(crate) const UNLINK_DUE: Rule = Rule::new("kcore.unlink_due");

/// SYNC kcore.unnamed: an operation that fails before its MD is stored keeps its flag, so the thread
/// that stores the MD finds it.
pub(crate) const UNNAMED: Rule = Rule::new("kcore.unnamed");

/// SYNC kcore.teardown: the leftovers of a dropped transfer machine are set before the first attempt
/// to clear them. So either that attempt finds LNet without an MD, or the wake-up after the last
/// event finds the leftovers.
pub(crate) const TEARDOWN: Rule = Rule::new("kcore.teardown");

/// SYNC kcore.loss: a lost message is counted before the waiter's news flag is set, so a thread
/// that takes the news finds the message counted.
pub(crate) const LOSS: Rule = Rule::new("kcore.loss");
