//! The computation step by step, each with its rule and the place that documents it.

use std::fmt::Write;

use lnet_o2iblnd::sizes::{FLUSH_TRIGGER_MIN, PassiveAnswer, Release};

use super::result::{Calculation, SideResult, is_kernel, reason_name};
use crate::units::{counted, in_bytes};

pub(super) fn text(all: &Calculation) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut say = |line: String| _ = writeln!(out, "{line}");
    for node in &all.nodes {
        side(node, &mut say);
    }
    for opener in [0, 1] {
        direction(all, opener, &mut say);
    }
    for node in &all.nodes {
        let (name, pools) = (node.peer.name, &node.pools);
        say(format!("{name}, an NI; CPTs: {} (lnet-semantics 13, 33)", pools.partitions));
        say(format!(
            "  credits: min({0}, max({0} / {1}, 8 · {2})) = {3} for each CPT, all {0} on one",
            node.adjusted.credits, pools.partitions, node.adjusted.peer_credits, pools.credits
        ));
        if is_kernel(node.adjusted.release) {
            say(format!(
                "  transmit descriptors: max(256, {} / {}) = {} for each CPT, {} bytes each, {} together",
                node.adjusted.ntx,
                pools.partitions,
                pools.transmits,
                pools.transmit.total(),
                in_bytes(pools.transmit_bytes())
            ));
            say(format!(
                "  registrations: max(256, {} / {}) = {} for each CPT",
                node.adjusted.fmr_pool_size, pools.partitions, pools.registrations
            ));
            if let Some(trigger) = pools.flush_trigger {
                say(format!(
                    "  a pool is flushed: from max({FLUSH_TRIGGER_MIN}, {} / {}) = {trigger} used registrations on",
                    node.adjusted.fmr_flush_trigger, pools.partitions
                ));
            }
        } else {
            say("  transmit descriptors: none, each connection has message buffers of its own".into());
            say("  registrations: none, memory is registered once".into());
            say(format!(
                "  bounce buffers: {}, {} together, created when memory that cannot be registered must be copied",
                pools.bounces,
                in_bytes(pools.bounce_bytes())
            ));
        }
    }
    for source in [0, 1] {
        let name = all.nodes[source].peer.name;
        match all.transfer(source) {
            Some(Ok(made)) => say(format!(
                "{name} sends {} (S-506): {} makes {} of them, the sink's {} makes {}; {}, {}",
                counted(all.buffer.fragments, "fragment"),
                made.source.name(),
                made.source_fragments,
                made.sink.name(),
                made.sink_fragments,
                counted(made.writes, "write"),
                counted(made.work_requests, "work request")
            )),
            Some(Err(error)) => {
                say(format!("{name} sends {} (S-504): {error}", counted(all.buffer.fragments, "fragment")))
            }
            None => {}
        }
    }
    for warning in &all.warnings {
        say(format!("warning: {warning}"));
    }
    out.trim_end().to_string()
}

fn side(node: &SideResult, say: &mut impl FnMut(String)) {
    let (name, adjusted) = (node.peer.name, &node.adjusted);
    say(format!("{name} is {}: its adjusted tunables", adjusted.release));
    for change in &adjusted.changes {
        say(format!("  {change} [{}]", change.rule.source()));
    }
    say(format!(
        "  it asks for, and grants, a depth of {} and {}; registration: {} [S-502, S-508, lnet-wire 34]",
        adjusted.peer_credits,
        counted(adjusted.fragments, "fragment"),
        node.registration()
    ));
}

fn direction(all: &Calculation, opener: usize, say: &mut impl FnMut(String)) {
    let (active, passive) = (&all.nodes[opener], &all.nodes[1 - opener]);
    let (from, to) = (active.peer.name, passive.peer.name);
    say(format!("{from} connects to {to} [S-501, lnet-semantics 35]"));
    for barrier in all.barred(opener) {
        say(format!("  {} [lnet-wire 31]; the following ignores that", barrier.text));
    }
    for one in &all.directions[opener].tries {
        let asked = if one.depth < one.wanted {
            format!("depth {} (its device has no room for {})", one.depth, one.wanted)
        } else {
            format!("depth {}", one.depth)
        };
        say(format!("  {from} asks for {asked} and {}", counted(one.fragments, "fragment")));
        say(match one.answer {
            PassiveAnswer::Accepted { depth, .. } if depth < one.depth => {
                format!(
                    "  {to} accepts with depth {depth}: its device has no room for more; {from} adopts that"
                )
            }
            PassiveAnswer::Accepted { .. } => format!("  {to} accepts"),
            PassiveAnswer::Rejected { reason, depth, fragments: most } => format!(
                "  {to} rejects, {}: it would grant depth {depth} and {}; {from} changes the one named",
                reason_name(reason),
                counted(most, "fragment")
            ),
            PassiveAnswer::Failed => {
                format!("  {to} rejects, NO_RESOURCES: its device cannot have such a connection")
            }
        });
    }
    match &all.directions[opener].outcome {
        Err(error) => say(format!("  no connection: {error}")),
        Ok(agreed) => {
            for (node, made) in [(active, &agreed.active), (passive, &agreed.passive)] {
                say(format!("  {}: {}", node.peer.name, queues(node, made)));
            }
        }
    }
}

/// Formats the computation of a connection's queue lengths (lnet-semantics 32).
fn queues(node: &SideResult, made: &lnet_o2iblnd::sizes::ConnSizes) -> String {
    let per_entry = node.adjusted.per_entry(made.fragments);
    let registration = per_entry - 1 - u32::from(made.fragments);
    let writes = counted(made.fragments, "write");
    let entry = match registration {
        0 => format!("1 DONE + {writes}"),
        more => format!("1 DONE + {writes} + {more} of fast registration"),
    };
    let (times, of) = match node.adjusted.release {
        Release::V2_8 | Release::V2_10 => (u32::from(made.concurrent_sends), "concurrent_sends"),
        _ => (made.sends / per_entry.max(1), "depth"),
    };
    let completions = match (made.completions_least, made.completions) {
        (least, most) if least < most => format!("{least} or {most}: with which receives is not specified"),
        (_, most) if node.adjusted.release == Release::V2_12 => {
            format!("{most}, receives and twice the depth of the first try")
        }
        (_, most) => format!("{most}, sends and receives"),
    };
    let own = made.bookkeeping_bytes.map(|bytes| {
        format!(
            "; {} buffers to send from, min(concurrent_sends, 2 · depth), {}; about {} of bookkeeping",
            made.concurrent_sends,
            in_bytes(made.transmit_bytes),
            in_bytes(bytes)
        )
    });
    format!(
        "sends ({entry}) × {of} {times} = {}; receives {}, two for each entry and two for empty messages, {}; completions \
         {completions}{}; credits are returned from {} on [lnet-semantics 32, S-503]",
        made.sends,
        made.receives,
        in_bytes(made.receive_bytes),
        own.unwrap_or_default(),
        made.high_water
    )
}
