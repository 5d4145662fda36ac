//! A node's work in a test, with its states (motr-transport 10.2).
//!
//! ```text
//!                  init            stop
//! UNINITIALIZED ─────────▶ READY ─────────▶ FINISHED
//!       ▲                    │ a step fails     │
//!       │                    ▼                  │
//!       │                  FAILED               │
//!       └──── fini ──────────┴──────────────────┘
//! ```
//!
//! Steps and commands need READY. A command that cannot be carried out is refused and changes
//! nothing.

use std::time::Duration;

use nlx::Errno;

use super::command::{Command, Refusal, Status};
use crate::failure::Failure;

/// State of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceState {
    Uninitialized,
    Ready,
    Finished,
    Failed,
}

/// The work of a node in a test. A command without a handler is refused with ENOENT.
pub(super) trait Work {
    /// Does a step of the work; waits at most `wait` for something to do.
    fn step(&mut self, wait: Duration) -> Result<(), Failure>;

    fn start(&mut self) -> Result<(), Refusal> {
        Err(Refusal::new(Errno::ENOENT, "no handler for START"))
    }

    /// Returns the status, with the latencies from index `from` on.
    fn status(&mut self, from: usize) -> Result<Status, Refusal> {
        let _ = from;
        Err(Refusal::new(Errno::ENOENT, "no handler for STATUS"))
    }

    fn stop(&mut self) -> Result<(), Refusal> {
        Err(Refusal::new(Errno::ENOENT, "no handler for STOP"))
    }
}

/// Work with its state.
pub(super) struct Service<W> {
    state: ServiceState,
    work: Option<W>,
    /// The reason of the failure in FAILED.
    reason: String,
}

impl<W: Work> Service<W> {
    pub(super) fn new() -> Service<W> {
        Service { state: ServiceState::Uninitialized, work: None, reason: String::new() }
    }

    pub(super) fn state(&self) -> ServiceState {
        self.state
    }

    /// Changes UNINITIALIZED to READY; EBUSY in other states, and the error of `make` if it fails.
    pub(super) fn init(&mut self, make: impl FnOnce() -> Result<W, Refusal>) -> Result<(), Refusal> {
        if self.state != ServiceState::Uninitialized {
            return Err(Refusal::new(Errno::EBUSY, format!("a test is in progress here: {:?}", self.state)));
        }
        self.work = Some(make()?);
        self.state = ServiceState::Ready;
        Ok(())
    }

    /// Does one step of the work. An error changes the state to FAILED.
    pub(super) fn step(&mut self, wait: Duration) -> Result<(), Refusal> {
        let outcome = self.ready()?.step(wait);
        outcome.map_err(|failure| {
            self.state = ServiceState::Failed;
            self.reason = failure.to_string();
            Refusal::new(Errno::EIO, &self.reason)
        })
    }

    /// Carries out a command: START, STATUS or STOP.
    pub(super) fn command(&mut self, command: &Command) -> Result<Command, Refusal> {
        let work = self.ready()?;
        match command {
            Command::Start => work.start().map(|()| Command::StartDone),
            Command::Status(from) => {
                work.status(*from as usize).map(|status| Command::StatusData(Box::new(status)))
            }
            Command::Stop => {
                work.stop()?;
                self.state = ServiceState::Finished;
                Ok(Command::StopDone)
            }
            _ => Err(Refusal::new(Errno::ENOENT, "no handler for that command")),
        }
    }

    /// Changes any state to UNINITIALIZED; drops the work.
    pub(super) fn fini(&mut self) {
        *self = Service::new();
    }

