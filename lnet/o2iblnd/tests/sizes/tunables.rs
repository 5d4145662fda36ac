//! A node's adjustment of its tunables.

use lnet_o2iblnd::O2ibConfig;
use lnet_o2iblnd::sizes::{
    self, AdjustRule, Adjusted, KernelMapping, KeyMethod, PIECES_MAX, Release, Side, SizesError, TUNABLES,
    Tunables,
};

use super::node;

fn changes(adjusted: &Adjusted) -> Vec<(&'static str, u32, u32, AdjustRule)> {
    let reported = adjusted.changes.iter().filter(|change| !change.rule.fills_in());
    reported.map(|change| (change.tunable, change.from, change.to, change.rule)).collect()
}

/// lnet-semantics 31: the defaults 8, 4 and 8 need no adjustment.
#[test]
fn the_defaults_stay() {
    for release in Release::ALL {
        let node = node(release, |_| ());
        assert_eq!((node.peer_credits, node.high_water, node.concurrent_sends), (8, 4, 8), "{release}");
        assert_eq!(node.fragments, if release >= Release::V2_15 { 257 } else { 256 }, "{release}");
        assert_eq!(changes(&node), [], "{release}");
    }
}

/// Each rule of lnet-semantics 31, in its order, with the value that it changes.
// Covers: S-507
#[test]
fn each_rule_moves_its_tunable() {
    let of = |tune: &dyn Fn(&mut Tunables)| changes(&node(Release::V2_15, tune));
    assert_eq!(of(&|tuned| tuned.peer_credits = 4), [("peer_credits", 4, 8, AdjustRule::PeerCreditsMin)]);
    assert_eq!(
        of(&|tuned| (tuned.peer_credits, tuned.credits) = (300, 1024)),
        [("peer_credits", 300, 255, AdjustRule::PeerCreditsMax)]
    );
    // The credits per peer are raised to 8, and then lowered to `credits`.
    assert_eq!(
        of(&|tuned| (tuned.peer_credits, tuned.credits) = (2, 6)),
        [
            ("peer_credits", 2, 8, AdjustRule::PeerCreditsMin),
            ("peer_credits", 8, 6, AdjustRule::PeerCreditsOverCredits)
        ]
    );
    assert_eq!(of(&|tuned| tuned.map_on_demand = 0), [("map_on_demand", 0, 1, AdjustRule::MapOnDemandFlag)]);
    assert_eq!(of(&|tuned| tuned.map_on_demand = 1), []);
    assert_eq!(
        of(&|tuned| tuned.peer_credits_hiw = 3),
        [("peer_credits_hiw", 3, 4, AdjustRule::HighWaterMin)]
    );
    assert_eq!(
        of(&|tuned| tuned.peer_credits_hiw = 8),
        [("peer_credits_hiw", 8, 7, AdjustRule::HighWaterMax)]
    );
    assert_eq!(
        of(&|tuned| tuned.concurrent_sends = 17),
        [("concurrent_sends", 17, 16, AdjustRule::ConcurrentSendsMax)]
    );
    assert_eq!(
        of(&|tuned| tuned.concurrent_sends = 3),
        [("concurrent_sends", 3, 4, AdjustRule::ConcurrentSendsMin)]
    );
    assert_eq!(
        of(&|tuned| tuned.conns_per_peer = 200),
        [("conns_per_peer", 200, 127, AdjustRule::ConnsPerPeerMax)]
    );
    assert_eq!(
        of(&|tuned| tuned.conns_per_peer = 0),
        [("conns_per_peer", 0, 1, AdjustRule::ConnsPerPeerMin)]
    );
}

/// `map_on_demand` is a number of fragments in 2.8 and 2.10, and only a flag in later releases
/// (S-502).
// Covers: S-502
#[test]
fn map_on_demand_limits_fragments_in_old_releases() {
    let fragments = |release, value| node(release, |tuned| tuned.map_on_demand = value).fragments;
    assert_eq!([0, 1, 2, 32, 256].map(|value| fragments(Release::V2_10, value)), [256, 2, 2, 32, 256]);
    assert_eq!([0, 32].map(|value| fragments(Release::V2_12, value)), [256, 256]);
    assert_eq!([0, 32].map(|value| fragments(Release::Nlx, value)), [257, 257]);
}

/// Below build 693 there is a global region, up to `map_on_demand` fragments where that tunable is
/// a number.
// Covers: S-508
#[test]
fn the_pivot_of_the_kernel_build_is_693() {
    let of = |release, kernel_build, map_on_demand| {
        let mut side = Side { kernel_build, ..Side::of(release) };
        side.tunables.map_on_demand = map_on_demand;
        side.adjust().unwrap().registration
    };
    let mapping = KernelMapping::FastReg;
    assert_eq!(of(Release::V2_10, 693, 32), KeyMethod::Mapped(mapping));
    assert_eq!(of(Release::V2_10, 692, 32), KeyMethod::Global { up_to: Some(32), mapping });
    assert_eq!(of(Release::V2_10, 514, 0), KeyMethod::Global { up_to: None, mapping });
    assert_eq!(of(Release::V2_12, 514, 1), KeyMethod::Global { up_to: None, mapping });
    assert_eq!(of(Release::Nlx, 514, 0), KeyMethod::Once);
}

