//! Memory from the allocator, for builds without `std`, and under loom.

#[cfg(not(loom))]
use alloc::sync::Arc;
#[cfg(loom)]
use nlx_sync::Arc;

use alloc::boxed::Box;

use crate::error::Error;
use crate::layout::{Header, Slot, SlotLink};

#[derive(Clone, Debug)]
pub(super) struct Parts(Arc<Boxes>);

#[derive(Debug)]
struct Boxes {
    header: Header,
    links: Box<[SlotLink]>,
    slots: Box<[Slot]>,
}

impl Parts {
    #[cfg(not(loom))]
    pub(super) fn zeroed(slots: usize) -> Result<Self, Error> {
        use zerocopy::FromZeros;

        let no_memory = |_| Error::NoMemory { slots };
        Ok(Parts(Arc::new(Boxes {
            header: Header::new_zeroed(),
            links: <[SlotLink]>::new_box_zeroed_with_elems(slots).map_err(no_memory)?,
            slots: <[Slot]>::new_box_zeroed_with_elems(slots).map_err(no_memory)?,
        })))
    }

    #[cfg(loom)]
    pub(super) fn zeroed(slots: usize) -> Result<Self, Error> {
        Ok(Parts(Arc::new(Boxes {
            header: Header::zeroed(),
            links: (0..slots).map(|_| SlotLink::zeroed()).collect(),
            slots: (0..slots).map(|_| Slot::zeroed()).collect(),
        })))
    }

    #[inline]
    pub(super) fn header(&self) -> &Header {
        &self.0.header
    }

    #[inline]
    pub(super) fn links(&self) -> &[SlotLink] {
        &self.0.links
    }

    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        &self.0.slots
    }
}
