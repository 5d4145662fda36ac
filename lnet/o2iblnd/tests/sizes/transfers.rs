//! The work requests of one transfer (S-504 to S-506).

use lnet_api::Errno;
use lnet_o2iblnd::sizes::{Adjusted, KernelMapping, MdPages, Means, Release, Side, transfer};
use proptest::prelude::*;

use super::node;

const MEGABYTE: MdPages = MdPages { fragments: 256, gaps: false };

fn side(release: Release, kernel_build: u32, mapping: KernelMapping, map_on_demand: u32) -> Adjusted {
    let mut side = Side { kernel_build, mapping, ..Side::of(release) };
    side.tunables.map_on_demand = map_on_demand;
    side.adjust().unwrap()
}

/// A transfer takes 1 work request with an FMR mapping, 3 with fast registration, and one per
/// fragment with a global region; 1 with nlx.
// Covers: S-506
#[test]
fn a_megabyte_by_each_way_of_registration() {
    let works = |node: &Adjusted| {
        let made = transfer((node, MEGABYTE), (node, MEGABYTE), 256).unwrap();
        (made.source, made.writes, made.work_requests)
    };
    let of = |kernel_build, mapping| works(&side(Release::V2_10, kernel_build, mapping, 0));
    assert_eq!(of(693, KernelMapping::Fmr), (Means::Fmr, 1, 1));
    assert_eq!(of(693, KernelMapping::FastReg), (Means::FastReg, 1, 3));
    assert_eq!(of(514, KernelMapping::FastReg), (Means::Global, 256, 256));
    assert_eq!(works(&node(Release::Nlx, |_| ())), (Means::Registered, 1, 1));
}

/// Seed 004: with `map_on_demand` 32 on an old kernel the global region serves buffers of up to 32
/// fragments; larger ones are mapped.
// Covers: S-506
#[test]
fn map_on_demand_is_the_threshold_of_the_global_region() {
    let works = |mapping, fragments| {
        let node = side(Release::V2_10, 514, mapping, 32);
        let buffer = MdPages { fragments, gaps: false };
        let made = transfer((&node, buffer), (&node, buffer), node.fragments).unwrap();
        (made.source, made.work_requests)
    };
    assert_eq!(works(KernelMapping::Fmr, 31), (Means::Global, 31));
    assert_eq!(works(KernelMapping::Fmr, 32), (Means::Global, 32));
    assert_eq!(works(KernelMapping::Fmr, 33), (Means::Fmr, 1));
    assert_eq!(works(KernelMapping::FastReg, 33), (Means::FastReg, 3));
}

/// Seed 004: a buffer of 34 fragments with gaps, on a connection of 32.
// Covers: S-506
#[test]
fn gaps_in_each_release() {
    let gaps = MdPages { fragments: 34, gaps: true };
    let of = |release, map_on_demand, fastreg_gaps: u32| {
        let mut side = Side::of(release);
        (side.tunables.map_on_demand, side.tunables.use_fastreg_gaps) = (map_on_demand, fastreg_gaps);
        let node = side.adjust().unwrap();
        transfer((&node, gaps), (&node, gaps), node.fragments)
    };
    let error = of(Release::V2_10, 32, 0).unwrap_err();
    assert_eq!(error.errno(), Errno::EMSGSIZE);
    assert!(error.to_string().contains("map_on_demand to 256"), "{error}");
    assert_eq!(of(Release::V2_10, 0, 0).unwrap().work_requests, 34 + 2);
    assert_eq!(of(Release::V2_8, 0, 0).unwrap_err().errno(), Errno::EINVAL);
    for release in [Release::V2_14, Release::V2_15] {
        assert_eq!(of(release, 1, 0).unwrap_err().errno(), Errno::EPROTONOSUPPORT);
        assert_eq!(of(release, 1, 1).unwrap().work_requests, 3);
    }
    assert_eq!(of(Release::Nlx, 0, 0).unwrap().work_requests, 34);
}

/// Each side maps in its own way: nlx writes 256 fragments of an old node's descriptor by 256
/// requests, and an old node writes its pages into nlx's one contiguous range one by one; with two
/// pieces for each request half of the requests would be enough.
#[test]
fn each_side_maps_its_own_memory() {
    let (old, own) = (side(Release::V2_10, 514, KernelMapping::FastReg, 0), node(Release::Nlx, |_| ()));
    assert_eq!(transfer((&own, MEGABYTE), (&old, MEGABYTE), 256).unwrap().work_requests, 256);
    assert_eq!(transfer((&old, MEGABYTE), (&own, MEGABYTE), 256).unwrap().work_requests, 256);
    let gaps = MdPages { gaps: true, ..MEGABYTE };
    assert_eq!(transfer((&own, gaps), (&own, MEGABYTE), 256).unwrap().work_requests, 128);
    let error = transfer((&own, MEGABYTE), (&old, MdPages { fragments: 257, gaps: false }), 256).unwrap_err();
    assert_eq!(error.to_string(), "the sink's buffer has 257 fragments: it must have from 1 to 256");
}

proptest! {
    /// A transfer that is allowed fits the queue that was made for it.
    // Covers: S-506
    #[test]
    fn an_entry_has_room_for_its_transfer(
        release in prop::sample::select(Release::ALL.to_vec()), kernel_build in 600..800_u32,
        fragments in 1..=256_u16, gaps: bool, limit in 1..=256_u16, limit_of_source in 2..=256_u32,
    ) {
        let source = side(release, kernel_build, KernelMapping::FastReg, limit_of_source);
        let sink = node(Release::V2_10, |_| ());
        let buffer = MdPages { fragments, gaps };
        if let Ok(made) = transfer((&source, buffer), (&sink, buffer), limit) {
            prop_assert!(made.writes <= u32::from(limit) && made.writes >= 1);
            // 2.8 and 2.10 did not count the two work requests of fast registration, so the
            // property holds for later releases only.
            if release >= Release::V2_12 {
                prop_assert!(made.work_requests < source.per_entry(limit));
            }
        }
    }
}
