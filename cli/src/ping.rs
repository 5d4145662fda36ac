//! `nlx ping`: what `lctl ping` does.

use lnet_nid::Nid;
use lnet_node::{Node, NodeConfig, source_towards};
use serde::Serialize;

use crate::args::PingArgs;
use crate::failure::{Context, Failure};

#[derive(Serialize)]
struct Answer {
    nid: String,
    from: String,
    nids: Vec<String>,
    pid: u32,
    features: String,
    round_trip_us: f64,
}

pub(crate) fn run(args: &PingArgs) -> Result<(), Failure> {
    let from = source_nid(args)?;
    let address =
        from.ipv4().ok_or_else(|| Failure::new(format!("{from} has no IPv4 address to send from")))?;
    let config = NodeConfig::new().net(&format!("{}({address})", from.net()))?.accept_port(args.accept_port);
    let node = Node::start(&config).context("cannot ping")?;
    let answer = node.ping(args.nid, Some(from), args.timeout)?;
    let answer = Answer {
        nid: args.nid.to_string(),
        from: from.to_string(),
        nids: answer.nids.iter().map(Nid::to_string).collect(),
        pid: answer.pid.0,
        features: format!("{:#x}", answer.features),
        round_trip_us: answer.round_trip.as_secs_f64() * 1e6,
    };
    print(&answer, args.json)
}

/// The NID to ask from: the one named, or the address that the routing table gives.
fn source_nid(args: &PingArgs) -> Result<Nid, Failure> {
    if let Some(from) = args.from {
        return Ok(from);
    }
    let address = source_towards(args.nid).ok_or_else(|| {
        Failure::new(format!("no interface of this host leads to {}: name one with --from", args.nid))
    })?;
    Ok(Nid::new_v4(args.nid.net(), address))
}

fn print(answer: &Answer, json: bool) -> Result<(), Failure> {
    if json {
        println!("{}", serde_json::to_string(answer)?);
        return Ok(());
    }
    println!("{} answered {} in {:.0} µs:", answer.nid, answer.from, answer.round_trip_us);
    for nid in &answer.nids {
        println!("  {}-{nid}", answer.pid);
    }
    Ok(())
}