/// lnet-semantics 31, 5: the pool needs at least a quarter of `ntx`.
#[test]
fn a_pool_of_too_few_registrations_does_not_start() {
    let start = |release, fmr_pool_size| {
        let mut side = Side::of(release);
        (side.tunables.ntx, side.tunables.fmr_pool_size) = (1027, fmr_pool_size);
        side.adjust().map(|_| ())
    };
    assert_eq!(start(Release::V2_15, 256), Ok(()));
    let error = start(Release::V2_15, 255).unwrap_err();
    assert_eq!(error, SizesError::FmrPool { value: 255, least: 256, ntx: 1027 });
    assert_eq!(error.errno(), lnet_api::Errno::EINVAL);
    assert_eq!(start(Release::Nlx, 255), Ok(()), "nlx has no such pool");
}

/// The driver's own configuration leads to the same numbers; a program can also set values that
/// tunables cannot have.
#[test]
fn the_drivers_configuration_is_adjusted_alike() {
    let config =
        O2ibConfig { peer_credits: 300, peer_credits_hiw: 9, concurrent_sends: 40, ..O2ibConfig::default() };
    let side = Side { tunables: Tunables::from(&config), ..Side::of(Release::Nlx) };
    assert_eq!(sizes::adjust(&config), side.adjust().unwrap());
    let nothing = sizes::adjust(&O2ibConfig {
        credits: 0,
        peer_credits: 0,
        conns_per_peer: 0,
        ..O2ibConfig::default()
    });
    assert_eq!((nothing.credits, nothing.peer_credits, nothing.conns_per_peer), (1, 1, 1));
    assert_eq!((nothing.high_water_of(1), nothing.concurrent_sends), (1, 1));
}

/// A connection of nlx behaves as calculated: it never owes more credits than half of its depth.
// Covers: S-507
#[test]
fn nlx_holds_back_half_whatever_is_set() {
    for (peer_credits, set) in [(8, 0), (8, 3), (8, 7), (9, 8), (128, 127), (255, 200)] {
        let config = O2ibConfig { peer_credits, peer_credits_hiw: set, ..O2ibConfig::default() };
        let node = sizes::adjust(&config);
        assert_eq!(u32::from(node.high_water), peer_credits / 2, "{set} of {peer_credits}");
        for depth in 1..=node.peer_credits {
            assert!((1..=(depth / 2).max(1)).contains(&node.high_water_of(depth)), "{set}, {depth}");
        }
    }
    let adjusted = node(Release::Nlx, |tuned| tuned.peer_credits_hiw = 7);
    assert_eq!(changes(&adjusted), [("peer_credits_hiw", 7, 4, AdjustRule::HighWaterHalf)]);
}

/// nlx uses at most [`PIECES_MAX`] pieces for every value of `wrq_sge`; for a kernel node only the
/// device limits them.
// Covers: S-508
#[test]
fn nlx_gathers_no_more_pieces_than_it_makes() {
    for set in [1, 2, PIECES_MAX, PIECES_MAX + 1, 255] {
        let made = node(Release::Nlx, |tuned| tuned.wrq_sge = set);
        assert_eq!(made.pieces, set.min(PIECES_MAX));
        let change = (set > PIECES_MAX).then_some(("wrq_sge", set, PIECES_MAX, AdjustRule::PiecesMax));
        assert_eq!(changes(&made), Vec::from_iter(change));
        assert_eq!(node(Release::V2_15, |tuned| tuned.wrq_sge = set).pieces, set);
    }
}

#[test]
fn what_cannot_be_is_named_with_its_limits() {
    let mut tunables = Tunables::default();
    let error = tunables.set("wrq_sge", 0).unwrap_err();
    assert_eq!(error.to_string(), "wrq_sge=0: it must be from 1 to 255");
    assert!(
        tunables.set("peer_credit", 8).unwrap_err().to_string().contains("peer_credits, peer_credits_hiw")
    );
    for tunable in &TUNABLES {
        tunables.set(tunable.name, tunable.most).unwrap();
        assert_eq!(tunables.value(tunable), tunable.most);
    }
    for text in ["", "2", "2.7", "3.0", "2.x", "2.15.x", "lustre"] {
        assert!(text.parse::<Release>().unwrap_err().to_string().contains(&format!("release '{text}'")));
    }
    let versions = ["2.8.0", "2.9", "2.11", "2.13.50", "2.14", "2.15", "2.17.57", "nlx"];
    let releases = versions.map(|text| text.parse::<Release>().unwrap().name());
    assert_eq!(releases, ["2.8", "2.8", "2.10", "2.12", "2.14", "2.15", "2.15", "nlx"]);
}
