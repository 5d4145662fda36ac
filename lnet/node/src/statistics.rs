use std::path::PathBuf;

use lnet::{NiStatistics, PeerStatistics};

use crate::Node;

impl Node {
    /// What went over each NI, and its credits: `0@lo` first, then those of [`Node::nids`].
    #[must_use]
    pub fn ni_statistics(&self) -> Vec<NiStatistics> {
        self.view().nis()
    }

    /// The peers that messages were exchanged with, each once for every NI over which it is known.
    #[must_use]
    pub fn peer_statistics(&self) -> Vec<PeerStatistics> {
        self.engine().peer_statistics()
    }

    /// All of that and more as one JSON object: what `nlx status --json` prints of this node. `docs/operating.md` lists its
    /// members.
    #[must_use]
    pub fn status(&self) -> String {
        self.view().json()
    }

    /// The socket on which it answers `nlx status`; `None` if it does not.
    #[must_use]
    pub fn status_socket(&self) -> Option<PathBuf> {
        self.status_server().lock().as_ref().map(|server| server.path().to_path_buf())
    }
}
