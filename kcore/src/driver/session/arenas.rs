//! Memory for buffers, shared with the client.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lnet_region::{Fragment, Pages, Region, WeakRegion, closer};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use nlx_core::Errno;
use nlx_driver_proto::{Reason, Refusal, Reply, Segment};

use super::refusing::{no_memory, starved};
use super::{Answer, Session, Violation};
use crate::driver::ClientQuotas;
use crate::driver::costs::ArenaCharges;
use crate::driver::departed::Estate;
use crate::driver::slots::Slots;

/// What the memory of a helper is sealed with: its size is fixed for good. (A helper of a later time may also forbid to
/// execute it.)
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// `F_SEAL_EXEC`, which nix does not know: some systems set it on every memfd.
const SEAL_EXEC: SealFlag = SealFlag::from_bits_retain(0x20);

/// The arenas of a client, by handles of 32 bits.
pub(super) struct Arenas {
    table: Slots<Arena>,
    /// Bytes of all of them.
    bytes: u64,
    bytes_max: u64,
    /// Bytes of one.
    arena_max: u64,
    /// Those that were released, until their memory is unmapped and closed, with their bytes: the user is charged with them for
    /// as long. There are no more than there may be arenas.
    leaving: Vec<(WeakRegion, u64, ArenaCharges)>,
}

struct Arena {
    region: Region,
    bytes: u64,
    /// Segments of buffers that lie in it.
    segments: u32,
    charges: ArenaCharges,
}

impl Arenas {
    pub(super) fn new(quotas: &ClientQuotas) -> Arenas {
        Arenas {
            table: Slots::short(quotas.arenas),
            bytes: 0,
            bytes_max: quotas.bytes,
            arena_max: quotas.arena_bytes,
            leaving: Vec::new(),
        }
    }

    /// Whether there may be another arena of so many bytes.
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
        let inserted = self.table.insert(Arena { region, bytes, segments: 0, charges });
        let full = Refusal::of(Errno::ENOMEM, Reason::Arenas, 0, self.table.len() as u64);
        let handle = inserted.ok_or(full)?;
        self.bytes += bytes;
        // A short handle.
        Ok(handle as u32)
    }

    /// The memory of a segment.
    pub(super) fn fragment(&self, segment: &Segment) -> Result<Fragment, Refusal> {
        let Segment { arena, offset, length } = *segment;
        let found = self.table.get(arena.into());
        let Arena { region, .. } =
            found.ok_or(Refusal::of(Errno::ENOENT, Reason::NoArena, arena.into(), 0))?;
        let outside = Refusal::of(Errno::EINVAL, Reason::Segment, offset, region.len() as u64);
        let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        let (offset, length) = range.ok_or(outside)?;
        Fragment::new(region.clone(), offset, length).map_err(|_| outside)
    }

    /// A segment of a buffer lies in it now.
    pub(super) fn hold(&mut self, arena: u32) {
        if let Some(arena) = self.table.get_mut(arena.into()) {
            // Fewer than all segments of all buffers, which quotas bound.
            arena.segments += 1;
        }
    }

    /// And no more.
    pub(super) fn release(&mut self, arena: u32) {
        if let Some(arena) = self.table.get_mut(arena.into()) {
            arena.segments = arena.segments.saturating_sub(1);
        }
    }

    /// Whether their memory is what it was.
    pub(super) fn check(&self) -> Result<(), Violation> {
        match self.table.iter().any(|arena| arena.region.has_faulted()) {
            true => Err(Violation::Fault { what: "an arena" }),
            false => Ok(()),
        }
    }

    /// Lets go of the memory of one, and notes that there may be something left of it; false if there is none.
    pub(super) fn let_go_of_one(&mut self, estate: &Estate) -> bool {
        let leaving = match self.table.pop() {
            Some((_, Arena { region, bytes, charges, .. })) => Some((region.weak(), bytes, charges)),
            None => self.leaving.pop(),
        };
        let any = leaving.is_some();
        estate.arenas.lock().extend(leaving);
        any
    }

    /// Forgets those that were released and whose memory is gone by now.
    pub(super) fn reap(&mut self) {
        self.leaving.retain(|(region, ..)| !region.is_gone());
    }
}

