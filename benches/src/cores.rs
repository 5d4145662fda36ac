//! The processor cores of a measurement, and the choice of cores for threads.

use std::fmt;
use std::str::FromStr;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::{BenchError, Result};

/// The cores of the two sides of a measurement, which may be the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Core of the side that measures time.
    pub(crate) client: usize,
    /// Core of the other side.
    pub(crate) server: usize,
}

impl Cores {
    pub(crate) fn choose() -> Result<Cores> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(BenchError::system("ask for the cores"))?;
        let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
        let client = cores.next().unwrap_or(0);
        Ok(Cores { client, server: cores.next().unwrap_or(client) })
    }

    /// Returns these cores with the roles of client and server exchanged.
    pub(crate) fn swapped(self) -> Cores {
        Cores { client: self.server, server: self.client }
    }

    /// Pauses in a loop that waits for the other side to change memory. If both sides share a core,
    /// yields the core to the other side.
    pub(crate) fn relax(self) {
        if self.client == self.server { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Pins the calling thread, and the threads that it will start, to one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).map_err(BenchError::system("choose a core"))?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(BenchError::system("stay on a core"))
}

/// Returns all cores that this process may use.
fn all() -> Result<Vec<usize>> {
    let allowed = || {
        roam()?;
        let set = sched_getaffinity(Pid::from_raw(0)).map_err(BenchError::system("ask for the cores"))?;
        Ok((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect())
    };
    // In a separate thread, because this one may be pinned and must stay so.
    std::thread::scope(|scope| scope.spawn(allowed).join()).expect("the thread does not panic")
}

/// Returns the number of cores that this process may use.
pub(crate) fn count() -> Result<usize> {
    Ok(all()?.len())
}

/// Returns two further cores, for threads besides those of the two sides; an error if there are
/// fewer than two.
pub(crate) fn others(cores: Cores) -> Result<[usize; 2]> {
    let all = all()?;
    let mut others = all.iter().copied().filter(|core| ![cores.client, cores.server].contains(core));
    let two = others.next().zip(others.next());
    two.map(|(first, second)| [first, second]).ok_or_else(|| lacks(all.len(), "this needs 4"))
}

/// Returns the error for a machine with too few cores for a row.
pub(crate) fn lacks(count: usize, needed: &str) -> BenchError {
    BenchError::Peer { program: "this machine", problem: format!("has {count} cores, and {needed}") }
}

/// Lets the calling thread, and the threads that it will start, run on every core that this process
/// may use.
pub(crate) fn roam() -> Result<()> {
    let mut set = CpuSet::new();
    for core in 0..CpuSet::count() {
        set.set(core).map_err(BenchError::system("choose a core"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(BenchError::system("leave a core"))
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.client, self.server)
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Cores, String> {
        let parse = |part: &str| part.parse().map_err(|error| format!("'{part}': {error}"));
        let (client, server) = text.split_once(',').ok_or("two numbers and a comma are expected")?;
        Ok(Cores { client: parse(client)?, server: parse(server)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_survive_their_text() {
        let cores = Cores { client: 0, server: 17 };
        assert_eq!(cores.to_string().parse(), Ok(cores));
        assert!("3".parse::<Cores>().is_err() && "3,x".parse::<Cores>().is_err());
    }
}
