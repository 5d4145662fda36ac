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

    /// Adds a member to what [`Node::status`] gives: of the program that the node is part of. `tell` gives JSON (see
    /// [`Object`](crate::Object)) of some 64 KiB at the most, for the status is written in one go; it is asked for each answer, by
    /// any thread, and must not call this. One of the same name is replaced.
    pub fn add_status(&self, name: &'static str, tell: impl Fn() -> String + Send + Sync + 'static) {
        self.view().add(name, Box::new(tell));
    }

    /// The socket on which it answers `nlx status`; `None` if it does not.
    #[must_use]
    pub fn status_socket(&self) -> Option<PathBuf> {
        self.status_server().lock().as_ref().map(|server| server.path().to_path_buf())
    }
}
