//! Memory for buffers, shared with the client.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;

use lnet_region::{Fragment, Pages, Region, WeakRegion};
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use nlx_core::Errno;
use nlx_driver_proto::{Reason, Refusal, Reply, Segment};

use super::refusing::{no_memory, starved};
use super::{ReplyPacket, Session, Violation};
use crate::ClientQuotas;
use crate::costs::ArenaCharges;
use crate::departed::SessionTeardown;
use crate::handle_table::HandleTable;
use crate::seal::MemoryFd;

/// The arenas of a client, by 32-bit handles.
pub(super) struct Arenas {
    table: HandleTable<Arena>,
    /// Bytes of all arenas.
    bytes: u64,
    bytes_max: u64,
    /// Maximum bytes of one arena.
    arena_max: u64,
    /// Released arenas, with their bytes, until their memory is unmapped and closed: the user is
    /// charged for them until then. There are no more than the maximum number of arenas.
    leaving: Vec<(WeakRegion, u64, ArenaCharges)>,
}

struct Arena {
    region: Region,
    /// Set once the client has sealed the arena.
    sealed: Cell<bool>,
    bytes: u64,
    /// Number of buffer segments in the arena.
    segments: u32,
    charges: ArenaCharges,
}

impl Arena {
    fn is_sealed(&self) -> bool {
        let seen = || self.region.share().is_ok_and(lnet_region::is_sealed);
        if !self.sealed.get() && seen() {
            self.sealed.set(true);
        }
        self.sealed.get()
    }
}

impl Arenas {
    pub(super) fn new(quotas: &ClientQuotas) -> Arenas {
        Arenas {
            table: HandleTable::short(quotas.arenas),
            bytes: 0,
            bytes_max: quotas.bytes,
            arena_max: quotas.arena_bytes,
            leaving: Vec::new(),
        }
    }

    /// Checks that a further arena of `bytes` bytes is within the quotas.
    fn check_room(&self, bytes: u64) -> Result<(), Refusal> {
        if self.table.is_full() {
            let count = self.table.len() as u64;
            return Err(Refusal::of(Errno::ENOMEM, Reason::Arenas, count + 1, count));
        }
        if self.leaving.len() >= self.table.most() {
            let count = self.leaving.len() as u64;
            return Err(Refusal::of(Errno::ENOMEM, Reason::Arenas, count + 1, count));
        }
        if bytes > self.arena_max {
            return Err(Refusal::of(Errno::ENOMEM, Reason::Bytes, bytes, self.arena_max));
        }
        if bytes > self.bytes_max - self.bytes {
            let wanted = self.bytes.saturating_add(bytes);
            return Err(Refusal::of(Errno::ENOMEM, Reason::Bytes, wanted, self.bytes_max));
        }
        Ok(())
    }

    fn insert(&mut self, region: Region, charges: ArenaCharges) -> Result<u32, Refusal> {
        let bytes = region.len() as u64;
        self.check_room(bytes)?;
        let inserted =
            self.table.insert(Arena { region, sealed: Cell::new(false), bytes, segments: 0, charges });
        let full = Refusal::of(Errno::ENOMEM, Reason::Arenas, 0, self.table.len() as u64);
        let handle = inserted.ok_or(full)?;
        self.bytes += bytes;
        // A short handle.
        Ok(handle as u32)
    }

    /// Returns the memory of a segment. Memory that is not sealed is never touched.
    pub(super) fn fragment(&self, segment: &Segment) -> Result<Fragment, Refusal> {
        let Segment { arena, offset, length } = *segment;
        let found = self.table.get(arena.into());
        let found = found.ok_or(Refusal::of(Errno::ENOENT, Reason::NoArena, arena.into(), 0))?;
        if !found.is_sealed() {
            return Err(Refusal::of(Errno::EPERM, Reason::Unsealed, arena.into(), 0));
        }
        let region = &found.region;
        let outside = Refusal::of(Errno::EINVAL, Reason::Segment, offset, region.len() as u64);
        let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        let (offset, length) = range.ok_or(outside)?;
        Fragment::new(region.clone(), offset, length).map_err(|_| outside)
    }

    /// Counts one buffer segment more in the arena.
    pub(super) fn hold(&mut self, arena: u32) {
        if let Some(arena) = self.table.get_mut(arena.into()) {
            // Fewer than all segments of all buffers, which quotas bound.
            arena.segments += 1;
        }
    }

