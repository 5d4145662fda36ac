//! The counters of lnet-wire 36, of both sides: what this side may send, and what the peer may.

use lnet_proto::ib::MessageKind;

use super::ConnError;

/// NOOPs for which a peer keeps receive buffers: at most so many are posted at a time, and at most so many with credits are
/// sent of which it is not known that the peer has dealt with them (lnet-wire 36).
pub(super) const NOOPS_MAX: u8 = 2;

/// Credits in every sense of the word.
///
/// The peer's credits are known exactly: it had `depth`, each of its messages that needs one has used one, and it has at most
/// those that were given to it. A peer that does as it should cannot run into the checks.
#[derive(Debug)]
pub(super) struct Credits {
    depth: u16,
    high_water: u16,
    /// Messages that this side may send.
    credits: u16,
    /// Transfers that this side may begin.
    reserved: u16,
    /// Credits that are owed to the peer: those of buffers that are posted again.
    outstanding: u16,
    /// Transfers that the peer may begin.
    peer_reserved: u16,
    /// Credits that were ever given to the peer.
    given: u64,
    /// Credits that it ever used.
    used: u64,
    /// What was given before each of the last two NOOPs with credits, the older first.
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

    /// Takes one of this side's transfers, if there is one left.
    pub(super) fn reserve(&mut self) -> bool {
        let free = self.reserved > 0;
        self.reserved -= u16::from(free);
        free
    }

    /// A transfer of this side's is answered, or was withdrawn.
    pub(super) fn unreserve(&mut self) {
        self.reserved = (self.reserved + 1).min(self.depth);
    }

    /// Credits have come in a message.
    pub(super) fn returned(&mut self, returned: u8) -> Result<(), ConnError> {
        let (held, limit) = (self.credits, self.depth);
        if held + u16::from(returned) > limit {
            return Err(ConnError::Credits { returned, held, limit });
        }
        self.credits += u16::from(returned);
        Ok(())
    }

    /// A message of the peer's that needs a credit.
    pub(super) fn used_by_peer(&mut self, kind: MessageKind) -> Result<(), ConnError> {
        if self.given == self.used {
            return Err(ConnError::Overrun { kind, limit: self.depth });
        }
        self.used += 1;
        Ok(())
    }

    /// A message of the peer's that begins a transfer.
    pub(super) fn begun_by_peer(&mut self, kind: MessageKind) -> Result<(), ConnError> {
        if self.peer_reserved == 0 {
            return Err(ConnError::Transfers { kind, limit: self.depth });
        }
        self.peer_reserved -= 1;
        Ok(())
    }

    /// The answer to it is posted.
    pub(super) fn answered(&mut self) {
        self.peer_reserved = (self.peer_reserved + 1).min(self.depth);
    }

    /// A buffer is posted again that gives the peer a credit back.
    pub(super) fn owe(&mut self) {
        self.outstanding = (self.outstanding + 1).min(self.depth);
    }

    /// The credits that a message takes along.
    pub(super) fn give(&mut self) -> u8 {
        let outstanding = std::mem::take(&mut self.outstanding);
        self.given += u64::from(outstanding);
        outstanding.try_into().unwrap_or(u8::MAX)
    }

    /// Whether the credits owed are worth a message of their own: there are enough of them, or the peer cannot send without
    /// them. The latter is no rule of kernel nodes, which hold no messages; here a lazy portal may hold so many that the
    /// high-water mark cannot be reached.
    pub(super) fn wants_noop(&self) -> bool {
        let stuck = self.given == self.used && self.outstanding > 0;
        // The peer has dealt with a NOOP for certain when it has used a credit that came with it.
        let dealt_with = self.used > self.noops[0];
        dealt_with && (stuck || self.outstanding >= self.high_water)
    }

    /// A NOOP is sent.
    pub(super) fn note_noop(&mut self) {
        if self.outstanding > 0 {
            self.noops = [self.noops[1], self.given];
        }
    }

    /// What this side has: credits, reserved transfers, credits owed.
    pub(super) fn counts(&self) -> (u16, u16, u16) {
        (self.credits, self.reserved, self.outstanding)
    }
}
