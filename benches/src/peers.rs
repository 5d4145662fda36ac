//! `--peers`: the same sizes over TCP with libfabric and UCX, measured by their own programs.
//!
//! Each comparison is a separate row, with nlx's side of the row to which it belongs, so the rounds
//! are interleaved and both sides pinned as in all rows. Equalities and differences:
//!
//! | | ours | `fi_pingpong` | `ucx_perftest` |
//! | --- | --- | --- | --- |
//! | 64 bytes, 4 KiB | half a round trip | half a round trip | `tag_lat`: half a round trip |
//! | 1 MiB, one in flight | PUT and its ACK, or GET and its REPLY | 1 MiB there, then 1 MiB back | `tag_bw -O 1`: one way |
//! | 1 MiB, 8 in flight | over 8 buffers on each side | – | `tag_bw -O 8`: one way, over one buffer |
//! | waiting | the default, or polling: rows that sleep are not compared | polls | polls |
//! | congestion control | [`anchors::CONGESTION`](crate::anchors::CONGESTION) | the namespace's | the namespace's |
//!
//! Neither program has an option for the congestion control. With `--peers` all rows therefore run
//! in a new network namespace whose default is nlx's ([`enter_namespace`]); that needs root. The
//! anchors' names contain the peers' (the key `congestion` of the JSON lines is nlx's). A peer that
//! cannot be measured is no failure.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use crate::anchors::CONGESTION;
use crate::cores::{self, Cores};
use crate::error::{BenchError, Result};
use crate::measure::{Round, Side};
use crate::meter::Sample;
use crate::rows::{Goal, Row};
use crate::server::STEP_TIMEOUT;

const SMALL: usize = 64;
const PAGE: usize = 4096;
const BULK: usize = 1 << 20;

/// Interval between two checks of a program.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// A network library, and its program that measures it.
struct Peer {
    name: &'static str,
    program: &'static str,
    /// The Debian package of the program.
    package: &'static str,
    /// 64 bytes: microseconds one way.
    latency_64: Side,
    /// 4 KiB: microseconds one way.
    latency_4k: Side,
    /// One in flight: GB/s.
    bandwidth: Side,
    /// 8 in flight: GB/s.
    bandwidth_8: Option<Side>,
}

static PEERS: [Peer; 2] = [
    Peer {
        name: "libfabric",
        program: FI_PINGPONG,
        package: "libfabric-bin",
        latency_64: |round| Ok(Sample::of(fi_pingpong(round, SMALL, "usec/xfer")?)),
        latency_4k: |round| Ok(Sample::of(fi_pingpong(round, PAGE, "usec/xfer")?)),
        bandwidth: |round| Ok(Sample::of(fi_pingpong(round, BULK, "MB/sec")? / 1e3)),
        bandwidth_8: None,
    },
    Peer {
        name: "UCX",
        program: UCX_PERFTEST,
        package: "ucx-utils",
        latency_64: |round| Ok(Sample::of(ucx_perftest(round, "tag_lat", SMALL, 1, "overall_lat")?)),
        latency_4k: |round| Ok(Sample::of(ucx_perftest(round, "tag_lat", PAGE, 1, "overall_lat")?)),
        bandwidth: |round| ucx_bandwidth(round, 1),
        bandwidth_8: Some(|round| ucx_bandwidth(round, 8)),
    },
];

/// The file with the default of a network namespace.
const SYSTEMS_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Moves this thread, and all that it starts, to a network namespace that has loopback alone and
/// nlx's congestion control, unless the system's is the same. Prints a message if it cannot.
pub(crate) fn enter_namespace() {
    if congestion() == CONGESTION {
        return;
    }
    let up =
        || Command::new("ip").args(["link", "set", "lo", "up"]).status().is_ok_and(|status| status.success());
    let entered = unshare(CloneFlags::CLONE_NEWNET).is_ok() && up();
    if !entered || std::fs::write(SYSTEMS_CONGESTION, CONGESTION).is_err() {
        eprintln!(
            "nlx-bench: peers have the congestion control {}, nlx {CONGESTION}: only root can have a namespace with ours",
            congestion()
        );
    }
}

fn congestion() -> String {
    std::fs::read_to_string(SYSTEMS_CONGESTION).unwrap_or_default().trim().to_string()
}

