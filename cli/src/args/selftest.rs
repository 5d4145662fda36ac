//! The options of the self-test.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use lnet_api::Errno;

use super::{CpuArgs, PORT_MAX, bytes, seconds, seconds_or_none, whole};
use crate::failure::Failure;

#[derive(Debug, ClapArgs)]
pub(crate) struct SelftestArgs {
    /// `tcp`: two nodes in two processes, 127.0.0.1@tcp and 127.0.0.2@tcp;
    /// 'o2ib(10.0.0.1,10.0.0.2)', or `o2ib` where an interface with RDMA has two addresses: the
    /// same over RDMA. `lo`: everything in one process. With --server or --client any network of
    /// this host, for instance 'tcp(eth0)'.
    #[arg(long, value_name = "NET", default_value = "tcp")]
    pub net: String,
    /// Serve the clients of other hosts, until it is stopped. Every host that reaches the node can
    /// use it.
    #[arg(long, conflicts_with_all = ["client", "duration", "size", "concurrency", "clients", "count", "seed", "faults", "html"])]
    pub server: bool,
    /// `in-process`: the programs of the test run the network themselves. `helper`: each node of
    /// the test is behind a separate `nlxd`, which the self-test starts and ends; it must be in the
    /// folder of `nlx`.
    #[arg(long, value_enum, default_value_t = ModeArg::InProcess)]
    pub mode: ModeArg,
    /// With --mode helper: the socket of a running helper to use instead. With one socket, clients
    /// and the server are its programs; with several, the clients use the first, and each of the
    /// others has a server.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["net", "accept_port", "cpu_npartitions", "cpu_pattern"])]
    pub socket: Vec<PathBuf>,
    /// Test against the servers at these NIDs, or at the addresses that they print; may be given
    /// several times.
    #[arg(long, value_name = "ADDRESS")]
    pub client: Vec<String>,
    /// Seconds for each phase.
    #[arg(long, default_value = "3", value_parser = seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    pub duration: Duration,
    /// End a phase after this number of operations of each client, even if its time is not over.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX), allow_negative_numbers = true)]
    pub count: Option<u64>,
    /// Bytes of one bulk transfer, 1 to 1 MiB; K or KiB, and M or MiB, may follow the number.
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = bytes::<u32>(1..=1 << 20), allow_negative_numbers = true)]
    pub size: u32,
    /// Bulk transfers in flight of each client, 1 to 256. The message rate is measured with at
    /// least 64 in flight, the ping-pong with one.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<u32>(1..=256), allow_negative_numbers = true)]
    pub concurrency: u32,
    /// Number of clients, each a thread with a separate transfer machine, 1 to 32.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=32), allow_negative_numbers = true)]
    pub clients: u32,
    /// Seed of the patterns, the order of the mixed load and the faults; random by default.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Drop and delay messages by these rules, which use the seed: 'drop 1/100', 'drop every 50
    /// put,get', 'delay 1ms..20ms 1/10 put'; several with semicolons. The report shows exactly the
    /// injected losses; any further loss is a failure.
    #[arg(long, value_name = "RULES")]
    pub faults: Option<String>,
    /// Seconds after which an operation is lost; by default 10, with faults 1.
    #[arg(long, value_parser = seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    pub timeout: Option<Duration>,
    /// Number of tries of an operation that is lost, 1 to 16.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=16), allow_negative_numbers = true)]
    pub tries: u32,
    /// Messages per receive buffer, 1 to 1024.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole::<u32>(1..=1024), allow_negative_numbers = true)]
    pub messages: u32,
    /// Seconds that servers wait before they move bulk.
    #[arg(long, default_value = "0", value_parser = seconds_or_none, allow_negative_numbers = true, value_name = "SECONDS")]
    pub server_delay: Duration,
    /// Delivery of events to nodes: a thread that waits, or callbacks on the transfer machine's own
    /// thread.
    #[arg(long, value_enum, default_value_t = DeliveryArg::Wait)]
    pub delivery: DeliveryArg,
    /// Port on which all nodes listen; 0 selects a free one, or 9988 with --server and --client.
    #[arg(long, value_name = "PORT", default_value_t = 0, value_parser = whole::<u16>(0..=PORT_MAX), allow_negative_numbers = true)]
    pub accept_port: u16,
    #[command(flatten)]
    pub cpus: CpuArgs,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Write the report with charts to a file: one self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Make the servers corrupt a byte now and then: the self-test must fail.
    #[arg(long, hide = true)]
    pub spoil: bool,
}

/// The process that runs the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    InProcess,
    Helper,
}

impl ModeArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ModeArg::InProcess => "in-process",
            ModeArg::Helper => "helper",
        }
    }
}

/// The helpers of the nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Helped<'a> {
    /// None: the nodes run the network themselves.
    No,
    /// A separate helper for each node.
    Own,
    /// Helpers that run already; at least one.
    Behind(&'a [PathBuf]),
}

impl SelftestArgs {
    /// Returns the helpers of the nodes; fails for options that do not fit the mode.
    pub(crate) fn helped(&self) -> Result<Helped<'_>, Failure> {
        let refused = |why: &str, hint: &str| Err(Failure::at("arguments", Errno::EINVAL, why).hint(hint));
        match (self.mode, self.socket.as_slice()) {
            (ModeArg::InProcess, []) => Ok(Helped::No),
            (ModeArg::InProcess, _) => {
                refused("--socket names a helper, and the network is to run in-process", "add --mode helper")
            }
            (ModeArg::Helper, _) if self.faults.is_some() => refused(
                "--faults are rules of a node, and with --mode helper the nodes are the helpers'",
                "--mode in-process; or give nlxd a configuration with faults, and see what is lost",
            ),
            (ModeArg::Helper, []) => Ok(Helped::Own),
            (ModeArg::Helper, sockets) => Ok(Helped::Behind(sockets)),
        }
    }
}

/// Delivery of events to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryArg {
    Wait,
    Callback,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SelftestPeerArgs {
    #[arg(long, default_value = "")]
    pub net: String,
    #[arg(long, default_value_t = 0)]
    pub accept_port: u16,
    /// Socket of the helper to use, instead of a network.
    #[arg(long, conflicts_with_all = ["net", "accept_port"])]
    pub socket: Option<PathBuf>,
    #[command(flatten)]
    pub cpus: CpuArgs,
}

/// The helper of a node of a self-test.
#[derive(Debug, ClapArgs)]
pub(crate) struct HelperArgs {
    #[arg(long)]
    pub program: PathBuf,
    #[arg(long)]
    pub socket: PathBuf,
    #[arg(long)]
    pub net: String,
    #[arg(long)]
    pub accept_port: Option<u16>,
    #[command(flatten)]
    pub cpus: CpuArgs,
}
