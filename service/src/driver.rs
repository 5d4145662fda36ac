//! How the worker threads of a pool wait: the waiting thread drives the network.

use std::sync::Arc;

use nlx_sync::Sleeper;

/// The clock of a pool, and a wait that drives the network of its transports.
pub trait Driver: Send + Sync + 'static {
    /// Returns the current time in nanoseconds of a monotonic clock.
    fn now_ns(&self) -> u64;

    /// Waits until `ready` returns true, and returns `true` then; returns `false` once the deadline
    /// has passed or the network has ended. `ready` becomes true by what the wait itself delivers,
    /// or by another thread that then wakes the sleeper. After it has returned true it is not
    /// called again.
    fn wait(&self, sleeper: &Arc<Sleeper>, deadline_ns: Option<u64>, ready: &mut dyn FnMut() -> bool)
    -> bool;

    /// Wakes the thread that waits with this sleeper, in [`Driver::wait`] or outside it. Called by
    /// threads that have made `ready` true.
    fn wake(&self, sleeper: &Sleeper) {
        sleeper.wake();
    }

    /// Returns whether the network has been shut down, so that nothing more will arrive.
    fn has_ended(&self) -> bool;

    /// Runs work whose messages may leave together, at its end.
    fn batch(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Binds the calling thread to the CPUs of a partition (S-314).
    fn bind(&self, partition: usize);

    /// Returns the CPU partition of the host in which a partition of the pool lies.
    fn cpt(&self, partition: usize) -> usize {
        partition
    }
}

#[cfg(feature = "lnet")]
impl Driver for Arc<dyn lnet_api::Drive> {
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }

    fn wait(
        &self,
        sleeper: &Arc<Sleeper>,
        deadline_ns: Option<u64>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        sleeper.spin_for(self.spin());
        lnet_api::wait_until(&**self, sleeper, deadline_ns, ready)
    }

    fn has_ended(&self) -> bool {
        (**self).has_ended()
    }

    fn batch(&self, work: &mut dyn FnMut()) {
        lnet_api::corked(work);
    }

    fn bind(&self, partition: usize) {
        if let Err(errno) = self.bind_thread(Some(partition)) {
            tracing::warn!(partition, %errno, "a worker thread is not bound to its CPU partition");
        }
        lnet_cpt::set_current(Some(partition));
    }
}

/// A node's network for a pool on some of its CPU partitions: partition `i` of the pool lies in CPU
/// partition `cpts[i]`. The transports of its services get the same list
/// ([`Portals::on`](crate::portals::Portals::on)).
#[cfg(feature = "lnet")]
pub struct OnPartitions {
    /// The handle by which the threads drive the node.
    pub drive: Arc<dyn lnet_api::Drive>,
    /// The CPU partitions, each once.
    pub cpts: Arc<[usize]>,
}

#[cfg(feature = "lnet")]
impl Driver for OnPartitions {
    fn now_ns(&self) -> u64 {
        Driver::now_ns(&self.drive)
    }

    fn wait(
        &self,
        sleeper: &Arc<Sleeper>,
        deadline_ns: Option<u64>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.drive.wait(sleeper, deadline_ns, ready)
    }

    fn has_ended(&self) -> bool {
        Driver::has_ended(&self.drive)
    }

    fn batch(&self, work: &mut dyn FnMut()) {
        self.drive.batch(work);
    }

    fn bind(&self, partition: usize) {
        self.drive.bind(self.cpt(partition));
    }

    fn cpt(&self, partition: usize) -> usize {
        self.cpts[partition]
    }
}
