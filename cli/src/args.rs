//! The command line of `nlx`.

mod calc;
mod lst;
mod selftest;
mod test_node;

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use lnet_api::MAX_SPIN;
use lnet_nid::Nid;
use lnet_node::{CptConfig, MAX_PARTITIONS, NodeConfig, PROBE_BYTES_MAX, Pattern};
use nlx::AcceptPolicy;

pub(crate) use calc::{COUNT_MAX, CalcArgs};
pub(crate) use lst::{LstArgs, LstCommand, SimulateArgs};
pub(crate) use selftest::{DeliveryArg, Helped, HelperArgs, SelftestArgs, SelftestPeerArgs};
pub(crate) use test_node::{BULK_MAX, MEMORY, TestNodeArgs};

/// LNet in user space: test it, serve it, ping and discover with it.
#[derive(Debug, Parser)]
#[command(name = "nlx", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask nodes for their NIDs, as `lctl ping` does.
    Ping(PingArgs),
    /// Show a node's NIs and features, as `lnetctl discover` does.
    Discover(DiscoverArgs),
    /// Run a node that answers pings and counts traffic, until it is stopped.
    Serve(ServeArgs),
    /// Show the statistics and state of the nodes that run on this host.
    Status(StatusArgs),
    /// Networks of this host.
    #[command(subcommand)]
    Net(NetCommand),
    /// Compute the effect of the tunables of two RDMA nodes: which values hold, what the nodes
    /// agree on, queues, pools and memory.
    #[command(name = "o2iblnd-calc")]
    O2iblndCalc(CalcArgs),
    /// Move messages and bulk between nodes and verify every byte: by default two nodes in two
    /// processes over TCP.
    Selftest(SelftestArgs),
    /// LNet's self-test: a console that drives kernel nodes and nlx nodes, and a node that they
    /// drive.
    Lst(LstArgs),
    #[command(name = "selftest-peer", hide = true)]
    SelftestPeer(SelftestPeerArgs),
    #[command(name = "selftest-helper", hide = true)]
    SelftestHelper(HelperArgs),
    #[command(name = "status-asker", hide = true)]
    StatusAsker(StatusAskerArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages of all commands to a folder.
    Man(ManArgs),
}

impl Command {
    /// Returns whether the command prints JSON, also for its failures.
    pub(crate) fn json(&self) -> bool {
        match self {
            Command::Ping(args) => args.json,
            Command::Discover(args) => args.json,
            Command::Serve(args) => args.json,
            Command::Status(args) => args.json,
            Command::Net(NetCommand::Show(args)) => args.json,
            Command::Net(NetCommand::Devices(args)) => args.json,
            Command::O2iblndCalc(args) => args.json,
            Command::Selftest(args) => args.json,
            Command::Lst(args) => args.json(),
            Command::SelftestPeer(_)
            | Command::SelftestHelper(_)
            | Command::StatusAsker(_)
            | Command::Completions(_)
            | Command::Man(_) => false,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Print a line of statistics at this interval; SIGUSR1 prints one at any time.
    #[arg(long, value_parser = seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    pub stats: Option<Duration>,
    /// Seconds that messages in progress get to be sent when the node is stopped; 0 ends them at
    /// once.
    #[arg(long, default_value = "1", value_parser = seconds_or_none, allow_negative_numbers = true, value_name = "SECONDS")]
    pub drain: Duration,
    /// Be a test node of LNet's self-test as well: see 'nlx lst'.
    #[arg(long)]
    pub lst: bool,
    /// Print one JSON object on each line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub test_node: TestNodeArgs,
}

/// The configuration of a node.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct SetupArgs {
    /// A network: an interface or an address, for instance 'tcp(eth0)' or 'tcp(127.0.0.2)', over
    /// RDMA 'o2ib(ib0)' or 'o2ib(mlx5_0)'; 'tcp(eth0)[0,2]' binds it to CPU partitions. May be
    /// given several times; replaces the networks of a configuration file. Without networks: 'tcp',
    /// the first interface that can be used.
    #[arg(long, value_name = "NET")]
    pub net: Vec<String>,
    /// A configuration file: lnet.conf (YAML), lustre.conf (modprobe), or TOML. Options override
    /// the file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// TCP port to listen on, and on which the peers listen (988). Ports below 1024 need root or
    /// CAP_NET_BIND_SERVICE.
    #[arg(long, value_name = "PORT", value_parser = whole::<u16>(1..=PORT_MAX), allow_negative_numbers = true)]
    pub accept_port: Option<u16>,
    /// Port of networks over RDMA (o2ib), on which the peers listen as well (987). Ports below 1024
    /// need root or CAP_NET_BIND_SERVICE.
    #[arg(long, value_name = "PORT", value_parser = whole::<u16>(1..=PORT_MAX), allow_negative_numbers = true)]
    pub service: Option<u16>,
    /// Peers whose TCP connections are accepted; by default `hello` above port 1023, else `secure`.
    #[arg(long, value_enum)]
    pub accept: Option<Accept>,
    #[command(flatten)]
    pub cpus: CpuArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    /// The process whose nodes are shown. Without it: the node that runs, or one line for each of
    /// several nodes.
    #[arg(value_name = "PID", value_parser = whole::<u32>(1..=u64::from(u32::MAX)), allow_negative_numbers = true, conflicts_with = "all")]
    pub pid: Option<u32>,
    /// Show every node in full.
    #[arg(long)]
    pub all: bool,
    /// Seconds for finding the nodes of other users and for the answers of all nodes together.
    #[arg(long, default_value = "2", value_parser = seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    pub timeout: Duration,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Accept descriptors in the answers of other users' nodes on every kernel, as before Linux
    /// 6.16.
    #[arg(long, hide = true)]
    pub accept_descriptors: bool,
}

/// Arguments of a process that `nlx status` starts to visit a folder.
#[derive(Debug, ClapArgs)]
pub(crate) struct StatusAskerArgs {
    /// The arguments that `lnet_node::Asker` adds.
    #[arg(trailing_var_arg = true)]
    pub task: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// Show the networks that a configuration gives on this host, without starting them.
    Show(NetShowArgs),
    /// Show what this host has for networks over RDMA: devices, ports, GIDs; what is wrong, and
    /// what to do.
    Devices(NetDevicesArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NetDevicesArgs {
    /// List every GID of every port.
    #[arg(long)]
    pub gids: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NetShowArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Explain for each interface of this host why it was chosen or not.
    #[arg(long)]
    pub why: bool,
    /// Print every tunable with its value.
    #[arg(long)]
    pub tunables: bool,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "yaml")]
    pub json: bool,
    /// Print YAML, as `lnetctl net show` does.
    #[arg(long)]
    pub yaml: bool,
}

/// Use of the host's processors: the tunables of CPU partitions, with LNet's names (S-315), and the
/// spin limit.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct CpuArgs {
    /// Number of CPU partitions that a node's state is split into, up to one for each CPU; 0
    /// chooses by the CPUs: 1 if there are up to 4. A pattern overrides it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=MAX_PARTITIONS as u64), allow_negative_numbers = true)]
    pub cpu_npartitions: usize,
    /// CPUs of each partition, for instance '0[0-3] 1[4-7]'; 'N 0[0] 1[1]' names NUMA nodes, 'N'
    /// makes one partition of each.
    #[arg(long, value_name = "TEXT")]
    pub cpu_pattern: Option<Pattern>,
    #[command(flatten)]
    pub spin: SpinArg,
}

