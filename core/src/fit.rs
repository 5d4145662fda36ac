//! Checks an operation's numbers against its buffer. Every transport does so before it starts one
//! (K7).

use crate::{Address, CoreError, Limits, MatchBits, MatchCounter, OperationKind, Portal, match_bits};

/// The remote target of an operation: the peer's buffer, or the receiver of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteTarget {
    /// The peer's transfer machine.
    pub address: Address,
    /// The portal of the target, 1 to 63.
    pub portal: Portal,
    /// The match bits of the buffer.
    pub match_bits: MatchBits,
}

impl OperationKind {
    /// Checks the operation against a buffer of `bytes` bytes. Returns the number of bytes that it
    /// uses, from the first on, which is 1 to `bytes`; and its target, unless it waits for a peer.
    ///
    /// # Errors
    /// EINVAL for lengths and counts that do not fit and for an invalid portal, and the errors of
    /// [`crate::Descriptor::for_active_receive`] and [`crate::Descriptor::for_active_send`].
    pub fn fit(&self, bytes: u64, limits: &Limits) -> Result<(u64, Option<RemoteTarget>), CoreError> {
        let (length, remote) = match *self {
            OperationKind::Receive { min_receive_size, max_messages } => {
                check_range("min_receive_size", min_receive_size, bytes)?;
                check_messages(max_messages, limits)?;
                (bytes, None)
            }
            OperationKind::PassiveReceive => (bytes, None),
            OperationKind::PassiveSend { length } => (length, None),
            OperationKind::Send { length, to } => {
                (length, Some(RemoteTarget::new(to, match_bits(to.tmid, MatchCounter::UNSOLICITED))?))
            }
            OperationKind::ActiveSend { descriptor, length } => {
                let passive = descriptor.for_active_send(length)?;
                (length, Some(RemoteTarget::new(passive.address, passive.match_bits)?))
            }
            OperationKind::ActiveReceive { descriptor } => {
                let passive = descriptor.for_active_receive(bytes)?;
                (passive.length, Some(RemoteTarget::new(passive.address, passive.match_bits)?))
            }
        };
        check_range("length", length, bytes)?;
        Ok((length, remote))
    }
}

impl RemoteTarget {
    fn new(address: Address, match_bits: MatchBits) -> Result<RemoteTarget, CoreError> {
        Ok(RemoteTarget { address, portal: usable_portal(address.portal)?, match_bits })
    }
}

/// Checks that transfer machines may use a portal: 1 to 63 (motr-transport 5.3).
///
/// # Errors
/// [`CoreError::PortalRange`] (EINVAL).
pub fn usable_portal(portal: u32) -> Result<Portal, CoreError> {
    match Portal::new(portal) {
        Ok(usable) if usable != Portal::RESERVED => Ok(usable),
        _ => Err(CoreError::PortalRange { portal }),
    }
}

/// Checks the number of messages of a receive.
pub(crate) fn check_messages(max_messages: u32, limits: &Limits) -> Result<(), CoreError> {
    check_range("max_messages", max_messages.into(), limits.messages_max.into())
}

fn check_range(field: &'static str, value: u64, limit: u64) -> Result<(), CoreError> {
    if (1..=limit).contains(&value) { Ok(()) } else { Err(CoreError::Range { field, value, limit }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Descriptor, PassiveBuffer, Queue, TmId};

    fn address() -> Address {
        Address { nid: crate::Nid::LOOPBACK, pid: crate::Pid(12345), portal: 31, tmid: TmId::MAX }
    }

    fn descriptor(queue: Queue, length: u64) -> Descriptor {
        let match_bits = match_bits(TmId::MAX, MatchCounter::FIRST);
        Descriptor::encode(&PassiveBuffer { address: address(), match_bits, queue, length }).unwrap()
    }

    proptest! {
        /// K7: an accepted operation uses 1 to all bytes of the buffer, whatever is asked for.
        #[test]
        fn what_fits_lies_in_its_buffer(bytes in 1u64..1000, length in 0u64..1100, messages in 0u32..70_000) {
            let receive = OperationKind::Receive { min_receive_size: length, max_messages: messages };
            let fits = receive.fit(bytes, &Limits::LNET);
            let good = (1..=bytes).contains(&length) && (1..=65_536).contains(&messages);
            prop_assert_eq!(fits.is_ok(), good);
            let mut kinds = vec![
                OperationKind::Send { length, to: address() },
                OperationKind::PassiveSend { length },
            ];
            if length > 0 {
                let descriptor = |queue| descriptor(queue, length);
                kinds.push(OperationKind::ActiveReceive { descriptor: descriptor(Queue::PassiveBulkSend) });
                let descriptor = descriptor(Queue::PassiveBulkReceive);
                kinds.push(OperationKind::ActiveSend { descriptor, length });
            }
            for kind in kinds {
                let fits = kind.fit(bytes, &Limits::LNET).map(|(length, _)| length).ok();
                prop_assert_eq!(fits, (1..=bytes).contains(&length).then_some(length), "{:?}", kind);
            }
            let all = OperationKind::PassiveReceive.fit(bytes, &Limits::LNET).map(|(length, _)| length);
            prop_assert_eq!(all, Ok(bytes));
        }
    }
}
