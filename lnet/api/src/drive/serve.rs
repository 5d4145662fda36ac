use std::sync::Arc;

use super::wait::sleep_on_descriptors;
use super::{Drive, POLL_BUDGET, Sleeper};

/// Drives one shard as its steward, until a waiter wants it or `over` says so. At once, if somebody else drives it.
///
/// `over` becomes true by another thread that then calls `sleeper.wake()`. The sleeper is the one that was named by
/// [`super::Tokens::set_steward`].
pub fn drive_shard(drive: &dyn Drive, shard: usize, sleeper: &Arc<dyn Sleeper>, over: impl Fn() -> bool) {
    drive_shard_with(drive, shard, sleeper, over, sleep_on_descriptors);
}

/// The algorithm, with the sleep itself left open: a model checker cannot sleep in the kernel.
pub(crate) fn drive_shard_with(
    drive: &dyn Drive,
    shard: usize,
    sleeper: &Arc<dyn Sleeper>,
    over: impl Fn() -> bool,
    sleep: impl Fn(&dyn Drive, u64, &dyn Sleeper, Option<u64>) -> u64,
) {
    let tokens = drive.tokens();
    let duty = Duty::begin(drive, shard);
    if !duty.has_token {
        return;
    }
    let stop = || over() || tokens.steward_called_off(shard);
    while !stop() {
        let polled = drive.poll(shard, POLL_BUDGET);
        if polled.work > 0 {
            continue;
        }
        sleeper.prepare();
        if !stop() && drive.arm(shard) {
            sleep(drive, 1 << shard, &**sleeper, polled.deadline_ns);
        }
        sleeper.finish();
    }
}

/// A steward on duty, with the token if it was free; dropping it ends both.
struct Duty<'a> {
    drive: &'a dyn Drive,
    shard: usize,
    has_token: bool,
}

impl Duty<'_> {
    fn begin(drive: &dyn Drive, shard: usize) -> Duty<'_> {
        drive.tokens().steward_begins(shard);
        let has_token = drive.tokens().claim(shard);
        Duty { drive, shard, has_token }
    }
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if self.has_token {
            self.drive.tokens().release(self.shard, self.drive.now_ns());
        }
        self.drive.tokens().steward_ends(self.shard);
    }
}
