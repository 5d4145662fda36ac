//! Memory mapped from the system, page by page.
//!
//! The allocator is not used: it writes the zeros of memory that is aligned to more than 16 bytes,
//! so each queue would occupy all of its memory at once.

use core::ops::Range;

use memmap2::{Advice, MmapMut, MmapOptions, UncheckedAdvice};

use crate::error::Error;
use crate::layout::{Header, Slot, SlotLink};
use crate::memory::mapping::{Mapping, Offsets};

#[derive(Clone, Debug)]
pub(super) struct Parts(Mapping);

impl Parts {
    pub(super) fn bytes(slots: usize) -> usize {
        Offsets::of(slots).end
    }

    pub(super) fn zeroed(slots: usize) -> Result<Self, Error> {
        let map = MmapOptions::new().len(Parts::bytes(slots)).map_anon();
        Parts::mapped(slots, map.map_err(|_| Error::NoMemory { slots })?)
    }

    pub(super) fn mapped(slots: usize, map: MmapMut) -> Result<Self, Error> {
        if map.len() < Parts::bytes(slots) {
            return Err(Error::NoMemory { slots });
        }
        // With transparent huge pages always on, the first slot would take 2 MiB. A system without
        // them returns an error, which is ignored.
        let _ = map.advise(Advice::NoHugePage);
        Mapping::of(map.into(), slots).map(Parts).map_err(|_| Error::NoMemory { slots })
    }

    #[inline]
    pub(super) fn header(&self) -> &Header {
        self.0.header()
    }

    #[inline]
    pub(super) fn links(&self) -> &[SlotLink] {
        self.0.links()
    }

    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        self.0.slots()
    }

    pub(super) fn discard(&self, slots: Range<u32>) {
        self.0.discard(slots, UncheckedAdvice::DontNeed);
    }
}
