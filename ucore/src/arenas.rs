//! Memory that the helper can access: arenas, from which buffers are allocated.

use std::os::fd::OwnedFd;

use lnet_region::{Arena, Fragment, IoVec, MAX_REGION_BYTES, Pages, Region, RegionError};
use nix::errno::Errno;
use nlx_core::CoreError;
use nlx_driver_proto::{Reply, Request, Segment};

use crate::link::Link;
use crate::refused::refused;

/// Alignment of an arena's length: the largest size of an ordinary page on any machine.
const GRANULE: usize = 64 << 10;

/// Alignment for huge pages. If the system rounded the length up itself, the helper would not know
/// the additional bytes.
const HUGE_GRANULE: usize = 2 << 20;

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

    /// Allocates a region of `bytes` bytes.
    pub(crate) fn allocate(&mut self, link: &Link, bytes: usize) -> Result<Region, CoreError> {
        if bytes == 0 || bytes > MAX_REGION_BYTES {
            return Err(RegionError::Length { bytes, max: MAX_REGION_BYTES }.into());
        }
        link.check()?;
        // The newest arena usually has most room.
        for ArenaEntry { arena, .. } in
            self.entries.iter().rev().filter(|entry| entry.arena.free_bytes() >= bytes)
        {
            match arena.allocate(bytes) {
                // There is room, but not in one piece.
                Err(RegionError::System { errno: Errno::ENOMEM, .. }) => {}
                allocated => return Ok(allocated?),
            }
        }
        self.tidy(link);
        let least = bytes.next_multiple_of(granule(self.pages));
        let arena = match self.create(link, least.max(self.chunk)) {
            // No room for a whole arena, but perhaps for this region.
            Err(error) if error.errno() == Errno::ENOMEM && least < self.chunk => self.create(link, least)?,
            created => created?,
        };
        Ok(arena.allocate(bytes)?)
    }

    fn create(&mut self, link: &Link, bytes: usize) -> Result<Arena, CoreError> {
        let (mut parts, mut fds) = (Vec::new(), Vec::new());
        let created = self.create_parts(link, bytes, &mut parts, &mut fds).and_then(|()| Ok(trust(fds)?));
        match created {
            Ok(arena) => {
                point!(ArenaMapped);
                self.entries.push(ArenaEntry { arena: arena.clone(), parts });
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
        link: &Link,
        bytes: usize,
        parts: &mut Vec<Part>,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), CoreError> {
        let granule = granule(self.pages);
        let longest = usize::try_from(link.welcome.arena_bytes_max).unwrap_or(usize::MAX);
        // A helper that allows less than a page is asked nevertheless, and returns the reason of
        // its refusal.
        let longest = (longest - longest % granule).max(granule);
        // After a part on small pages the rest is, too: huge pages could not begin where it ends.
        let (mut huge, mut end) = (self.pages == Pages::Huge, 0);
        while end < bytes as u64 {
            let wanted = (bytes as u64 - end).min(longest as u64);
            let (number, length, is_huge, fd) = create_one(link, wanted, huge)?;
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

    /// Releases unused arenas, except for one that would soon be requested again.
    pub(crate) fn tidy(&mut self, link: &Link) {
        self.tidy_former();
        let (mut spare, chunk) = (false, self.chunk);
        self.entries.retain(|ArenaEntry { arena, parts }| {
            if !arena.is_unused() {
                return true;
            }
            if arena.len() <= chunk && !std::mem::replace(&mut spare, true) {
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
fn create_one(link: &Link, bytes: u64, huge: bool) -> Result<(u32, u64, bool, OwnedFd), CoreError> {
    let (reply, fds) = link.request(&Request::CreateArena { bytes, huge })?;
    match (reply, fds.into_iter().next()) {
        (Reply::Arena { arena, bytes, huge }, Some(fd)) => Ok((arena, bytes, huge, fd)),
        (Reply::Arena { .. }, None) => Err(link.violated("an arena without memory".into())),
        (Reply::Refused(refusal), _) => Err(refused("allocate memory", &refusal)),
        (reply, _) => Err(link.violated(format!("unexpected reply to a request for an arena: {reply:?}"))),
    }
}

/// Releases arenas. Returns whether the helper has released all of them.
fn release(link: &Link, parts: &[Part]) -> bool {
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
    // `Buffer::begin` has taken a transport's lease to receive on all the bytes that the operation
    // may write to, before the helper gets the operation. The lease on the bytes of a message is
    // released when its event has been taken, after which the helper does not write to them again;
    // all others with the event that ends the operation. Where an operation ends on this side alone
    // (`Link::keep`), the leases are kept until the helper has closed its socket, which it does
    // when no thread writes for it any more.
    unsafe { Arena::trusted(fds) }
}
