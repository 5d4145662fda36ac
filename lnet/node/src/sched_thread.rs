//! The scheduler threads (S-203, S-312): one for each shard of an LND, bound to the CPUs of the
//! shard's partition. They drive the node while no thread waits on it, for example while the
//! program computes ([`Watch`]).

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use lnet_api::{Drive, Errno, Sleeper, Watch};
use lnet_cpt::{CptError, CptTable, bind_thread};

use crate::NodeError;
use crate::drive::NodeDrive;

/// Time for which a shard stays free, or unpolled by an awake driver, before its scheduler thread
/// takes it. Longer than a waiter needs to handle its events and wait again, so that the two do not
/// compete; short compared with every timeout of the protocol.
pub const GRACE: Duration = Duration::from_millis(5);

/// The scheduler threads of a node, and the means to end them.
pub(crate) struct SchedThreads {
    drive: Arc<NodeDrive>,
    watch: Arc<Watch>,
    table: Arc<CptTable>,
    threads: Vec<JoinHandle<()>>,
}

impl SchedThreads {
    /// Creates the set without threads.
    pub(crate) fn new(drive: Arc<NodeDrive>, table: Arc<CptTable>) -> SchedThreads {
        SchedThreads { drive, watch: Arc::new(Watch::new(GRACE)), table, threads: Vec::new() }
    }

    /// Returns the number of threads.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Starts a thread for each shard that has none. If one may not run on its partition's CPUs,
    /// `refuse` creates the error.
    pub(crate) fn grow(&mut self, refuse: &dyn Fn(CptError) -> NodeError) -> Result<(), NodeError> {
        for shard in self.threads.len()..self.drive.shards() {
            self.threads.push(self.start(shard, refuse)?);
        }
        Ok(())
    }

    fn start(
        &self,
        shard: usize,
        refuse: &dyn Fn(CptError) -> NodeError,
    ) -> Result<JoinHandle<()>, NodeError> {
        let system = |what: &'static str| move |errno| NodeError::System { what: what.to_string(), errno };
        let sleeper = self.sleeper(shard).map_err(system("make an eventfd"))?;
        let (bound, outcome) = mpsc::sync_channel(1);
        let (drive, watch, table) = (self.drive.clone(), self.watch.clone(), self.table.clone());
        let cpt = drive.partition(shard);
        let work = move || {
            let binding = bind_thread(&table, cpt);
            let good = binding.is_ok();
            // The starting thread waits for this result.
            let _ = bound.send(binding);
            if good {
                watch.serve(&*drive, shard, &sleeper);
            }
        };
        let name = format!("lnet-sched-{shard}");
        let thread = std::thread::Builder::new().name(name).spawn(work).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
            NodeError::System { what: "start a scheduler thread".to_string(), errno }
        })?;
        match outcome.recv() {
            Ok(Ok(_)) => Ok(thread),
            Ok(Err(source)) => Err(refuse(source)),
            Err(_) => Err(system("start a scheduler thread")(Errno::ECANCELED)),
        }
    }

    /// Returns the sleeper of a shard's thread; one may be left from a thread that failed to start.
    fn sleeper(&self, shard: usize) -> Result<Arc<Sleeper>, Errno> {
        if let Some(sleeper) = self.drive.tokens().sched_thread(shard) {
            return Ok(sleeper);
        }
        let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new()?.spinning(self.drive.spin()));
        self.drive.tokens().set_sched_thread(shard, sleeper.clone());
        Ok(sleeper)
    }
}

impl Drop for SchedThreads {
    fn drop(&mut self) {
        self.watch.end(&*self.drive);
        for thread in self.threads.drain(..) {
            // A panic of the thread is ignored: the runtime has printed it, and the node is ending
            // anyway.
            let _ = thread.join();
        }
    }
}