    /// Counts one buffer segment less in the arena.
    pub(super) fn release(&mut self, arena: u32) {
        if let Some(arena) = self.table.get_mut(arena.into()) {
            arena.segments = arena.segments.saturating_sub(1);
        }
    }

    /// Checks that no page of the arenas' memory was lost.
    pub(super) fn check(&self) -> Result<(), Violation> {
        match self.table.iter().any(|arena| arena.region.has_faulted()) {
            true => Err(Violation::Fault { what: "an arena" }),
            false => Ok(()),
        }
    }

    /// Releases one arena, and adds its leftovers to the teardown. Returns false if there is none.
    pub(super) fn release_one(&mut self, teardown: &SessionTeardown) -> bool {
        let leaving = match self.table.pop() {
            Some((_, Arena { region, bytes, charges, .. })) => Some((region.weak(), bytes, charges)),
            None => self.leaving.pop(),
        };
        let any = leaving.is_some();
        teardown.arenas.lock().extend(leaving);
        any
    }

    /// Drops the released arenas whose memory is gone.
    pub(super) fn reap(&mut self) {
        self.leaving.retain(|(region, ..)| !region.is_gone());
    }
}

impl Session {
    pub(super) fn create_arena(
        &mut self,
        bytes: u64,
        huge: bool,
        near: Option<NonZeroU32>,
        answer: &mut ReplyPacket,
    ) -> Result<Reply, Refusal> {
        self.arenas.reap();
        self.arenas.check_room(bytes)?;
        self.reserve_arena()?;
        answer.reserve_fds(1)?;
        let charges = ArenaCharges::new(&self.host.accounts, self.payer, bytes)?;
        // A length that does not fit is also too long for a region.
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let pages = if huge && self.host.config.huge_pages { Pages::Huge } else { Pages::Normal };
        let region = Region::memfd(length, pages).map_err(|error| no_memory(&error))?;
        if let Some(near) = near {
            let (start, bytes) = region.mapping();
            self.place(near, start, bytes);
        }
        let fd = region.share().map_err(|error| no_memory(&error))?;
        let huge = is_huge(fd)?;
        let theirs = fd.try_clone_to_owned().map_err(|error| no_descriptor(&error))?;
        answer.fds.push(MemoryFd::try_new(theirs).map_err(starved)?.into());
        self.enter_arena(region, huge, charges)
    }

    /// Reserves room for a further arena, also among the client's leftovers.
    fn reserve_arena(&mut self) -> Result<(), Refusal> {
        let Arenas { table, leaving, .. } = &mut self.arenas;
        table.reserve().map_err(starved)?;
        leaving.try_reserve(table.len() + 1).map_err(starved)?;
        self.closing.teardown().reserve_arenas(table.len() + leaving.len() + 1).map_err(starved)
    }

    fn enter_arena(&mut self, region: Region, huge: bool, charges: ArenaCharges) -> Result<Reply, Refusal> {
        region.watch().map_err(|error| no_memory(&error))?;
        let bytes = region.len() as u64;
        let arena = self.arenas.insert(region, charges)?;
        self.record.counters.arenas.add(1);
        self.record.counters.bytes.add(bytes);
        Ok(Reply::Arena { arena, bytes, huge })
    }

    pub(super) fn release_arena(&mut self, handle: u32) -> Result<Reply, Refusal> {
        self.arenas.reap();
        let Arenas { table, bytes, leaving, .. } = &mut self.arenas;
        let gone = Refusal::of(Errno::ENOENT, Reason::NoArena, handle.into(), 0);
        let arena = table.get(handle.into()).ok_or(gone)?;
        if arena.segments > 0 {
            return Err(Refusal::of(Errno::EBUSY, Reason::ArenaBusy, arena.segments.into(), 0));
        }
        *bytes -= arena.bytes;
        self.record.counters.arenas.sub(1);
        self.record.counters.bytes.sub(arena.bytes);
        if let Some(Arena { region, bytes, charges, .. }) = table.remove(handle.into()) {
            let weak = region.weak();
            drop(region);
            if !weak.is_gone() {
                leaving.push((weak, bytes, charges));
            }
        }
        Ok(Reply::Done)
    }
}

fn is_huge(fd: BorrowedFd<'_>) -> Result<bool, Refusal> {
    let system = |errno| Refusal::new(errno, Reason::System);
    Ok(fstatfs(fd).map_err(system)?.filesystem_type() == HUGETLBFS_MAGIC)
}

pub(super) fn no_descriptor(error: &std::io::Error) -> Refusal {
    Refusal::new(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw), Reason::System)
}
