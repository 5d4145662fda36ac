//! What all clients share.

use std::sync::Arc;

use lnet_api::{Drive, LNet};

use super::{ClientQuotas, HostStatus, Policy};

/// How clients are served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostConfig {
    /// Who may use what.
    pub policy: Policy,
    /// How much of it, where the policy does not say otherwise.
    pub quotas: ClientQuotas,
    /// Clients may have arenas on huge pages. A client that punches holes into them and uses up all huge pages of the host
    /// makes touching a hole a bus error: only for a process that survives those (`lnet_region::guard`).
    pub huge_pages: bool,
}

/// What all clients share: LNet, the policy, and what clients that are gone have left.
pub struct Host {
    lnet: Arc<dyn LNet>,
    drive: Arc<dyn Drive>,
    config: HostConfig,
}

impl Host {
    /// Serves clients from this LNet, which `drive` moves forward.
    #[must_use]
    pub fn new(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>, config: HostConfig) -> Arc<Host> {
        Arc::new(Host { lnet, drive, config })
    }

    /// What moves the network forward, and tells the time.
    #[must_use]
    pub fn drive(&self) -> &Arc<dyn Drive> {
        &self.drive
    }

    /// LNet.
    #[must_use]
    pub fn lnet(&self) -> &Arc<dyn LNet> {
        &self.lnet
    }

    /// Who may use what.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.config.policy
    }

    /// How much a client may have, if the policy says nothing else.
    #[must_use]
    pub fn quotas(&self) -> ClientQuotas {
        self.config.quotas
    }

    /// How things stand.
    #[must_use]
    pub fn status(&self) -> HostStatus {
        HostStatus::default()
    }

    /// Forgets what LNet has let go of. Gives whether anything is left over.
    pub fn sweep(&self) -> bool {
        false
    }
}
