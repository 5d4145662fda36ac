//! A place on the network.

use std::sync::Arc;

use lnet_region::{IoVec, Region};
use nlx_core::{Core, Limits, Nid, TmOptions};

use crate::{Buffer, Error, MachineBuilder, TransferMachine};

/// A place on the network: buffers are registered with it, and transfer machines started in it.
///
/// Clones share it. The network ends when the last of the node's domains, their transfer machines and their buffers is gone.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    core: Arc<dyn Core>,
    #[cfg(feature = "in-process")]
    node: Option<Arc<lnet_node::Node>>,
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
        Domain { inner: Arc::new(Inner { core, node: Some(node) }) }
    }

    /// A domain over any other way to the network.
    pub fn over(core: Arc<dyn Core>) -> Domain {
        Domain {
            inner: Arc::new(Inner {
                core,
                #[cfg(feature = "in-process")]
                node: None,
            }),
        }
    }

    /// The node inside this program, if the domain has one: for its counters, to ping others, and for more domains.
    #[cfg(feature = "in-process")]
    pub fn node(&self) -> Option<&Arc<lnet_node::Node>> {
        self.inner.node.as_ref()
    }

    /// What buffers may be at most.
    pub fn limits(&self) -> Limits {
        self.inner.core.limits()
    }

    /// The NIDs of the node, with `0@lo` as the last.
    pub fn nids(&self) -> Vec<Nid> {
        self.inner.core.nids()
    }

    /// A buffer of new memory, zeroed and in one piece. One of more than [`Limits::buffer_bytes_max`] (1 MiB) is
    /// [large](Buffer).
    ///
    /// # Errors
    /// EINVAL for 0 bytes, EFBIG beyond 16 GiB, ENOMEM.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        self.register(IoVec::whole(Region::heap(bytes)?))
    }

    /// A buffer that holds these bytes, and has room for no others: a message, say.
    ///
    /// # Errors
    /// As [`Domain::allocate`].
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer, Error> {
        let mut buffer = self.allocate(bytes.len())?;
        buffer.write()?.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// A buffer of memory that is there already, of up to [`Limits::segments_max`] segments of any alignment. One of more
    /// than [`Limits::buffer_bytes_max`] is [large](Buffer).
    ///
    /// # Errors
    /// EFBIG beyond 16 GiB, ENOMEM when too many buffers are registered; every part of a large one counts.
    pub fn register(&self, memory: IoVec) -> Result<Buffer, Error> {
        Buffer::register(self.inner.clone(), memory)
    }

    /// Starts a transfer machine whose events the program waits for: the short way to [`Domain::machine`].
    ///
    /// # Errors
    /// As [`MachineBuilder::start`].
    pub fn transfer_machine(&self, address: &str, options: TmOptions) -> Result<TransferMachine, Error> {
        self.machine().options(options).start(address)
    }

    /// A transfer machine that can be given callbacks, an observer and more before it starts.
    pub fn machine(&self) -> MachineBuilder<'_> {
        MachineBuilder::new(self)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn core(&self) -> &dyn Core {
        &*self.core
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain").field("nids", &self.nids()).finish_non_exhaustive()
    }
}