impl Session {
    pub(super) fn create_arena(
        &mut self,
        bytes: u64,
        huge: bool,
        answer: &mut Answer,
    ) -> Result<Reply, Refusal> {
        self.arenas.reap();
        self.arenas.check_room(bytes)?;
        self.reserve_arena()?;
        answer.reserve_fds(1)?;
        let charges = ArenaCharges::new(&self.host.accounts, self.payer, bytes)?;
        // What does not fit is too long for a region, too.
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let pages = if huge && self.host.config.huge_pages { Pages::Huge } else { Pages::Normal };
        let region = Region::memfd(length, pages).map_err(|error| no_memory(&error))?;
        let fd = region.share().map_err(|error| no_memory(&error))?;
        let huge = is_huge(fd)?;
        answer.fds.push(fd.try_clone_to_owned().map_err(|error| no_descriptor(&error))?.into());
        self.enter_arena(region, huge, charges)
    }

    pub(super) fn adopt_arena(&mut self, fd: Option<OwnedFd>) -> Result<Reply, Refusal> {
        let fd = fd.ok_or(Refusal::new(Errno::EBADR, Reason::NotArena))?;
        self.arenas.reap();
        let checked = self.check_adoptable(fd.as_fd());
        let reserved = self.reserve_arena();
        let charged = reserved
            .and(checked)
            .and_then(|(huge, bytes)| Ok((huge, ArenaCharges::new(&self.host.accounts, self.payer, bytes)?)));
        let (huge, charges) = match charged {
            Ok(charged) => charged,
            Err(refusal) => {
                closer::close(fd);
                return Err(refusal);
            }
        };
        let region = Region::attach(fd).map_err(|error| Refusal::new(error.errno(), Reason::NotArena))?;
        self.enter_arena(region, huge, charges)
    }

    /// Makes room for one arena more, also among what the client leaves.
    fn reserve_arena(&mut self) -> Result<(), Refusal> {
        let Arenas { table, leaving, .. } = &mut self.arenas;
        table.reserve().map_err(starved)?;
        leaving.try_reserve(table.len() + 1).map_err(starved)?;
        self.closing.estate().reserve_arenas(table.len() + leaving.len() + 1).map_err(starved)
    }

    /// Sealed memory of a helper, which has room. Gives whether it lies on huge pages, and its bytes.
    fn check_adoptable(&self, fd: BorrowedFd<'_>) -> Result<(bool, u64), Refusal> {
        let not_arena = |errno| Refusal::new(errno, Reason::NotArena);
        check_seals(fd).map_err(not_arena)?;
        let huge = is_huge(fd)?;
        if huge && !self.host.config.huge_pages {
            return Err(not_arena(Errno::EPERM));
        }
        // Sealed, so that it stays what it is.
        let bytes = fstat(fd).map_err(not_arena)?.st_size;
        let bytes = u64::try_from(bytes).map_err(|_| not_arena(Errno::EINVAL))?;
        self.arenas.check_room(bytes)?;
        Ok((huge, bytes))
    }

    fn enter_arena(&mut self, region: Region, huge: bool, charges: ArenaCharges) -> Result<Reply, Refusal> {
        region.watch().map_err(|error| no_memory(&error))?;
        let bytes = region.len() as u64;
        let arena = self.arenas.insert(region, charges)?;
        self.record.tally.arenas.add(1);
        self.record.tally.bytes.add(bytes);
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
        self.record.tally.arenas.sub(1);
        self.record.tally.bytes.sub(arena.bytes);
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

/// Whether a descriptor is memory with the seals of an arena, by calls that never block whatever it is.
pub(in crate::driver) fn check_seals(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // Only files in memory have seals: everything else is refused here.
    let seals = SealFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GET_SEALS)?);
    if seals.difference(SEAL_EXEC) == SEALS { Ok(()) } else { Err(Errno::EINVAL) }
}

fn is_huge(fd: BorrowedFd<'_>) -> Result<bool, Refusal> {
    let system = |errno| Refusal::new(errno, Reason::System);
    Ok(fstatfs(fd).map_err(system)?.filesystem_type() == HUGETLBFS_MAGIC)
}

pub(super) fn no_descriptor(error: &std::io::Error) -> Refusal {
    Refusal::new(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw), Reason::System)
}
