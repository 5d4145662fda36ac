//! Doubly linked lists through the objects of a table. The table is an [`nlx_sync::Slots`] (see
//! `slab`) or two of them side by side. The links are fields of the objects, so a list needs no
//! further memory and one object can be in several.

use std::ops::{Index, IndexMut};

use crate::slab::{NONE, some};

/// The neighbours of an object in one list. The hash index and the groups are lists too, so the
/// fields are visible in the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListLinks {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl ListLinks {
    /// The links of an object in no list, or alone in one.
    pub(crate) const NONE: ListLinks = ListLinks { prev: NONE, next: NONE };
}

/// An object that can be in a list; `L` is the number of the list, as one object can be in several
/// at the same time.
pub(crate) trait Linked<const L: usize> {
    /// Returns the links of list `L`.
    fn links(&self) -> ListLinks;
    /// Returns the links of list `L`, mutable.
    fn links_mut(&mut self) -> &mut ListLinks;
}

/// Implements [`Linked`] for a type: the number of each list, and the field with its links.
macro_rules! linked {
    ($type:ty: $($list:expr => $field:tt),+) => {$(
        impl $crate::list::Linked<{ $list }> for $type {
            fn links(&self) -> $crate::list::ListLinks {
                self.$field
            }

            fn links_mut(&mut self) -> &mut $crate::list::ListLinks {
                &mut self.$field
            }
        }
    )+};
}
pub(crate) use linked;

/// A first-in first-out list. Every operation takes constant time and allocates nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<const L: usize> {
    head: u32,
    tail: u32,
}

impl<const L: usize> List<L> {
    pub(crate) const fn new() -> List<L> {
        List { head: NONE, tail: NONE }
    }

    /// Returns whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Returns the first object.
    pub(crate) fn head(&self) -> Option<u32> {
        some(self.head)
    }

    /// Returns the last object.
    pub(crate) fn tail(&self) -> Option<u32> {
        some(self.tail)
    }

    /// Returns the objects in order.
    pub(crate) fn iter<'a, T: Linked<L>>(
        &self,
        slab: &'a impl Index<u32, Output = T>,
    ) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(some(self.head), move |&index| some(slab[index].links().next))
    }

    /// Adds an object, which is in no list `L`, at the head.
    pub(crate) fn push_front<T: Linked<L>>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        *slab[index].links_mut() = ListLinks { prev: NONE, next: self.head };
        match self.head {
            NONE => self.tail = index,
            head => slab[head].links_mut().prev = index,
        }
        self.head = index;
    }

    /// Adds an object, which is in no list `L`, at the tail.
    pub(crate) fn push_back<T: Linked<L>>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        *slab[index].links_mut() = ListLinks { prev: self.tail, next: NONE };
        match self.tail {
            NONE => self.head = index,
            tail => slab[tail].links_mut().next = index,
        }
        self.tail = index;
    }

    /// Inserts an object, which is in no list `L`, right before an object of this list.
    pub(crate) fn insert_before<T: Linked<L>>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        next: u32,
        index: u32,
    ) {
        let prev = std::mem::replace(&mut slab[next].links_mut().prev, index);
        *slab[index].links_mut() = ListLinks { prev, next };
        match prev {
            NONE => self.head = index,
            prev => slab[prev].links_mut().next = index,
        }
    }

    /// Removes an object from this list.
    pub(crate) fn remove<T: Linked<L>>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        let ListLinks { prev, next } = std::mem::replace(slab[index].links_mut(), ListLinks::NONE);
        match prev {
            NONE => self.head = next,
            prev => slab[prev].links_mut().next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => slab[next].links_mut().prev = prev,
        }
    }

    /// Removes and returns the first object.
    pub(crate) fn pop_front<T: Linked<L>>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
    ) -> Option<u32> {
        let head = self.head()?;
        self.remove(slab, head);
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::slab::slab;

    struct Node(ListLinks);

    linked!(Node: 0 => 0);

    proptest! {
        #[test]
        fn a_list_keeps_the_order_of_a_deque(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..200)) {
            let mut slab = slab(1000);
            let mut list = List::<0>::new();
            let mut model = VecDeque::new();
            for (step, at) in steps {
                match step {
                    0 | 1 => {
                        let index = slab.insert(Node(ListLinks::NONE)).unwrap().index;
                        if step == 0 {
                            list.push_front(&mut slab, index);
                            model.push_front(index);
                        } else {
                            list.push_back(&mut slab, index);
                            model.push_back(index);
                        }
                    }
                    2 => prop_assert_eq!(list.pop_front(&mut slab), model.pop_front()),
                    _ if model.is_empty() => prop_assert!(list.is_empty()),
                    _ => {
                        let index = model.remove(at.index(model.len())).unwrap();
                        list.remove(&mut slab, index);
                        slab.take(index);
                    }
                }
                prop_assert_eq!(list.iter(&slab).collect::<VecDeque<_>>(), model.clone());
                prop_assert_eq!(list.head(), model.front().copied());
            }
        }
    }
}
