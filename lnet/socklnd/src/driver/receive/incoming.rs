//! A message whose header has been read.

use lnet_api::{Delivery, Errno, RxToken, Upcalls};
use lnet_lnd::HeldTable;
use lnet_lnd::slab::Key;
use lnet_proto::ProtoError;
use lnet_proto::sock::MessageChecksum;
use lnet_region::WriteVec;

use crate::sock::{Sock, Turn};

/// A message whose payload is being received.
pub(super) struct Incoming {
    token: Option<RxToken>,
    /// The engine holds it back, and it waits in memory.
    held: Option<Key>,
    sink: Option<WriteVec>,
    /// Bytes of the payload that are wanted: the first ones.
    wanted: usize,
    /// Bytes of the payload.
    total: usize,
    /// Bytes received.
    got: usize,
    /// The zero-copy cookie to acknowledge once the wanted part is in.
    pub(super) cookie: Option<u64>,
    checksum: Option<MessageChecksum>,
}

/// What became of payload bytes.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) copied: usize,
    pub(super) discarded: usize,
}

impl Incoming {
    /// A message with this payload; `delivery` says where it goes, `None` throws it away.
    pub(super) fn new(
        delivery: Option<Delivery>,
        total: usize,
        cookie: Option<u64>,
        checksum: Option<MessageChecksum>,
    ) -> Incoming {
        let (token, sink) = match delivery {
            Some(Delivery { token, sink }) => (Some(token), sink),
            None => (None, None),
        };
        let wanted = sink.as_ref().map_or(0, |sink| sink.len().min(total));
        Incoming { token, held: None, sink, wanted, total, got: 0, cookie, checksum }
    }

    /// A message that the engine holds back under this name, and whose whole payload goes into memory.
    pub(super) fn into_memory(
        name: Key,
        sink: Option<WriteVec>,
        total: usize,
        cookie: Option<u64>,
        checksum: Option<MessageChecksum>,
    ) -> Incoming {
        Incoming { token: None, held: Some(name), sink, wanted: total, total, got: 0, cookie, checksum }
    }

    /// Whether the whole payload has been received.
    pub(super) fn is_complete(&self) -> bool {
        self.got == self.total
    }

    /// Bytes still to come.
    pub(super) fn left(&self) -> usize {
        self.total - self.got
    }

    /// Whether everything wanted is in, and nobody has been told yet. A checksum is verified whether or not the message is
    /// wanted: a wrong one says that the stream is broken.
    pub(super) fn is_due(&self) -> bool {
        if self.checksum.is_some() {
            return self.is_complete();
        }
        let awaited = self.token.is_some() || self.held.is_some() || self.cookie.is_some();
        self.got >= self.wanted && awaited
    }

    /// The wanted bytes that may go straight from the socket to their place: the place, and how far it is filled. `None`
    /// if there are none, or if they must be looked at on their way.
    pub(super) fn direct(&mut self) -> Option<(&mut WriteVec, usize, usize)> {
        let left = self.wanted.saturating_sub(self.got);
        if left == 0 || self.checksum.is_some() {
            return None;
        }
        let (got, wanted) = (self.got, self.wanted);
        self.sink.as_mut().filter(|sink| sink.len() == wanted).map(|sink| (sink, got, left))
    }

    /// So many bytes went straight to their place.
    pub(super) fn received_directly(&mut self, count: usize) {
        self.got += count;
    }

    /// Takes the payload's next bytes from a buffer, of which there are no more than [`Incoming::left`].
    pub(super) fn take(&mut self, bytes: &[u8]) -> Taken {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(bytes);
        }
        let wanted = self.wanted.saturating_sub(self.got).min(bytes.len());
        if let Some(sink) = self.sink.as_mut().filter(|_| wanted > 0) {
            sink.copy_from(self.got, &bytes[..wanted]);
        }
        self.got += bytes.len();
        Taken { copied: wanted, discarded: bytes.len() - wanted }
    }

    /// Tells the engine that the wanted part is in. The lease goes back first.
    ///
    /// # Errors
    /// The checksum does not fit; the engine has been told EIO.
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

    /// Tells the engine that the payload is lost.
    pub(super) fn fail(&mut self, upcalls: &dyn Upcalls, errno: Errno) {
        self.sink = None;
        if let Some(token) = self.token.take() {
            upcalls.finalize_rx(token, Err(errno));
        }
    }
}