/// The spin limit of waiting threads.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct SpinArg {
    /// Spin limit in microseconds: the time for which a waiting thread polls before it sleeps, while
    /// that shortens waits. 0 turns spinning off. The default is 50, or the value in the
    /// configuration file.
    #[arg(long, value_name = "MICROSECONDS", value_parser = whole::<u64>(0..=MAX_SPIN.as_micros() as u64), allow_negative_numbers = true)]
    pub spin_us: Option<u64>,
}

impl SpinArg {
    pub(crate) fn time(self) -> Option<Duration> {
        self.spin_us.map(Duration::from_micros)
    }

    /// Returns the same option as arguments, for another process.
    pub(crate) fn to_args(self) -> impl Iterator<Item = String> {
        self.spin_us.into_iter().flat_map(|time| ["--spin-us".to_string(), time.to_string()])
    }

    /// Sets the spin limit, if the option was given.
    pub(crate) fn apply(self, config: NodeConfig) -> NodeConfig {
        match self.time() {
            Some(time) => config.spin(time),
            None => config,
        }
    }
}

impl CpuArgs {
    /// Sets the options that were given; all others stay as configured.
    pub(crate) fn apply(&self, config: NodeConfig) -> NodeConfig {
        let config = self.spin.apply(config);
        if self.cpu_npartitions == 0 && self.cpu_pattern.is_none() {
            return config;
        }
        config.cpt(CptConfig {
            npartitions: self.cpu_npartitions,
            pattern: self.cpu_pattern.clone(),
            ..CptConfig::default()
        })
    }

    /// Returns the same options as arguments, for another process.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let number = ["--cpu-npartitions".to_string(), self.cpu_npartitions.to_string()];
        let pattern =
            self.cpu_pattern.iter().flat_map(|text| ["--cpu-pattern".to_string(), text.to_string()]);
        number.into_iter().chain(pattern).chain(self.spin.to_args()).collect()
    }
}

