//! The names of the pairs of memory orderings. The model tests weaken each end of a pair, and loom
//! must find the fault.

use nlx_sync::Rule;

/// SYNC bevq.put: the producer has written an event → the consumer reads it.
pub(crate) const PUT: Rule = Rule::new("bevq.put");
/// SYNC bevq.get: the consumer has copied an event out → the producer fills the slot again.
pub(crate) const GET: Rule = Rule::new("bevq.get");
/// SYNC bevq.grow: the consumer has linked slots in → the producer follows the links.
pub(crate) const GROW: Rule = Rule::new("bevq.grow");
