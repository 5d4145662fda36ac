//! Messages that match no buffer.

use lnet_api::{Dropped, MdOptions};
use lnet_nid::Portal;

use crate::fake::{assert_outside, inside};
use crate::{FakeLnet, ScriptedEvent};

impl FakeLnet {
    /// Delivers a PUT that is lost because no buffer takes it: the watcher is called, on the thread
    /// on which the peer's events are delivered. There is no other effect.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// use lnet_api::{DropWatcher, Dropped, LNet};
    /// use lnet_fake::{DEFAULT_PEER, FakeLnet};
    /// use lnet_nid::MatchBits;
    ///
    /// #[derive(Default)]
    /// struct Bytes(AtomicU32);
    ///
    /// impl DropWatcher for Bytes {
    ///     fn dropped(&self, message: &Dropped) {
    ///         self.0.fetch_add(message.length, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// let (lnet, lost) = (FakeLnet::new(&["10.0.0.1@tcp"]), Arc::new(Bytes::default()));
    /// lnet.watch_drops(lost.clone())?;
    /// let target = lnet.local_ids()[0];
    /// lnet.lose_put(&Dropped { target, portal: 30, match_bits: MatchBits(7), initiator: DEFAULT_PEER, length: 100 });
    /// assert_eq!(lost.0.load(Ordering::Relaxed), 100);
    /// # Ok::<(), lnet_api::LNetError>(())
    /// ```
    ///
    /// # Panics
    /// If LNet would not lose the message: a buffer takes it, or it is for another node. Also from
    /// inside an event callback.
    #[track_caller]
    pub fn lose_put(&self, message: &Dropped) {
        assert_outside();
        let Dropped { target, portal, match_bits, initiator, length } = *message;
        assert!(self.own.contains(&target), "{target} is not this node");
        let met = Portal::new(portal).ok().and_then(|portal| {
            self.state.lock().tables.matching(MdOptions::OP_PUT, initiator, portal, match_bits)
        });
        if let Some(md) = met {
            let put = ScriptedEvent::put().length(length).from(initiator).match_bits(match_bits);
            assert!(self.could_happen(md, put).is_err(), "MD {:#x} takes it", md.0);
        }
        if let Some(watcher) = self.watcher.get() {
            self.partitions.run(|| initiator.nid, || inside(|| watcher.dropped(message)));
        }
    }
}
