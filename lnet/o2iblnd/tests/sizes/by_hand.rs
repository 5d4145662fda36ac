//! Expected values that were computed by hand; `docs/rdma-tunables.md` has the same tables, with
//! the steps of the computation.

use lnet_o2iblnd::O2ibConfig;
use lnet_o2iblnd::sizes::{self, KernelMapping, Release, Side, SizesError, connection, pools, shallower};

use super::{device, node};

/// The table of lnet-semantics 32: f = 257, fast registration, m = 260, without the row of the
/// reduced depth.
// Covers: S-503
#[test]
fn the_queues_of_a_current_kernel_node() {
    for (peer_credits, sends, receives, completions) in
        [(8, 2080, 18, 2098), (16, 4160, 34, 4194), (32, 8320, 66, 8386), (63, 16380, 128, 16508)]
    {
        let node = node(Release::V2_15, |tuned| tuned.peer_credits = peer_credits);
        let made = connection(&node, node.peer_credits, 257, &device(32_768)).unwrap();
        assert_eq!((made.sends, made.receives, made.completions), (sends, receives, completions));
        assert_eq!(made.completions_least, completions);
        assert_eq!(made.receive_bytes, u64::from(receives) * 4096);
    }
}

/// 126 × 260 = 32 760 just fits 32 768; 128 × 260 does not, and the completion queue is counted
/// with 32 768 sends and either 2 × 126 + 2 or 2 × 128 + 2 receives.
// Covers: S-503
#[test]
fn a_send_queue_at_its_limit_cuts_the_depth() {
    let at = |peer_credits| {
        let node = node(Release::V2_15, |tuned| tuned.peer_credits = peer_credits);
        connection(&node, node.peer_credits, 257, &device(32_768)).unwrap()
    };
    let fits = at(126);
    assert_eq!((fits.depth, fits.sends, fits.receives), (126, 32_760, 254));
    assert_eq!((fits.completions_least, fits.completions), (33_014, 33_014));
    let cut = at(128);
    assert_eq!((cut.depth, cut.sends, cut.receives), (126, 32_760, 254));
    assert_eq!((cut.completions_least, cut.completions), (33_022, 33_026));
}

/// The queues of each release with 16 credits, 256 fragments and fast registration.
// Covers: S-503
#[test]
fn the_queues_of_each_release() {
    let expected = [
        // Sends are (256 + 1) × 16; completions are receives and sends.
        (Release::V2_8, 4112, 4112 + 34),
        (Release::V2_10, 4112, 4112 + 34),
        // Sends are (1 + 256 + 2) × 16; completions are receives and twice the depth.
        (Release::V2_12, 4144, 34 + 32),
        // The sends are the same; completions are receives and sends.
        (Release::V2_14, 4144, 4144 + 34),
        (Release::V2_15, 4144, 4144 + 34),
        // Sends are (1 + 256) × 16: nlx registers nothing for a transfer.
        (Release::Nlx, 4112, 4112 + 34),
    ];
    for (release, sends, completions) in expected {
        let node = node(release, |tuned| tuned.peer_credits = 16);
        let made = connection(&node, 16, 256, &device(32_768)).unwrap();
        assert_eq!((made.sends, made.receives, made.completions), (sends, 34, completions), "{release}");
    }
}

/// Without fast registration the two additional work requests are not needed: with FMR, and with a
/// global region (S-508: before 693).
#[test]
fn registration_decides_how_many_sends_an_entry_has() {
    let sends = |kernel_build, mapping| {
        let side = Side { kernel_build, mapping, ..Side::of(Release::V2_14) };
        connection(&side.adjust().unwrap(), 8, 256, &device(32_768)).unwrap().sends
    };
    assert_eq!(sends(693, KernelMapping::FastReg), 8 * 259);
    assert_eq!(sends(693, KernelMapping::Fmr), 8 * 257);
    assert_eq!(sends(692, KernelMapping::FastReg), 8 * 257);
}

/// In 2.8 and 2.10 `concurrent_sends` determines the sends, in later releases it does not (S-508:
/// "if you set concurrent_sends to a value X, how many work requests will be created?").
// Covers: S-508
#[test]
fn concurrent_sends_made_work_requests_once() {
    let sends = |release| {
        let node = node(release, |tuned| tuned.concurrent_sends = 16);
        connection(&node, 8, 256, &device(32_768)).unwrap().sends
    };
    assert_eq!([Release::V2_8, Release::V2_10].map(sends), [257 * 16; 2]);
    assert_eq!([Release::V2_12, Release::V2_14].map(sends), [259 * 8; 2]);
}

/// 2.12 tries one entry less each time until the device agrees: 16 384 / 259 = 63.2. Its completion
/// queue is that of the first try, 2 × 128 + 2 and 2 × 128. 2.10 cannot lower its sends, and fails.
#[test]
fn older_releases_on_a_smaller_device() {
    let limits = device(16_384);
    let of = |release| connection(&node(release, |tuned| tuned.peer_credits = 128), 128, 256, &limits);
    let made = of(Release::V2_12).unwrap();
    assert_eq!((made.depth, made.sends, made.receives, made.completions), (63, 63 * 259, 128, 514));
    let error = of(Release::V2_10).unwrap_err();
    assert!(matches!(error, SizesError::Device { needed: 32_896, limit: 16_384, .. }), "{error}");
    assert!(error.to_string().contains("lower concurrent_sends"), "{error}");
    // 2.12 does not try one entry alone: 2 × 259 = 518 is the least.
    let least = |queue_entries| connection(&node(Release::V2_12, |_| ()), 8, 256, &device(queue_entries));
    assert_eq!(least(518).unwrap().depth, 2);
    assert!(least(517).is_err());
}

