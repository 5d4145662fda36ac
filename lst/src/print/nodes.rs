//! Results with a line for each node: `query`, `show_error`, `ping`.

use lnet_nid::{Nid, ProcessId, printable};
use lnet_proto::lst::Statistics;

use super::{Printed, describe};
use crate::command::View;
use crate::console::{HeldSession, NodeAnswer, NodeFailure, QueryReport, Target, TargetReport};

pub(super) fn query(to: &mut Printed, query: &QueryReport, view: &View) {
    let view = if let View::Query(view) = view { *view } else { Default::default() };
    let state = if query.is_running() { "running" } else { "stopped" };
    to.out(format_args!("{} [{}] is {state}", query.batch, query.test));
    for NodeAnswer { node, state, answer } in &query.nodes {
        match answer {
            Ok(0) if view.idle => to.out(format_args!("{node} [{state}]: Idle")),
            Ok(1..) if view.active => to.out(format_args!("{node} [{state}]: Running")),
            Ok(_) => {}
            Err(failure) => {
                if view.error {
                    to.out(format_args!("{node} [{state}]: {}", describe(failure.errno())));
                }
                to.note(*failure);
            }
        }
    }
}

pub(super) fn errors(to: &mut Printed, targets: &[TargetReport<Statistics>], view: &View) {
    let session_only = matches!(view, View::Errors { session_only: true });
    for TargetReport { target, nodes } in targets {
        let name = target_name(target);
        to.out(format_args!("{name}:"));
        let mut total = 0;
        for NodeAnswer { node, answer, .. } in nodes {
            match answer {
                Ok(statistics) => total += u32::from(node_errors(to, *node, statistics, session_only)),
                Err(failure) => {
                    let kind = match failure {
                        NodeFailure::Rpc(_) => "RPC",
                        NodeFailure::Refused(_) => "Framework",
                    };
                    to.err(format_args!("{kind} failure, can't show error on {node}"));
                    to.note(*failure);
                }
            }
        }
        to.out(format_args!("Total {total} error nodes in {name}"));
    }
}

/// Prints the errors of a node, if there are any, and returns whether there are.
fn node_errors(to: &mut Printed, node: ProcessId, statistics: &Statistics, session_only: bool) -> bool {
    let Statistics { brw_errors, ping_errors, rpc_errors, rpcs_dropped, rpcs_expired, .. } = statistics;
    let of_session = [brw_errors, ping_errors].iter().any(|count| **count > 0);
    let of_rpcs = [rpc_errors, rpcs_dropped, rpcs_expired].iter().any(|count| **count > 0);
    if !of_session && (session_only || !of_rpcs) {
        return false;
    }
    let session = format!("[Session {brw_errors} brw errors, {ping_errors} ping errors]");
    match session_only {
        true => to.out(format_args!("{node}: {session}")),
        false => to.out(format_args!(
            "{node}: {session} [RPC: {rpc_errors} errors, {rpcs_dropped} dropped, {rpcs_expired} expired]"
        )),
    }
    true
}

pub(super) fn ping(to: &mut Printed, report: &TargetReport<HeldSession>) {
    for NodeAnswer { node, state, answer } in &report.nodes {
        let (name, nid) = match answer {
            Ok(held) => (held.name.to_string(), held.sid.nid().unwrap_or(Nid::ANY)),
            Err(failure) => {
                to.note(*failure);
                ("Unknown".to_owned(), Nid::ANY)
            }
        };
        to.out(format_args!("\t{node}: {state} [session: {} id: {nid}]", printable(&name)));
    }
}

/// Returns the name of a target.
#[must_use]
pub fn target_name(target: &Target) -> String {
    match target {
        Target::Session => "session".to_owned(),
        Target::Group(name) | Target::Batch { name, .. } => name.to_string(),
        Target::Nodes(nodes) => match &nodes[..] {
            [node] => node.to_string(),
            nodes => format!("{} nodes", nodes.len()),
        },
    }
}
