//! The credit counters of lnet-wire 36: the messages and transfers that each side may send and
//! begin.

use lnet_proto::ib::MessageKind;

use super::ConnError;

/// The number of NOOPs for which a peer keeps receive buffers. At most this number of NOOPs is
/// posted at a time, and at most this number of NOOPs with credits is sent before the peer is known
/// to have handled one (lnet-wire 36).
pub(super) const NOOPS_MAX: u8 = 2;

/// The credits and reserved transfers of both sides.
///
/// The peer's credits are known exactly: it began with `depth`, each of its messages that needs a
/// credit has used one, and it has at most those that were given to it. A peer that follows the
/// protocol cannot fail the checks.
#[derive(Debug)]
pub(super) struct Credits {
    depth: u16,
    high_water: u16,
    /// Messages that this side may send.
    credits: u16,
    /// Transfers that this side may begin.
    reserved: u16,
    /// Credits owed to the peer, for buffers that are posted again.
    outstanding: u16,
    /// Transfers that the peer may still begin.
    peer_reserved: u16,
    /// Total number of credits given to the peer.
    given: u64,
    /// Total number of credits that the peer has used.
    used: u64,
    /// The value of `given` before each of the last two NOOPs with credits, the older first.
    noops: [u64; NOOPS_MAX as usize],
}

impl Credits {
    pub(super) fn new(depth: u8, high_water: u16) -> Credits {
        let depth = u16::from(depth.max(1));
        Credits {
            depth,
            high_water: high_water.clamp(1, (depth / 2).max(1)),
            credits: depth,
            reserved: depth,
            outstanding: 0,
            peer_reserved: depth,
            given: depth.into(),
            used: 0,
            noops: [0; NOOPS_MAX as usize],
        }
    }

    pub(super) fn has_credit(&self) -> bool {
        self.credits > 0
    }

    pub(super) fn use_credit(&mut self) {
        self.credits = self.credits.saturating_sub(1);
    }

    /// Reserves one of this side's transfers; `false` if all are in use.
    pub(super) fn reserve(&mut self) -> bool {
        let free = self.reserved > 0;
        self.reserved -= u16::from(free);
        free
    }

    /// Ends the reservation of a transfer of this side, because it was answered or withdrawn.
    pub(super) fn unreserve(&mut self) {
        self.reserved = (self.reserved + 1).min(self.depth);
    }

    /// Adds the credits that came in a message.
    pub(super) fn returned(&mut self, returned: u8) -> Result<(), ConnError> {
        let (held, limit) = (self.credits, self.depth);
        if held + u16::from(returned) > limit {
            return Err(ConnError::Credits { returned, held, limit });
        }
        self.credits += u16::from(returned);
        Ok(())
    }

    /// Counts a message of the peer that needs a credit.
    pub(super) fn used_by_peer(&mut self, kind: MessageKind) -> Result<(), ConnError> {
        if self.given == self.used {
            return Err(ConnError::Overrun { kind, limit: self.depth });
        }
        self.used += 1;
        Ok(())
    }

    /// Counts a message of the peer that begins a transfer.
    pub(super) fn begun_by_peer(&mut self, kind: MessageKind) -> Result<(), ConnError> {
        if self.peer_reserved == 0 {
            return Err(ConnError::Transfers { kind, limit: self.depth });
        }
        self.peer_reserved -= 1;
        Ok(())
    }

    /// Ends a transfer of the peer, because its answer is posted.
    pub(super) fn answered(&mut self) {
        self.peer_reserved = (self.peer_reserved + 1).min(self.depth);
    }

    /// Adds an owed credit, because a buffer whose message used a credit is posted again.
    pub(super) fn owe(&mut self) {
        self.outstanding = (self.outstanding + 1).min(self.depth);
    }

    /// Returns the credits to send in the next message, which are then no longer owed.
    pub(super) fn give(&mut self) -> u8 {
        let outstanding = std::mem::take(&mut self.outstanding);
        self.given += u64::from(outstanding);
        outstanding.try_into().unwrap_or(u8::MAX)
    }

    /// Returns whether the owed credits are worth a NOOP: they have reached the high-water mark, or
    /// the peer cannot send without them. Kernel nodes do not have the second rule, as they hold no
    /// messages; here a lazy portal may hold enough messages that the high-water mark is never
    /// reached.
    pub(super) fn wants_noop(&self) -> bool {
        let stuck = self.given == self.used && self.outstanding > 0;
        // The peer has certainly handled a NOOP once it has used a credit that came with the NOOP.
        let dealt_with = self.used > self.noops[0];
        dealt_with && (stuck || self.outstanding >= self.high_water)
    }

    /// Records that a NOOP is being sent.
    pub(super) fn note_noop(&mut self) {
        if self.outstanding > 0 {
            self.noops = [self.noops[1], self.given];
        }
    }

    /// Returns this side's credits, reserved transfers, and credits owed.
    pub(super) fn counts(&self) -> (u16, u16, u16) {
        (self.credits, self.reserved, self.outstanding)
    }
}
