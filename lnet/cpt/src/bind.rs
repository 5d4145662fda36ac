use crate::{CptError, CptTable, CpuSet, sys};

/// Lets the calling thread run on the CPUs of a partition only, or on all CPUs of the table with `None`
/// (`cfs_cpt_bind`, S-306). Returns whether anything was bound: a table without affinity (one partition that covers
/// all CPUs, or virtual partitions) leaves threads as they are.
///
/// If the container forbids some of the CPUs, because its set has become smaller since the table was made, the
/// thread stays as it was and the error names them.
///
/// # Errors
/// EINVAL ([`CptError::NoSuchPartition`]) for a partition that the table does not have; ENODEV ([`CptError::Empty`],
/// [`CptError::NoCpus`]) for one without CPUs; EPERM ([`CptError::Forbidden`]) if the container forbids some of them; else
/// what the system says ([`CptError::System`]).
///
/// ```
/// use lnet_cpt::{CptTable, Topology, bind_thread};
///
/// let table = CptTable::create(Topology::machine()?, 1)?;
/// assert!(!bind_thread(&table, 0)?, "one partition covers all CPUs");
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
pub fn bind_thread(table: &CptTable, cpt: impl Into<Option<usize>>) -> Result<bool, CptError> {
    let cpt = cpt.into();
    if let Some(cpt) = cpt.filter(|&cpt| cpt >= table.partitions()) {
        return Err(CptError::NoSuchPartition { cpt, partitions: table.partitions() });
    }
    if !table.has_affinity() {
        return Ok(false);
    }
    let cpus = table.cpumask(cpt);
    if cpus.is_empty() {
        return Err(cpt.map_or(CptError::NoCpus, |cpt| CptError::Empty { cpt }));
    }
    bind_to(cpus).map(|()| true)
}

fn bind_to(cpus: &CpuSet) -> Result<(), CptError> {
    let before = sys::affinity()?;
    let outcome = sys::set_affinity(cpus);
    let now = sys::affinity()?;
    match outcome {
        Ok(()) if now == *cpus => Ok(()),
        Ok(()) => {
            sys::set_affinity(&before)?;
            Err(CptError::Forbidden { cpus: cpus.difference(&now) })
        }
        // The kernel's word for "none of them".
        Err(CptError::System { errno: nix::errno::Errno::EINVAL, .. }) => {
            Err(CptError::Forbidden { cpus: cpus.clone() })
        }
        Err(error) => Err(error),
    }
}
