//! Memory that the helper can access: arenas, from which buffers are allocated.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use lnet_region::{Arena, Fragment, IoVec, MAX_REGION_BYTES, Pages, Region, RegionError};
use nix::errno::Errno;
use nlx_core::CoreError;
use nlx_driver_proto::{Reply, Request, Segment};

use crate::link::HelperLink;
use crate::refused::refused;

/// Alignment of an arena's length: the largest size of an ordinary page on any machine.
const GRANULE: usize = 64 << 10;

/// Alignment for huge pages. If the system rounded the length up itself, the helper would have no
/// record of the additional bytes.
const HUGE_GRANULE: usize = 2 << 20;

thread_local! {
    /// The helper's number for the memory that this thread allocates ([`allocate_near`]).
    static NEAR: Cell<Option<NonZeroU32>> = const { Cell::new(None) };
}

/// Runs `allocate`; arenas' memory that it allocates lies near the transfer machine with this
/// number of the helper's.
pub(crate) fn allocate_near(near: Option<NonZeroU32>, allocate: &mut dyn FnMut()) {
    struct Restore(Option<NonZeroU32>);
    impl Drop for Restore {
        fn drop(&mut self) {
            NEAR.set(self.0);
        }
    }
    let _restore = Restore(NEAR.replace(near));
    allocate();
}

/// The arenas of a domain.
pub(crate) struct Arenas {
    entries: Vec<ArenaEntry>,
    /// Arenas of earlier helpers, while anything is allocated in them.
    former: Vec<Arena>,
    pages: Pages,
    /// Length of an arena that is shared by several regions.
    chunk: usize,
}

struct ArenaEntry {
    arena: Arena,
    /// The helper's number for the memory's place.
    near: Option<NonZeroU32>,
    /// The helper's names of the arena's parts.
    parts: Vec<Part>,
}

/// The helper's name of an arena, or of a part. The helper's operator limits the length of an
/// arena; a longer one here consists of several, mapped one after the other.
struct Part {
    /// The helper's handle.
    number: u32,
    /// End offset within the whole.
    end: u64,
}

impl Arenas {
    pub(crate) fn new(pages: Pages, chunk: usize) -> Arenas {
        let chunk = chunk.min(MAX_REGION_BYTES).next_multiple_of(granule(pages));
        Arenas { entries: Vec::new(), former: Vec::new(), pages, chunk }
    }

