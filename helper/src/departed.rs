//! What clients that are gone have left, until LNet lets go of it (D10).

use lnet_region::WeakRegion;
use nlx_fallible::{NoMemory, TryArc};
use nlx_kcore::TmLeftover;
use parking_lot::Mutex;

use super::Leftovers;
use super::accounts::Charge;
use super::costs::{ArenaCharges, TmCharges};
use super::outlet::Outlet;
use super::tally::Tally;

/// What one client has left. Nobody frees it: the event queue of a transfer machine lives until LNet frees it, an arena's
/// memory until the last message lets go of it. Here is only looked whether they do.
#[derive(Default)]
pub(super) struct Estate {
    /// With what the user is charged with until they are gone.
    pub(super) tms: Mutex<Vec<(TmLeftover<Outlet>, TmCharges)>>,
    /// With their bytes, and what the user is charged with until they are gone.
    pub(super) arenas: Mutex<Vec<(WeakRegion, u64, ArenaCharges)>>,
    /// What the user is charged with for operations that LNet has not ended yet, which the client's numbers count.
    pub(super) operations: Mutex<Option<(TryArc<Tally>, Charge)>>,
}

impl Estate {
    /// Whether LNet has let go of all of it. What this process has still to unmap is LNet's no more.
    fn is_released(&self) -> bool {
        let (tms, arenas) = (self.tms.lock(), self.arenas.lock());
        tms.iter().all(|(tm, _)| tm.is_gone()) && arenas.iter().all(|(arena, ..)| arena.is_released())
    }

    /// Whether nothing is there any more. What is gone is forgotten, and looked at once: so asking often costs little.
    pub(super) fn is_gone(&self) -> bool {
        let (mut tms, mut arenas) = (self.tms.lock(), self.arenas.lock());
        while tms.pop_if(|(tm, _)| tm.is_gone()).is_some() {}
        while arenas.pop_if(|(arena, ..)| arena.is_gone()).is_some() {}
        self.trim();
        tms.is_empty() && arenas.is_empty()
    }

    /// Operations that LNet has ended are charged no more.
    fn trim(&self) {
        if let Some((tally, charge)) = &mut *self.operations.lock() {
            charge.trim(tally.operations.get(), 1);
        }
    }

    /// Makes room for so many transfer machines.
    pub(super) fn reserve_tms(&self, count: usize) -> Result<(), NoMemory> {
        let mut tms = self.tms.lock();
        let missing = count.saturating_sub(tms.len());
        tms.try_reserve(missing).map_err(|_| NoMemory)
    }

    /// Makes room for so many arenas.
    pub(super) fn reserve_arenas(&self, count: usize) -> Result<(), NoMemory> {
        let mut arenas = self.arenas.lock();
        let missing = count.saturating_sub(arenas.len());
        arenas.try_reserve(missing).map_err(|_| NoMemory)
    }

    /// What is still there; the rest is forgotten.
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

/// What a client that is gone has left.
pub struct Departure(pub(super) TryArc<Estate>);

impl Departure {
    /// Whether LNet has let go of all of it: nobody writes into the client's memory any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_released()
    }

    /// What there still is.
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
