//! Properties that hold for all values.

use lnet_o2iblnd::fabric::DeviceLimits;
use lnet_o2iblnd::sizes::{Release, Side, TUNABLES, Tunables, connection, pools};
use proptest::prelude::*;

use super::{device, node};

fn any_release() -> impl Strategy<Value = Release> {
    prop::sample::select(Release::ALL.to_vec())
}

fn any_tunables() -> impl Strategy<Value = Tunables> {
    prop::collection::vec(0..2000_u32, TUNABLES.len()).prop_map(|values| {
        let mut tunables = Tunables::default();
        for (tunable, value) in TUNABLES.iter().zip(values) {
            tunables.set(tunable.name, value.clamp(tunable.least, tunable.most)).unwrap();
        }
        tunables
    })
}

proptest! {
    /// For every configuration, the values in effect are within the limits of lnet-semantics 31,
    /// and another adjustment changes nothing.
    #[test]
    fn what_holds_is_possible(release in any_release(), tunables in any_tunables(), kernel_build in 500..1000_u32) {
        let side = Side { kernel_build, tunables, ..Side::of(release) };
        let Ok(node) = side.adjust() else {
            prop_assert!(tunables.fmr_pool_size < tunables.ntx / 4);
            return Ok(());
        };
        let (credits, half) = (node.peer_credits, node.peer_credits / 2);
        prop_assert!((1..=255).contains(&credits) && u32::from(credits) <= node.credits);
        prop_assert!(credits >= 8 || u32::from(credits) == node.credits);
        prop_assert!((half..credits).contains(&node.high_water));
        prop_assert!((half..=2 * credits).contains(&node.concurrent_sends));
        prop_assert!((2..=257).contains(&node.fragments) && (1..=127).contains(&node.conns_per_peer));
        let mut settled = side;
        settled.tunables.peer_credits = credits.into();
        settled.tunables.peer_credits_hiw = node.high_water.into();
        settled.tunables.concurrent_sends = node.concurrent_sends.into();
        settled.tunables.conns_per_peer = node.conns_per_peer;
        let again = settled.adjust().unwrap();
        prop_assert_eq!((again.peer_credits, again.high_water, again.concurrent_sends), (credits, node.high_water, node.concurrent_sends));
    }

    /// No queue is longer than its device allows, and none shorter than the protocol needs.
    // Covers: S-503
    #[test]
    fn limits_are_kept(
        release in any_release(), depth in 1..=255_u16, fragments in 1..=257_u16,
        entries in 0..70_000_u32, completions in 0..70_000_u32, pieces in 0..40_u32,
    ) {
        let node = node(release, |tuned| (tuned.peer_credits, tuned.wrq_sge) = (255, 8));
        let limits = DeviceLimits { completions, pieces, ..device(entries) };
        let Ok(made) = connection(&node, depth, fragments, &limits) else { return Ok(()) };
        prop_assert!((1..=depth).contains(&made.depth));
        prop_assert!(made.sends <= entries && made.receives <= entries && made.completions <= completions);
        prop_assert!(made.completions_least <= made.completions);
        prop_assert_eq!(made.receives, 2 * u32::from(made.depth) + 2);
        prop_assert!(made.pieces == 1 || made.pieces <= pieces);
        if release == Release::Nlx {
            prop_assert_eq!(made.sends, (1 + u32::from(fragments)) * u32::from(made.depth));
            prop_assert_eq!(made.completions, made.sends + made.receives);
            prop_assert!((1..=made.depth).contains(&made.high_water));
        }
    }

    /// More credits or a larger device never give shorter queues, and more fragments never a deeper
    /// one.
    #[test]
    fn more_of_one_is_not_less_of_the_other(
        release in any_release(), depth in 1..255_u16, fragments in 1..257_u16, entries in 1..70_000_u32,
    ) {
        let node = node(release, |tuned| tuned.peer_credits = 255);
        let of = |depth, fragments, entries| connection(&node, depth, fragments, &device(entries));
        let Ok(made) = of(depth, fragments, entries) else { return Ok(()) };
        // A depth that fits also fits if one more is requested.
        let deeper = of(depth + 1, fragments, entries).unwrap();
        prop_assert!(deeper.depth >= made.depth && deeper.sends >= made.sends && deeper.receives >= made.receives);
        prop_assert!(deeper.completions >= made.completions);
        let larger = of(depth, fragments, entries + 1).unwrap();
        prop_assert!(larger.depth >= made.depth && larger.sends >= made.sends);
        if let Ok(longer) = of(depth, fragments + 1, entries) {
            prop_assert!(longer.depth <= made.depth);
        }
    }

    /// Each pool has at least the minimum, and all together have at least the requested number.
    #[test]
    fn pools_are_shared_out(release in any_release(), tunables in any_tunables(), partitions in 0..64_u32) {
        let Ok(node) = (Side { tunables, ..Side::of(release) }).adjust() else { return Ok(()) };
        let pools = pools(&node, partitions);
        let count = u64::from(pools.partitions);
        let own = release == Release::Nlx;
        prop_assert!(own || pools.transmits >= 256 && pools.all_transmits() + count > u64::from(node.ntx));
        prop_assert_eq!((pools.transmits == 0, pools.bounces > 0), (own, own));
        prop_assert!(pools.credits <= node.credits && pools.all_credits() + count > u64::from(node.credits));
        prop_assert_eq!(pools.registrations == 0, release == Release::Nlx);
    }
}
