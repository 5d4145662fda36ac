//! The event sources of a shard's driver, and the queue of those that each poll checks.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use crate::shard_table::{ShardKey, ShardTable};

/// An entry that can be queued for the next poll.
pub trait Queued {
    /// Returns the flag that is set while the entry is queued; `None` for an entry that is never
    /// queued.
    fn queued(&mut self) -> Option<&mut bool>;
}

/// A [table](ShardTable) of the sources from which the system, or a device, reports events by key, and
/// the queue of entries that each poll checks because they have events, or may have.
pub struct EventSources<S> {
    table: ShardTable<S>,
    queue: VecDeque<ShardKey>,
}

impl<S> Deref for EventSources<S> {
    type Target = ShardTable<S>;

    fn deref(&self) -> &ShardTable<S> {
        &self.table
    }
}

impl<S> DerefMut for EventSources<S> {
    fn deref_mut(&mut self) -> &mut ShardTable<S> {
        &mut self.table
    }
}

impl<S: Queued> EventSources<S> {
    /// Makes an empty table for the shard with this number, which is below
    /// [`MAX_SHARDS`](lnet_api::MAX_SHARDS).
    pub fn new(shard: usize) -> EventSources<S> {
        EventSources { table: ShardTable::new(shard as u8), queue: VecDeque::new() }
    }

    /// Appends an entry to the queue, unless it is queued already or is never queued.
    pub fn enqueue(&mut self, key: ShardKey) {
        let Some(queued) = self.table.get_mut(key).and_then(S::queued) else { return };
        if !std::mem::replace(queued, true) {
            self.queue.push_back(key);
        }
    }

    /// Removes and returns the first key in the queue; its entry may be gone.
    pub fn dequeue(&mut self) -> Option<ShardKey> {
        let key = self.queue.pop_front()?;
        if let Some(queued) = self.table.get_mut(key).and_then(S::queued) {
            *queued = false;
        }
        Some(key)
    }

    /// Returns the queue, in order.
    pub fn queue(&self) -> &VecDeque<ShardKey> {
        &self.queue
    }
}

/// Defines, for variants of an enum, a method that returns the content if the value is that
/// variant, and one that returns a mutable reference.
///
/// ```
/// enum Source {
///     Conn(Box<u32>),
///     Vacant,
/// }
/// lnet_lnd::variants!(Source { conn, conn_mut: Conn(u32) });
/// assert_eq!(Source::Conn(Box::new(7)).conn(), Some(&7));
/// assert!(Source::Vacant.conn_mut().is_none());
/// ```
#[macro_export]
macro_rules! variants {
    ($of:ident { $($name:ident, $name_mut:ident: $variant:ident($holds:ty)),* $(,)? }) => {
        #[allow(dead_code, reason = "not each is needed both ways")]
        impl $of {
            $(
                pub(crate) fn $name(&self) -> Option<&$holds> {
                    match self {
                        $of::$variant(held) => Some(held),
                        _ => None,
                    }
                }

                pub(crate) fn $name_mut(&mut self) -> Option<&mut $holds> {
                    match self {
                        $of::$variant(held) => Some(held),
                        _ => None,
                    }
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Queued for Option<bool> {
        fn queued(&mut self) -> Option<&mut bool> {
            self.as_mut()
        }
    }

    #[test]
    fn an_entry_queues_once_at_a_time() {
        let mut sources = EventSources::new(3);
        let keys = [Some(false), None, Some(false)].map(|source| sources.insert(source));
        keys.into_iter().chain([keys[0]]).for_each(|key| sources.enqueue(key));
        assert_eq!(sources.queue(), &[keys[0], keys[2]]);
        assert_eq!(sources.dequeue(), Some(keys[0]));
        sources.enqueue(keys[0]);
        sources.remove(keys[2]);
        assert_eq!(
            [sources.dequeue(), sources.dequeue(), sources.dequeue()],
            [Some(keys[2]), Some(keys[0]), None]
        );
        assert_eq!(sources.get(keys[0]), Some(&Some(false)));
    }
}
