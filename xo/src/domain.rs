//! A place on the network.

use std::sync::Arc;

use lnet_region::ForkGuard;
use nlx_core::{Core, Limits, Nid};

use crate::quotas::{Ledger, Object};
use crate::{Error, Quotas};

/// A place on the network: buffers are registered with it, and transfer machines started in it.
///
/// Clones share it. The network ends when the last of the node's domains, their transfer machines and their buffers is gone.
///
/// # Forked children
///
/// A domain stays in the process that opened it. In a child that this process forks, every call of the domain, its transfer
/// machines and its buffers that would touch the network or memory is refused ([`Error::Forked`], or
/// [`RegionError::Forked`](crate::RegionError::Forked) for memory; ESTALE), what only tells something tells of nothing, and
/// drops do nothing; the parent is not disturbed. Of the memory, large buffers, shared ones and the queues of events are not
/// inherited. The child keeps copies of the node's descriptors, closed when it executes another program, and may open a
/// domain of its own.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    core: Arc<dyn Core>,
    #[cfg(feature = "in-process")]
    node: Option<Arc<lnet_node::Node>>,
    fork_guard: ForkGuard,
    ledger: Ledger,
}

impl Domain {
    /// The whole network stack inside this program.
    ///
    /// # Errors
    /// [`Error::Node`] if a network cannot be started.
    #[cfg(feature = "in-process")]
    pub fn in_process(config: &lnet_node::NodeConfig) -> Result<Domain, Error> {
        Ok(Domain::on(Arc::new(lnet_node::Node::start(config)?)))
    }

    /// The same, configured by a text in any of the forms of `docs/configuration.md`: what `lnetctl export` writes, the options
    /// of LNet's modules, or TOML. Networks, ports, partitions, timeouts and every other tunable can stand there.
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
    /// [`Error::Node`] names the line and the key, or the network that cannot be started.
    #[cfg(feature = "in-process")]
    pub fn from_text(text: &str) -> Result<Domain, Error> {
        Domain::in_process(&lnet_node::NodeConfig::from_text(text)?)
    }

    /// A domain on a node that is there already. A node may have several: each has buffers of its own, and no two transfer
    /// machines of theirs ever have the same address (S-404).
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
        let inner =
            Inner { core, node: Some(node), fork_guard: ForkGuard::here(), ledger: Ledger::default() };
        Domain { inner: Arc::new(inner) }
    }

    /// A place on the network of this host's helper, `nlxd`, which all its programs share: its socket is the one that the
    /// environment variable `NLX_HELPER` names, else `/run/nlx/nlxd.sock`.
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
    /// As [`Domain::through`].
    #[cfg(feature = "helper")]
    pub fn helper() -> Result<Domain, Error> {
        Domain::through(&nlx_ucore::HelperOptions::new())
    }

    /// The same, through the helper whose socket this is.
    ///
    /// # Errors
    /// As [`Domain::through`].
    #[cfg(feature = "helper")]
    pub fn helper_at(path: impl AsRef<std::path::Path>) -> Result<Domain, Error> {
        Domain::through(&nlx_ucore::HelperOptions::at(path.as_ref()))
    }

    /// The same, with all that can be said about it. Each call is a connection, a *client* of the helper's, with quotas of its
    /// own; clones of a domain share one.
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
    /// Every wait ends ([`Error::Ended`]), each operation in flight ends with ENOTCONN and brings its buffer back, and calls are
    /// refused with ENOTCONN ([`CoreError::Disconnected`](crate::CoreError::Disconnected)). The buffers' bytes stay readable, and
    /// drops are quiet. Open the domain anew, with new buffers and transfer machines. With `reconnect` the domain does so
    /// itself, and its buffers stay good, though they are copied for each operation from then on: only transfer machines must be
    /// started again.
    ///
    /// # Errors
    /// ENOENT or ECONNREFUSED if nobody listens there, EACCES or EPERM if the helper does not let this user in, EPROTO for a
    /// version that is not ours; else what the system says.
    #[cfg(feature = "helper")]
    pub fn through(options: &nlx_ucore::HelperOptions) -> Result<Domain, Error> {
        Ok(Domain::over(nlx_ucore::Ucore::connect(options)?))
    }

    /// A domain over a scripted LNet, on whose clock its timeouts run: for tests of a program that uses this crate. A wait
    /// with a timeout that finds nothing takes no time: it moves the clock. See [`crate::fake`], and `examples/retry.rs`.
    #[cfg(feature = "fake")]
    pub fn over_fake(lnet: Arc<lnet_fake::FakeLnet>, drive: Arc<lnet_fake::FakeDrive>) -> Domain {
        Domain::over(nlx_kcore::Kcore::new(lnet, drive))
    }

    /// A domain over any other way to the network.
    pub fn over(core: Arc<dyn Core>) -> Domain {
        let inner = Inner {
            core,
            #[cfg(feature = "in-process")]
            node: None,
            fork_guard: ForkGuard::here(),
            ledger: Ledger::default(),
        };
        Domain { inner: Arc::new(inner) }
    }

    /// The node inside this program, if the domain has one: for its counters, to ping others, and for more domains. Over a
    /// helper there is none.
    #[cfg(feature = "in-process")]
    pub fn node(&self) -> Option<&Arc<lnet_node::Node>> {
        self.inner.node.as_ref()
    }

    /// Sets how much is given out from now on; what is there already stays.
    pub fn set_quotas(&self, quotas: &Quotas) {
        self.inner.ledger.set(quotas);
    }

    /// What buffers may be at most.
    pub fn limits(&self) -> Limits {
        self.inner.core.limits()
    }

    /// The NIDs of the node, with `0@lo` as the last; none in a forked child.
    pub fn nids(&self) -> Vec<Nid> {
        if self.inner.in_owner_process() { self.inner.core.nids() } else { Vec::new() }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn core(&self) -> &dyn Core {
        &*self.core
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether this is the process that opened the domain, and not a forked child. Asked before any lock is taken: in a child
    /// it may be held for ever.
    #[inline]
    pub(crate) fn in_owner_process(&self) -> bool {
        self.fork_guard.in_owner_process()
    }

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

/// One that the domain has given out, as long as this lives.
pub(crate) struct Given(Arc<Inner>, Object);

impl Given {
    pub(crate) fn one(domain: &Arc<Inner>, object: Object) -> Result<Given, Error> {
        domain.ledger().give(object, 1)?;
        Ok(Given(domain.clone(), object))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.0.ledger().take_back(self.1, 1);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.in_owner_process() {
            // In a forked child, all of it is the parent's.
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
