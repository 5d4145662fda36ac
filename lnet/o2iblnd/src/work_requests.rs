//! Work requests that are emitted, and posted together: a call to the device costs more than
//! emitting a small message.

use lnet_api::Errno;
use smallvec::SmallVec;

use crate::fabric::{Endpoint, Piece, SendKind, SendWork};
use crate::op_data::Described;
use crate::writes::{WriteError, WriteLimits, each_write};

/// The number of work requests posted in one call; a longer chain takes several calls.
const POSTED_TOGETHER: usize = 32;

/// Work requests in posting order. The lists are kept and refilled, so that a message allocates
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct WorkRequests {
    pieces: Vec<Piece>,
    works: Vec<Work>,
}

/// A work request; its pieces follow those of the one before it.
#[derive(Debug, Clone, Copy)]
struct Work {
    id: u64,
    pieces: usize,
    kind: SendKind,
    signalled: bool,
    inline: bool,
}

impl WorkRequests {
    /// Adds the writes of a transfer: from the first bytes of these pieces, to the memory that
    /// `target` describes. `id` is that of the message behind them. Returns the number of writes.
    pub(crate) fn add_writes(
        &mut self,
        limits: WriteLimits,
        source: &[Piece],
        (target, bytes): (&Described, u32),
        id: u64,
    ) -> Result<u32, WriteError> {
        each_write(limits, source.iter().copied(), target.first(bytes), |piece, begins| {
            if let Some(address) = begins {
                let kind = SendKind::Write { address, key: target.key };
                self.works.push(Work { id, pieces: 0, kind, signalled: false, inline: false });
            }
            self.pieces.push(piece);
            if let Some(write) = self.works.last_mut() {
                write.pieces += 1;
            }
        })
    }

    pub(crate) fn add(&mut self, work: SendWork<'_>) {
        let SendWork { id, pieces, kind, signalled, inline } = work;
        self.pieces.extend_from_slice(pieces);
        self.works.push(Work { id, pieces: pieces.len(), kind, signalled, inline });
    }

    /// Returns whether the batch is large enough for a call.
    pub(crate) fn is_full(&self) -> bool {
        self.works.len() >= POSTED_TOGETHER
    }

    /// Posts all work requests; returns the number of calls. The batch is empty afterwards, also on
    /// an error.
    pub(crate) fn post(&mut self, endpoint: &dyn Endpoint) -> Result<usize, Errno> {
        let calls = self.hand_over(endpoint);
        self.pieces.clear();
        self.works.clear();
        calls
    }

    fn hand_over(&self, endpoint: &dyn Endpoint) -> Result<usize, Errno> {
        let mut calls = 0;
        let mut rest = self.pieces.as_slice();
        for works in self.works.chunks(POSTED_TOGETHER) {
            let request = |work: &Work| {
                let (pieces, behind) = rest.split_at(work.pieces);
                rest = behind;
                let Work { id, kind, signalled, inline, .. } = *work;
                SendWork { id, pieces, kind, signalled, inline }
            };
            let together: SmallVec<[SendWork<'_>; POSTED_TOGETHER]> = works.iter().map(request).collect();
            endpoint.post_sends(&together).map_err(|error| error.errno)?;
            calls += 1;
        }
        Ok(calls)
    }
}