/// Returns the rows, each followed by its comparisons with the installed peers; prints the missing
/// ones.
pub(crate) fn with_peers(rows: &[&'static Row]) -> Vec<&'static Row> {
    let (present, absent): (Vec<_>, Vec<_>) = PEERS.iter().partition(|peer| is_installed(peer.program));
    for Peer { program, package, .. } in absent {
        eprintln!("nlx-bench: not measured: {program} is not installed ({package})");
    }
    let system = congestion();
    let mut all = Vec::new();
    for &row in rows {
        all.push(row);
        all.extend(present.iter().filter_map(|peer| comparison(row, peer, &system)));
    }
    all
}

/// Returns a row's comparison with a peer, if there is one. It is leaked: rows live until the
/// program ends.
fn comparison(row: &'static Row, peer: &Peer, congestion: &str) -> Option<&'static Row> {
    let (network, measure) =
        row.name.split_once('/').filter(|(network, _)| ["tcp", "xo"].contains(network))?;
    let (anchor, goal, how) = match measure {
        "pingpong-64" if network == "xo" => {
            (peer.latency_64, Goal::AtMost(1.0), "polls, ours is the default")
        }
        "pingpong-64-default" => (peer.latency_64, Goal::AtMost(1.0), "polls, ours is the default"),
        "pingpong-64-polling" => (peer.latency_64, Goal::AtMost(1.0), "polls, as ours"),
        "pingpong-4k-polling" => (peer.latency_4k, Goal::AtMost(1.0), "polls, as ours"),
        "get-1m" | "put-1m" => (peer.bandwidth, Goal::AtLeast(1.0), "polls, ours is the default"),
        "get-1m-polling" | "put-1m-polling" => (peer.bandwidth, Goal::AtLeast(1.0), "polls, as ours"),
        "get-1m-8" | "put-1m-8" => {
            (peer.bandwidth_8?, Goal::AtLeast(1.0), "polls, over one buffer, ours is the default, over 8")
        }
        _ => return None,
    };
    let anchor_name = format!("{} {} (tcp, {congestion}; {how})", peer.name, peer.program).leak();
    let name = format!("{network}/{measure} vs {}", peer.name).leak();
    Some(Box::leak(Box::new(Row {
        name,
        unit: row.unit,
        ours: row.ours,
        anchor_name,
        anchor,
        goal,
        near: None,
        second: None,
    })))
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the number of transfers of a round. The programs count instead of reading the clock: a
/// fifth of the round on an idle machine, so that a loaded one, where polling is several times
/// slower, still finishes within [`STEP_TIMEOUT`].
fn transfers(round: &Round, size: usize) -> u128 {
    let slow_us = if size < BULK { 50 } else { 1000 };
    (round.time.as_micros() / slow_us).max(1)
}

const FI_PINGPONG: &str = "fi_pingpong";

/// Returns one column of `fi_pingpong`'s result. Its MB are 10^6 bytes, one direction at a time.
fn fi_pingpong(round: &Round, size: usize, column: &str) -> Result<f64> {
    let port = free_port()?;
    let side = |port_option: &str| {
        let mut command = Command::new(FI_PINGPONG);
        command.args(["-p", "tcp", "-e", "msg", "-S", &size.to_string()]);
        command.args(["-I", &transfers(round, size).to_string(), port_option, &port.to_string()]);
        command
    };
    let mut client = side("-P");
    client.arg(Ipv4Addr::LOCALHOST.to_string());
    let text = exchange(FI_PINGPONG, side("-B"), client, port, round.cores, STEP_TIMEOUT)?;
    figure(FI_PINGPONG, &text, column)
}

const UCX_PERFTEST: &str = "ucx_perftest";

fn ucx_bandwidth(round: &Round, in_flight: usize) -> Result<Sample> {
    // The program calls 1 MiB MB.
    let mebibytes = ucx_perftest(round, "tag_bw", BULK, in_flight, "overall_bw")?;
    Ok(Sample::of(mebibytes * BULK as f64 / 1e9))
}

/// Returns one column of `ucx_perftest`'s result with `in_flight` transfers in flight; `overall`
/// ones are means of all iterations.
fn ucx_perftest(round: &Round, test: &str, size: usize, in_flight: usize, column: &str) -> Result<f64> {
    let port = free_port()?;
    let side = || {
        let mut command = Command::new(UCX_PERFTEST);
        command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", "lo").args(["-p", &port.to_string()]);
        command
    };
    let count = transfers(round, size);
    let mut client = side();
    client.args(["-f", "-v", "-O", &in_flight.to_string(), "-t", test]);
    client.args(["-s", &size.to_string(), "-n", &count.to_string()]);
    client.args(["-w", &(count / 10).to_string(), &Ipv4Addr::LOCALHOST.to_string()]);
    let text = exchange(UCX_PERFTEST, side(), client, port, round.cores, STEP_TIMEOUT)?;
    figure(UCX_PERFTEST, &text, column)
}

/// Returns the figure in the column of this title, in the first line below the titles.
fn figure(program: &'static str, text: &str, title: &str) -> Result<f64> {
    let cells = |line| str::split(line, [' ', ',']).filter(|cell| !cell.is_empty()).collect();
    let lines: Vec<Vec<&str>> = text.lines().map(cells).collect();
    let below = |pair: &[Vec<&str>]| {
        let index = pair[0].iter().position(|&cell| cell == title)?;
        pair[1].get(index)?.parse().ok()
    };
    let found = lines.windows(2).find_map(below);
    found.ok_or_else(|| wrong(program, format!("printed no {title}: '{}'", text.trim())))
}

/// Runs both sides of a program, each on its core, and returns the client's output. Each step must
/// end within `timeout`.
pub(crate) fn exchange(
    program: &'static str,
    mut server: Command,
    mut client: Command,
    port: u16,
    cores: Cores,
    timeout: Duration,
) -> Result<String> {
    let start_server = || {
        // The program inherits the core of the thread that starts it.
        cores::pin(cores.server)?;
        Running::start(program, server.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let server = std::thread::scope(|scope| scope.spawn(start_server).join());
    let mut server = server.map_err(|_| wrong(program, "could not be started"))??;
    server.wait_until(timeout, "listen", |child| Ok(is_listening(port) || child.try_wait()?.is_some()))?;
    cores::pin(cores.client)?;
    Running::start(program, client.stdout(Stdio::piped()).stderr(Stdio::piped()))?.output(timeout)
}

/// A program, which is killed when this is dropped, if it has not ended.
struct Running {
    program: &'static str,
    child: Child,
}

impl Running {
    fn start(program: &'static str, command: &mut Command) -> Result<Running> {
        match command.stdin(Stdio::null()).spawn() {
            Ok(child) => Ok(Running { program, child }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(wrong(program, "is not installed")),
            Err(error) => Err(wrong(program, format!("could not be started: {error}"))),
        }
    }

    fn wait_until(
        &mut self,
        bound: Duration,
        action: &str,
        mut done: impl FnMut(&mut Child) -> std::io::Result<bool>,
    ) -> Result<()> {
        let begin = Instant::now();
        while !done(&mut self.child).map_err(BenchError::system("wait for a peer's program"))? {
            if begin.elapsed() >= bound {
                return Err(wrong(self.program, format!("did not {action} within {} s", bound.as_secs())));
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Returns the output of the program once it has succeeded. It prints less than the capacity of
    /// a pipe.
    fn output(mut self, bound: Duration) -> Result<String> {
        self.wait_until(bound, "end", |child| Ok(child.try_wait()?.is_some()))?;
        let (mut text, mut complaint) = (String::new(), String::new());
        let read = self.child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text));
        read.map_err(BenchError::system("read from a peer's program"))?;
        if let Some(mut pipe) = self.child.stderr.take() {
            // A partial text is enough for the message.
            let _ = pipe.read_to_string(&mut complaint);
        }
        let status = self.child.wait().map_err(BenchError::system("wait for a peer's program"))?;
        // UCX prints errors on its standard output.
        let last = [&text, &complaint].iter().flat_map(|lines| lines.lines()).last().unwrap_or_default();
        if status.success() {
            Ok(text)
        } else {
            Err(wrong(self.program, format!("has failed: {status} {last}")))
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn wrong(program: &'static str, problem: impl Into<String>) -> BenchError {
    BenchError::Peer { program, problem: problem.into() }
}

/// Returns a free port. The programs need one as an argument, and their defaults may be in use.
pub(crate) fn free_port() -> Result<u16> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(BenchError::system("find a free port"))
}

/// Returns whether a process listens on the port. Connecting to it would be taken for the client.
fn is_listening(port: u16) -> bool {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).any(|line| listens(line, port))
}

/// Returns whether a line of `/proc/net/tcp` is a listener (state 0A) on the port.
fn listens(line: &str, port: u16) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let is_port = fields.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
    is_port && fields.nth(1) == Some("0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `fi_pingpong -p tcp -e msg -S 1048576 -I 500` of libfabric 1.17.0.
    const FI: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
1m      500     =500     1000m       1.99s    527.41    1988.16       0.00
";

    /// Output of `ucx_perftest -f -v -t tag_bw -s 1048576 -n 1000 -w 100` of UCX 1.13.1.
    const UCX: &str = "\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
1000,722.901,1835.573,1427.002,544.79,700.77,545,701
";

    #[test]
    fn both_programs_figures_are_found_below_their_titles() {
        let [megabytes, microseconds] = ["MB/sec", "usec/xfer"].map(|title| figure("", FI, title).unwrap());
        assert_eq!((megabytes, microseconds), (527.41, 1988.16));
        let [mebibytes, latency] = ["overall_bw", "overall_lat"].map(|title| figure("", UCX, title).unwrap());
        assert_eq!((mebibytes, latency), (700.77, 1427.002));
        // The units of each: 10^6 bytes, and 2^20 bytes.
        assert!((megabytes * microseconds / BULK as f64 - 1.0).abs() < 1e-4);
        assert!((mebibytes * latency / 1e6 - 1.0).abs() < 1e-4);
    }

    #[test]
    fn other_output_is_no_figure() {
        for text in ["", "bytes MB/sec", "bytes MB/sec\n64", "bytes MB/sec\n64 many"] {
            assert!(figure(FI_PINGPONG, text, "MB/sec").unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn listeners_are_distinguished_from_connections_and_other_ports() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(is_listening(listener.local_addr().unwrap().port()));
        let line =
            "   0: 0100007F:B9E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1";
        assert!(listens(line, 0xb9e8) && !listens(line, 0x9e8));
        assert!(!listens(&line.replace(" 0A ", " 01 "), 0xb9e8));
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_fails_or_is_missing_is_named() {
        let run = |args: &[&str], bound| {
            let mut command = Command::new(args[0]);
            let started =
                Running::start("it", command.args(&args[1..]).stdout(Stdio::piped()).stderr(Stdio::piped()));
            started.and_then(|running| running.output(bound)).map_err(|error| error.to_string())
        };
        assert_eq!(run(&["sh", "-c", "read x; echo said"], STEP_TIMEOUT).unwrap(), "said\n");
        assert_eq!(run(&["sleep", "600"], Duration::ZERO).unwrap_err(), "it did not end within 0 s");
        assert!(
            run(&["sh", "-c", "echo why >&2; exit 3"], STEP_TIMEOUT).unwrap_err().ends_with("status: 3 why")
        );
        assert_eq!(run(&["/no/such/program"], STEP_TIMEOUT).unwrap_err(), "it is not installed");
    }

    #[test]
    fn only_rows_that_peers_have_too_are_compared() {
        let compared = |peer| {
            let rows = crate::rows::all().filter_map(move |row| comparison(row, peer, "cubic"));
            rows.map(|row| row.name).collect::<Vec<_>>()
        };
        let both = "tcp/pingpong-64-polling tcp/pingpong-64-default tcp/pingpong-4k-polling tcp/get-1m \
                    tcp/get-1m-polling tcp/put-1m tcp/put-1m-polling xo/pingpong-64 xo/get-1m xo/put-1m";
        let both = both.split_whitespace().map(str::to_string);
        assert_eq!(compared(&PEERS[0]), both.clone().map(|row| row + " vs libfabric").collect::<Vec<_>>());
        let eight = ["tcp/get-1m-8", "tcp/put-1m-8"].map(str::to_string);
        let mut with_ucx: Vec<_> = both.chain(eight).map(|row| row + " vs UCX").collect();
        let mut found = compared(&PEERS[1]);
        with_ucx.sort();
        found.sort_unstable();
        assert_eq!(found, with_ucx);
    }
}
