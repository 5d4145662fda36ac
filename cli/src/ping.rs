//! `nlx ping`: what `lctl ping` does.

use lnet_nid::{NetType, Nid};
use lnet_node::{Node, NodeConfig, source_towards};
use serde::Serialize;

use crate::args::PingArgs;
use crate::failure::Failure;
use crate::output;

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
    let (from, config) = source(args)?;
    let node = Node::start(&config).map_err(|error| {
        let hint = if args.from.is_none() { "; name another NID of this host with --from" } else { "" };
        Failure::new(format!("cannot ping from {from}: {error}{hint}"))
    })?;
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

/// The NID to ask from, and the node that has it: the one named, or the address that the routing table gives.
fn source(args: &PingArgs) -> Result<(Nid, NodeConfig), Failure> {
    let nid = args.nid;
    let config = NodeConfig::new().accept_port(args.accept_port);
    let type_of = |nid: Nid| nid.net().net_type();
    if nid.is_any() {
        return Err(Failure::new("a ping goes to one node: '*' names every one"));
    }
    if nid.is_loopback() && args.from.is_none() {
        return Ok((nid, config));
    }
    let from = match args.from {
        Some(from) => from,
        None if type_of(nid) != NetType::TCP => {
            return Err(Failure::new(format!("{nid}: only networks of type tcp can be pinged")));
        }
        None => source_towards(nid).map(|address| Nid::new_ip(nid.net(), address)).ok_or_else(|| {
            Failure::new(format!(
                "no interface of this host leads to {nid}; if one does, name it with --from"
            ))
        })?,
    };
    let address = from.ip().filter(|_| type_of(from) == NetType::TCP);
    let address =
        address.ok_or_else(|| Failure::new(format!("cannot ping from {from}: it must be ADDRESS@tcp")))?;
    Ok((from, config.net(&format!("{}({address})", from.net()))?))
}

fn print(answer: &Answer, json: bool) -> Result<(), Failure> {
    if json {
        return output::line(serde_json::to_string(answer)?);
    }
    output::line(format_args!("{} answered {} in {:.0} µs:", answer.nid, answer.from, answer.round_trip_us))?;
    answer.nids.iter().try_for_each(|nid| output::line(format_args!("  {}-{nid}", answer.pid)))
}
