//! The six kinds of operations.

use std::fmt;

/// The kind of an operation: Motr's queue types, with their values (motr-transport 2.5). The name
/// is historical: operations complete in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Queue {
    /// Receives unsolicited messages.
    MessageReceive = 0,
    /// Sends a message.
    MessageSend = 1,
    /// The peer writes into this buffer. The value travels in descriptors.
    PassiveBulkReceive = 2,
    /// The peer reads from this buffer. The value travels in descriptors.
    PassiveBulkSend = 3,
    /// This side reads the peer's passive-send buffer.
    ActiveBulkReceive = 4,
    /// This side writes into the peer's passive-receive buffer.
    ActiveBulkSend = 5,
}

impl Queue {
    /// Number of kinds.
    pub const COUNT: usize = 6;

    /// All kinds, in the order of their values.
    pub const ALL: [Queue; Queue::COUNT] = [
        Queue::MessageReceive,
        Queue::MessageSend,
        Queue::PassiveBulkReceive,
        Queue::PassiveBulkSend,
        Queue::ActiveBulkReceive,
        Queue::ActiveBulkSend,
    ];

    /// Returns the queue with this value, if there is one.
    #[must_use]
    pub fn from_value(value: u32) -> Option<Queue> {
        Queue::ALL.get(value as usize).copied()
    }

    /// Returns the queue's value, which is also its index in [`Queue::ALL`].
    #[must_use]
    pub const fn value(self) -> u32 {
        self as u32
    }

    /// Returns the queue's index in a table of [`Queue::COUNT`] entries.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns whether data comes into the buffer; the event then has its length.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Queue::MessageReceive | Queue::PassiveBulkReceive | Queue::ActiveBulkReceive)
    }

    /// Returns whether the buffer waits for a peer's PUT or GET that names it by its descriptor.
    #[must_use]
    pub const fn is_passive(self) -> bool {
        matches!(self, Queue::PassiveBulkReceive | Queue::PassiveBulkSend)
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Queue::MessageReceive => "message receive",
            Queue::MessageSend => "message send",
            Queue::PassiveBulkReceive => "passive bulk receive",
            Queue::PassiveBulkSend => "passive bulk send",
            Queue::ActiveBulkReceive => "active bulk receive",
            Queue::ActiveBulkSend => "active bulk send",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_indices_agree() {
        for (index, queue) in Queue::ALL.into_iter().enumerate() {
            assert_eq!((queue.value() as usize, queue.index()), (index, index));
            assert_eq!(Queue::from_value(queue.value()), Some(queue));
        }
        for value in [Queue::COUNT as u32, u32::MAX] {
            assert_eq!(Queue::from_value(value), None);
        }
    }

    #[test]
    fn three_receive_and_two_are_passive() {
        let receiving = Queue::ALL.into_iter().filter(|queue| queue.receives());
        assert!(receiving.eq([Queue::MessageReceive, Queue::PassiveBulkReceive, Queue::ActiveBulkReceive]));
        let passive = Queue::ALL.into_iter().filter(|queue| queue.is_passive());
        assert!(passive.eq([Queue::PassiveBulkReceive, Queue::PassiveBulkSend]));
    }
}
