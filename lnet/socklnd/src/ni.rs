use std::sync::Arc;

use lnet_lnd::NiTable;
use lnet_nid::Nid;
use lnet_proto::sock::{LocalInterface, LocalNode};
use parking_lot::Mutex;

use crate::Sock;
use crate::sys::Options;

/// TCP state of an NI.
pub struct NiData {
    pub(crate) incarnation: u64,
    /// The socket options of the NI's connections.
    pub(crate) options: Options,
    /// Holds the NID on this host; released when the NI has ended, even if references to the NI
    /// remain.
    pub(crate) claim: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// The table of NIs, as seen by a handshake.
#[derive(Clone)]
pub(crate) struct Locals(pub(crate) Arc<NiTable<Sock>>);

impl LocalNode for Locals {
    fn interface(&self, nid: Nid) -> Option<LocalInterface> {
        let ni = self.0.get(nid)?;
        Some(LocalInterface { pid: ni.id.pid, incarnation: ni.own.incarnation })
    }
}
