//! A message after its header.

use lnet_api::{Errno, PayloadTarget, RxToken, Upcalls};
use lnet_lnd::HeldTable;
use lnet_lnd::shard_table::ShardKey;
use lnet_proto::ProtoError;
use lnet_proto::sock::MessageChecksum;
use lnet_region::WriteVec;

use crate::sock::{Sock, Turn};

/// A message whose payload is being received.
pub(super) struct Incoming {
    token: Option<RxToken>,
    /// The name of a held message that is received into memory.
    held: Option<ShardKey>,
    sink: Option<WriteVec>,
    /// The number of payload bytes wanted, which are the first ones.
    wanted: usize,
    /// Payload bytes in all.
    total: usize,
    /// Payload bytes received.
    got: usize,
    /// The zero-copy cookie to acknowledge once the wanted bytes are received.
    pub(super) cookie: Option<u64>,
    checksum: Option<MessageChecksum>,
}

/// The number of payload bytes copied and discarded.
#[derive(Default)]
pub(super) struct TakenBytes {
    pub(super) copied: usize,
    pub(super) discarded: usize,
}

impl Incoming {
    /// Creates the state of a message with this payload; `delivery` is its destination, `None`
    /// discards it.
    pub(super) fn new(
        delivery: Option<PayloadTarget>,
        total: usize,
        cookie: Option<u64>,
        checksum: Option<MessageChecksum>,
    ) -> Incoming {
        let (token, sink) = match delivery {
            Some(PayloadTarget { token, sink }) => (Some(token), sink),
            None => (None, None),
        };
        let wanted = sink.as_ref().map_or(0, |sink| sink.len().min(total));
        Incoming { token, held: None, sink, wanted, total, got: 0, cookie, checksum }
    }

    /// Creates the state of a held message with this name, whose whole payload goes into memory.
    pub(super) fn into_memory(
        name: ShardKey,
        sink: Option<WriteVec>,
        total: usize,
        cookie: Option<u64>,
        checksum: Option<MessageChecksum>,
    ) -> Incoming {
        Incoming { token: None, held: Some(name), sink, wanted: total, total, got: 0, cookie, checksum }
    }

    /// Returns whether the whole payload has been received.
    pub(super) fn is_complete(&self) -> bool {
        self.got == self.total
    }

    /// Returns the number of bytes still to come.
    pub(super) fn left(&self) -> usize {
        self.total - self.got
    }

    /// Returns whether all wanted bytes are received and the engine has not been notified yet. A
    /// checksum is verified even if the message is not wanted: a wrong one means that the stream is
    /// corrupt.
    pub(super) fn is_due(&self) -> bool {
        if self.checksum.is_some() {
            return self.is_complete();
        }
        let awaited = self.token.is_some() || self.held.is_some() || self.cookie.is_some();
        self.got >= self.wanted && awaited
    }

    /// Returns the destination of the wanted bytes that may go directly from the socket to it, the
    /// bytes already there, and those left. `None` if there are none, or if the checksum needs
    /// them.
    pub(super) fn direct(&mut self) -> Option<(&mut WriteVec, usize, usize)> {
        let left = self.wanted.saturating_sub(self.got);
        if left == 0 || self.checksum.is_some() {
            return None;
        }
        let (got, wanted) = (self.got, self.wanted);
        self.sink.as_mut().filter(|sink| sink.len() == wanted).map(|sink| (sink, got, left))
    }

    /// Records that `count` bytes went directly to their destination.
    pub(super) fn received_directly(&mut self, count: usize) {
        self.got += count;
    }

    /// Takes the payload's next bytes from a buffer: at most [`Incoming::left`].
    pub(super) fn take(&mut self, bytes: &[u8]) -> TakenBytes {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(bytes);
        }
        let wanted = self.wanted.saturating_sub(self.got).min(bytes.len());
        if let Some(sink) = self.sink.as_mut().filter(|_| wanted > 0) {
            sink.copy_from(self.got, &bytes[..wanted]);
        }
        self.got += bytes.len();
        TakenBytes { copied: wanted, discarded: bytes.len() - wanted }
    }

    /// Notifies the engine that the wanted bytes are received, after ending the lease.
    ///
    /// # Errors
    /// The checksum does not match; the engine has received EIO.
    pub(super) fn finish(
        &mut self,
        turn: Turn<'_>,
        table: &mut HeldTable<Sock>,
        upcalls: &dyn Upcalls,
    ) -> Result<(), ProtoError> {
        let verdict = self.checksum.take().map_or(Ok(()), MessageChecksum::verify);
        let sink = self.sink.take();
        if let Some(name) = self.held.take() {
            match &verdict {
                Ok(()) => table.came(turn, name, sink.map(WriteVec::into_read)),
                Err(_) => table.fail(turn, name, Errno::EIO),
            }
        } else {
            drop(sink);
        }
        if let Some(token) = self.token.take() {
            upcalls.finalize_rx(token, if verdict.is_ok() { Ok(()) } else { Err(Errno::EIO) });
        }
        verdict
    }

    /// Notifies the engine that the payload is lost.
    pub(super) fn fail(&mut self, upcalls: &dyn Upcalls, errno: Errno) {
        self.sink = None;
        if let Some(token) = self.token.take() {
            upcalls.finalize_rx(token, Err(errno));
        }
    }
}
