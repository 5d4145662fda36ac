use std::fmt;
use std::str::FromStr;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::{BenchError, Result};

/// The cores of the two sides of a measurement: the first two that this process may use, or the same one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Where the side runs that takes the time.
    pub(crate) client: usize,
    /// Where the other side runs.
    pub(crate) server: usize,
}

impl Cores {
    pub(crate) fn choose() -> Result<Cores> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(BenchError::system("ask for the cores"))?;
        let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
        let client = cores.next().unwrap_or(0);
        Ok(Cores { client, server: cores.next().unwrap_or(client) })
    }

    /// The same for what runs where the client does.
    pub(crate) fn swapped(self) -> Cores {
        Cores { client: self.server, server: self.client }
    }

    /// A moment's pause in a loop that waits for memory to change. With one core for both sides the other side must
    /// run for that to happen.
    pub(crate) fn relax(self) {
        if self.client == self.server { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Keeps the calling thread, and the threads it will start, on one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).map_err(BenchError::system("choose a core"))?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(BenchError::system("stay on a core"))
}

/// The cores that this process may have at all.
fn all() -> Result<Vec<usize>> {
    let allowed = || {
        roam()?;
        let set = sched_getaffinity(Pid::from_raw(0)).map_err(BenchError::system("ask for the cores"))?;
        Ok((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect())
    };
    // A thread of its own: this one may be pinned, and stays so.
    std::thread::scope(|scope| scope.spawn(allowed).join()).expect("the thread does not panic")
}

/// How many cores this process may have at all.
pub(crate) fn count() -> Result<usize> {
    Ok(all()?.len())
}

/// Two cores that the two sides do not use.
pub(crate) fn others(cores: Cores) -> Result<[usize; 2]> {
    let all = all()?;
    let mut others = all.iter().copied().filter(|core| ![cores.client, cores.server].contains(core));
    let two = others.next().zip(others.next());
    two.map(|(first, second)| [first, second]).ok_or_else(|| lacks(all.len(), "this needs 4"))
}

/// This machine has too few cores for a row.
pub(crate) fn lacks(count: usize, needed: &str) -> BenchError {
    BenchError::Peer { program: "this machine", what: format!("has {count} cores, and {needed}") }
}

/// Lets the calling thread, and the threads it will start, run on every core that this process may have at all.
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
