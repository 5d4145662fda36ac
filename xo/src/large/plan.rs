//! The plan of a large transfer: its direction, its length, and its parts.

use std::time::Duration;

use nlx_core::CoreError;

use super::offer::Offer;
use crate::op::{BulkOp, Op};
use crate::{Buffer, Error};

/// A transfer before its start.
pub(super) struct TransferPlan {
    pub(super) bulk: BulkOp,
    /// Bytes to transfer; for a passive receive, the most.
    pub(super) length: usize,
    /// The length of each part but the last.
    pub(super) part_bytes: usize,
}

impl TransferPlan {
    pub(super) fn is_passive(&self) -> bool {
        self.bulk.queue().is_passive()
    }

    pub(super) fn parts(&self) -> usize {
        self.length.div_ceil(self.part_bytes)
    }

    /// Returns the length of a part.
    pub(super) fn part_length(&self, part: usize) -> usize {
        self.part_bytes.min(self.length - part * self.part_bytes)
    }

    /// Returns the bytes of the buffer that its operations use: an operation that receives uses
    /// whole parts.
    pub(super) fn bytes_used(&self, buffer_bytes: usize) -> usize {
        let whole_parts = self.parts() * self.part_bytes;
        if self.bulk.queue().receives() { whole_parts.min(buffer_bytes) } else { self.length }
    }

    /// Checks that the transfer fits a buffer of this length. Validates the peer's offer before
    /// anything in it is used.
    pub(super) fn check(&self, buffer_bytes: usize) -> Result<(), Error> {
        match &self.bulk {
            BulkOp::ActiveReceive(offer) => self.check_offer(offer, |part, length| {
                let passive = offer.descriptor(part).for_active_receive(length)?;
                match passive.length == length {
                    true => Ok(()),
                    false => Err(broken(
                        "length of a part",
                        passive.length,
                        "that of the others, or the last one's",
                    )),
                }
            })?,
            BulkOp::ActiveSend(offer) => {
                if self.length == 0 || self.length > buffer_bytes {
                    return Err(length_error(self.length, buffer_bytes));
                }
                if self.length as u64 > offer.length() {
                    return Err(too_long(self.length as u64, offer.length()));
                }
                self.check_offer(offer, |part, length| {
                    offer.descriptor(part).for_active_send(length)?;
                    Ok(())
                })?;
            }
            BulkOp::PassiveReceive | BulkOp::PassiveSend => {}
        }
        match &self.bulk {
            BulkOp::ActiveReceive(_) if self.length > buffer_bytes => {
                Err(too_long(self.length as u64, buffer_bytes as u64))
            }
            _ if self.length == 0 || self.length > buffer_bytes => {
                Err(length_error(self.length, buffer_bytes))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the offer has a part for each part of this transfer, and each descriptor with
    /// `part`.
    fn check_offer(
        &self,
        offer: &Offer,
        part: impl Fn(usize, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let parts = offer.parts();
        if parts > 1 && offer.part_bytes() != self.part_bytes as u64 {
            return Err(broken("part length", offer.part_bytes(), "that of this transport's parts"));
        }
        if parts != self.parts() {
            return Err(broken("number of parts", parts as u64, "as many as the bytes moved make"));
        }
        (0..parts).try_for_each(|at| part(at, self.part_length(at) as u64))
    }

    /// Builds the operation of a part.
    pub(super) fn op(&self, part: usize, buffer: Buffer, timeout: Option<Duration>) -> Op {
        let op = match &self.bulk {
            BulkOp::PassiveReceive => Op::passive_receive(buffer),
            BulkOp::PassiveSend => Op::passive_send(buffer).length(self.part_length(part)),
            BulkOp::ActiveReceive(offer) => Op::active_receive(buffer, offer.descriptor(part)),
            BulkOp::ActiveSend(offer) => {
                Op::active_send(buffer, offer.descriptor(part)).length(self.part_length(part))
            }
        };
        op.timeout(timeout)
    }
}

fn too_long(length: u64, room: u64) -> Error {
    CoreError::DescriptorTooLong { length, room }.into()
}

fn broken(field: &'static str, value: u64, rule: &'static str) -> Error {
    Error::Offer { field, value, rule }
}

/// Returns the error for a length that is 0 or exceeds the buffer.
fn length_error(length: usize, limit: usize) -> Error {
    CoreError::Range { field: "length", value: length as u64, limit: limit as u64 }.into()
}
