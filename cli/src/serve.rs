//! `nlx serve`: a node that answers pings until it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lnet_api::{EventFd, Sleeper, wait_until};
use lnet_nid::Nid;
use lnet_node::{Node, NodeConfig};
use nix::sys::signal::{SigSet, Signal};

use crate::args::ServeArgs;
use crate::failure::{Context, Failure};
use crate::output;

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    // Blocked before any thread starts, so that all threads leave the signals to the one that waits for them.
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block().context("cannot block signals")?;
    let node = Node::start(&config(args)?)?;
    for nid in node.nids() {
        output::line(format_args!("serving {nid} on port {}", args.accept_port))?;
    }
    drive_until_stopped(&node, signals)?;
    let counters = node.counters();
    node.shutdown(Duration::from_secs(1));
    output::line(format_args!(
        "stopped: {} messages received ({} bytes), {} sent ({} bytes), {} dropped",
        counters.recv_count,
        counters.recv_length,
        counters.send_count,
        counters.send_length,
        counters.drop_count
    ))
}

fn config(args: &ServeArgs) -> Result<NodeConfig, Failure> {
    let mut config = NodeConfig::new().accept_port(args.accept_port).cpt(args.partitions.config());
    for net in &args.net {
        config = config.net(net)?;
    }
    if let Some(accept) = args.accept {
        config = config.accept(accept.into());
    }
    let nids = config.nids()?;
    tracing::info!(nids = ?nids.iter().map(Nid::to_string).collect::<Vec<_>>(), "starting");
    Ok(config)
}

/// This thread drives the node; another one waits for the signal that ends it.
fn drive_until_stopped(node: &Node, signals: SigSet) -> Result<(), Failure> {
    let sleeper: Arc<dyn Sleeper> = Arc::new(EventFd::new().context("cannot make an eventfd")?);
    let stopped = Arc::new(AtomicBool::new(false));
    let (waker, flag) = (sleeper.clone(), stopped.clone());
    std::thread::Builder::new()
        .name("nlx-signals".into())
        .spawn(move || {
            let _ = signals.wait();
            flag.store(true, Ordering::SeqCst);
            waker.wake();
        })
        .context("cannot start the signal thread")?;
    wait_until(&*node.drive(), &sleeper, None, || stopped.load(Ordering::SeqCst));
    Ok(())
}
