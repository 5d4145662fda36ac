//! Two sides agree: as in the table of lnet-semantics 35, and as the code of the protocol does.

use lnet_nid::Nid;
use lnet_o2iblnd::fabric::DeviceLimits;
use lnet_o2iblnd::sizes::{Adjusted, Negotiation, PassiveAnswer, Release, connection, negotiate};
use lnet_proto::ib::{
    AcceptRules, AfterRejection, Attempt, ConnParams, Connector, Destination, End, LocalInterface,
    MESSAGE_MAX, RejectReason, Rejection, Version,
};
use proptest::prelude::*;

use super::{device, node};

/// Returns the requested parameters of each try, with the reason of its rejection, if it was
/// rejected.
fn course(negotiation: &Negotiation) -> Vec<(u16, u16, Option<RejectReason>)> {
    let tries = negotiation.tries.iter().map(|one| {
        let reason = match one.answer {
            PassiveAnswer::Rejected { reason, .. } => Some(reason),
            PassiveAnswer::Accepted { .. } => None,
            PassiveAnswer::Failed => Some(RejectReason::NoResources),
        };
        (one.depth, one.fragments, reason)
    });
    tries.collect()
}

fn credits(release: Release, peer_credits: u32) -> Adjusted {
    node(release, |tuned| tuned.peer_credits = peer_credits)
}

/// The rows of lnet-semantics 35 (S-501).
// Covers: S-501, S-502
#[test]
fn each_case_of_the_table() {
    let ample = device(1 << 20);
    let of = |a: &Adjusted, b: &Adjusted| {
        let negotiation = negotiate((a, &ample), (b, &ample));
        let agreed = negotiation.outcome.clone().unwrap();
        (course(&negotiation), agreed.depth, agreed.fragments)
    };
    let (deep, flat) = (credits(Release::V2_15, 16), credits(Release::V2_15, 8));
    let (queue, frags) = (Some(RejectReason::MsgQueueSize), Some(RejectReason::RdmaFrags));
    assert_eq!(of(&flat, &deep), (vec![(8, 257, None)], 8, 257));
    assert_eq!(of(&deep, &flat), (vec![(16, 257, queue), (8, 257, None)], 8, 257));
    let old = credits(Release::V2_12, 8);
    assert_eq!(of(&old, &flat), (vec![(8, 256, None)], 8, 256));
    assert_eq!(of(&flat, &old), (vec![(8, 257, frags), (8, 256, None)], 8, 256));
    // Both values are too large: they are lowered one at a time, the depth first.
    let three = vec![(16, 257, queue), (8, 257, frags), (8, 256, None)];
    assert_eq!(of(&deep, &old), (three, 8, 256));
    // An old node with a lowered tunable (S-502).
    let tuned = node(Release::V2_10, |tuned| tuned.map_on_demand = 32);
    assert_eq!(of(&node(Release::Nlx, |_| ()), &tuned), (vec![(8, 257, frags), (8, 32, None)], 8, 32));
}

/// A device of 1024 work requests has 3 entries of 260, and 2.15 reports these in its CONNREQ or in
/// its CONNACK.
// Covers: S-501
#[test]
fn a_small_device_announces_less() {
    let (small, ample) = (device(1024), device(1 << 20));
    let node = credits(Release::V2_15, 16);
    let asks = negotiate((&node, &small), (&node, &ample));
    assert_eq!(course(&asks), [(3, 257, None)]);
    let asked = negotiate((&node, &ample), (&node, &small));
    assert_eq!(asked.tries[0].answer, PassiveAnswer::Accepted { depth: 3, fragments: 257 });
    let agreed = asked.outcome.unwrap();
    assert_eq!((agreed.depth, agreed.active.depth, agreed.passive.depth), (3, 3, 3));
    // The requesting side has already made queues for 16.
    assert_eq!((agreed.active.sends, agreed.passive.sends), (16 * 260, 3 * 260));
    assert_eq!((agreed.active.high_water, agreed.passive.high_water), (1, 1));
    // On this device no connection is possible.
    let none = negotiate((&node, &ample), (&node, &device(259)));
    assert_eq!(course(&none), [(16, 257, Some(RejectReason::NoResources))]);
    assert_eq!(none.outcome.unwrap_err().errno(), lnet_api::Errno::ENOMEM);
    let none = negotiate((&node, &device(259)), (&node, &ample));
    assert_eq!(course(&none), []);
}

/// 2.12 requests its own depth first, and afterwards the depth that its device supported.
// Covers: S-501
#[test]
fn what_is_wanted_first_is_what_is_set() {
    let (node, limits) = (credits(Release::V2_12, 128), device(32_768));
    let few = super::node(Release::V2_10, |tuned| (tuned.peer_credits, tuned.map_on_demand) = (128, 32));
    let negotiation = negotiate((&node, &limits), (&few, &device(1 << 20)));
    let can = connection(&node, 128, 256, &limits).unwrap().depth;
    assert!(can < 128);
    let tries: Vec<_> = negotiation.tries.iter().map(|one| (one.wanted, one.depth, one.fragments)).collect();
    assert_eq!(tries, [(128, can, 256), (can, can, 32)]);
}

fn any_release() -> impl Strategy<Value = Release> {
    prop::sample::select(Release::ALL.to_vec())
}

