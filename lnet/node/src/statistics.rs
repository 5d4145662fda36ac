//! Statistics of a node's NIs.

use std::path::PathBuf;

use lnet::{NiStatistics, PeerStatistics};

use crate::Node;

impl Node {
    /// Returns the traffic and credits of each NI: `0@lo` first, then those of [`Node::nids`].
    #[must_use]
    pub fn ni_statistics(&self) -> Vec<NiStatistics> {
        self.view().nis()
    }

    /// Returns the peers with which messages were exchanged, once for each NI over which the peer
    /// is known.
    #[must_use]
    pub fn peer_statistics(&self) -> Vec<PeerStatistics> {
        self.engine().peer_statistics()
    }

    /// Returns all statistics as one JSON object: the output of `nlx status --json` for this node.
    /// `docs/operating.md` lists its members.
    #[must_use]
    pub fn status(&self) -> String {
        self.view().json()
    }

    /// Adds a member of the embedding program to the object of [`Node::status`]. `content` returns
    /// JSON (see [`JsonObject`](crate::JsonObject)) of some 64 KiB at the most, because the status is
    /// written in one call. Any thread may call `content`, once for each answer; it must not call
    /// this method. A member of the same name is replaced.
    pub fn add_status(&self, name: &'static str, content: impl Fn() -> String + Send + Sync + 'static) {
        self.view().add(name, Box::new(content));
    }

    /// Returns the socket on which the node answers `nlx status`; `None` without one.
    #[must_use]
    pub fn status_socket(&self) -> Option<PathBuf> {
        self.status_server().lock().as_ref().map(|server| server.path().to_path_buf())
    }
}
