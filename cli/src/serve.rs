//! `nlx serve`: a node that answers pings and counts traffic, until it is stopped.

mod driver;
mod rates;
mod totals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lnet_nid::{NetType, Nid};
use lnet_node::{AcceptPolicy, Node, NodeConfig};
use nlx_lst::net::TestNodeOptions;
use serde_json::json;

use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{lst, output, setup};
use rates::IntervalStart;
use totals::Totals;

use crate::setup::Ports;

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    args.test_node.refuse_without(args.lst)?;
    setup::use_all_descriptors();
    let signals = Signals::take(true)?;
    let mut config = setup::config(NodeConfig::new().status(true), &args.setup)?;
    let (ports, policy) = (Ports::of(&mut config), config.tcp().accept_policy());
    let node = Arc::new(start(&config, ports.tcp)?);
    let test = args
        .lst
        .then(|| lst::test_node(&node, args.test_node.over(TestNodeOptions::default())))
        .transpose()?;
    // Taken before the greeting, so that the first line of statistics covers everything after it.
    let (begun, rates) = (Instant::now(), IntervalStart::since(&node));
    print_greeting(&node, ports, policy, args.json)?;
    serve(&node, rates, &signals, args)?;
    let totals = Totals::of(&node, begun.elapsed());
    drop(test);
    node.shutdown(args.drain);
    if args.json { output::json(&totals.to_json()) } else { output::line(totals) }
}

fn start(config: &NodeConfig, port: u16) -> Result<Node, Failure> {
    let node = Node::start(config).map_err(|error| Failure::of_node(&error, port))?;
    setup::offer_probes(&node);
    let nids: Vec<String> = node.nids().iter().map(Nid::to_string).collect();
    tracing::info!(?nids, "the node has started");
    Ok(node)
}

fn print_greeting(node: &Node, ports: Ports, policy: AcceptPolicy, json: bool) -> Result<(), Failure> {
    let policy = setup::policy_name(policy);
    if json {
        let nids: Vec<String> = node.nids().iter().map(Nid::to_string).collect();
        let serving = json!({
            "nids": nids,
            "port": ports.tcp,
            "service": node.o2ib().map(|_| ports.o2ib),
            "accept": policy,
            "pid": std::process::id(),
        });
        return output::json(&json!({ "serving": serving }));
    }
    node.nids().into_iter().try_for_each(|nid| {
        let port = ports.of_nid(nid);
        match (nid.net().net_type(), policy) {
            (NetType::O2IB, _) => output::line(format_args!("serving {nid} on port {port}")),
            // Without a listener there is no port.
            (_, "none") => output::line(format_args!("serving {nid}, accept {policy}")),
            _ => output::line(format_args!("serving {nid} on port {port}, accept {policy}")),
        }
    })
}

/// Drives the node in this thread until a signal requests the end; prints statistics meanwhile.
fn serve(node: &Node, mut rates: IntervalStart, signals: &Signals, args: &ServeArgs) -> Result<(), Failure> {
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
