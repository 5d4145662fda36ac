//! Work requests that are emitted, and handed to the device together: to tell it costs more than to emit a small message.

use lnet_api::Errno;
use smallvec::SmallVec;

use crate::fabric::{Endpoint, Piece, SendKind, SendWork};
use crate::item::Described;
use crate::writes::{WriteError, WriteLimits, each_write};

/// Work requests that are handed over in one call: a chain that is longer goes in several.
const POSTED_TOGETHER: usize = 32;

/// Work requests in their order. It is kept and filled again, so that a message allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pieces: Vec<Piece>,
    works: Vec<Work>,
}

/// One of them; its pieces are the next ones.
#[derive(Debug, Clone, Copy)]
struct Work {
    id: u64,
    pieces: usize,
    kind: SendKind,
    signalled: bool,
    inline: bool,
}

impl Batch {
    /// Adds the writes of a transfer: the first bytes of these pieces, to the memory that `target` describes; the id is that of the
    /// message behind them. Returns the number of writes.
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

    /// There is enough for a call.
    pub(crate) fn is_full(&self) -> bool {
        self.works.len() >= POSTED_TOGETHER
    }

    /// Hands all to the device; gives in how many calls. Nothing is left, also if it fails.
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
