//! Services and their clients on worker threads: the crate `nlx-service`, over the transfer machines
//! of a [`Domain`].
//!
//! A [`Pool`] waits for requests, answers, bulk and timers together. A [`Service`] on it handles
//! requests, a [`Client`] makes calls: blocking, as futures, or with callbacks. Both run in process
//! and through a helper. [`Domain::machines`] starts the transfer machine of a pool, and
//! [`machines`] says what it is.
//!
//! Programs that have few peers and wait in their own thread use [`request`](crate::request)
//! instead: the same protocol, without threads, for requests and answers without bulk.

pub use nlx_service::*;

use nlx_core::{StartAddress, TmOptions};
use nlx_service::machines::Machines;

use crate::{Domain, Error};

impl Domain {
    /// Starts a transfer machine for one [`Service`] or one [`Client`], with the pool on which it
    /// runs. The domain's [`Quotas`](crate::Quotas) do not count it.
    ///
    /// ```
    /// use nlx::service::{Client, Pool, PoolOptions, client::ClientOptions};
    /// use nlx::{Domain, NodeConfig, TmOptions};
    ///
    /// let domain = Domain::in_process(&NodeConfig::new())?;
    /// let machines = domain.machines("0@lo:12345:31:*", TmOptions::default())?;
    /// let pool = Pool::start("calls", machines.clone(), 1, PoolOptions::default())?;
    /// let client = Client::start(&pool, machines, ClientOptions::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Domain::transfer_machine`].
    pub fn machines(&self, address: &str, options: TmOptions) -> Result<Machines, Error> {
        let address: StartAddress = address.parse()?;
        Ok(Machines::start(self.inner().clone(), &address, &options)?)
    }
}
