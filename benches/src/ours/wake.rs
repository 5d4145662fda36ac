//! Wake-ups of a sleeping thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lnet_api::{Clock, Drive, Sleeper, Tokens, wait_until};

use nlx_bev_cqueue::{Heap, MIN_SLOTS, QueueWord};
use nlx_sync::{DEFAULT_SPIN, Waker};

use crate::cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Turn number that ends the other thread; no real turn has it.
const END: u64 = u64::MAX;

/// Two threads wake each other alternately; each waits like a thread that waits for LNet and has
/// nothing to drive itself. Microseconds one way.
pub(crate) fn waiter(round: &Round) -> Result<Sample> {
    pingpong(round, EventWakeChannel::new()?, EventWakeChannel::new()?)
}

/// Two threads wake each other alternately, as the producer of a queue of buffer events wakes its
/// consumer. Microseconds one way. The sleepers do not poll before they sleep, as in the anchor.
pub(crate) fn futex(round: &Round) -> Result<Sample> {
    pingpong(round, QueueWakeChannel::futex()?, QueueWakeChannel::futex()?)
}

/// [`futex`] with sleepers on an eventfd, as in programs that also wait for other descriptors.
pub(crate) fn eventfd(round: &Round) -> Result<Sample> {
    pingpong(round, QueueWakeChannel::eventfd()?, QueueWakeChannel::eventfd()?)
}

/// [`futex`] with sleepers that poll for a while before they sleep.
pub(crate) fn spinning(round: &Round) -> Result<Sample> {
    pingpong(round, QueueWakeChannel::futex()?.spinning(), QueueWakeChannel::futex()?.spinning())
}

fn pingpong<B: WakeChannel>(round: &Round, there: B, back: B) -> Result<Sample> {
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

/// A wake-up from one thread to the other.
trait WakeChannel: Sync {
    /// Announces this turn, and wakes the other thread if it sleeps.
    fn ring(&self, turn: u64) -> Result<()>;

    /// Sleeps until this turn, or a later one, has been announced, and returns it.
    fn wait_for(&self, turn: u64) -> Result<u64>;
}

struct EventWakeChannel {
    rung: AtomicU64,
    sleeper: Arc<Sleeper>,
    clock: NothingToDrive,
}

impl EventWakeChannel {
    fn new() -> Result<EventWakeChannel> {
        let sleeper = Arc::new(Sleeper::new().map_err(BenchError::system("make an eventfd"))?);
        let clock = NothingToDrive { started: Instant::now(), tokens: Tokens::new(0) };
        Ok(EventWakeChannel { rung: AtomicU64::new(0), sleeper, clock })
    }
}

impl WakeChannel for EventWakeChannel {
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

struct QueueWakeChannel {
    rung: AtomicU64,
    waker: Waker<QueueWord<Heap>>,
    sleeper: Sleeper<QueueWord<Heap>>,
}

impl QueueWakeChannel {
    fn futex() -> Result<QueueWakeChannel> {
        let word = QueueWakeChannel::word()?;
        Ok(QueueWakeChannel::new(Waker::futex(word.clone()), Sleeper::futex(word)))
    }

    fn eventfd() -> Result<QueueWakeChannel> {
        let made = BenchError::system("make an eventfd");
        let (word, bell) = (QueueWakeChannel::word()?, nlx_sync::Bell::new().map_err(&made)?);
        let waker = Waker::ringing(word.clone(), bell.try_clone().map_err(&made)?);
        Ok(QueueWakeChannel::new(waker, Sleeper::ringing(word, bell)))
    }

    fn word() -> Result<QueueWord<Heap>> {
        Heap::new(MIN_SLOTS).map(QueueWord::consumer).map_err(BenchError::nlx("make a queue"))
    }

    fn new(waker: Waker<QueueWord<Heap>>, sleeper: Sleeper<QueueWord<Heap>>) -> QueueWakeChannel {
        QueueWakeChannel { rung: AtomicU64::new(0), waker, sleeper }
    }

    fn spinning(self) -> QueueWakeChannel {
        QueueWakeChannel { sleeper: self.sleeper.spinning(DEFAULT_SPIN), ..self }
    }
}

impl WakeChannel for QueueWakeChannel {
    fn ring(&self, turn: u64) -> Result<()> {
        self.rung.store(turn, Ordering::Release);
        self.waker.wake().map(drop).map_err(BenchError::system("wake a consumer"))
    }

    fn wait_for(&self, turn: u64) -> Result<u64> {
        loop {
            let rung = self.rung.load(Ordering::Acquire);
            if rung >= turn {
                return Ok(rung);
            }
            let ready = || self.rung.load(Ordering::Acquire) >= turn;
            self.sleeper.sleep(None, ready).map_err(BenchError::system("sleep"))?;
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
