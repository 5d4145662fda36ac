//! A hash index that grows in steps.

use std::ops::IndexMut;

use nlx_sync::Room;

use crate::list::{Linked, ListLinks};
use crate::slab::NONE;

/// The number of buckets per allocation.
const CHUNK: usize = 1024;

/// Buckets per object: at two, a successful search compares 1.25 objects on average.
const BUCKETS_PER_OBJECT: usize = 2;

/// The list number of the chains; see [`Linked`].
pub(crate) const CHAIN: usize = 0;

/// An object that a [`Buckets`] index can hold.
pub(crate) trait Hashed: Linked<CHAIN> {
    /// Returns the hash of the object's key; must not change while the object is in the index.
    fn hash(&self) -> u32;
}

/// Linear hashing over the objects of a table, whose chains are links in the objects. One insert
/// splits at most two buckets, so no insert stalls on a growing table. There are two buckets per
/// object, which keeps most chains at one object. The index does not shrink.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    chunks: Vec<Box<[u32; CHUNK]>>,
    /// The number of buckets in use.
    count: usize,
    /// Objects in the index.
    objects: usize,
    room: Room,
}

impl Buckets {
    /// Creates an empty index with memory from `room`.
    pub(crate) fn within(room: &Room) -> Buckets {
        Buckets { room: room.clone(), ..Buckets::default() }
    }

    /// Returns the first object of the chain for this hash, or [`NONE`].
    pub(crate) fn first(&self, hash: u32) -> u32 {
        if self.count == 0 { NONE } else { self.head(self.bucket(hash)) }
    }

    /// Returns the first object of each chain, or [`NONE`].
    pub(crate) fn heads(&self) -> impl Iterator<Item = u32> {
        (0..self.count).map(|bucket| self.head(bucket))
    }

    /// Adds an object that is not in the index. Without memory for more buckets the chains grow
    /// longer; without memory for the first ones, it returns `false`.
    #[must_use]
    pub(crate) fn insert<T: Hashed>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        index: u32,
    ) -> bool {
        while (self.objects + 1) * BUCKETS_PER_OBJECT > self.count && self.split(slab) {}
        if self.count == 0 {
            return false;
        }
        self.objects += 1;
        let bucket = self.bucket(slab[index].hash());
        self.push(slab, bucket, index);
        true
    }

    /// Removes an object from the index.
    pub(crate) fn remove<T: Hashed>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        self.objects -= 1;
        let hash = slab[index].hash();
        let links = std::mem::replace(slab[index].links_mut(), ListLinks::NONE);
        self.relink(slab, hash, links, links.prev, links.next);
    }

    /// Replaces `old` by `new`, which has the same key.
    pub(crate) fn replace<T: Hashed>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        old: u32,
        new: u32,
    ) {
        let hash = slab[old].hash();
        let links = std::mem::replace(slab[old].links_mut(), ListLinks::NONE);
        *slab[new].links_mut() = links;
        self.relink(slab, hash, links, new, new);
    }

    /// Makes the neighbours in `links` point to `before` (as their prev) and `after` (as their
    /// next).
    fn relink<T: Hashed>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        hash: u32,
        links: ListLinks,
        before: u32,
        after: u32,
    ) {
        match links.prev {
            NONE => {
                let bucket = self.bucket(hash);
                *self.head_mut(bucket) = after;
            }
            prev => slab[prev].links_mut().next = after,
        }
        if links.next != NONE {
            slab[links.next].links_mut().prev = before;
        }
    }

    /// Adds a bucket and moves to it the objects that belong there from the bucket that is split;
    /// `false` if there is no memory for it.
    fn split<T: Hashed>(&mut self, slab: &mut impl IndexMut<u32, Output = T>) -> bool {
        let new = self.count;
        if new.is_multiple_of(CHUNK) && !self.add_chunk() {
            return false;
        }
        self.count += 1;
        if new == 0 {
            return true;
        }
        let old = new - prev_power_of_two(new);
        let mut next = std::mem::replace(self.head_mut(old), NONE);
        while next != NONE {
            let index = next;
            next = slab[index].links().next;
            let bucket = self.bucket(slab[index].hash());
            self.push(slab, bucket, index);
        }
        true
    }

    fn add_chunk(&mut self) -> bool {
        let Buckets { chunks, room, .. } = self;
        room.make(|| {
            let mut chunk = Vec::new();
            if chunk.try_reserve_exact(CHUNK).is_err() || chunks.try_reserve(1).is_err() {
                return false;
            }
            chunk.resize(CHUNK, NONE);
            let chunk = Box::<[u32; CHUNK]>::try_from(chunk.into_boxed_slice());
            chunks.extend(chunk);
            true
        })
    }

    fn push<T: Hashed>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, bucket: usize, index: u32) {
        let head = std::mem::replace(self.head_mut(bucket), index);
        *slab[index].links_mut() = ListLinks { prev: NONE, next: head };
        if head != NONE {
            slab[head].links_mut().prev = index;
        }
    }

    /// Returns the bucket of a hash: its low bits, one fewer for buckets that are not split yet.
    fn bucket(&self, hash: u32) -> usize {
        let mask = self.count.next_power_of_two() - 1;
        let bucket = hash as usize & mask;
        if bucket < self.count { bucket } else { bucket & (mask >> 1) }
    }

    fn head(&self, bucket: usize) -> u32 {
        self.chunks[bucket / CHUNK][bucket % CHUNK]
    }

    fn head_mut(&mut self, bucket: usize) -> &mut u32 {
        &mut self.chunks[bucket / CHUNK][bucket % CHUNK]
    }
}

