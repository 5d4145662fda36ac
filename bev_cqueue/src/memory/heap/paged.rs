//! From the system, page by page.
//!
//! Not from the allocator: zeroed memory that is aligned to more than 16 bytes it fills with zeros itself, and each queue
//! would take all of its memory at once.

use core::ops::Range;

use memmap2::{Advice, MmapOptions, UncheckedAdvice};

use crate::error::Error;
use crate::layout::{Header, Link, Slot};
use crate::memory::mapping::{Mapping, Places};

#[derive(Clone, Debug)]
pub(super) struct Parts(Mapping);

impl Parts {
    pub(super) fn zeroed(slots: usize) -> Result<Self, Error> {
        let bytes = Places::of(slots).end;
        let map = MmapOptions::new().len(bytes).map_anon().map_err(|_| Error::NoMemory { slots })?;
        // Where the system gives huge pages to everybody, the first slot would take 2 MiB. A system without them refuses.
        let _ = map.advise(Advice::NoHugePage);
        Mapping::of(map.into(), slots).map(Parts).map_err(|_| Error::NoMemory { slots })
    }

    #[inline]
    pub(super) fn header(&self) -> &Header {
        self.0.header()
    }

    #[inline]
    pub(super) fn links(&self) -> &[Link] {
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
