//! Match entries and memory descriptors, each entry beside the descriptor that is attached to it.

use std::ops::{Index, IndexMut};

use lnet_api::LNetError;
use nlx_sync::Room;

use super::entry::MatchEntry;
use super::md::MdState;
use crate::slab::{Key, Slab, slab};

/// A match entry, the first MD that was attached to it, or both; or an MD alone: a bound one, or a
/// later one of an entry. A matching message accesses the entry and then the MD; side by side they
/// cost one access to memory instead of two.
#[derive(Debug)]
#[repr(C)]
struct Object {
    entry: Option<MatchEntry>,
    md: Option<MdState>,
    /// True if an MD is or was here. A second one never uses the slot, so the object's key names
    /// the MD permanently.
    had_md: bool,
}

/// The tables of MEs and MDs. Each has an index and a generation, but both share the slots.
/// Indexing returns the match entry; the MD has methods.
#[derive(Debug)]
pub(super) struct Objects {
    slab: Slab<Object>,
    entries: usize,
    mds: usize,
    max_entries: usize,
    max_mds: usize,
}

impl Objects {
    /// Creates tables for these numbers of entries and MDs.
    pub(super) fn new(max_entries: usize, max_mds: usize, room: &Room) -> Objects {
        let slab = slab(max_entries.saturating_add(max_mds)).within(room);
        Objects { slab, entries: 0, mds: 0, max_entries, max_mds }
    }

    /// Returns the maximum numbers of entries and MDs.
    pub(super) fn limits(&self) -> (usize, usize) {
        (self.max_entries, self.max_mds)
    }

    /// Returns the key of an entry or an MD.
    pub(super) fn key(&self, index: u32) -> Key {
        self.slab.key(index)
    }

    /// Fails with ENOMEM if there is no room for another entry.
    pub(super) fn check_room(&mut self) -> Result<(), LNetError> {
        if self.entries < self.max_entries && self.slab.make_room() {
            return Ok(());
        }
        Err(LNetError::TooMany { objects: "match entries", limit: self.max_entries })
    }

    /// Adds an entry; `None` if there are too many.
    pub(super) fn insert_entry(&mut self, entry: MatchEntry) -> Option<u32> {
        if self.entries >= self.max_entries {
            return None;
        }
        let key = self.slab.insert(Object { entry: Some(entry), md: None, had_md: false })?;
        self.entries += 1;
        Some(key.index)
    }

    /// Returns the entry, if it still exists.
    pub(super) fn entry(&self, key: Key) -> Option<&MatchEntry> {
        self.slab.get(key)?.entry.as_ref()
    }

    /// Returns the entry at this index, if there is one.
    pub(super) fn entry_at(&self, index: u32) -> Option<&MatchEntry> {
        self.slab.at(index)?.entry.as_ref()
    }

    /// Returns the indices of all entries and MDs.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        self.slab.indices()
    }

    /// Returns the numbers of entries and MDs.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.entries, self.mds)
    }

    /// Removes the entry at this index; its slot is freed if it has no MD.
    pub(super) fn remove_entry(&mut self, index: u32) {
        if self.slab[index].entry.take().is_some() {
            self.entries -= 1;
            self.free_if_empty(index);
        }
    }

    /// Adds an MD, beside its entry if it has one that never had an MD; `None` if there are too
    /// many.
    pub(super) fn insert_md(&mut self, entry: Option<u32>, md: MdState) -> Option<u32> {
        if self.mds >= self.max_mds {
            return None;
        }
        let index = match entry.filter(|&index| !self.slab[index].had_md) {
            Some(index) => {
                let object = &mut self.slab[index];
                (object.md, object.had_md) = (Some(md), true);
                index
            }
            None => self.slab.insert(Object { entry: None, md: Some(md), had_md: true })?.index,
        };
        self.mds += 1;
        Some(index)
    }

    /// Returns the MD of a handle's key, if it still exists.
    pub(super) fn named_md(&self, key: Key) -> Option<&MdState> {
        self.slab.get(key)?.md.as_ref()
    }

    /// Returns the MD of [`Objects::named_md`], for changes.
    pub(super) fn named_md_mut(&mut self, key: Key) -> Option<&mut MdState> {
        self.slab.get_mut(key)?.md.as_mut()
    }

    /// Returns the MD at this index, if there is one.
    pub(super) fn md_at(&self, index: u32) -> Option<&MdState> {
        self.slab.at(index)?.md.as_ref()
    }

    /// Returns the MD at this index, which must exist.
    pub(super) fn md(&self, index: u32) -> &MdState {
        self.slab[index].md.as_ref().expect("links name descriptors that exist")
    }

    /// Returns the MD of [`Objects::md`], for changes.
    pub(super) fn md_mut(&mut self, index: u32) -> &mut MdState {
        self.slab[index].md.as_mut().expect("links name descriptors that exist")
    }

    /// Removes and returns the MD at this index; its slot is freed if it has no entry.
    pub(super) fn remove_md(&mut self, index: u32) -> Option<MdState> {
        let md = self.slab[index].md.take()?;
        self.mds -= 1;
        self.free_if_empty(index);
        Some(md)
    }

    fn free_if_empty(&mut self, index: u32) {
        let object = &self.slab[index];
        if object.entry.is_none() && object.md.is_none() {
            self.slab.take(index);
        }
    }
}

impl Index<u32> for Objects {
    type Output = MatchEntry;

    fn index(&self, index: u32) -> &MatchEntry {
        self.slab[index].entry.as_ref().expect("links name entries that exist")
    }
}

impl IndexMut<u32> for Objects {
    fn index_mut(&mut self, index: u32) -> &mut MatchEntry {
        self.slab[index].entry.as_mut().expect("links name entries that exist")
    }
}
