//! A node's work in a test, with its states (motr-transport 10.2).
//!
//! ```text
//!                  INIT
//! UNINITIALIZED ─────────▶ READY ──a step fails──▶ FAILED
//!       ▲                    │                        │
//!       └────── STOP ────────┴──── the next INIT ─────┘
//! ```
//!
//! Steps and commands need READY. A command that cannot be carried out is refused and changes
//! nothing.

use std::time::Duration;

use nlx::Errno;

use super::command::{Answer, Command, Refusal, Status};
use crate::failure::Failure;

/// The work of a node in a test.
pub(super) trait Work: Send {
    /// Does a step of the work; waits at most `wait` for something to do.
    fn step(&mut self, wait: Duration) -> Result<(), Failure>;

    fn start(&mut self) -> Result<(), Refusal>;

    /// Returns the status, with the latencies from index `from` on.
    fn status(&mut self, from: usize) -> Result<Status, Refusal>;
}

/// A node's work, by its state.
pub(super) enum Service {
    Uninitialized,
    Ready(Box<dyn Work>),
    /// With the reason.
    Failed(String),
}

impl Service {
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Service::Ready(_))
    }

    /// Begins the work that `make` returns; EBUSY if there is some, and the error of `make` if it fails.
    pub(super) fn init(
        &mut self,
        make: impl FnOnce() -> Result<Box<dyn Work>, Refusal>,
    ) -> Result<(), Refusal> {
        if self.is_ready() {
            return Err(Refusal::new(Errno::EBUSY, "a test is in progress here"));
        }
        *self = Service::Uninitialized;
        *self = Service::Ready(make()?);
        Ok(())
    }

    /// Does one step of the work. An error changes the state to FAILED.
    pub(super) fn step(&mut self, wait: Duration) -> Result<(), Refusal> {
        let outcome = self.ready()?.step(wait);
        outcome.map_err(|failure| {
            *self = Service::Failed(failure.to_string());
            Refusal::new(Errno::EIO, failure.to_string())
        })
    }

    /// Carries out START, STATUS or STOP.
    pub(super) fn command(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let work = self.ready()?;
        match command {
            Command::Init(_) => Err(Refusal::new(Errno::EBUSY, "a test is in progress here")),
            Command::Start => work.start().map(|()| Answer::Done),
            Command::Status(from) => {
                work.status(*from as usize).map(|status| Answer::Status(Box::new(status)))
            }
            Command::Stop => {
                *self = Service::Uninitialized;
                Ok(Answer::Done)
            }
        }
    }

    fn ready(&mut self) -> Result<&mut dyn Work, Refusal> {
        match self {
            Service::Uninitialized => Err(Refusal::new(Errno::ESRCH, "no test is in progress here")),
            Service::Ready(work) => Ok(&mut **work),
            Service::Failed(reason) => Err(Refusal::new(Errno::EIO, reason.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;

    /// The calls of a work, and whether they fail.
    #[derive(Default)]
    struct Record {
        calls: Vec<&'static str>,
        fails: bool,
    }

    /// Work that records its calls, and fails on request.
    struct RecordingWork(Arc<Mutex<Record>>);

    impl RecordingWork {
        fn call(&self, name: &'static str) -> Result<(), Refusal> {
            let mut record = self.0.lock().unwrap();
            record.calls.push(name);
            if record.fails { Err(Refusal::new(Errno::EXDEV, name)) } else { Ok(()) }
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
            self.0.lock().unwrap().calls.push("fini");
        }
    }

    fn work(record: &Arc<Mutex<Record>>) -> Result<Box<dyn Work>, Refusal> {
        Ok(Box::new(RecordingWork(record.clone())))
    }

    /// FAILED refuses every command with the reason, and does not call the work; INIT replaces it.
    // Covers: MT-149, MT-151
    #[test]
    fn a_failure_stays_until_the_next_test() {
        let (record, mut service) = (Arc::default(), Service::Uninitialized);
        service.init(|| work(&record)).unwrap();
        record.lock().unwrap().fails = true;
        service.step(Duration::ZERO).unwrap_err();
        let refusal = service.command(&Command::Start).unwrap_err();
        assert_eq!((refusal.errno(), refusal.reason.as_str()), (Errno::EIO, "step"));
        assert_eq!(record.lock().unwrap().calls, ["step", "fini"]);
        service.init(|| work(&record)).unwrap();
        assert!(service.is_ready());
    }

    // Covers: MT-149
    #[test]
    fn one_that_cannot_be_made_stays_uninitialized() {
        let mut service = Service::Uninitialized;
        let refused = service.init(|| Err(Refusal::new(Errno::ENOMEM, "no memory")));
        assert_eq!(refused.map_err(|refusal| refusal.errno()), Err(Errno::ENOMEM));
        assert!(matches!(service, Service::Uninitialized));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

        /// 0x1000 random steps and commands, each of which may fail, beside a model of the states: each
        /// is refused without a call, or calls the work once; a failing step and STOP drop the work.
        // Covers: MT-149, MT-150, MT-151
        #[test]
        fn a_random_walk(walk in prop::collection::vec((0..5_u8, any::<bool>()), 0x1000)) {
            let (record, mut service) = (Arc::<Mutex<Record>>::default(), Service::Uninitialized);
            // The errno of a refusal; `None` in READY.
            let mut refused = Some(Errno::ESRCH);
            for (operation, fails) in walk {
                record.lock().unwrap().fails = fails;
                let failure = fails.then_some(Errno::EXDEV);
                let (found, expected, calls): (_, _, &[&str]) = match (operation, refused) {
                    (0, None) => (service.init(|| panic!("init is called once")), Some(Errno::EBUSY), &[]),
                    (0, Some(_)) => {
                        refused = None;
                        (service.init(|| work(&record)), None, &[])
                    }
                    (1, None) if fails => {
                        refused = Some(Errno::EIO);
                        (service.step(Duration::ZERO), Some(Errno::EIO), &["step", "fini"])
                    }
                    (1, None) => (service.step(Duration::ZERO), None, &["step"]),
                    (2, None) => (service.command(&Command::Start).map(drop), failure, &["start"]),
                    (3, None) => (service.command(&Command::Status(0)).map(drop), failure, &["status"]),
                    (_, None) => {
                        refused = Some(Errno::ESRCH);
                        (service.command(&Command::Stop).map(drop), None, &["fini"])
                    }
                    (1, refused) => (service.step(Duration::ZERO), refused, &[]),
                    (2, refused) => (service.command(&Command::Start).map(drop), refused, &[]),
                    (3, refused) => (service.command(&Command::Status(0)).map(drop), refused, &[]),
                    (_, refused) => (service.command(&Command::Stop).map(drop), refused, &[]),
                };
                prop_assert_eq!(found.err().map(|refusal| refusal.errno()), expected);
                prop_assert_eq!(&std::mem::take(&mut record.lock().unwrap().calls), calls);
                prop_assert_eq!(service.is_ready(), refused.is_none());
            }
        }
    }
}
