//! A control group whose processes share half of the machine's processors, and have the weight of
//! one process against others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{BenchError, Result};

/// The folders of groups, of version 1 and 2.
const ROOTS: [&str; 4] =
    ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Period of the processor limit in microseconds.
const PERIOD_US: usize = 100_000;

/// The weight of a process without a nice value, and its factor for each step.
const WEIGHT: f64 = 1024.0;
const WEIGHT_STEP: f64 = 1.25;

/// The group. Its processes must have ended before it is dropped.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// Creates a group with half of the processors that are online.
    pub(super) fn of_half_the_machine() -> Result<Group> {
        let lacks =
            |problem: &str| BenchError::Peer { program: "a control group", problem: problem.to_string() };
        let processors = online().map_err(BenchError::system("count the processors"))?;
        let (quota_us, nice) = (processors * PERIOD_US / 2, nice());
        let made = ROOTS.iter().find_map(|root| Group::make(Path::new(root), quota_us, nice).ok());
        made.ok_or_else(|| lacks("with half of the processors cannot be made here"))
    }

    fn make(root: &Path, quota_us: usize, nice: i32) -> io::Result<Group> {
        let path = root.join(format!("nlx-bench-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group(path);
        let set = |file: &str, value: String| {
            // Existing files are opened: without them the group is of another kind.
            fs::File::options().write(true).open(group.0.join(file))?;
            fs::write(group.0.join(file), value)
        };
        set("cpu.max", format!("{quota_us} {PERIOD_US}"))
            .and_then(|()| set("cpu.weight.nice", nice.to_string()))
            .or_else(|_| {
                set("cpu.cfs_period_us", PERIOD_US.to_string())?;
                set("cpu.cfs_quota_us", quota_us.to_string())?;
                set("cpu.shares", (WEIGHT / WEIGHT_STEP.powi(nice)).round().to_string())
            })?;
        Ok(group)
    }

    /// Returns the file to which a process writes its id to join.
    pub(super) fn members(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns the number of the machine's processors, including those that this process may not use.
fn online() -> io::Result<usize> {
    use nix::unistd::{SysconfVar, sysconf};
    Ok(sysconf(SysconfVar::_NPROCESSORS_ONLN)?.and_then(|count| usize::try_from(count).ok()).unwrap_or(1))
}

/// Returns the nice value of this process: the nineteenth field of its `stat`, whose second field
/// may contain blanks.
fn nice() -> i32 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().nth(16).and_then(|nice| nice.parse().ok()).unwrap_or(0)
}
