//! The helper's part of `nlx status`: a member `helper` of the node's status.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use lnet_node::{JsonObject, Node, quoted};
use nlx_helper::accounts::{Accounts, UNBOUNDED, UserStatus};
use nlx_helper::service::{AdmissionStatus, ServingThreads};
use nlx_helper::{ClientStatus, Host, HostStatus, TmStatus, Totals};

/// Number of clients that are listed, the busiest first; the others are counted. With their
/// transfer machines they fit into a socket's buffer.
const CLIENTS: usize = 64;

/// Number of transfer machines of one client that are listed.
const TMS: usize = 8;

/// Adds the clients to the node's status.
pub(super) fn add_clients(node: &Node, host: &Arc<Host>, service: &ServingThreads, path: &Path) {
    let (host, admission) = (host.clone(), service.admission_reporter());
    let path = path.display().to_string();
    node.add_status("helper", move || json(&path, host.status(), host.accounts(), &admission()));
}

fn json(path: &str, mut status: HostStatus, accounts: &Accounts, admission: &AdmissionStatus) -> String {
    status.clients.sort_by_key(|client| (Reverse(client.operations), client.client));
    let (count, tms) =
        (status.clients.len(), status.clients.iter().map(|client| client.tms.len()).sum::<usize>());
    let sum = |of: fn(&ClientStatus) -> u64| status.clients.iter().map(of).sum::<u64>();
    let left = &status.leftovers;
    let leftovers = JsonObject::new()
        .value("tms", left.tms)
        .value("eqs", left.eqs)
        .value("arenas", left.arenas)
        .value("bytes", left.bytes)
        .end();
    let faults = JsonObject::new()
        .value("unexpected", status.faults.unexpected)
        .value("stale", status.faults.stale)
        .value("overruns", status.faults.overruns)
        .end();
    JsonObject::new()
        .text("socket", path)
        .value("clients", count)
        .value("tms", tms)
        .value("buffers", sum(|client| client.buffers))
        .value("bytes", sum(|client| client.bytes))
        .value("operations", sum(|client| client.operations))
        .list("list", status.clients.iter().take(CLIENTS).map(client))
        .value("left_out", count.saturating_sub(CLIENTS))
        .list("users", status.users.iter().map(user))
        .value("users_left_out", status.users_left_out)
        .value("resources", resources(accounts))
        .value("leftovers", leftovers)
        .value("totals", totals(&status.totals))
        .value("door", self::admission(admission))
        .value("faults", faults)
        .end()
}

/// Formats the resources of a user; those that it does not use are left out.
fn user(user: &UserStatus) -> String {
    let held = user.held.iter().filter(|(_, amount)| *amount > 0);
    let held =
        held.fold(JsonObject::new(), |object, (resource, amount)| object.value(resource.name(), amount));
    JsonObject::new().value("uid", user.user.0).value("held", held.end()).value("refused", user.refused).end()
}

/// Formats the use and the capacity of all bounded resources.
fn resources(accounts: &Accounts) -> String {
    let (held, config) = (accounts.held(), accounts.config());
    let bounded = config.capacity.iter().filter(|(_, capacity)| *capacity < UNBOUNDED);
    bounded
        .fold(JsonObject::new(), |object, (resource, capacity)| {
            let one = JsonObject::new()
                .value("held", held.of(resource))
                .value("capacity", capacity)
                .value("root_reserve", config.root_reserve.of(resource));
            object.value(resource.name(), one.end())
        })
        .end()
}

fn client(client: &ClientStatus) -> String {
    JsonObject::new()
        .value("client", client.client)
        .value("pid", client.pid)
        .value("uid", client.uid)
        .text("name", &client.name)
        .value("tm_count", client.tms.len())
        .list("tms", client.tms.iter().take(TMS).map(tm))
        .value("buffers", client.buffers)
        .value("arenas", client.arenas)
        .value("bytes", client.bytes)
        .value("operations", client.operations)
        .value("totals", totals(&client.totals))
        .end()
}

fn tm(tm: &TmStatus) -> String {
    let address = quoted(&tm.address.to_string());
    JsonObject::new()
        .value("address", address)
        .value("operations", tm.operations)
        .value("dropped", tm.dropped)
        .end()
}

fn totals(totals: &Totals) -> String {
    JsonObject::new()
        .value("clients", totals.clients)
        .value("violations", totals.violations)
        .value("requests", totals.requests)
        .value("submissions", totals.submissions)
        .value("operations", totals.operations)
        .value("events", totals.events)
        .value("refused_by_policy", totals.refused_by_policy)
        .value("refused_by_quota", totals.refused_by_quota)
        .value("refused", totals.refused)
        .end()
}

fn admission(admission: &AdmissionStatus) -> String {
    JsonObject::new()
        .value("connected", admission.clients)
        .value("threads", admission.threads)
        .value("refused_users", admission.refused_users)
        .value("refused_clients", admission.refused_clients)
        .value("without_descriptors", admission.without_descriptors)
        .value("cut_off", admission.cut_off)
        .value("silent", admission.silent)
        .value("unread", admission.unread)
        .value("throttled", admission.throttled)
        .value("longest_turn", admission.longest_turn)
        .value("rested", admission.rested)
        .end()
}
