//! Domains: a program's access to the network.

use std::sync::Arc;

use lnet_region::ForkGuard;
use nlx_core::{
    BufferHandle, Core, CoreError, CoreTm, IoVec, Limits, Nid, Region, RegionError, StartAddress, TmOptions,
};

use crate::quotas::{LimitedObject, QuotaUsage};
use crate::{Error, Quotas};

/// A program's access to the network: it registers buffers and starts transfer machines.
///
/// Clones share one domain. The node shuts down once all its domains, their transfer machines and
/// their buffers are dropped.
///
/// # Forked children
///
/// A domain belongs to the process that opened it. In a forked child, each call of the domain, its
/// transfer machines and its buffers that would use the network or memory is refused
/// ([`Error::Forked`], or [`RegionError::Forked`](crate::RegionError::Forked) for memory; ESTALE).
/// Calls that only read values return empty ones, and drops do nothing; the parent is not
/// disturbed. The child does not inherit large buffers, shared buffers and event queues. It keeps
/// copies of the node's descriptors, which close when it executes another program, and may open
/// another domain.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<DomainInner>,
}

pub(crate) struct DomainInner {
    core: Arc<dyn Core>,
    #[cfg(feature = "in-process")]
    node: Option<Arc<lnet_node::Node>>,
    fork_guard: ForkGuard,
    usage: QuotaUsage,
}

impl Domain {
    /// Starts the whole network stack inside this program.
    ///
    /// # Errors
    /// [`Error::Node`] if a network cannot be started.
    #[cfg(feature = "in-process")]
    pub fn in_process(config: &lnet_node::NodeConfig) -> Result<Domain, Error> {
        Ok(Domain::on(Arc::new(lnet_node::Node::start(config)?)))
    }

    /// Starts the whole network stack inside this program, configured by a text in any of the forms
    /// of `docs/configuration.md`: the output of `lnetctl export`, the options of LNet's modules,
    /// or TOML. The text can set networks, ports, partitions, timeouts and every other tunable.
    ///
    /// ```
    /// let domain = nlx::Domain::from_text(r#"
    /// [[net]]
    /// name = "tcp1"
    /// interfaces = ["127.0.0.17"]
    ///
    /// [lnet]
    /// accept_port = 9989
    /// cpu_npartitions = 1
    /// lnet_transaction_timeout = 10
    /// "#)?;
    /// assert_eq!(domain.nids()[0].to_string(), "127.0.0.17@tcp1");
    /// # Ok::<(), nlx::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Node`], which names the line and the key, or the network that cannot be started.
    #[cfg(feature = "in-process")]
    pub fn from_text(text: &str) -> Result<Domain, Error> {
        Domain::in_process(&lnet_node::NodeConfig::from_text(text)?)
    }

    /// Opens a domain on an existing node. A node may have several domains: each has separate
    /// buffers, and no two of their transfer machines have the same address at a time (S-404).
    ///
    /// ```
    /// use nlx::{Domain, NodeConfig, TmOptions};
    ///
    /// let first = Domain::in_process(&NodeConfig::new())?;
    /// let second = Domain::on(first.node().expect("it runs in this process").clone());
    /// let tms = [first, second].map(|domain| domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()));
    /// let [one, other] = tms.map(|tm| tm.map(|tm| tm.address().to_string()));
    /// assert_eq!((one?, other?), ("0@lo:12345:31:4095".into(), "0@lo:12345:31:4094".into()));
    /// # Ok::<(), nlx::Error>(())
    /// ```
    #[cfg(feature = "in-process")]
    pub fn on(node: Arc<lnet_node::Node>) -> Domain {
        let core = nlx_kcore::Kcore::new(node.lnet(), node.drive());
        let inner = DomainInner {
            core,
            node: Some(node),
            fork_guard: ForkGuard::here(),
            usage: QuotaUsage::default(),
        };
        Domain { inner: Arc::new(inner) }
    }

    /// Opens a domain on the network of this host's helper, `nlxd`, which all its clients share.
    /// The environment variable `NLX_HELPER` names the helper's socket; the default is
    /// `/run/nlx/nlxd.sock`.
    ///
    /// ```no_run
    /// use nlx::{Domain, TmOptions};
    ///
    /// let domain = Domain::helper()?;
    /// let tm = domain.transfer_machine(&format!("{}:12345:40:*", domain.nids()[0]), TmOptions::default())?;
    /// println!("{} is one of {:?}", tm.address(), domain.nids());
    /// # Ok::<(), nlx::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Domain::through`].
    #[cfg(feature = "helper")]
    pub fn helper() -> Result<Domain, Error> {
        Domain::through(&nlx_ucore::HelperOptions::new())
    }

    /// Opens a domain through the helper whose socket is at `path`.
    ///
    /// # Errors
    /// The errors of [`Domain::through`].
    #[cfg(feature = "helper")]
    pub fn helper_at(path: impl AsRef<std::path::Path>) -> Result<Domain, Error> {
        Domain::through(&nlx_ucore::HelperOptions::at(path.as_ref()))
    }

