//! A ring of idle items: first in, first out, of fixed capacity.

/// A ring with a fixed capacity.
#[derive(Debug, Clone)]
pub(super) struct Ring<T> {
    slots: Box<[Option<T>]>,
    first: usize,
    count: usize,
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize) -> Ring<T> {
        Ring { slots: (0..capacity).map(|_| None).collect(), first: 0, count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Appends a value; returns it if the ring is full.
    pub(super) fn push(&mut self, value: T) -> Result<(), T> {
        if self.count == self.slots.len() {
            return Err(value);
        }
        let at = (self.first + self.count) % self.slots.len();
        self.slots[at] = Some(value);
        self.count += 1;
        Ok(())
    }

    /// Removes and returns the oldest value.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.count == 0 {
            return None;
        }
        let value = self.slots[self.first].take();
        self.first = (self.first + 1) % self.slots.len();
        self.count -= 1;
        value
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const CAPACITY: usize = 0x1000;

    /// One value.
    // Covers: MT-132
    #[test]
    fn one() {
        let mut ring = Ring::new(CAPACITY);
        ring.push(42).unwrap();
        assert_eq!((ring.len(), ring.pop(), ring.len(), ring.pop()), (1, Some(42), 0, None));
    }

    /// A full ring, in order.
    // Covers: MT-133
    #[test]
    fn full() {
        let mut ring = Ring::new(CAPACITY);
        for value in 0..CAPACITY {
            ring.push(value).unwrap();
            assert_eq!(ring.len(), value + 1);
        }
        assert_eq!(ring.push(CAPACITY), Err(CAPACITY));
        for value in 0..CAPACITY {
            assert_eq!((ring.pop(), ring.len()), (Some(value), CAPACITY - value - 1));
        }
    }

    /// One value less than the capacity, 16 times, across the end.
    // Covers: MT-134
    #[test]
    fn wrap() {
        let mut ring = Ring::new(CAPACITY);
        for round in 0..16 {
            (0..CAPACITY - 1).for_each(|value| ring.push(round * CAPACITY + value).unwrap());
            assert!((0..CAPACITY - 1).all(|value| ring.pop() == Some(round * CAPACITY + value)));
        }
        assert_eq!(ring.len(), 0);
    }

    proptest! {
        // Covers: MT-132, MT-133, MT-134
        #[test]
        fn it_is_a_queue(capacity in 0..8_usize, steps: Vec<Option<u32>>) {
            let (mut ring, mut model) = (Ring::new(capacity), VecDeque::new());
            for step in steps {
                match step {
                    Some(value) if model.len() < capacity => {
                        model.push_back(value);
                        prop_assert_eq!(ring.push(value), Ok(()));
                    }
                    Some(value) => prop_assert_eq!(ring.push(value), Err(value)),
                    None => prop_assert_eq!(ring.pop(), model.pop_front()),
                }
                prop_assert_eq!(ring.len(), model.len());
            }
        }
    }
}
