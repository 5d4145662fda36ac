//! Memory that the helper reaches: arenas, out of which buffers are allocated.

use std::os::fd::OwnedFd;

use lnet_region::{Arena, Fragment, IoVec, MAX_REGION_BYTES, Pages, Region, RegionError};
use nix::errno::Errno;
use nlx_core::CoreError;
use nlx_driver_proto::{Reply, Request, Segment};

use crate::link::Link;
use crate::refused::refused;

/// What an arena is rounded up to: the largest page that a machine may have for ordinary memory.
const GRANULE: usize = 64 << 10;

/// The same for huge pages. What the system itself rounded up would be bytes that the helper does not know of.
const HUGE_GRANULE: usize = 2 << 20;

/// The arenas of a domain.
pub(crate) struct Arenas {
    entries: Vec<Entry>,
    pages: Pages,
    /// Bytes of an arena for many.
    chunk: usize,
}

struct Entry {
    arena: Arena,
    /// The helper's number for it.
    number: u32,
}

impl Arenas {
    pub(crate) fn new(pages: Pages, chunk: usize) -> Arenas {
        let chunk = chunk.min(MAX_REGION_BYTES).next_multiple_of(granule(pages));
        Arenas { entries: Vec::new(), pages, chunk }
    }

    /// New memory of so many bytes.
    pub(crate) fn allocate(&mut self, link: &Link, bytes: usize) -> Result<Region, CoreError> {
        if bytes == 0 || bytes > MAX_REGION_BYTES {
            return Err(RegionError::Length { bytes, max: MAX_REGION_BYTES }.into());
        }
        link.check()?;
        // The youngest has most room, mostly.
        for Entry { arena, .. } in self.entries.iter().rev().filter(|entry| entry.arena.free_bytes() >= bytes)
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
            // No room for so much more, but perhaps for this.
            Err(error) if error.errno() == Errno::ENOMEM && least < self.chunk => self.create(link, least)?,
            created => created?,
        };
        Ok(arena.allocate(bytes)?)
    }

    fn create(&mut self, link: &Link, bytes: usize) -> Result<Arena, CoreError> {
        let request = Request::CreateArena { bytes: bytes as u64, huge: self.pages == Pages::Huge };
        let (number, fds) = match link.request(&request, &[])? {
            (Reply::Arena { arena, .. }, fds) => (arena, fds),
            (Reply::Refused(refusal), _) => return Err(refused("allocate memory", &refusal)),
            (reply, _) => return Err(link.violated(format!("{reply:?} to a request for an arena"))),
        };
        let Some(fd) = fds.into_iter().next() else {
            return Err(link.violated("an arena without memory".into()));
        };
        let arena = trust(fd)?;
        point!(ArenaMapped);
        if arena.len() < bytes {
            return Err(link.violated(format!("an arena of {} bytes instead of {bytes}", arena.len())));
        }
        self.entries.push(Entry { arena: arena.clone(), number });
        Ok(arena)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where a buffer's bytes lie; `None` if not all of them lie in arenas.
    pub(crate) fn segments(&self, memory: &IoVec) -> Option<Vec<Segment>> {
        let mut left = memory.len();
        let mut segments = Vec::with_capacity(memory.fragments().len());
        for fragment in memory.fragments() {
            let length = fragment.len().min(left);
            if length == 0 {
                break;
            }
            left -= length;
            segments.push(Segment { length: length as u64, ..self.place(fragment)? });
        }
        Some(segments)
    }

    fn place(&self, fragment: &Fragment) -> Option<Segment> {
        self.entries.iter().rev().find_map(|Entry { arena, number }| {
            let offset = arena.place(fragment)?;
            Some(Segment { arena: *number, offset, length: 0 })
        })
    }

    /// Gives unused arenas back, but for one that would soon be asked for again.
    pub(crate) fn tidy(&mut self, link: &Link) {
        let (mut spare, chunk) = (false, self.chunk);
        self.entries.retain(|Entry { arena, number }| {
            if !arena.is_unused() {
                return true;
            }
            if arena.len() <= chunk && !std::mem::replace(&mut spare, true) {
                return true;
            }
            point!(ArenaUnused);
            let released = link.request(&Request::ReleaseArena { arena: *number }, &[]);
            !matches!(released, Ok((Reply::Done, _)))
        });
    }

    /// Hands all of them over to another helper. Its numbers for them count once [`Arenas::renumber`] is told.
    pub(crate) fn hand_over(&self, link: &Link) -> Result<Vec<u32>, CoreError> {
        let adopt = |Entry { arena, .. }: &Entry| match link.request(&Request::AdoptArena, &[arena.fd()])? {
            (Reply::Arena { arena, .. }, _) => Ok(arena),
            (Reply::Refused(refusal), _) => Err(refused("hand memory over", &refusal)),
            (reply, _) => Err(link.violated(format!("{reply:?} to an arena"))),
        };
        self.entries.iter().map(adopt).collect()
    }

    /// The numbers of another helper.
    pub(crate) fn renumber(&mut self, numbers: &[u32]) {
        debug_assert_eq!(numbers.len(), self.entries.len());
        for (entry, &number) in self.entries.iter_mut().zip(numbers) {
            entry.number = number;
        }
    }
}

fn granule(pages: Pages) -> usize {
    if pages == Pages::Huge { HUGE_GRANULE } else { GRANULE }
}

#[allow(unsafe_code, reason = "what the helper writes to is for the leases of this crate to say")]
fn trust(fd: OwnedFd) -> Result<Arena, RegionError> {
    // SAFETY: the helper made this memory for this client alone, and is trusted, as the system is. It writes only to buffers
    // that have an operation in flight which receives. For each of those `Buffer::begin` has taken a transport's lease to
    // receive on all the bytes that the operation may write to, before the helper is told of it. The lease on the bytes of a
    // message is given back when its event has been taken, after which the helper does not write to them again; all others
    // with the event that ends the operation. Where an operation ends on this side alone (`Link::keep`), they are kept until
    // the helper has closed its socket, which it does when nobody writes for it any more. A helper that adopts the memory
    // later comes after that, and does the same.
    unsafe { Arena::trusted(fd) }
}
