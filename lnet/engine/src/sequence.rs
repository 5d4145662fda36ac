//! A list with an order test: any two of its objects can be compared by rank.

use std::ops::IndexMut;

use crate::list::{Linked, List};
use crate::slab::NONE;

/// The list number of a [`Sequence`]; see [`Linked`].
pub(crate) const SEQUENCE: usize = 7;

/// Bits of a rank.
const RANK_BITS: u32 = 62;
/// Rank of the first object of an empty sequence.
const MIDDLE: u64 = 1 << (RANK_BITS - 1);
/// Distance of ranks at the ends. It leaves room for 2^45 objects before the ends are reached, and
/// for 16 insertions at one position before any rank changes.
const STEP: u64 = 1 << 16;

/// An object that a [`Sequence`] can hold.
pub(crate) trait Ranked: Linked<SEQUENCE> {
    /// Returns the rank in the list, which is less than that of every later object.
    fn rank(&self) -> u64;
    /// Replaces the rank that [`Ranked::rank`] returns.
    fn set_rank(&mut self, rank: u64);
}

/// A doubly linked list with ranks (order maintenance by list labelling, after Bender and others,
/// "Two simplified algorithms for maintaining order in a list"). Objects at the ends get a rank one
/// step away. If two objects have no free rank between them, the objects of the smallest uncrowded
/// window of ranks are spread evenly over it: the cost per insertion grows with the logarithm of
/// the length.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) list: List<SEQUENCE>,
}

impl Sequence {
    pub(crate) const fn new() -> Sequence {
        Sequence { list: List::new() }
    }

    /// Adds an object at the head.
    pub(crate) fn push_front<T: Ranked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        match self.list.head() {
            None => self.push_alone(slab, index),
            Some(head) => self.push_before(slab, head, index),
        }
    }

    /// Adds an object at the tail.
    pub(crate) fn push_back<T: Ranked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        match self.list.tail() {
            None => self.push_alone(slab, index),
            Some(tail) => self.push_after(slab, tail, index),
        }
    }

    fn push_alone<T: Ranked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        self.list.push_back(slab, index);
        slab[index].set_rank(MIDDLE);
    }

    /// Inserts an object right before another.
    pub(crate) fn push_before<T: Ranked>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        next: u32,
        index: u32,
    ) {
        loop {
            let prev = slab[next].links().prev;
            let high = slab[next].rank();
            let low = if prev == NONE { high.saturating_sub(2 * STEP) } else { slab[prev].rank() };
            if high - low >= 2 {
                self.list.insert_before(slab, next, index);
                return slab[index].set_rank(low + (high - low) / 2);
            }
            spread(slab, next);
        }
    }

    /// Inserts an object right after another.
    pub(crate) fn push_after<T: Ranked>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        prev: u32,
        index: u32,
    ) {
        let next = slab[prev].links().next;
        if next != NONE {
            return self.push_before(slab, next, index);
        }
        loop {
            let low = slab[prev].rank();
            let high = (low + 2 * STEP).min(1 << RANK_BITS);
            if high - low >= 2 {
                self.list.push_back(slab, index);
                return slab[index].set_rank(low + (high - low) / 2);
            }
            spread(slab, prev);
        }
    }

    /// Removes an object from the list.
    pub(crate) fn remove<T: Ranked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        self.list.remove(slab, index);
    }

    /// Returns the objects in order.
    #[cfg(test)]
    fn iter<'a, T: Ranked>(
        &self,
        slab: &'a impl std::ops::Index<u32, Output = T>,
    ) -> impl Iterator<Item = u32> + 'a {
        self.list.iter(slab)
    }
}