/// The node that sends requests: NID and ports.
#[derive(Debug, ClapArgs)]
pub(crate) struct AskingArgs {
    /// The NID to ask from; by default the address from which this host routes to the node.
    #[arg(long, value_name = "NID")]
    pub from: Option<Nid>,
    /// Port on which all nodes of the network listen.
    #[arg(long, value_name = "PORT", default_value_t = lnet_node::DEFAULT_ACCEPT_PORT, value_parser = whole::<u16>(1..=PORT_MAX), allow_negative_numbers = true)]
    pub accept_port: u16,
    /// Port on which all nodes of a network over RDMA (o2ib) listen.
    #[arg(long, value_name = "PORT", default_value_t = 987, value_parser = whole::<u16>(1..=PORT_MAX), allow_negative_numbers = true)]
    pub service: u16,
    #[command(flatten)]
    pub spin: SpinArg,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PingArgs {
    /// The nodes to ask, for instance 10.0.0.1@tcp.
    #[arg(required = true, value_name = "NID")]
    pub nids: Vec<Nid>,
    /// Number of pings, each with a line for its answer, and statistics at the end; 0 pings until
    /// it is stopped.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub count: Option<u64>,
    /// Seconds between two pings.
    #[arg(long, default_value = "1", value_parser = seconds, allow_negative_numbers = true, value_name = "SECONDS", requires = "count")]
    pub interval: Duration,
    /// Report the TCP connections to each node, which show problems of long messages: segments,
    /// path MTU, round trip, retransmissions, unacknowledged bytes. No message of this size is sent
    /// without --to-nlx. K or KiB, and M or MiB, may follow the number.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<usize>(1..=PROBE_BYTES_MAX as u64), allow_negative_numbers = true)]
    pub size: Option<usize>,
    /// The nodes run 'nlx serve', 'nlx selftest --server' or 'nlxd': send each of them a PUT of
    /// --size bytes, which it acknowledges and discards. A kernel node drops it, and logs that.
    #[arg(long, requires = "size")]
    pub to_nlx: bool,
    /// Seconds to wait for an answer.
    #[arg(long, default_value = "10", value_parser = seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    pub timeout: Duration,
    #[command(flatten)]
    pub asking: AskingArgs,
    /// Print JSON: one object, or with `--count` one on each line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiscoverArgs {
    /// The node to discover, for instance 10.0.0.1@tcp.
    pub nid: Nid,
    /// Also send this node's NIs to the node, and wait until it has accepted them (`lnetctl
    /// discover --force`).
    #[arg(long)]
    pub push: bool,
    /// Seconds for all steps together.
    #[arg(long, default_value = "10", value_parser = seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    pub timeout: Duration,
    #[command(flatten)]
    pub asking: AskingArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ManArgs {
    /// The folder for the pages.
    pub folder: std::path::PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell whose completion script is printed.
    pub shell: clap_complete::Shell,
}

/// Peers whose connections a node accepts.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Accept {
    /// Source ports below 1024 only: what a kernel node does by default.
    Secure,
    /// Every port; a peer from a port above 1023 is a userspace node named after its address and
    /// port.
    All,
    /// No connections: this node only connects.
    None,
    /// Every port; NID and PID in the handshake are trusted. Nothing is authenticated.
    Hello,
}

impl From<Accept> for AcceptPolicy {
    fn from(accept: Accept) -> AcceptPolicy {
        match accept {
            Accept::Secure => AcceptPolicy::Secure,
            Accept::All => AcceptPolicy::All,
            Accept::None => AcceptPolicy::None,
            Accept::Hello => AcceptPolicy::Hello,
        }
    }
}

/// The highest port.
const PORT_MAX: u64 = u16::MAX as u64;

/// The longest duration of an option, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// Returns a parser of a whole number in this range.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            format!("'{text}' is not a whole number from {} to {}", range.start(), range.end())
        })
    }
}

/// Returns a parser of a number of bytes in this range: plain, or with K, M or G, or KiB, MiB or
/// GiB, which mean the same.
pub(crate) fn bytes<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" => Some(0),
            "K" | "KiB" => Some(10),
            "M" | "MiB" => Some(20),
            "G" | "GiB" => Some(30),
            _ => None,
        };
        let number =
            digits.parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
        number.filter(|number| range.contains(number)).and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            format!(
                "'{text}' is not a number of bytes from {} to {}; K, M, G or KiB, MiB, GiB may follow it, for instance 64K",
                range.start(),
                range.end()
            )
        })
    }
}

/// Parses a duration in seconds, with fractions: above 0, at most a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let refused = || format!("'{text}' is not a number of seconds above 0 and up to {SECONDS_MAX}");
    seconds_or_none(text).ok().filter(|duration| !duration.is_zero()).ok_or_else(refused)
}

/// Parses a duration in seconds, with fractions: from 0 to a day.
pub(crate) fn seconds_or_none(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=SECONDS_MAX).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err(format!("'{text}' is not a number of seconds from 0 to {SECONDS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units() {
        let read = bytes::<u64>(1..=u64::MAX);
        for (text, expected) in
            [("1", 1), ("64K", 64 << 10), ("64KiB", 64 << 10), ("3M", 3 << 20), ("3MiB", 3 << 20)]
        {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        assert_eq!((read("2G"), read("2GiB")), (Ok(2 << 30), Ok(2 << 30)));
        for text in ["", "K", "0", "-1", "1.5M", "1 K", "1k", "1KB", "17179869184G", "1é", "0x10"] {
            let refused = read(text).unwrap_err();
            assert!(
                refused.starts_with(&format!("'{text}' is not a number of bytes from 1 to ")),
                "{refused}"
            );
        }
        assert_eq!(bytes::<u32>(1..=1 << 20)("1M"), Ok(1 << 20));
        assert!(bytes::<u32>(1..=1 << 20)("1025K").unwrap_err().contains("to 1048576"));
    }
}