fn prev_power_of_two(number: usize) -> usize {
    1 << number.ilog2()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::list::linked;
    use crate::slab::{Slab, slab};

    struct Node {
        hash: u32,
        links: ListLinks,
    }

    linked!(Node: CHAIN => links);

    impl Hashed for Node {
        fn hash(&self) -> u32 {
            self.hash
        }
    }

    fn chain(buckets: &Buckets, slab: &Slab<Node>, hash: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = buckets.first(hash);
        while at != NONE {
            found.push(at);
            at = slab[at].links.next;
        }
        found
    }

    proptest! {
        #[test]
        fn every_object_is_in_the_chain_of_its_hash(
            steps in prop::collection::vec((any::<u32>(), 0u8..5, any::<prop::sample::Index>()), 1..1500)
        ) {
            let mut slab: Slab<Node> = slab(10_000);
            let mut buckets = Buckets::default();
            let mut model: Vec<u32> = Vec::new();
            for (hash, step, at) in steps {
                let node = Node { hash: hash % 700, links: ListLinks::NONE };
                if step == 0 && !model.is_empty() {
                    let index = model.swap_remove(at.index(model.len()));
                    buckets.remove(&mut slab, index);
                    slab.take(index);
                } else if step == 1 && !model.is_empty() {
                    let position = at.index(model.len());
                    let node = Node { hash: slab[model[position]].hash, ..node };
                    let index = slab.insert(node).unwrap().index;
                    buckets.replace(&mut slab, model[position], index);
                    slab.take(model[position]);
                    model[position] = index;
                } else {
                    let index = slab.insert(node).unwrap().index;
                    prop_assert!(buckets.insert(&mut slab, index));
                    model.push(index);
                }
            }
            let mut by_hash: HashMap<u32, usize> = HashMap::new();
            for &index in &model {
                *by_hash.entry(slab[index].hash).or_default() += 1;
            }
            for hash in 0..700 {
                let found = chain(&buckets, &slab, hash);
                let equal = found.iter().filter(|&&index| slab[index].hash == hash).count();
                prop_assert_eq!(equal, by_hash.get(&hash).copied().unwrap_or(0));
            }
        }
    }

    // Covers: S-102
    #[test]
    fn chains_stay_short_as_the_index_grows() {
        let mut slab = slab(100_000);
        let mut buckets = Buckets::default();
        for number in 0..50_000u32 {
            let hash = number.wrapping_mul(0x9e37_79b9).rotate_left(16);
            let index = slab.insert(Node { hash, links: ListLinks::NONE }).unwrap().index;
            assert!(buckets.insert(&mut slab, index));
        }
        let longest = slab.indices().map(|index| chain(&buckets, &slab, slab[index].hash).len()).max();
        assert!(longest.unwrap() <= 12, "a chain of {longest:?} objects");
    }
}
