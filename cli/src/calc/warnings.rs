//! Settings without effect, and settings that will fail.

use lnet_node::Tunable;
use lnet_o2iblnd::sizes::{AdjustRule, GLOBAL_REGION_PIVOT, KernelMapping, Release};

use super::result::{Calculation, SideResult, is_kernel};
use crate::units::counted;

pub(super) fn all(of: &Calculation) -> Vec<String> {
    let mut warnings: Vec<String> = [0, 1].into_iter().flat_map(|side| own(of, side)).collect();
    warnings.extend(of.barriers.iter().map(|barrier| barrier.text.clone()));
    for (opener, course) in of.directions.iter().enumerate() {
        let (name, other) = (of.nodes[opener].peer.name, of.nodes[1 - opener].peer.name);
        match &course.outcome {
            Err(error) => warnings.push(format!("{name} cannot connect to {other}: {error}")),
            Ok(agreed) => {
                let wanted =
                    of.nodes[opener].adjusted.peer_credits.min(of.nodes[1 - opener].adjusted.peer_credits);
                if agreed.depth < wanted {
                    let depth = agreed.depth;
                    warnings
                        .push(format!("opened by {name}: a device cuts the depth from {wanted} to {depth}"));
                }
            }
        }
    }
    warnings.extend(idle_credits(of));
    for source in [0, 1] {
        if let Some(Err(error)) = of.transfer(source) {
            warnings.push(format!("a transfer from {} fails: {error}", of.nodes[source].peer.name));
        }
    }
    warnings
}

/// Returns a warning for credits that a connection to the other side cannot use, in either
/// direction.
fn idle_credits(of: &Calculation) -> impl Iterator<Item = String> {
    let agreed = of.directions.iter().filter_map(|course| course.outcome.as_ref().ok());
    let depth = agreed.map(|agreed| agreed.depth).max();
    [0, 1].into_iter().filter_map(move |side| {
        let [(name, credits), (other, _)] =
            [side, 1 - side].map(|side| (of.nodes[side].peer.name, of.nodes[side].adjusted.peer_credits));
        let (depth, idle) = depth.and_then(|depth| Some((depth, credits.checked_sub(depth)?)))?;
        (idle > 0).then(|| {
            format!("{name}: {idle} of its {credits} peer_credits are never used with {other}: the depth comes to {depth}")
        })
    })
}

/// Returns the warnings about one node.
fn own(of: &Calculation, side: usize) -> Vec<String> {
    let (node, peers) = (&of.nodes[side], of.peers);
    let (peer, adjusted) = (&node.peer, &node.adjusted);
    let (name, release) = (peer.name, adjusted.release);
    let mut warnings = without_effect(node);
    warnings.extend(adjusted.changes.iter().filter(|change| change.rule == AdjustRule::PiecesMax).map(
        |change| {
            format!(
                "{name}: {} {} has no effect beyond {}: {}",
                change.tunable,
                change.from,
                change.to,
                change.rule.why()
            )
        },
    ));
    if adjusted.concurrent_sends < adjusted.peer_credits {
        warnings.push(format!(
            "{name}: concurrent_sends {} is less than peer_credits {}: some credits wait for sends to complete",
            adjusted.concurrent_sends, adjusted.peer_credits
        ));
    }
    let needed = u64::from(adjusted.peer_credits) * u64::from(peers);
    if needed > node.pools.all_credits() {
        warnings.push(format!(
            "{name}: credits come to {}: {} busy at once, with {} credits each, would use {needed}",
            node.pools.all_credits(),
            counted(peers, "peer"),
            adjusted.peer_credits
        ));
    }
    let is_told = |other: &str| {
        !is_kernel(release) && idle().any(|tunable| tunable.name() == other)
            || of.barriers.iter().any(|barrier| barrier.concerns(side, other))
    };
    warnings.extend(
        peer.others()
            .filter(|other| !is_told(other))
            .map(|other| format!("{name}: {other} changes nothing here: no size depends on it")),
    );
    warnings
}

/// Returns the warnings about tunables that have no effect in a node's release, or less than expected.
fn without_effect(node: &SideResult) -> Vec<String> {
    let (peer, release) = (&node.peer, node.adjusted.release);
    let name = peer.name;
    let mut warnings = Vec::new();
    let mut none = |tunable: &str, reason: &str| {
        if peer.has_set(tunable) {
            warnings.push(format!("{name}: {tunable} has no effect: {reason}"));
        }
    };
    if is_kernel(release) {
        if peer.side.mapping == KernelMapping::FastReg {
            none("fmr_flush_trigger", "fast registration has nothing to flush");
        }
        if !release.has_pieces() {
            none("wrq_sge", "releases before 2.14 are taken to have one piece for each work request");
        }
        if peer.side.kernel_build < GLOBAL_REGION_PIVOT && release >= Release::V2_14 {
            warnings.push(format!(
                "{name}: {release} on a kernel of build {} is not known to exist",
                peer.side.kernel_build
            ));
        }
        if release >= Release::V2_12 && peer.has_set("concurrent_sends") {
            warnings.push(format!(
                "{name}: concurrent_sends does not change any queue since 2.12: it only holds sends back"
            ));
        }
    } else {
        for tunable in ["mapping", "kernel_build"] {
            none(tunable, "nlx registers memory once");
        }
        for tunable in ["peer_credits_hiw", "peercredits_hiw"] {
            none(tunable, "nlx returns credits when half of them are owed");
        }
        idle().for_each(|tunable| none(tunable.name(), tunable.meaning()));
    }
    warnings
}

/// Returns the kernel's tunables that have no effect in nlx.
fn idle() -> impl Iterator<Item = &'static Tunable> {
    Tunable::all().filter(|tunable| tunable.module() == "ko2iblnd" && !tunable.acts())
}