    /// Opens a domain through a helper, with all options. Each call makes a connection and is a
    /// *client* of the helper, with separate quotas; clones of a domain share one connection.
    ///
    /// ```no_run
    /// use nlx::{Domain, HelperOptions};
    ///
    /// let options = HelperOptions::at("/run/site/nlxd.sock").name("archiver").reconnect(true);
    /// let domain = Domain::through(&options)?;
    /// # Ok::<(), nlx::Error>(())
    /// ```
    ///
    /// # When the helper is gone
    ///
    /// Every wait ends ([`Error::Ended`]), each operation in flight ends with ENOTCONN and returns
    /// its buffer, and calls are refused with ENOTCONN
    /// ([`CoreError::Disconnected`](crate::CoreError::Disconnected)). The buffers' bytes stay
    /// readable, and drops report no error. Open the domain anew, with new buffers and transfer
    /// machines. With `reconnect` the domain reconnects, and its buffers stay valid, but each
    /// operation copies them from then on; only transfer machines must be started again.
    ///
    /// # Errors
    /// ENOENT or ECONNREFUSED if no helper listens on the socket, EACCES or EPERM if the helper
    /// does not admit this user, EPROTO if the versions of the protocol differ; else the system's
    /// error.
    #[cfg(feature = "helper")]
    pub fn through(options: &nlx_ucore::HelperOptions) -> Result<Domain, Error> {
        Ok(Domain::over(nlx_ucore::Ucore::connect(options)?))
    }

    /// Opens a domain over a scripted LNet, whose clock runs its timeouts: for tests of a program
    /// that uses this crate. A wait with a timeout that finds no event does not sleep: it advances
    /// the clock. See [`crate::fake`], and `examples/retry.rs`.
    #[cfg(feature = "fake")]
    pub fn over_fake(lnet: Arc<lnet_fake::FakeLnet>, drive: Arc<lnet_fake::FakeDrive>) -> Domain {
        Domain::over(nlx_kcore::Kcore::new(lnet, drive))
    }

    /// Opens a domain over any other implementation of the Core interface.
    pub fn over(core: Arc<dyn Core>) -> Domain {
        let inner = DomainInner {
            core,
            #[cfg(feature = "in-process")]
            node: None,
            fork_guard: ForkGuard::here(),
            usage: QuotaUsage::default(),
        };
        Domain { inner: Arc::new(inner) }
    }

    /// Returns the node inside this program, for its counters, for pings and for further domains;
    /// `None` over a helper.
    #[cfg(feature = "in-process")]
    pub fn node(&self) -> Option<&Arc<lnet_node::Node>> {
        self.inner.node.as_ref()
    }

    /// Sets the limits for objects created from now on; existing objects stay.
    pub fn set_quotas(&self, quotas: &Quotas) {
        self.inner.usage.set(quotas);
    }

    /// Returns the transport's limits for buffers.
    pub fn limits(&self) -> Limits {
        self.inner.core.limits()
    }

    /// Returns the NIDs of the node, with `0@lo` last; empty in a forked child.
    pub fn nids(&self) -> Vec<Nid> {
        if self.inner.in_owner_process() { self.inner.core.nids() } else { Vec::new() }
    }

    pub(crate) fn inner(&self) -> &Arc<DomainInner> {
        &self.inner
    }
}

impl DomainInner {
    pub(crate) fn core(&self) -> &dyn Core {
        &*self.core
    }

    pub(crate) fn usage(&self) -> &QuotaUsage {
        &self.usage
    }

    /// Returns whether this is the process that opened the domain, and not a forked child. Callers
    /// check this before they take any lock: in a child, a lock may be held for ever.
    #[inline]
    pub(crate) fn in_owner_process(&self) -> bool {
        self.fork_guard.in_owner_process()
    }

    /// Returns the transport.
    ///
    /// # Errors
    /// [`RegionError::Forked`] in a forked child.
    fn owned(&self) -> Result<&dyn Core, CoreError> {
        let forked = || RegionError::Forked { process: self.fork_guard.process() };
        if self.in_owner_process() { Ok(self.core()) } else { Err(forked().into()) }
    }

    /// Checks that this process opened the domain.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<(), Error> {
        if self.in_owner_process() {
            Ok(())
        } else {
            Err(Error::Forked { process: self.fork_guard.process() })
        }
    }
}

/// For transfer machines that are not the domain's own: they keep its node running, and are refused in
/// a forked child.
impl Core for DomainInner {
    fn limits(&self) -> Limits {
        self.core().limits()
    }

    fn nids(&self) -> Vec<Nid> {
        if self.in_owner_process() { self.core().nids() } else { Vec::new() }
    }

    fn now_ns(&self) -> u64 {
        self.core().now_ns()
    }

    fn allocate(&self, bytes: usize) -> Result<Region, CoreError> {
        self.owned()?.allocate(bytes)
    }

    fn register(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.owned()?.register(memory)
    }

    fn register_copying(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.owned()?.register_copying(memory)
    }

    fn deregister(&self, buffer: BufferHandle) -> Result<(), CoreError> {
        self.owned()?.deregister(buffer)
    }

    fn tm_start(&self, address: &StartAddress, options: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError> {
        self.owned()?.tm_start(address, options)
    }
}

/// One object of the domain, counted in its quotas until this value is dropped.
pub(crate) struct CountedObject(Arc<DomainInner>, LimitedObject);

impl CountedObject {
    pub(crate) fn one(domain: &Arc<DomainInner>, object: LimitedObject) -> Result<CountedObject, Error> {
        domain.usage().reserve(object, 1)?;
        Ok(CountedObject(domain.clone(), object))
    }
}

impl Drop for CountedObject {
    fn drop(&mut self) {
        self.0.usage().release(self.1, 1);
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        if !self.in_owner_process() {
            // In a forked child all of this belongs to the parent.
            std::mem::forget(self.core.clone());
            #[cfg(feature = "in-process")]
            std::mem::forget(self.node.clone());
        }
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain").field("nids", &self.nids()).finish_non_exhaustive()
    }
}
