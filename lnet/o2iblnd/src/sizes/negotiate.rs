//! The negotiation of depth and fragments (lnet-semantics 35, lnet-wire 33 and 34, S-501).

use lnet_proto::ib::RejectReason;

use crate::fabric::DeviceLimits;

use super::{Adjusted, ConnSizes, Release, SizesError, connection};

/// The course of a connection's set-up, from the first request on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiation {
    /// Every request, with its answer. There are at most four.
    pub tries: Vec<Try>,
    /// The agreed parameters, or the error that ends the set-up.
    pub outcome: Result<Agreed, SizesError>,
}

/// One request of the active side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    /// The depth in the CONNREQ, for which the queues have been made.
    pub depth: u16,
    /// The number of fragments in the CONNREQ.
    pub fragments: u16,
    /// The depth that the active side would request if its device supported it.
    pub wanted: u16,
    /// The passive side's answer.
    pub answer: PassiveAnswer,
}

/// The passive side's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassiveAnswer {
    /// A CONNACK, which accepts.
    Accepted {
        /// The depth granted, at most the requested one.
        depth: u16,
        /// The number of fragments granted, which is the requested one.
        fragments: u16,
    },
    /// A reject record with acceptable values.
    Rejected {
        /// The reason in the record.
        reason: RejectReason,
        /// The passive side's depth.
        depth: u16,
        /// The passive side's fragments.
        fragments: u16,
    },
    /// A reject record without acceptable values: the passive side's device does not support such a
    /// connection.
    Failed,
}

/// The parameters of a connection that was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The depth of the queues.
    pub depth: u16,
    /// The maximum number of fragments of a transfer.
    pub fragments: u16,
    /// The queues of the active side: made for the parameters that it requested, even if it was
    /// granted less.
    pub active: ConnSizes,
    /// The queues of the passive side.
    pub passive: ConnSizes,
}

/// Computes the set-up of a connection, step by step, as the active side and the passive side do
/// it.
#[must_use]
pub fn negotiate(active: (&Adjusted, &DeviceLimits), passive: (&Adjusted, &DeviceLimits)) -> Negotiation {
    let mut tries = Vec::new();
    let outcome = agree(active, passive, &mut tries);
    Negotiation { tries, outcome }
}

fn agree(
    (active, limits): (&Adjusted, &DeviceLimits),
    (passive, passive_limits): (&Adjusted, &DeviceLimits),
    tries: &mut Vec<Try>,
) -> Result<Agreed, SizesError> {
    let (mut wanted, mut fragments) = (active.peer_credits, active.fragments);
    // Each rejection reduces one of the two to an acceptable value; the depth may be rejected again
    // once fewer fragments have let it grow.
    loop {
        let made = connection(active, wanted, fragments, limits)?;
        let depth = made.depth;
        let mut answered = |answer| tries.push(Try { depth, fragments, wanted, answer });
        let rejected = |reason| {
            let (depth, fragments) = (passive.peer_credits, passive.fragments);
            PassiveAnswer::Rejected { reason, depth, fragments }
        };
        if depth > passive.peer_credits {
            answered(rejected(RejectReason::MsgQueueSize));
            wanted = passive.peer_credits;
        } else if fragments > passive.fragments {
            answered(rejected(RejectReason::RdmaFrags));
            fragments = passive.fragments;
            if active.release == Release::V2_12 {
                // The active side does not request again what its device has refused.
                wanted = depth;
            }
        } else {
            let granted = connection(passive, depth, fragments, passive_limits);
            let passive = granted.inspect_err(|_| answered(PassiveAnswer::Failed))?;
            let depth = passive.depth;
            answered(PassiveAnswer::Accepted { depth, fragments });
            let active = made.adopt(active, depth, fragments);
            return Ok(Agreed { depth, fragments, active, passive });
        }
    }
}
