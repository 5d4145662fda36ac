//! Stopping a transfer machine, and dropping one in use.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::errno::Errno;
use nlx_core::{CoreError, CoreTm};
use nlx_driver_proto::{Entry, Reply, Request};

use super::UcoreTm;
use crate::refused::refused;
use crate::ucore::now_ns;

/// Time that a transfer machine dropped in use waits for its operations, which have all been
/// cancelled.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of requests whether LNet has released the last of these operations.
const ASK_AGAIN: Duration = Duration::from_millis(1);

impl UcoreTm {
    /// Stops the transfer machine; see [`nlx_core::CoreTm::stop`]. Does nothing if it is stopped
    /// already.
    pub(super) fn end(&self) -> Result<(), CoreError> {
        let mut open = self.open.lock();
        if !*open {
            return Ok(());
        }
        self.close_for_operations()?;
        point!(ClosedForOperations);
        match self.link.request(&Request::StopTm { tm: self.tm }) {
            Ok((Reply::Refused(refusal), _)) => {
                self.stopped.store(false, Ordering::Relaxed);
                return Err(refused("stop a transfer machine", &refusal));
            }
            // Without a helper there is nothing left to stop.
            Err(error) if !self.link.has_ended() => {
                self.stopped.store(false, Ordering::Relaxed);
                return Err(error);
            }
            Ok(_) | Err(_) => {}
        }
        *open = false;
        point!(Stopped);
        Ok(())
    }

    /// Refuses new operations, if none is in flight.
    fn close_for_operations(&self) -> Result<(), CoreError> {
        let consumer_state = self.consumer_state.lock();
        let needed = consumer_state.consumer.needed() as usize;
        if needed > 0 {
            return Err(CoreError::TmBusy { address: self.address, needed });
        }
        self.stopped.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a transfer machine that is being dropped in use.
    pub(super) fn end_in_use(&mut self) {
        if !*self.open.get_mut() {
            return;
        }
        if self.consumer_state.get_mut().consumer.needed() > 0 {
            self.cancel_all();
            point!(AllCancelled);
        }
        let deadline_ns = now_ns() + DROP_TIMEOUT.as_nanos() as u64;
        loop {
            while let Ok(Some(_)) = self.event_get() {}
            match self.end() {
                Ok(()) => return,
                Err(_) if now_ns() >= deadline_ns => break,
                Err(CoreError::TmBusy { .. }) => drop(self.wait(Some(deadline_ns))),
                // LNet releases it as soon as its event callback has returned.
                Err(error) if error.errno() == Errno::EBUSY => std::thread::sleep(ASK_AGAIN),
                Err(_) => break,
            }
        }
        tracing::warn!(address = %self.address, "operations of a dropped transfer machine have not ended: their memory stays leased until the helper ends");
        self.leave_behind();
    }

    fn cancel_all(&self) {
        let buffers = &self.domain.buffers;
        for slot in (0..buffers.used()).filter_map(|place| buffers.at(place)) {
            let mut slot = slot.lock();
            let Some(found) = slot.of_machine(self.number) else { continue };
            let (buffer, cookie) =
                (found.handle(), found.operation().map_or(0, |operation| operation.cookie));
            // Without a helper the operation ends, too.
            let _ = self.link.push(&Entry::Cancel { tm: self.tm, buffer, cookie });
        }
        self.link.wake_helper();
    }

    /// Gives up the operations in flight. Their memory stays leased until the helper is gone.
    fn leave_behind(&self) {
        let buffers = &self.domain.buffers;
        for slot in (0..buffers.used()).filter_map(|place| buffers.at(place)) {
            let kept = slot.lock().of_machine(self.number).map(|buffer| buffer.abandon());
            if let Some(kept) = kept {
                self.link.keep(kept);
            }
        }
    }
}
