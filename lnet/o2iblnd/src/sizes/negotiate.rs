//! Two sides agree on depth and fragments (lnet-semantics 35, lnet-wire 33 and 34, S-501).

use lnet_proto::ib::RejectReason;

use crate::fabric::DeviceLimits;

use super::{Adjusted, ConnSizes, Release, SizesError, connection};

/// The course of a connection's set-up, from the first request on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiation {
    /// Every request, with its answer. There are at most four.
    pub tries: Vec<Try>,
    /// What comes of it.
    pub outcome: Result<Agreed, SizesError>,
}

/// One request of the active side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    /// What the CONNREQ asks for: queues for this depth are made before.
    pub depth: u16,
    /// The fragments it asks for.
    pub fragments: u16,
    /// The depth that it would ask for if its device could.
    pub wanted: u16,
    /// What the passive side says.
    pub answer: Answer,
}

/// What the passive side says to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A CONNACK, of this depth and so many fragments.
    Accepted {
        /// At most the depth asked for.
        depth: u16,
        /// The fragments asked for.
        fragments: u16,
    },
    /// A reject record, with what would be accepted.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// The passive side's depth.
        depth: u16,
        /// The passive side's fragments.
        fragments: u16,
    },
    /// A reject record without hope: the passive side's device cannot have such a connection.
    Failed,
}

/// What holds for a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// Its depth.
    pub depth: u16,
    /// Its most fragments.
    pub fragments: u16,
    /// The queues of the side that asked: made for what it asked for, though it was granted less.
    pub active: ConnSizes,
    /// The queues of the side that was asked.
    pub passive: ConnSizes,
}

/// The set-up of a connection, step by step, as the active side and the passive side do it.
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
    // Each rejection makes one of the two smaller, to what is accepted next time; the depth may be rejected again once fewer
    // fragments have let it grow.
    loop {
        let made = connection(active, wanted, fragments, limits)?;
        let depth = made.depth;
        let mut answered = |answer| tries.push(Try { depth, fragments, wanted, answer });
        let rejected = |reason| {
            let (depth, fragments) = (passive.peer_credits, passive.fragments);
            Answer::Rejected { reason, depth, fragments }
        };
        if depth > passive.peer_credits {
            answered(rejected(RejectReason::MsgQueueSize));
            wanted = passive.peer_credits;
        } else if fragments > passive.fragments {
            answered(rejected(RejectReason::RdmaFrags));
            fragments = passive.fragments;
            if active.release == Release::V2_12 {
                // What its device has refused, it does not try again.
                wanted = depth;
            }
        } else {
            let granted = connection(passive, depth, fragments, passive_limits);
            let passive = granted.inspect_err(|_| answered(Answer::Failed))?;
            let depth = passive.depth;
            answered(Answer::Accepted { depth, fragments });
            let active = made.adopt(active, depth, fragments);
            return Ok(Agreed { depth, fragments, active, passive });
        }
    }
}