/// nlx's queues by default: 8 × 258 sends and 18 receives; and on devices that support 3 entries,
/// 1, or none.
#[test]
fn the_queues_of_nlx() {
    let adjusted = sizes::adjust(&O2ibConfig::default());
    let made = connection(&adjusted, 8, 257, &device(32_768)).unwrap();
    assert_eq!(
        (made.depth, made.fragments, made.sends, made.receives, made.completions),
        (8, 257, 2064, 18, 2082)
    );
    assert_eq!((made.receive_bytes, made.high_water, made.concurrent_sends, made.pieces), (73_728, 4, 8, 2));
    // There are 2·(sends + receives) entries of 64 bytes: each work request has a completion.
    assert_eq!(made.queue_bytes_least(), 64 * 2 * u64::from(made.sends + made.receives));
    assert_eq!(made.transmit_bytes, 8 * 4096);
    // Each entry has at most two send buffers, for every value of concurrent_sends.
    let many =
        sizes::adjust(&O2ibConfig { peer_credits: 128, concurrent_sends: 256, ..O2ibConfig::default() });
    let sends = |depth| connection(&many, depth, 256, &device(32_768)).map(|made| made.transmit_bytes / 4096);
    assert_eq!([sends(8), sends(127)], [Ok(16), Ok(254)]);
    let depth = |queue_entries| connection(&adjusted, 8, 257, &device(queue_entries)).map(|made| made.depth);
    assert_eq!((depth(1024), depth(258)), (Ok(3), Ok(1)));
    assert!(depth(257).unwrap_err().to_string().contains("258 entries"));
    // The completion queue is the limit: 2082 for 8, 260 × 7 + 2 = 1822 for 7.
    let few = sizes::connection(
        &adjusted,
        8,
        257,
        &lnet_o2iblnd::fabric::DeviceLimits { completions: 2081, ..device(32_768) },
    );
    assert_eq!(few.map(|made| (made.depth, made.completions)), Ok((7, 1822)));
    // With one fragment the receives are the longer queue, 2 × 4 + 2 = 10.
    assert_eq!(connection(&adjusted, 8, 1, &device(10)).map(|made| made.depth), Ok(4));
}

/// When a device refuses a depth that it reports to support, a quarter less is tried each time,
/// down to 2.
#[test]
fn a_refused_depth_is_lowered() {
    let adjusted = sizes::adjust(&O2ibConfig::default());
    let limits = device(1 << 20);
    let depths = |asked| {
        let mut made = connection(&adjusted, asked, 257, &limits).unwrap();
        let mut depths = Vec::new();
        while let Some(next) = shallower(&adjusted, &made, &limits).unwrap() {
            made = next;
            depths.push((made.depth, made.sends));
        }
        depths
    };
    assert_eq!(depths(5), [(4, 4 * 258), (3, 3 * 258), (2, 2 * 258)]);
    let deepest = depths(255);
    assert_eq!(deepest[..4].iter().map(|(depth, _)| *depth).collect::<Vec<_>>(), [192, 144, 108, 81]);
    assert!(deepest.len() <= 20 && deepest.last() == Some(&(2, 2 * 258)), "{deepest:?}");
}

/// lnet-semantics 13 and 33: 512 descriptors on one partition, and 256 on each of more.
#[test]
fn the_pools_of_an_ni() {
    let node = node(Release::V2_15, |_| ());
    let of = |partitions| {
        let pools = pools(&node, partitions);
        (pools.transmits, pools.all_transmits(), pools.registrations, pools.credits, pools.all_credits())
    };
    assert_eq!(of(1), (512, 512, 512, 256, 256));
    assert_eq!(of(2), (256, 512, 256, 128, 256));
    // 256 / 8 = 32 credits are fewer than for 8 peers of 8.
    assert_eq!(of(8), (256, 2048, 256, 64, 512));
    let fmr = Side { mapping: KernelMapping::Fmr, ..Side::of(Release::V2_12) }.adjust().unwrap();
    assert_eq!(
        [1, 2, 4].map(|partitions| sizes::pools(&fmr, partitions).flush_trigger),
        [Some(384), Some(192), Some(192)]
    );
    assert_eq!(sizes::pools(&node, 1).flush_trigger, None, "fast registration has none");
}

/// 4096 + (8 + 12·257) + 8·256 + 32·257 + 56·257 + 16·(257·2 + 1) + 200 = 40 292: about 40 KiB, as
/// in 2.15. 512 are 20.6 MB, 2048 are 82.5 MB.
#[test]
fn the_memory_of_transmit_descriptors() {
    let kernel = node(Release::V2_15, |_| ());
    let transmit = pools(&kernel, 1).transmit;
    assert_eq!((transmit.descriptor, transmit.pages, transmit.pieces), (3092, 2048, 8240));
    assert_eq!(transmit.total(), 40_292);
    assert_eq!(
        (pools(&kernel, 1).transmit_bytes(), pools(&kernel, 8).transmit_bytes()),
        (20_629_504, 82_518_016)
    );
    // nlx has no such descriptors, because its connections have their own buffers. It has 16 bounce
    // buffers of 1 MiB, once one is needed.
    let own = pools(&sizes::adjust(&O2ibConfig::default()), 8);
    assert_eq!((own.all_transmits(), own.transmit_bytes(), own.all_registrations()), (0, 0, 0));
    assert_eq!((own.bounce_bytes(), pools(&kernel, 1).bounce_bytes()), (16 << 20, 0));
}
