use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::{Drive, MAX_SHARDS, POLL_BUDGET, Poll, Sleeper};

/// Waits until `ready` says so (`true`), or until the deadline has passed (`false`; `ready` is asked once more then).
/// While it waits it drives the shards whose tokens are free. `None` waits without end.
///
/// `ready` is asked often and must be cheap; it becomes true by what the polling itself delivers, or by another thread
/// that then calls `sleeper.wake()`. Once it has said so it is not asked again, so it may use up what it found. One
/// sleeper serves one waiting thread at a time.
pub fn wait_until(
    drive: &dyn Drive,
    sleeper: &Arc<dyn Sleeper>,
    deadline_ns: Option<u64>,
    ready: impl FnMut() -> bool,
) -> bool {
    wait_with(drive, sleeper, deadline_ns, ready, sleep_on_descriptors)
}

/// The algorithm, with the sleep itself left open: a model checker cannot sleep in the kernel.
pub(crate) fn wait_with(
    drive: &dyn Drive,
    sleeper: &Arc<dyn Sleeper>,
    deadline_ns: Option<u64>,
    mut ready: impl FnMut() -> bool,
    sleep: impl Fn(&dyn Drive, u64, &dyn Sleeper, Option<u64>),
) -> bool {
    if ready() {
        return true;
    }
    let mut held = Held { drive, mask: 0 };
    loop {
        held.claim_free();
        let polled = held.poll();
        if ready() {
            return true;
        }
        if deadline_ns.is_some_and(|deadline| drive.now_ns() >= deadline) {
            return false;
        }
        if polled.work > 0 {
            continue;
        }
        let next = polled.and(Poll { work: 0, deadline_ns }).deadline_ns;
        if held.sleep_unless(sleeper, next, &mut ready, &sleep) {
            return true;
        }
    }
}

/// The tokens a waiter holds: bit `n` for shard `n`. Dropping it releases them.
struct Held<'a> {
    drive: &'a dyn Drive,
    mask: u64,
}

impl Held<'_> {
    fn claim_free(&mut self) {
        for shard in 0..self.drive.shards().min(MAX_SHARDS) {
            if self.mask & (1 << shard) == 0 && self.drive.tokens().claim(shard) {
                self.mask |= 1 << shard;
            }
        }
    }

    fn holds_all(&self) -> bool {
        self.mask.count_ones() as usize == self.drive.shards()
    }

    fn poll(&self) -> Poll {
        shards_of(self.mask).map(|shard| self.drive.poll(shard, POLL_BUDGET)).fold(Poll::default(), Poll::and)
    }

    fn arm(&self) -> bool {
        shards_of(self.mask).all(|shard| self.drive.arm(shard))
    }

    /// Announces sleep, looks once more at everything that could have changed before the announcement, then sleeps. Gives
    /// whether `ready` said so at that look: it may not say so again.
    fn sleep_unless(
        &mut self,
        sleeper: &Arc<dyn Sleeper>,
        next_ns: Option<u64>,
        ready: &mut impl FnMut() -> bool,
        sleep: &impl Fn(&dyn Drive, u64, &dyn Sleeper, Option<u64>),
    ) -> bool {
        let tokenless = !self.holds_all();
        sleeper.prepare();
        if tokenless {
            self.drive.tokens().join(sleeper);
        }
        let before = self.mask;
        self.claim_free();
        let may_sleep = self.mask == before && self.arm();
        let over = may_sleep && ready();
        if may_sleep && !over {
            sleep(self.drive, self.mask, &**sleeper, next_ns);
        }
        if tokenless {
            self.drive.tokens().leave(sleeper);
        }
        sleeper.finish();
        over
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let now_ns = self.drive.now_ns();
        for shard in shards_of(self.mask) {
            self.drive.tokens().release(shard, now_ns);
        }
    }
}

fn shards_of(mask: u64) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let shard = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (shard < MAX_SHARDS).then_some(shard)
    })
}

/// Sleeps until a held shard or the sleeper becomes readable, or until `next_ns`.
fn sleep_on_descriptors(drive: &dyn Drive, mask: u64, sleeper: &dyn Sleeper, next_ns: Option<u64>) {
    let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut fds = [const { None::<BorrowedFd<'_>> }; MAX_SHARDS + 1];
    let mut count = 1;
    fds[0] = Some(sleeper.fd());
    for shard in shards_of(mask) {
        fds[count] = Some(drive.wait_fd(shard));
        count += 1;
    }
    let mut set: smallvec::SmallVec<[PollFd<'_>; 8]> =
        fds.into_iter().take(count).flatten().map(readable).collect();
    let timeout = next_ns.map(|next| {
        let left = next.saturating_sub(drive.now_ns());
        TimeSpec::new((left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64)
    });
    // EINTR and every other answer mean the same: look again.
    let _ = ppoll(&mut set, timeout, None);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::super::{Clock, EventFd, Tokens};
    use super::*;

    /// A node of no shards whose time stands still.
    struct Idle(Tokens);

    impl Clock for Idle {
        fn now_ns(&self) -> u64 {
            0
        }
    }

    impl Drive for Idle {
        fn shards(&self) -> usize {
            0
        }
        fn tokens(&self) -> &Tokens {
            &self.0
        }
        fn poll(&self, _: usize, _: usize) -> Poll {
            Poll::default()
        }
        fn arm(&self, _: usize) -> bool {
            true
        }
        fn wait_fd(&self, _: usize) -> BorrowedFd<'_> {
            unreachable!("there are no shards")
        }
    }

    /// What `ready` says may be true once only, as a wake-up that is taken is.
    #[test]
    fn the_first_true_ends_the_wait_at_whichever_look_it_comes() {
        const LOOKS: usize = 6;
        for look in 1..=LOOKS {
            let sleeper: Arc<dyn Sleeper> = Arc::new(EventFd::new().unwrap());
            let looks = Cell::new(0);
            let once = || {
                looks.set(looks.get() + 1);
                assert!(looks.get() <= LOOKS, "the answer of look {look} is lost");
                looks.get() == look
            };
            assert!(wait_with(&Idle(Tokens::new(0)), &sleeper, None, once, |_, _, _, _| {}));
            assert_eq!(looks.get(), look);
        }
    }
}
