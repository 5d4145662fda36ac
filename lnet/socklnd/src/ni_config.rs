use crate::SockConfig;

/// The tunables that each NI may have otherwise than the LND's [`SockConfig`] (what `lnetctl net set` and `lnet.conf` call
/// `tunables` and `lnd tunables`). To be given to [`SockLnd::configure`](crate::SockLnd::configure) before the NI starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NiConfig {
    /// Messages in flight over the NI, all peers together.
    pub credits: u32,
    /// Messages in flight to one peer.
    pub peer_credits: u32,
    /// Connections of each bulk type to a peer (S-208).
    pub conns_per_peer: u8,
    /// Seconds without progress of a send, a receive or an attempt to connect before it fails (`timeout`).
    pub timeout_s: u32,
    /// The type of service, or traffic class, of the NI's connections; `None` (LNet's -1) leaves it to the system.
    pub tos: Option<u8>,
}

impl NiConfig {
    pub(crate) fn timeout_ns(&self) -> u64 {
        u64::from(self.timeout_s) * crate::config::NS_PER_S
    }
}

/// What an NI has that says nothing of its own.
impl From<&SockConfig> for NiConfig {
    fn from(config: &SockConfig) -> NiConfig {
        let SockConfig { credits, peer_credits, conns_per_peer, timeout_s, tos, .. } = *config;
        NiConfig { credits, peer_credits, conns_per_peer, timeout_s, tos }
    }
}
