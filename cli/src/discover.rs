//! `nlx discover`: shows a node as `lnetctl discover` does, and its features.

use lnet_nid::Nid;
use lnet_node::{DiscoverOptions, Discovery, Features, NiStatus, Pushed};
use serde_json::{Value, json};

use crate::args::DiscoverArgs;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;
use crate::source;

pub(crate) fn run(args: &DiscoverArgs) -> Result<(), Failure> {
    let signals = Signals::take(false)?;
    let question = source::question(args.nid, &args.asking)?;
    let node = source::node_for(&[question], &args.asking)?;
    let options = DiscoverOptions { source: Some(question.from), timeout: args.timeout, push: args.push };
    let found = node.discover_unless(&signals.interrupt, question.target, &options);
    let found = found.map_err(|failure| Failure::of_ping(&failure))?;
    // The result is printed before the node shuts down.
    let written =
        if args.json { output::json(&to_json(&found, question.from)) } else { output::line(text(&found)) };
    node.shutdown(source::FINAL_DRAIN);
    written
}

/// Formats the result as `lnetctl discover` does, with additional lines.
fn text(found: &Discovery) -> String {
    let yes = |condition| if condition { "True" } else { "False" };
    let mut lines = vec![
        "discover:".to_string(),
        format!("    - primary nid: {}", found.primary),
        format!("      Multi-Rail: {}", yes(found.is_multi_rail())),
        format!("      discovery: {}", yes(found.is_discoverable())),
        format!("      features: {:#x} ({})", found.features.0, words(found.features).join(", ")),
        format!("      pid: {}", found.pid),
        format!("      sequence: {}", found.sequence),
    ];
    match found.pushed {
        Pushed::NotAsked => {}
        Pushed::NotCapable => lines.push("      push: not sent, the node accepts no pushes".to_string()),
        Pushed::Acknowledged { bytes } => lines.push(format!("      push: acknowledged, {bytes} bytes")),
    }
    lines.push("      peer ni:".to_string());
    lines.extend(found.nis.iter().flat_map(|ni| {
        [format!("        - nid: {}", ni.nid), format!("          state: {}", state(ni.status))]
    }));
    lines.join("\n")
}

/// Returns each feature in words; unknown bits as numbers.
fn words(features: Features) -> Vec<String> {
    const NAMES: [(Features, &str); 8] = [
        (Features::BASE, "base"),
        (Features::NI_STATUS, "reports the state of its NIs"),
        (Features::RTE_DISABLED, "does not route"),
        (Features::MULTI_RAIL, "multi-rail"),
        (Features::DISCOVERY, "discovery"),
        (Features::LARGE_ADDR, "large NIDs"),
        (Features::PRIMARY_LARGE, "primary NID is large"),
        (Features::METADATA, "metadata"),
    ];
    let known = NAMES.iter().fold(0, |bits, (feature, _)| bits | feature.0);
    let named =
        NAMES.iter().filter(|(feature, _)| features.contains(*feature)).map(|(_, name)| name.to_string());
    let unknown = features.0 & !known;
    named.chain((unknown != 0).then(|| format!("unknown {unknown:#x}"))).collect()
}

fn state(status: NiStatus) -> String {
    format!("{status:?}")
}

fn to_json(found: &Discovery, from: Nid) -> Value {
    let pushed = match found.pushed {
        Pushed::NotAsked => Value::Null,
        Pushed::NotCapable => "not capable".into(),
        Pushed::Acknowledged { .. } => "acknowledged".into(),
    };
    let nis = found.nis.iter().map(|ni| json!({ "nid": ni.nid.to_string(), "state": state(ni.status) }));
    json!({
        "nid": found.target.to_string(),
        "from": from.to_string(),
        "primary_nid": found.primary.to_string(),
        "multi_rail": found.is_multi_rail(),
        "discovery": found.is_discoverable(),
        "features": format!("{:#x}", found.features.0),
        "feature_names": words(found.features),
        "pid": found.pid.0,
        "sequence": found.sequence,
        "peer_ni": nis.collect::<Vec<_>>(),
        "asked_bytes": found.asked_bytes,
        "push": pushed,
        "took_us": found.took.as_secs_f64() * 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_printed_as_words_and_unknown_ones_as_bits() {
        assert_eq!(words(Features(0x1e)).len(), 4);
        assert_eq!(words(Features(0x1_0008)), ["multi-rail", "unknown 0x10000"]);
        assert_eq!(words(Features::NONE), Vec::<String>::new());
    }
}