fn any_node() -> impl Strategy<Value = Adjusted> {
    (any_release(), 1..300_u32, 1..300_u32, 0..600_u32, 0..300_u32, 0..=256_u32).prop_map(
        |(release, peer_credits, credits, concurrent_sends, peer_credits_hiw, map_on_demand)| {
            node(release, |tuned| {
                (tuned.peer_credits, tuned.credits) = (peer_credits, credits);
                (tuned.concurrent_sends, tuned.peer_credits_hiw) = (concurrent_sends, peer_credits_hiw);
                tuned.map_on_demand = map_on_demand;
            })
        },
    )
}

/// Returns a node whose only limit is its send queue, of current releases: its depth depends on the
/// fragments alone.
fn any_current() -> impl Strategy<Value = (Adjusted, DeviceLimits)> {
    let releases = prop::sample::select(vec![Release::V2_14, Release::V2_15, Release::Nlx]);
    let node = (releases, 8..300_u32).prop_map(|(release, peer_credits)| credits(release, peer_credits));
    (node, prop_oneof![Just(1 << 20), 260..40_000_u32].prop_map(device))
}

proptest! {
    /// The formula of lnet-semantics 35; the result is the same when either side begins.
    // Covers: S-501
    #[test]
    fn both_directions_agree_on_the_minimum(a in any_current(), b in any_current()) {
        let fragments = a.0.fragments.min(b.0.fragments);
        let can = |(node, limits): &(Adjusted, DeviceLimits)| {
            connection(node, node.peer_credits, fragments, limits).map(|made| made.depth)
        };
        let there = negotiate((&a.0, &a.1), (&b.0, &b.1));
        let back = negotiate((&b.0, &b.1), (&a.0, &a.1));
        prop_assert!(there.tries.len() <= 4 && back.tries.len() <= 4);
        // A side that cannot connect with its own number of fragments never requests fewer.
        if let (Ok(there), Ok(back)) = (there.outcome, back.outcome) {
            prop_assert_eq!((there.depth, there.fragments), (can(&a).unwrap().min(can(&b).unwrap()), fragments));
            prop_assert_eq!((there.depth, there.fragments), (back.depth, back.fragments));
        }
    }

    /// For all releases and tunables, no side gets more than it requested, queues hold the depth,
    /// and the negotiation ends.
    #[test]
    fn no_client_gets_more_than_its_quota(a in any_node(), b in any_node(), w in 1..40_000_u32) {
        let (limits, ample) = (device(w), device(1 << 20));
        for pair in [((&a, &limits), (&b, &ample)), ((&a, &ample), (&b, &limits)), ((&a, &ample), (&b, &ample))] {
            let negotiation = negotiate(pair.0, pair.1);
            prop_assert!(negotiation.tries.len() <= 4);
            let Ok(agreed) = negotiation.outcome else { continue };
            prop_assert!(agreed.depth <= a.peer_credits.min(b.peer_credits));
            prop_assert_eq!(agreed.fragments, a.fragments.min(b.fragments));
            for (made, limits) in [(agreed.active, pair.0.1), (agreed.passive, pair.1.1)] {
                prop_assert_eq!((made.depth, made.fragments), (agreed.depth, agreed.fragments));
                prop_assert!(made.sends <= limits.queue_entries && made.receives <= limits.queue_entries);
                prop_assert!(made.receives >= 2 * u32::from(made.depth) + 2, "the peer relies on it");
                prop_assert!(made.high_water < made.depth || made.depth == 1);
            }
        }
    }

    /// The code of the protocol has the same result, by the same requests.
    // Covers: S-501
    #[test]
    fn the_protocol_goes_the_same_way(a in any_node(), b in any_node()) {
        let ample = device(1 << 20);
        let negotiation = negotiate((&a, &ample), (&b, &ample));
        let agreed = negotiation.outcome.clone().unwrap();
        let (asked, settled) = spoken(&a, &b);
        let model: Vec<_> = negotiation.tries.iter().map(|one| (one.depth, one.fragments)).collect();
        prop_assert_eq!(asked, model);
        prop_assert_eq!(settled, (agreed.depth, agreed.fragments));
    }
}

/// Returns the parameters that a connector requests, and those on which it and a listener agree.
fn spoken(a: &Adjusted, b: &Adjusted) -> (Vec<(u16, u16)>, (u16, u16)) {
    let params = |node: &Adjusted| ConnParams {
        queue_depth: node.peer_credits,
        max_fragments: node.fragments,
        max_message: MESSAGE_MAX as u32,
    };
    let end = |text: &str, stamp| End { nid: text.parse::<Nid>().unwrap(), stamp };
    let (local, peer) = (end("10.0.0.1@o2ib", 11), end("10.0.0.2@o2ib", 22));
    let interface = LocalInterface { end: peer, limits: params(b) };
    let destination = |_| Destination::Ready(interface);
    let listener = AcceptRules { require_privileged: false, oldest: Version::V2, destination };
    let attempt = Attempt {
        local,
        peer: End { stamp: 0, ..peer },
        version: Version::V2,
        oldest: Version::V2,
        params: params(a),
    };
    let mut connector = Connector::new(attempt).unwrap();
    let mut asked = Vec::new();
    loop {
        let params = connector.attempt().params;
        asked.push((params.queue_depth, params.max_fragments));
        match listener.judge(1023, connector.request()) {
            Ok(offer) => {
                let settled = connector.accepted(&offer.accept(offer.asked).unwrap()).unwrap().params;
                return (asked, (settled.queue_depth, settled.max_fragments));
            }
            Err(refusal) => {
                let mut record = [0; lnet_proto::ib::Reject::LEN];
                let length = refusal.record.emit(&mut record).unwrap();
                assert_eq!(connector.rejected(Rejection::Record(&record[..length])), AfterRejection::Now);
            }
        }
    }
}
