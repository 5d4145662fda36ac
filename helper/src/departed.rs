//! Resources that departed clients leave behind, until LNet releases them (D10).

use lnet_region::WeakRegion;
use nlx_fallible::{NoMemory, TryArc};
use nlx_kcore::TmLeftover;
use parking_lot::Mutex;

use super::Leftovers;
use super::accounts::Charge;
use super::client_sink::ClientSink;
use super::costs::{ArenaCharges, TmCharges};
use super::counters::ClientCounters;

/// The leftovers of one client. This code only checks whether they are gone: the event queue of a
/// transfer machine lives until LNet frees it, an arena's memory until the last message releases
/// it.
#[derive(Default)]
pub(super) struct SessionTeardown {
    /// Transfer machines, with the user's charges until they are gone.
    pub(super) tms: Mutex<Vec<(TmLeftover<ClientSink>, TmCharges)>>,
    /// Arenas with their bytes, and the user's charges until they are gone.
    pub(super) arenas: Mutex<Vec<(WeakRegion, u64, ArenaCharges)>>,
    /// The charge for operations that LNet has not ended yet, which the client's counters count.
    pub(super) operations: Mutex<Option<(TryArc<ClientCounters>, Charge)>>,
}

impl SessionTeardown {
    /// Returns whether LNet has released all leftovers. Memory that this process still has to unmap
    /// does not count.
    fn is_released(&self) -> bool {
        let (tms, arenas) = (self.tms.lock(), self.arenas.lock());
        tms.iter().all(|(tm, _)| tm.is_gone()) && arenas.iter().all(|(arena, ..)| arena.is_released())
    }

    /// Returns whether nothing is left. Drops gone entries from the end only, so that frequent
    /// calls are cheap.
    pub(super) fn is_gone(&self) -> bool {
        let (mut tms, mut arenas) = (self.tms.lock(), self.arenas.lock());
        while tms.pop_if(|(tm, _)| tm.is_gone()).is_some() {}
        while arenas.pop_if(|(arena, ..)| arena.is_gone()).is_some() {}
        self.trim();
        tms.is_empty() && arenas.is_empty()
    }

    /// Releases the charge for operations that LNet has ended.
    fn trim(&self) {
        if let Some((counters, charge)) = &mut *self.operations.lock() {
            charge.trim(counters.operations.get(), 1);
        }
    }

    /// Reserves capacity for `count` transfer machines.
    pub(super) fn reserve_tms(&self, count: usize) -> Result<(), NoMemory> {
        let mut tms = self.tms.lock();
        let missing = count.saturating_sub(tms.len());
        tms.try_reserve(missing).map_err(|_| NoMemory)
    }

    /// Reserves capacity for `count` arenas.
    pub(super) fn reserve_arenas(&self, count: usize) -> Result<(), NoMemory> {
        let mut arenas = self.arenas.lock();
        let missing = count.saturating_sub(arenas.len());
        arenas.try_reserve(missing).map_err(|_| NoMemory)
    }

    /// Returns the counts of what is left, and drops the entries that are gone.
    pub(super) fn leftovers(&self) -> Leftovers {
        let (mut tms, mut arenas) = (self.tms.lock(), self.arenas.lock());
        tms.retain(|(tm, _)| !tm.is_gone());
        arenas.retain(|(arena, ..)| !arena.is_gone());
        self.trim();
        let bytes = arenas.iter().map(|(_, bytes, _)| bytes).sum();
        let tms = tms.len() as u64;
        Leftovers { tms, eqs: tms, arenas: arenas.len() as u64, bytes }
    }
}

/// The leftovers of a departed client.
pub struct Departure(pub(super) TryArc<SessionTeardown>);

impl Departure {
    /// Returns whether LNet has released all of them: nothing writes into the client's memory any
    /// more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_released()
    }

    /// Returns the counts of what is left.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        self.0.leftovers()
    }
}

impl std::fmt::Debug for Departure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Departure").field(&self.leftovers()).finish()
    }
}
