//! `nlx serve`: a node that answers pings and counts traffic, until it is stopped.

mod driver;
mod rates;
mod totals;

use std::time::{Duration, Instant};

use lnet_nid::Nid;
use lnet_node::{AcceptPolicy, Node, NodeConfig};
use serde_json::json;

use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{descriptors, output, setup};
use rates::Rates;
use totals::Totals;

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    descriptors::use_all();
    let signals = Signals::take(true)?;
    let mut config = setup::config(NodeConfig::new().status(true), &args.setup)?;
    let (port, policy) = (config.tcp().accept_port, config.tcp().accept_policy());
    let node = start(&config, port)?;
    // Before the greeting: whoever has read it finds all that happens from then on in the first line.
    let (begun, rates) = (Instant::now(), Rates::since(&node));
    greet(&node, port, policy, args.json)?;
    serve(&node, rates, &signals, args)?;
    let totals = Totals::of(&node, begun.elapsed());
    node.shutdown(args.drain);
    if args.json { output::json(&totals.to_json()) } else { output::line(totals) }
}

fn start(config: &NodeConfig, port: u16) -> Result<Node, Failure> {
    let node = Node::start(config).map_err(|error| Failure::of_node(&error, port))?;
    let nids: Vec<String> = node.nids().iter().map(Nid::to_string).collect();
    tracing::info!(?nids, "started");
    Ok(node)
}

fn greet(node: &Node, port: u16, policy: AcceptPolicy, json: bool) -> Result<(), Failure> {
    let nids: Vec<String> = node.nids().iter().map(Nid::to_string).collect();
    let policy = setup::policy_name(policy);
    if json {
        let pid = std::process::id();
        return output::json(
            &json!({ "serving": { "nids": nids, "port": port, "accept": policy, "pid": pid } }),
        );
    }
    // Without a listener there is no port to name.
    let place = if policy == "none" { String::new() } else { format!(" on port {port}") };
    nids.iter().try_for_each(|nid| output::line(format_args!("serving {nid}{place}, accept {policy}")))
}

/// Drives the node in this thread until a signal asks for the end; reports meanwhile.
fn serve(node: &Node, mut rates: Rates, signals: &Signals, args: &ServeArgs) -> Result<(), Failure> {
    loop {
        let rest = args.stats.map(|every| rest_of(every, rates.begun()));
        node.wait(&signals.interrupt, rest);
        signals.interrupt.take();
        if signals.stopped() {
            return Ok(());
        }
        let due = args.stats.is_some_and(|every| rest_of(every, rates.begun()).is_zero());
        if signals.report() || due {
            let (line, next) = rates.until(node);
            rates = next;
            if args.json { output::json(&line.to_json())? } else { output::line(line)? }
        }
    }
}

fn rest_of(every: Duration, begun: Instant) -> Duration {
    every.saturating_sub(begun.elapsed())
}
