//! `nlxd`: runs the network for the programs of this host, which share memory with it.

mod args;
mod capacity;
mod config;
mod listener;
mod policy;
mod porter;
mod signals;
mod status;
mod systemd;
mod test_node;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::FromArgMatches;
use lnet_nid::NetType;
use lnet_node::{Node, NodeConfig};
use nlx_helper::accounts::AccountsConfig;
use nlx_helper::service::ServingThreads;
use nlx_helper::{Host, HostConfig};

use crate::failure::{Context, Failure};
use crate::setup::Ports;
use crate::units::plural;
use crate::{lst, output, setup};
use args::NlxdArgs;
use capacity::HostLimits;
use config::HelperConfig;
use listener::NamedListener;
use signals::{SignalReceiver, SignalRequest};
use systemd::Notify;

/// Drain time of the node once no client is served: for messages whose answers no client awaits.
const FINAL_DRAIN: Duration = Duration::from_secs(1);

/// Interval between two status lines for systemd, and between two checks of the threads if systemd
/// has no watchdog.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn main() -> ExitCode {
    let args = args::command().try_get_matches().and_then(|matches| NlxdArgs::from_arg_matches(&matches));
    let args = match args {
        Ok(args) => args,
        Err(error) => return misused(&error),
    };
    if let Some(nlxd) = args.porter {
        return porter::run(nlxd);
    }
    crate::init_log();
    let outcome = match (&args.man, args.completions) {
        (Some(folder), _) => args::write_man(folder),
        (None, Some(shell)) => args::print_completions(shell),
        (None, None) => run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_quiet() {
                output::print_error(format_args!("nlxd: {failure}"));
            }
            ExitCode::FAILURE
        }
    }
}

fn misused(error: &clap::Error) -> ExitCode {
    // An error here means that the reader has closed the pipe.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn run(args: &NlxdArgs) -> Result<(), Failure> {
    let mut node_config = setup::config(NodeConfig::new().status(true), &args.setup)?;
    let config = HelperConfig::new(&node_config, args)?;
    let ports = Ports::of(&mut node_config);
    let port = ports.tcp;
    if args.check {
        node_config.check().map_err(|error| Failure::of_node(&error, port))?;
        return output::line("the configuration is valid");
    }
    setup::use_all_descriptors();
    // Before any thread, lock or socket exists: the porter inherits nothing of this process.
    let porter =
        porter::start().map_err(|errno| Failure::at("start the porter", errno, "cannot start a process"))?;
    // Before any thread starts: all of them leave the signals to this one.
    let signals = SignalReceiver::take()?;
    end_at_any_panic();
    lnet_region::guard::install().context("cannot guard shared memory")?;
    lnet_region::closer::install().context("cannot start the thread that closes memory")?;
    let notify = Notify::from_environment()?;
    // The socket comes before the node: its lock shows that no other nlxd runs, so the node may
    // claim the NIDs.
    let listener = NamedListener::open(&config.socket)?;
    listener.give_to(&porter)?;
    let node = Arc::new(Node::start(&node_config).map_err(|error| Failure::of_node(&error, port))?);
    setup::offer_probes(&node);
    // After the node's start: the limits are then what the node's own memory leaves.
    let for_tests = config.lst.as_ref().map_or(0, |options| options.memory_max(node.partitions()));
    let limits = HostLimits::read().without_memory(for_tests);
    let accounts = limits.fill(config.host.accounts.clone());
    let accounts = AccountsConfig { operator: Some(config::operator()), ..accounts };
    let host = Host::new(node.lnet(), node.drive(), HostConfig { accounts, ..config.host.clone() });
    let socket = listener.share().context("cannot share the listening socket")?;
    let service = ServingThreads::start_with(host.clone(), socket, porter, config.service.clone())
        .context("cannot start the threads that serve clients")?;
    status::add_clients(&node, &host, &service, listener.path());
    let test = config.lst.map(|options| lst::test_node(&node, options)).transpose()?;
    let nids: Vec<String> = node.nids().iter().map(ToString::to_string).collect();
    let nids = if nids.is_empty() { "0@lo".to_string() } else { nids.join(", ") };
    let ports = match (node.o2ib(), node.nids().iter().all(|nid| nid.net().net_type() == NetType::O2IB)) {
        (Some(_), true) => format!("port {}", ports.o2ib),
        (Some(_), false) => format!("port {}, over RDMA {}", ports.tcp, ports.o2ib),
        (None, _) => format!("port {port}"),
    };
    output::line(format_args!("serving {nids} on {ports} to the clients of {}", listener.path().display()))?;
    notify.send(&format!("READY=1\nSTATUS=serving {nids}\n"));
    watch(&service, &signals, &notify);
    notify.send("STOPPING=1\nSTATUS=draining\n");
    // Before the drain, which waits until nothing is in flight.
    drop(test);
    end(&node, service, listener, &signals, config.drain)
}

/// Ends the process at any panic. A panic is a bug: state that all clients share may be half
/// changed. Clients see their connections end, and systemd starts `nlxd` again.
fn end_at_any_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Runs until a signal requests the end.
fn watch(service: &ServingThreads, signals: &SignalReceiver, notify: &Notify) {
    let mut asked = 0;
    loop {
        match signals
            .wait(Some(notify.watchdog().map_or(STATUS_INTERVAL, |every| every.min(STATUS_INTERVAL))))
        {
            Some(SignalRequest::End) => return,
            Some(SignalRequest::Reload) => {
                tracing::warn!("SIGHUP: a changed configuration takes effect when nlxd is started again");
            }
            None if service.is_responsive(&mut asked) => {
                let clients = service.admission_status().clients;
                notify.send(&format!("WATCHDOG=1\nSTATUS=serving {clients} {}\n", plural(clients, "client")));
            }
            None => tracing::error!(
                "a serving thread has not responded since the last check: the watchdog of systemd is not notified"
            ),
        }
    }
}

/// Gives operations in progress their time, then closes everything, in an order in which no event
/// is lost.
fn end(
    node: &Node,
    service: ServingThreads,
    listener: NamedListener,
    signals: &SignalReceiver,
    drain: Duration,
) -> Result<(), Failure> {
    let begun = Instant::now();
    listener.close();
    let mut again = false;
    let quiet = service.drain(drain, || {
        // A second signal ends the wait.
        again |= signals.wait(Some(Duration::ZERO)) == Some(SignalRequest::End);
        let counters = node.counters();
        again
            || (counters.msgs_alloc == 0 && counters.rst_alloc == 0)
            || service.admission_status().clients == 0
    });
    if !quiet {
        tracing::warn!(
            seconds = drain.as_secs_f64(),
            "operations are still in progress after the drain time: they are cancelled"
        );
    }
    service.stop();
    node.shutdown(if again { Duration::ZERO } else { FINAL_DRAIN });
    output::line(format_args!("stopped after {:.1} s", begun.elapsed().as_secs_f64()))
}
