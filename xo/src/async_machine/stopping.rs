//! The stop of a machine, as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nlx_core::Errno;

use super::slot::{CompletionSlot, Delivered, wake};
use crate::{Error, Machine, Stop};

/// A stop in progress, as a future ([`crate::AsyncMachine::stop`]). The stop makes progress even if
/// this is not polled.
#[derive(Debug)]
#[must_use = "its result says whether the machine has stopped"]
pub struct Stopping(Arc<CompletionSlot<Result<(), Error>>>);

impl Stopping {
    /// Starts a thread that stops the machine, because a stop blocks and a task must not.
    pub(crate) fn start(machine: &Arc<Machine>, how: Stop, timeout: Option<Duration>) -> Stopping {
        let slot = Arc::new(CompletionSlot::waiting());
        let (machine, thread_slot) = (machine.clone(), slot.clone());
        let thread = std::thread::Builder::new()
            .name(format!("nlx stop {}", machine.address()))
            .spawn(move || bring_result(&thread_slot, machine.stop(how, timeout)));
        if let Err(error) = thread {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
            bring_result(&slot, Err(Error::Thread { errno }));
        }
        Stopping(slot)
    }
}

fn bring_result(slot: &CompletionSlot<Result<(), Error>>, result: Result<(), Error>) {
    if let Delivered::Kept(waker) = slot.deliver(result) {
        wake(waker);
    }
}

impl Future for Stopping {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // The result is returned once; after that, the machine has stopped.
        self.0.poll(context.waker()).map(|result| result.unwrap_or(Ok(())))
    }
}
