//! A hash index of lists: each key has an ordered list of its objects.

use std::ops::IndexMut;

use nlx_sync::Room;

use crate::buckets::{Buckets, CHAIN, Hashed};
use crate::list::{Linked, ListLinks};
use crate::slab::NONE;

/// The list number of the objects of one key; see [`Linked`].
pub(crate) const GROUP: usize = 1;

/// An object that [`Groups`] can hold.
pub(crate) trait Grouped: Hashed + Linked<GROUP> {
    /// Returns whether the keys are equal.
    fn same_key(&self, other: &Self) -> bool;
    /// Returns the last object of the group; only the first object stores it.
    fn last(&self) -> u32;
    /// Replaces the index that [`Grouped::last`] returns.
    fn set_last(&mut self, last: u32);
}

/// Objects with equal keys form a list; only the first of them is in the hash index, and it stores
/// the index of the last. So the size of the index is the number of keys, not of objects, and equal
/// keys make no long chains. All operations take constant time.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) index: Buckets,
}

impl Groups {
    /// Creates an empty index with memory from `room`.
    pub(crate) fn within(room: &Room) -> Groups {
        Groups { index: Buckets::within(room) }
    }

    /// Returns the first object with this hash for which `wanted` holds, or [`NONE`]; `wanted` must
    /// be the same for all objects of a group.
    pub(crate) fn first<T: Grouped>(
        &self,
        slab: &impl std::ops::Index<u32, Output = T>,
        hash: u32,
        wanted: impl Fn(&T) -> bool,
    ) -> u32 {
        let mut at = self.index.first(hash);
        while at != NONE {
            let object = &slab[at];
            if object.hash() == hash && wanted(object) {
                break;
            }
            at = Linked::<CHAIN>::links(object).next;
        }
        at
    }

    fn first_like<T: Grouped>(&self, slab: &impl std::ops::Index<u32, Output = T>, index: u32) -> u32 {
        let object = &slab[index];
        self.first(slab, object.hash(), |other| other.same_key(object))
    }

    /// Adds an object at the end of its group; `false` if there is no memory for the index.
    #[must_use]
    pub(crate) fn push_back<T: Grouped>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        index: u32,
    ) -> bool {
        match self.first_like(slab, index) {
            NONE => self.push_alone(slab, index),
            first => {
                let last = slab[first].last();
                self.link(slab, last, index, NONE);
                slab[first].set_last(index);
                true
            }
        }
    }

    /// Adds an object at the head of its group; `false` if there is no memory for the index.
    #[must_use]
    pub(crate) fn push_front<T: Grouped>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        index: u32,
    ) -> bool {
        match self.first_like(slab, index) {
            NONE => self.push_alone(slab, index),
            first => {
                self.push_before(slab, first, index);
                true
            }
        }
    }

    /// Inserts an object right before one of the same key.
    pub(crate) fn push_before<T: Grouped>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        next: u32,
        index: u32,
    ) {
        let prev = Linked::<GROUP>::links(&slab[next]).prev;
        if prev == NONE {
            let last = slab[next].last();
            self.index.replace(slab, next, index);
            slab[index].set_last(last);
        }
        self.link(slab, prev, index, next);
    }

    /// Removes an object from its group; the next object of the group takes its place in the hash
    /// index.
    pub(crate) fn remove<T: Grouped>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        let ListLinks { prev, next } = Linked::<GROUP>::links(&slab[index]);
        if prev == NONE && next == NONE {
            self.index.remove(slab, index);
        } else if prev == NONE {
            let last = slab[index].last();
            self.index.replace(slab, index, next);
            slab[next].set_last(last);
        } else if next == NONE {
            let first = self.first_like(slab, index);
            slab[first].set_last(prev);
        }
        if prev != NONE {
            Linked::<GROUP>::links_mut(&mut slab[prev]).next = next;
        }
        if next != NONE {
            Linked::<GROUP>::links_mut(&mut slab[next]).prev = prev;
        }
        *Linked::<GROUP>::links_mut(&mut slab[index]) = ListLinks::NONE;
    }

    fn push_alone<T: Grouped>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) -> bool {
        slab[index].set_last(index);
        self.index.insert(slab, index)
    }

    fn link<T: Grouped>(&self, slab: &mut impl IndexMut<u32, Output = T>, prev: u32, index: u32, next: u32) {
        *Linked::<GROUP>::links_mut(&mut slab[index]) = ListLinks { prev, next };
        if prev != NONE {
            Linked::<GROUP>::links_mut(&mut slab[prev]).next = index;
        }
        if next != NONE {
            Linked::<GROUP>::links_mut(&mut slab[next]).prev = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::list::linked;
    use crate::slab::{Slab, slab};

    #[derive(Debug)]
    struct Node {
        key: u32,
        chain: ListLinks,
        group: ListLinks,
        last: u32,
    }

    linked!(Node: CHAIN => chain);

    linked!(Node: GROUP => group);

    impl Hashed for Node {
        fn hash(&self) -> u32 {
            self.key % 3
        }
    }

    impl Grouped for Node {
        fn same_key(&self, other: &Node) -> bool {
            self.key == other.key
        }

        fn last(&self) -> u32 {
            self.last
        }

        fn set_last(&mut self, last: u32) {
            self.last = last;
        }
    }

    fn group(groups: &Groups, slab: &Slab<Node>, key: u32) -> Vec<u32> {
        let first = groups.first(slab, key % 3, |node| node.key == key);
        std::iter::successors(crate::slab::some(first), |&at| crate::slab::some(slab[at].group.next))
            .collect()
    }

    proptest! {
        #[test]
        fn each_group_keeps_the_order_of_a_vector(
            steps in prop::collection::vec((0u32..8, 0u8..6, any::<prop::sample::Index>()), 1..300)
        ) {
            let mut slab = slab(1000);
            let mut groups = Groups::default();
            let mut model: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (key, step, at) in steps {
                let list = model.entry(key).or_default();
                let node = Node { key, chain: ListLinks::NONE, group: ListLinks::NONE, last: NONE };
                if step >= 4 && !list.is_empty() {
                    let index = list.remove(at.index(list.len()));
                    groups.remove(&mut slab, index);
                    slab.take(index);
                    continue;
                }
                let new = slab.insert(node).unwrap().index;
                match step {
                    0 => {
                        prop_assert!(groups.push_front(&mut slab, new));
                        list.insert(0, new);
                    }
                    1 if !list.is_empty() => {
                        let position = at.index(list.len());
                        groups.push_before(&mut slab, list[position], new);
                        list.insert(position, new);
                    }
                    _ => {
                        prop_assert!(groups.push_back(&mut slab, new));
                        list.push(new);
                    }
                }
                for (key, list) in &model {
                    prop_assert_eq!(&group(&groups, &slab, *key), list);
                }
            }
        }
    }
}
