//! Waking a thread that sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lnet_api::{Clock, Drive, EventFd, Sleeper, Tokens, wait_until};

use nlx_bev_cqueue::{Heap, MIN_SLOTS, wake as queue};
use parking_lot::Mutex;

use crate::cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Ends the other thread; no turn is ever this.
const END: u64 = u64::MAX;

/// Two threads wake each other in turn; each waits as a thread waits for LNet that has nothing to drive itself.
/// Microseconds one way.
pub(crate) fn waiter(round: &Round) -> Result<Sample> {
    pingpong(round, EventBell::new()?, EventBell::new()?)
}

/// Two threads wake each other in turn, as the producer of a queue of buffer events wakes its consumer. Microseconds one
/// way. Sleepers that do not look before they sleep, as their anchor does not.
pub(crate) fn futex(round: &Round) -> Result<Sample> {
    pingpong(round, QueueBell::futex()?.without_spin(), QueueBell::futex()?.without_spin())
}

/// The same with sleepers that sleep on an eventfd, as those do that have other descriptors to wait for.
pub(crate) fn eventfd(round: &Round) -> Result<Sample> {
    pingpong(round, QueueBell::eventfd()?.without_spin(), QueueBell::eventfd()?.without_spin())
}

/// The same with sleepers on a futex that look for a while before they sleep.
pub(crate) fn spinning(round: &Round) -> Result<Sample> {
    pingpong(round, QueueBell::futex()?, QueueBell::futex()?)
}

fn pingpong<B: Bell>(round: &Round, there: B, back: B) -> Result<Sample> {
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            cores::pin(round.cores.server)?;
            let mut turn = 1;
            while there.wait_for(turn)? != END {
                back.ring(turn)?;
                turn += 1;
            }
            Ok(())
        });
        let mut turn = 0;
        let timed = Timed::warm(round.time, || {
            turn += 1;
            there.ring(turn)?;
            back.wait_for(turn)?;
            Ok(1)
        });
        there.ring(END)?;
        echo.join().expect("the echo does not panic")?;
        Ok(Sample::of(timed?.microseconds_per_step() / 2.0))
    })
}

/// What one thread waits for and the other brings about.
trait Bell: Sync {
    /// Announces this turn, and wakes the other thread if it sleeps.
    fn ring(&self, turn: u64) -> Result<()>;

    /// Sleeps until this turn, or a later one, has been announced, and gives that.
    fn wait_for(&self, turn: u64) -> Result<u64>;
}

struct EventBell {
    rung: AtomicU64,
    sleeper: Arc<dyn Sleeper>,
    clock: NothingToDrive,
}

impl EventBell {
    fn new() -> Result<EventBell> {
        let sleeper = Arc::new(EventFd::new().map_err(BenchError::system("make an eventfd"))?);
        let clock = NothingToDrive { started: Instant::now(), tokens: Tokens::new(0) };
        Ok(EventBell { rung: AtomicU64::new(0), sleeper, clock })
    }
}

impl Bell for EventBell {
    fn ring(&self, turn: u64) -> Result<()> {
        self.rung.store(turn, Ordering::Release);
        self.sleeper.wake();
        Ok(())
    }

    fn wait_for(&self, turn: u64) -> Result<u64> {
        let rung = || self.rung.load(Ordering::Acquire);
        wait_until(&self.clock, &self.sleeper, None, || rung() >= turn);
        Ok(rung())
    }
}

struct QueueBell {
    rung: AtomicU64,
    waker: queue::Waker<Heap>,
    /// Used by one thread alone.
    sleeper: Mutex<queue::Sleeper<Heap>>,
}

impl QueueBell {
    fn futex() -> Result<QueueBell> {
        let memory = QueueBell::memory()?;
        Ok(QueueBell::new(queue::Waker::futex(memory.clone()), queue::Sleeper::futex(memory)))
    }

    fn eventfd() -> Result<QueueBell> {
        let (memory, (rings, sleeps)) =
            (QueueBell::memory()?, queue::eventfd().map_err(BenchError::nlx("make an eventfd"))?);
        let waker = queue::Waker::descriptor(memory.clone(), rings);
        Ok(QueueBell::new(waker, queue::Sleeper::descriptor(memory, sleeps)))
    }

    fn memory() -> Result<Heap> {
        Heap::new(MIN_SLOTS).map_err(BenchError::nlx("make a queue"))
    }

    fn new(waker: queue::Waker<Heap>, sleeper: queue::Sleeper<Heap>) -> QueueBell {
        QueueBell { rung: AtomicU64::new(0), waker, sleeper: Mutex::new(sleeper) }
    }

    fn without_spin(self) -> QueueBell {
        QueueBell { sleeper: Mutex::new(self.sleeper.into_inner().without_spin()), ..self }
    }
}

impl Bell for QueueBell {
    fn ring(&self, turn: u64) -> Result<()> {
        self.rung.store(turn, Ordering::Release);
        self.waker.wake().map(drop).map_err(BenchError::nlx("wake a consumer"))
    }

    fn wait_for(&self, turn: u64) -> Result<u64> {
        let mut sleeper = self.sleeper.lock();
        loop {
            let rung = self.rung.load(Ordering::Acquire);
            if rung >= turn {
                return Ok(rung);
            }
            let ready = || self.rung.load(Ordering::Acquire) >= turn;
            sleeper.sleep(None, ready).map_err(BenchError::nlx("sleep"))?;
        }
    }
}

/// A node without networks.
struct NothingToDrive {
    started: Instant,
    tokens: Tokens,
}

impl Clock for NothingToDrive {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

impl Drive for NothingToDrive {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}
