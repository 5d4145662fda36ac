//! The scheduler thread (S-203, S-312): drives the node while nobody waits on it, as when the program computes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use lnet_api::{Clock, Drive, Errno, EventFd, Sleeper, wait_until};
use lnet_cpt::{CptError, CptTable, bind_thread};

use crate::NodeError;
use crate::drive::NodeDrive;

/// How long a shard stays free before the scheduler thread takes it. Longer than a waiter needs to handle its events and
/// wait again, so that the two don't fight; short against every timeout of the protocol.
pub const GRACE: Duration = Duration::from_millis(5);

/// The thread, and the means to end it.
pub(crate) struct Steward {
    sleeper: Arc<dyn Sleeper>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Steward {
    /// Starts the thread. It serves all partitions, and so runs on the CPUs of any (S-306): a pattern that leaves CPUs out
    /// keeps it off them. If it may not run there, `refuse` makes the error.
    pub(crate) fn start(
        drive: Arc<NodeDrive>,
        table: Arc<CptTable>,
        refuse: impl Fn(CptError) -> NodeError,
    ) -> Result<Steward, NodeError> {
        let system = |what: &'static str| move |errno| NodeError::System { what: what.to_string(), errno };
        let sleeper: Arc<dyn Sleeper> = Arc::new(EventFd::new().map_err(system("make an eventfd"))?);
        let ended = Arc::new(AtomicBool::new(false));
        let (bound, outcome) = mpsc::sync_channel(1);
        let work = {
            let (sleeper, ended) = (sleeper.clone(), ended.clone());
            move || {
                let binding = bind_thread(&table, None);
                let good = binding.is_ok();
                // Whoever starts it waits for this word.
                let _ = bound.send(binding);
                if good {
                    serve(&drive, &sleeper, &ended);
                }
            }
        };
        let thread = std::thread::Builder::new().name("lnet-sched".into()).spawn(work).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
            NodeError::System { what: "start the scheduler thread".to_string(), errno }
        })?;
        let steward = Steward { sleeper, ended, thread: Some(thread) };
        match outcome.recv() {
            Ok(Ok(_)) => Ok(steward),
            Ok(Err(source)) => Err(refuse(source)),
            Err(_) => Err(system("start the scheduler thread")(Errno::ECANCELED)),
        }
    }
}

impl Drop for Steward {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.sleeper.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by the runtime; the node is ending anyway.
            let _ = thread.join();
        }
    }
}

fn serve(drive: &Arc<NodeDrive>, sleeper: &Arc<dyn Sleeper>, ended: &AtomicBool) {
    let grace_ns = GRACE.as_nanos() as u64;
    let over = || ended.load(Ordering::SeqCst);
    while !over() {
        rest(drive, sleeper, grace_ns, &over);
        let since_ns = drive.now_ns().saturating_sub(grace_ns);
        let neglected = (0..drive.shards()).any(|shard| drive.tokens().free_since(shard, since_ns));
        if over() || !neglected || !drive.is_active() {
            continue;
        }
        drive.tokens().set_steward(Some(sleeper.clone()));
        wait_until(&**drive, sleeper, None, || over() || drive.tokens().wanted());
        drive.tokens().set_steward(None);
    }
}

/// Sleeps for one grace period, on its own timer alone: waiters never pay a system call to keep it quiet.
fn rest(drive: &Arc<NodeDrive>, sleeper: &Arc<dyn Sleeper>, grace_ns: u64, over: &impl Fn() -> bool) {
    let alone = Alone(drive);
    wait_until(&alone, sleeper, Some(drive.now_ns() + grace_ns), over);
}

/// The node's clock without its shards.
struct Alone<'a>(&'a Arc<NodeDrive>);

impl Clock for Alone<'_> {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

impl Drive for Alone<'_> {
    fn shards(&self) -> usize {
        0
    }
    fn tokens(&self) -> &lnet_api::Tokens {
        self.0.tokens()
    }
    fn poll(&self, _: usize, _: usize) -> lnet_api::Poll {
        lnet_api::Poll::default()
    }
    fn arm(&self, _: usize) -> bool {
        true
    }
    fn wait_fd(&self, shard: usize) -> std::os::fd::BorrowedFd<'_> {
        self.0.wait_fd(shard)
    }
}