    /// Allocates a region of `bytes` bytes, where [`allocate_near`] says. If the helper gives this
    /// client no further arena, a region elsewhere is better than none.
    pub(crate) fn allocate(&mut self, link: &HelperLink, bytes: usize) -> Result<Region, CoreError> {
        if bytes == 0 || bytes > MAX_REGION_BYTES {
            return Err(RegionError::Length { bytes, max: MAX_REGION_BYTES }.into());
        }
        link.check()?;
        let near = NEAR.get();
        if let Some(region) = self.allocate_in(bytes, |entry| entry.near == near)? {
            return Ok(region);
        }
        self.tidy(link);
        let least = bytes.next_multiple_of(granule(self.pages));
        let is_full = |error: &CoreError| error.errno() == Errno::ENOMEM;
        let arena = match self.create(link, least.max(self.chunk), near) {
            // No room for a whole arena, but perhaps for this region.
            Err(error) if is_full(&error) && least < self.chunk => self.create(link, least, near),
            created => created,
        };
        match arena {
            Ok(arena) => Ok(arena.allocate(bytes)?),
            Err(error) if is_full(&error) => self.allocate_in(bytes, |_| true)?.ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Allocates a region in one of the existing arenas that are `wanted`, if one has room for it.
    fn allocate_in(
        &self,
        bytes: usize,
        wanted: impl Fn(&ArenaEntry) -> bool,
    ) -> Result<Option<Region>, CoreError> {
        // The newest arena usually has most room.
        let has_room = |entry: &&ArenaEntry| entry.arena.free_bytes() >= bytes && wanted(entry);
        for entry in self.entries.iter().rev().filter(has_room) {
            match entry.arena.allocate(bytes) {
                // There is room, but not in one piece.
                Err(RegionError::System { errno: Errno::ENOMEM, .. }) => {}
                allocated => return Ok(Some(allocated?)),
            }
        }
        Ok(None)
    }

    fn create(
        &mut self,
        link: &HelperLink,
        bytes: usize,
        near: Option<NonZeroU32>,
    ) -> Result<Arena, CoreError> {
        let (mut parts, mut fds) = (Vec::new(), Vec::new());
        let created =
            self.create_parts(link, bytes, near, &mut parts, &mut fds).and_then(|()| Ok(trust(fds)?));
        match created {
            Ok(arena) => {
                point!(ArenaMapped);
                self.entries.push(ArenaEntry { arena: arena.clone(), near, parts });
                Ok(arena)
            }
            Err(error) => {
                release(link, &parts);
                Err(error)
            }
        }
    }

    fn create_parts(
        &self,
        link: &HelperLink,
        bytes: usize,
        near: Option<NonZeroU32>,
        parts: &mut Vec<Part>,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), CoreError> {
        let granule = granule(self.pages);
        let longest = usize::try_from(link.welcome.arena_bytes_max).unwrap_or(usize::MAX);
        // The request is sent even if the helper allows less than a page: its refusal has the
        // reason.
        let longest = (longest - longest % granule).max(granule);
        // After a part on small pages the rest is, too: huge pages could not begin where it ends.
        let (mut huge, mut end) = (self.pages == Pages::Huge, 0);
        while end < bytes as u64 {
            let wanted = (bytes as u64 - end).min(longest as u64);
            let (number, length, is_huge, fd) = create_one(link, wanted, huge, near)?;
            if length < wanted {
                return Err(link.violated(format!("an arena of {length} bytes instead of {wanted}")));
            }
            huge &= is_huge;
            end = end.saturating_add(length);
            parts.push(Part { number, end });
            fds.push(fd);
        }
        Ok(())
    }

    /// Returns the arena segments of a buffer; `None` if not all of its memory is in arenas.
    pub(crate) fn segments(&self, memory: &IoVec) -> Option<Vec<Segment>> {
        let mut left = memory.len();
        let mut segments = Vec::with_capacity(memory.fragments().len());
        for fragment in memory.fragments() {
            let length = fragment.len().min(left);
            if length == 0 {
                break;
            }
            left -= length;
            let (entry, offset) = self.place(fragment)?;
            segments.extend(entry.segments(offset, length as u64));
        }
        Some(segments)
    }

    fn place(&self, fragment: &Fragment) -> Option<(&ArenaEntry, u64)> {
        self.entries.iter().rev().find_map(|entry| Some((entry, entry.arena.place(fragment)?)))
    }

    /// Releases unused arenas, except for one at each place, which would soon be requested again.
    pub(crate) fn tidy(&mut self, link: &HelperLink) {
        self.tidy_former();
        let (mut spares, chunk) = (Vec::new(), self.chunk);
        self.entries.retain(|ArenaEntry { arena, near, parts }| {
            if !arena.is_unused() {
                return true;
            }
            if arena.len() <= chunk && !spares.contains(near) {
                spares.push(*near);
                return true;
            }
            point!(ArenaUnused);
            !release(link, parts)
        });
    }

    /// Sets the existing arenas aside, for a new helper, which cannot access them. Allocations in
    /// them stay valid for the program.
    pub(crate) fn retire(&mut self) {
        let Arenas { entries, former, .. } = self;
        former.extend(entries.drain(..).map(|entry| entry.arena));
        self.tidy_former();
    }

    /// Drops arenas of earlier helpers without allocations.
    pub(crate) fn tidy_former(&mut self) {
        self.former.retain(|arena| !arena.is_unused());
    }

    /// Returns whether any part of the memory is in arenas of earlier helpers.
    pub(crate) fn is_former(&self, memory: &IoVec) -> bool {
        let is_there = |fragment: &Fragment| self.former.iter().any(|arena| arena.place(fragment).is_some());
        memory.fragments().iter().any(is_there)
    }
}

impl ArenaEntry {
    /// Returns the helper's names of a range.
    fn segments(&self, offset: u64, length: u64) -> impl Iterator<Item = Segment> {
        let mut start = 0;
        self.parts.iter().filter_map(move |&Part { number, end }| {
            let (from, to) = (offset.max(start), (offset + length).min(end));
            let segment = Segment {
                arena: number,
                offset: from.saturating_sub(start),
                length: to.saturating_sub(from),
            };
            start = end;
            (segment.length > 0).then_some(segment)
        })
    }
}

/// Returns the helper's handle of a new arena, its length, whether it has huge pages, and its
/// memory.
fn create_one(
    link: &HelperLink,
    bytes: u64,
    huge: bool,
    near: Option<NonZeroU32>,
) -> Result<(u32, u64, bool, OwnedFd), CoreError> {
    let (reply, fds) = link.request(&Request::CreateArena { bytes, huge, near })?;
    match (reply, fds.into_iter().next()) {
        (Reply::Arena { arena, bytes, huge }, Some(fd)) => Ok((arena, bytes, huge, fd)),
        (Reply::Arena { .. }, None) => Err(link.violated("an arena without memory".into())),
        (Reply::Refused(refusal), _) => Err(refused("allocate memory", &refusal)),
        (reply, _) => Err(link.violated(format!("unexpected reply to a request for an arena: {reply:?}"))),
    }
}

/// Releases arenas. Returns whether the helper has released all of them.
fn release(link: &HelperLink, parts: &[Part]) -> bool {
    let give_back = |part: &Part| {
        let released = link.request(&Request::ReleaseArena { arena: part.number });
        matches!(released, Ok((Reply::Done, _)))
    };
    parts.iter().map(give_back).fold(true, |all, one| all & one)
}

fn granule(pages: Pages) -> usize {
    if pages == Pages::Huge { HUGE_GRANULE } else { GRANULE }
}

#[allow(unsafe_code, reason = "what the helper writes to is for the leases of this crate to say")]
fn trust(fds: Vec<OwnedFd>) -> Result<Arena, RegionError> {
    // SAFETY: the helper made this memory for this client alone, and is trusted, as the system is.
    // It writes only to buffers that have a receiving operation in flight. For each of those
    // `RegisteredBuffer::begin` has taken a transport's lease to receive on all the bytes that the operation
    // may write to, before the helper gets the operation. The lease on the bytes of a message is
    // released when its event has been taken, after which the helper does not write to them again;
    // all others with the event that ends the operation. Where an operation ends on this side alone
    // (`HelperLink::keep`), the leases are kept until the helper has closed its socket, which it does
    // when no thread writes for it any more.
    unsafe { Arena::trusted(fds) }
}