    fn ready(&mut self) -> Result<&mut W, Refusal> {
        let refusal = match self.state {
            ServiceState::Ready => None,
            ServiceState::Failed => Some(Refusal::new(Errno::EIO, &self.reason)),
            state => Some(Refusal::new(Errno::ESRCH, format!("no test is in progress here: {state:?}"))),
        };
        match (refusal, &mut self.work) {
            (None, Some(work)) => Ok(work),
            (refusal, _) => Err(refusal.unwrap_or_else(|| Refusal::new(Errno::ESRCH, "no work"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    /// Work that records its calls, and fails on request.
    #[derive(Default)]
    struct RecordingWork {
        calls: Rc<RefCell<Vec<&'static str>>>,
        fails: Rc<RefCell<bool>>,
    }

    impl RecordingWork {
        fn call(&self, name: &'static str) -> Result<(), Refusal> {
            self.calls.borrow_mut().push(name);
            if *self.fails.borrow() { Err(Refusal::new(Errno::EXDEV, name)) } else { Ok(()) }
        }
    }

    impl Work for RecordingWork {
        fn step(&mut self, _: Duration) -> Result<(), Failure> {
            self.call("step").map_err(|refusal| Failure::new(refusal.reason))
        }

        fn start(&mut self) -> Result<(), Refusal> {
            self.call("start")
        }

        fn status(&mut self, _: usize) -> Result<Status, Refusal> {
            self.call("status").map(|()| Status::default())
        }
    }

    impl Drop for RecordingWork {
        fn drop(&mut self) {
            self.calls.borrow_mut().push("fini");
        }
    }

    type Calls = Rc<RefCell<Vec<&'static str>>>;

    fn service() -> (Service<RecordingWork>, Calls, Rc<RefCell<bool>>) {
        let recording = RecordingWork::default();
        let (calls, fails) = (recording.calls.clone(), recording.fails.clone());
        let mut service = Service::new();
        service.init(|| Ok(recording)).unwrap();
        (service, calls, fails)
    }

    /// READY after init, once; FAILED from READY; fini once.
    // Covers: MT-149, MT-151
    #[test]
    fn its_states() {
        let (mut service, calls, fails) = service();
        assert_eq!(service.state(), ServiceState::Ready);
        let again = service.init(|| panic!("init is called once"));
        assert_eq!(again.map_err(|refusal| refusal.errno), Err(Errno::EBUSY));
        *fails.borrow_mut() = true;
        assert_eq!(service.step(Duration::ZERO).map_err(|refusal| refusal.errno), Err(Errno::EIO));
        assert_eq!(service.state(), ServiceState::Failed);
        // In FAILED the work is not called any more, and every command is refused with the reason.
        let refusal = service.command(&Command::Start).unwrap_err();
        assert_eq!((refusal.errno, refusal.reason.as_str()), (Errno::EIO, "step"));
        service.fini();
        assert_eq!(
            (service.state(), &calls.borrow()[..]),
            (ServiceState::Uninitialized, &["step", "fini"][..])
        );
        let gone = service.command(&Command::Start).map_err(|refusal| refusal.errno);
        assert_eq!(gone, Err(Errno::ESRCH));
    }

    // Covers: MT-149
    #[test]
    fn one_that_cannot_be_made_stays_uninitialized() {
        let mut service = Service::<RecordingWork>::new();
        let refused = service.init(|| Err(Refusal::new(Errno::ENOMEM, "no memory")));
        assert_eq!(refused.map_err(|refusal| refusal.errno), Err(Errno::ENOMEM));
        assert_eq!(service.state(), ServiceState::Uninitialized);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

        /// 0x1000 random steps and commands.
        // Covers: MT-150
        #[test]
        fn a_random_walk(walk in prop::collection::vec((0..5_u8, any::<bool>()), 0x1000)) {
            let (mut service, calls, fails) = service();
            for (what, failing) in walk {
                // A step that fails is the only way from READY to FAILED.
                *fails.borrow_mut() = failing && what != 0;
                let (called, outcome) = match what {
                    0 => (Some("step"), service.step(Duration::ZERO)),
                    1 => (Some("start"), service.command(&Command::Start).map(|_| ())),
                    2 => (Some("status"), service.command(&Command::Status(0)).map(|_| ())),
                    3 => (None, service.command(&Command::Stop).map(|_| ())),
                    _ => (None, service.command(&Command::StopDone).map(|_| ())),
                };
                let expected = match called {
                    None => Err(Errno::ENOENT),
                    Some(_) if failing && what != 0 => Err(Errno::EXDEV),
                    Some(_) => Ok(()),
                };
                prop_assert_eq!(outcome.map_err(|refusal| refusal.errno), expected);
                prop_assert_eq!(std::mem::take(&mut *calls.borrow_mut()), called.into_iter().collect::<Vec<_>>());
                prop_assert_eq!(service.state(), ServiceState::Ready);
            }
        }
    }
}
