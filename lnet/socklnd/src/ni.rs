use std::sync::Arc;

use lnet_lnd::NiTable;
use lnet_nid::Nid;
use lnet_proto::sock::{LocalInterface, LocalNode};
use parking_lot::Mutex;

use crate::Sock;
use crate::sys::Options;

/// What the TCP LND keeps of it.
pub struct OfNi {
    pub(crate) incarnation: u64,
    /// What its connections are set to.
    pub(crate) options: Options,
    /// Holds the NID on this host; given back when the NI has ended, whoever still knows of it.
    pub(crate) claim: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// The table as a handshake sees it.
#[derive(Clone)]
pub(crate) struct Locals(pub(crate) Arc<NiTable<Sock>>);

impl LocalNode for Locals {
    fn interface(&self, nid: Nid) -> Option<LocalInterface> {
        let ni = self.0.get(nid)?;
        Some(LocalInterface { pid: ni.id.pid, incarnation: ni.own.incarnation })
    }
}