/// Spreads the objects around `at` evenly over the smallest window of ranks that is not crowded. A
/// window of 2^i ranks is crowded if it holds more than (4/3)^i objects.
fn spread<T: Ranked>(slab: &mut impl IndexMut<u32, Output = T>, at: u32) {
    let center = slab[at].rank();
    let (mut first, mut last, mut count) = (at, at, 1u64);
    let mut allowed = 1.0f64;
    for bits in 1..=RANK_BITS {
        allowed *= 4.0 / 3.0;
        let low = center & !((1 << bits) - 1);
        let high = low + ((1 << bits) - 1);
        while let prev = slab[first].links().prev
            && prev != NONE
            && slab[prev].rank() >= low
        {
            (first, count) = (prev, count + 1);
        }
        while let next = slab[last].links().next
            && next != NONE
            && slab[next].rank() <= high
        {
            (last, count) = (next, count + 1);
        }
        // The widest window is never crowded: it has more ranks than a table has objects.
        if (count as f64) < allowed && count < (1 << bits) / 4 || bits == RANK_BITS {
            let gap = (1u64 << bits) / (count + 1);
            let mut index = first;
            for number in 1..=count {
                slab[index].set_rank(low + number * gap);
                index = slab[index].links().next;
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::list::ListLinks;
    use crate::list::linked;
    use crate::slab::{Slab, slab};

    struct Node {
        links: ListLinks,
        rank: u64,
    }

    linked!(Node: SEQUENCE => links);

    impl Ranked for Node {
        fn rank(&self) -> u64 {
            self.rank
        }

        fn set_rank(&mut self, rank: u64) {
            self.rank = rank;
        }
    }

    fn node() -> Node {
        Node { links: ListLinks::NONE, rank: 0 }
    }

    fn check(sequence: &Sequence, slab: &Slab<Node>, model: &[u32]) {
        let order: Vec<u32> = sequence.iter(slab).collect();
        assert_eq!(order, model);
        assert!(order.windows(2).all(|pair| slab[pair[0]].rank < slab[pair[1]].rank), "ranks ascend");
        assert!(order.iter().all(|&index| slab[index].rank < 1 << RANK_BITS));
    }

    proptest! {
        // Covers: S-104
        #[test]
        fn the_order_is_that_of_a_vector(
            steps in prop::collection::vec((0u8..6, any::<prop::sample::Index>(), 1usize..40), 1..60)
        ) {
            let (mut slab, mut sequence, mut model) = (slab(10_000), Sequence::new(), Vec::new());
            for (step, at, times) in steps {
                let at = at.index(model.len().max(1));
                for _ in 0..times {
                    if step == 5 && !model.is_empty() {
                        let index = model.remove(at.min(model.len() - 1));
                        sequence.remove(&mut slab, index);
                        slab.take(index);
                        continue;
                    }
                    let index = slab.insert(node()).unwrap().index;
                    match step {
                        0 => {
                            sequence.push_front(&mut slab, index);
                            model.insert(0, index);
                        }
                        1 | 2 if at < model.len() => {
                            sequence.push_before(&mut slab, model[at], index);
                            model.insert(at, index);
                        }
                        3 if at < model.len() => {
                            sequence.push_after(&mut slab, model[at], index);
                            model.insert(at + 1, index);
                        }
                        _ => {
                            sequence.push_back(&mut slab, index);
                            model.push(index);
                        }
                    }
                }
                check(&sequence, &slab, &model);
            }
        }
    }

    #[test]
    fn ranks_at_the_ends_do_not_run_out() {
        let (mut slab, mut sequence) = (slab(100), Sequence::new());
        let mut model = Vec::new();
        for _ in 0..4 {
            let index = slab.insert(node()).unwrap().index;
            sequence.push_back(&mut slab, index);
            model.push(index);
        }
        slab[model[3]].rank = (1 << RANK_BITS) - 1;
        slab[model[0]].rank = 0;
        for _ in 0..20 {
            let (front, back) = (slab.insert(node()).unwrap().index, slab.insert(node()).unwrap().index);
            sequence.push_back(&mut slab, back);
            sequence.push_front(&mut slab, front);
            model.insert(0, front);
            model.push(back);
        }
        check(&sequence, &slab, &model);
    }
}
