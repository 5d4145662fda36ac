use lnet::{NiStatistics, PeerStatistics};
use lnet_nid::Nid;

use crate::Node;

impl Node {
    /// What went over each NI, and its credits: `0@lo` first, then those of [`Node::nids`].
    #[must_use]
    pub fn ni_statistics(&self) -> Vec<NiStatistics> {
        let own = self.nids().into_iter();
        std::iter::once(Nid::LOOPBACK).chain(own).filter_map(|nid| self.engine().ni_statistics(nid)).collect()
    }

    /// The peers that messages were exchanged with, each once for every NI over which it is known.
    #[must_use]
    pub fn peer_statistics(&self) -> Vec<PeerStatistics> {
        self.engine().peer_statistics()
    }
}
