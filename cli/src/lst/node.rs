//! `nlx lst node`: a test node, until it is stopped.

use std::time::Duration;

use lnet_nid::Nid;
use nlx_lst::net::TestNodeOptions;
use nlx_lst::node::{Count, Counters, SessionView};
use serde_json::json;

use super::latency::ClientLatency;
use super::{Host, status};
use crate::args::{LstArgs, TestNodeArgs};
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;

/// Interval at which the command checks whether the session of the node has changed.
const LOOK: Duration = Duration::from_secs(1);

/// Time that messages in progress get to leave when the node is stopped.
const DRAIN: Duration = Duration::from_secs(1);

pub(super) fn run(args: &LstArgs, options: &TestNodeArgs) -> Result<(), Failure> {
    let signals = Signals::take(true)?;
    let host = Host::start(args)?;
    let test = host.test_node(options.over(TestNodeOptions::default()))?;
    let nids: Vec<String> = host.node.nids().iter().map(Nid::to_string).collect();
    if args.json {
        output::json(
            &json!({ "lst_node": { "nids": nids, "port": host.ports.tcp, "pid": std::process::id() } }),
        )?;
    } else {
        for nid in host.node.nids() {
            output::line(format_args!("test node {nid} on port {}", host.ports.of_nid(nid)))?;
        }
    }
    let mut shown: Option<SessionView> = None;
    // The results of test clients can be read after their session has ended.
    let mut clients: Vec<ClientLatency> = Vec::new();
    while !signals.stopped() {
        host.node.wait(&signals.interrupt, Some(LOOK));
        signals.interrupt.take();
        let session = test.session();
        let id = |session: &Option<SessionView>| session.as_ref().map(|session| session.sid);
        if id(&session) != id(&shown) {
            print_latencies(&clients, args.json)?;
            print_session(session.as_ref(), args.json)?;
            shown = session;
        }
        clients = test.clients().into_iter().map(ClientLatency::from).collect();
        if signals.report() {
            print_counters(test.counters(), args.json)?;
        }
    }
    print_latencies(&clients, args.json)?;
    print_counters(test.counters(), args.json)?;
    drop(test);
    host.node.shutdown(DRAIN);
    Ok(())
}

fn print_session(session: Option<&SessionView>, json: bool) -> Result<(), Failure> {
    let name = session.map(|session| session.name.to_string());
    let console = session.and_then(|session| session.sid.nid()).map(|nid| nid.to_string());
    if json {
        return output::json(&json!({ "session": name, "console": console }));
    }
    match (name, console) {
        (Some(name), console) => output::line(format_args!(
            "session {} of {}",
            lnet_nid::printable(&name),
            console.as_deref().unwrap_or("a console without a NID")
        )),
        (None, _) => output::line("no session"),
    }
}

/// Prints the round-trip times of the test clients of a session that has ended.
fn print_latencies(clients: &[ClientLatency], json: bool) -> Result<(), Failure> {
    if !json {
        return clients.iter().try_for_each(output::line);
    }
    let latencies: Vec<_> = clients.iter().map(ClientLatency::to_json).collect();
    if latencies.is_empty() { Ok(()) } else { output::json(&json!({ "latencies": latencies })) }
}

pub(super) fn print_counters(counters: &Counters, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(&json!({ "counters": status::counters(counters) }));
    }
    let [sent, received, dropped, expired] =
        [Count::Sent, Count::Received, Count::Dropped, Count::Expired].map(|count| counters.total(count));
    let [got, put, strangers] =
        [Count::BulkGot, Count::BulkPut, Count::Strangers].map(|count| counters.total(count));
    let fatal = status::fatal(counters);
    output::line(format_args!(
        "RPCs: {sent} sent, {received} received, {dropped} dropped, {expired} expired; bulk: {got} B \
         fetched, {put} B sent; {fatal} requests refused that would stop a kernel node, {strangers} of \
         consoles that may not use the node"
    ))
}
