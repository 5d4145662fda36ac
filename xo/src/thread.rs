//! The event thread of a transfer machine with callbacks.

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use nlx_core::Errno;
use parking_lot::{Condvar, Mutex};

use crate::panics::contain;
use crate::{Error, Event, Machine, TmState};

/// The client's function for events.
pub(crate) type Callback = Box<dyn FnMut(&Machine, Event) + Send>;

thread_local! {
    static IS_EVENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this is an event thread: it must not wait for another machine's last callback,
/// which may wait for it.
pub(crate) fn is_event_thread() -> bool {
    IS_EVENT_THREAD.get()
}

/// Marks this thread as an event thread.
fn enter_event_thread() {
    IS_EVENT_THREAD.set(true);
}

/// The state of the event thread: running, or returned from its last callback. Threads can wait
/// for the end.
#[derive(Default)]
pub(crate) struct Callbacks {
    ended: Mutex<bool>,
    end: Condvar,
}

impl Callbacks {
    /// Records that the last callback has returned, or that none will be called.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
    }

    /// Waits for the last callback, at most for the time that `rest` returns, called before each
    /// sleep; `None` is without limit. Returns false if that time has passed.
    pub(crate) fn wait(&self, rest: impl Fn() -> Option<Duration>) -> bool {
        let mut ended = self.ended.lock();
        while !*ended {
            match rest() {
                None => self.end.wait(&mut ended),
                Some(rest) => {
                    if self.end.wait_for(&mut ended, rest).timed_out() && !*ended {
                        return false;
                    }
                }
            }
        }
        true
    }
}

/// Starts the event thread. When this returns, the thread runs on `processors`, or else on those of
/// its machine's CPU partition.
pub(crate) fn spawn(
    machine: &Arc<Machine>,
    callback: Callback,
    processors: Option<CpuSet>,
) -> Result<JoinHandle<()>, Error> {
    let machine = machine.clone();
    let (sender, receiver) = mpsc::sync_channel(1);
    let name = format!("nlx {}", machine.address());
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            enter_event_thread();
            let confined = match processors {
                Some(set) => sched_setaffinity(Pid::from_raw(0), &set),
                None => {
                    bind_to_partition(&machine);
                    Ok(())
                }
            };
            let ready = confined.is_ok();
            // The thread in `spawn` waits for this.
            let _ = sender.send(confined);
            if ready {
                run(&machine, callback);
            }
        })
        .map_err(|error| Error::Thread { errno: Errno::from_raw(error.raw_os_error().unwrap_or(0)) })?;
    match receiver.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(errno)) => Err(Error::Confine { processors: numbers(processors.as_ref()), errno }),
        Err(_) => Err(Error::Thread { errno: Errno::ECHILD }),
    }
}

/// Binds the calling thread to the processors of the machine's CPU partition. If the system
/// refuses, the thread stays unbound.
fn bind_to_partition(machine: &Machine) {
    if let Err(errno) = machine.bind_thread() {
        tracing::warn!(address = %machine.address(), %errno, "an event thread is not bound to its CPU partition");
    }
}

fn numbers(set: Option<&CpuSet>) -> Vec<usize> {
    set.map_or_else(Vec::new, |set| {
        (0..CpuSet::count()).filter(|number| set.is_set(*number).unwrap_or(false)).collect()
    })
}

/// Passes each event to the callback, until the machine has stopped and all events are taken.
fn run(machine: &Machine, mut callback: Callback) {
    let mut callback_works = true;
    loop {
        match machine.next(None) {
            // The last events of a machine whose callback has panicked: their buffers are dropped.
            Ok(Some(event)) if !callback_works => drop(event),
            Ok(Some(event)) => {
                callback_works = contain(|| callback(machine, event)).is_ok();
                if !callback_works {
                    tracing::error!(address = %machine.address(), "a callback has panicked: its transfer machine fails");
                    machine.fail();
                }
            }
            Ok(None) => {}
            // No other thread would take the last events.
            Err(Error::Ended) => machine.fail(),
            // The remaining events are lost.
            Err(Error::Core(error)) => {
                tracing::error!(address = %machine.address(), %error, "a transfer machine fails");
                machine.fail();
                break;
            }
            Err(_) => break,
        }
    }
    if machine.state() == TmState::Stopped {
        machine.report_state(TmState::Stopped, Ok(()));
    }
    // The callback is dropped before the machine's end is reported, because its captures are the
    // client's and their drop may panic.
    if contain(|| drop(callback)).is_err() {
        tracing::error!(address = %machine.address(), "a value captured by a callback has panicked in its drop");
    }
    machine.callbacks_ended();
}
