//! Runs many seeds of the simulator, or measures what peers and buffers cost.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lnet_sim::ib::{DEFAULT_IB_STEPS, IbScenario, IbSeen};
use lnet_sim::tcp::{DEFAULT_TCP_STEPS, TcpScenario, TcpSeen};
use lnet_sim::{DEFAULT_STEPS, Failure, Scenario, Seen, ib, run, tcp};

#[path = "heap.rs"]
mod heap;
#[path = "peers.rs"]
mod peers;

/// Counts what the program has on its heap.
#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Runs worlds of LNet nodes over a simulated network and compares each step with a plain model.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Steps of each run before it comes to its end.
    #[arg(long, default_value_t = DEFAULT_STEPS)]
    steps: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Runs worlds of whole TCP nodes: engines and TCP LNDs over a simulated TCP network.
    Tcp {
        /// How many seeds to run.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first of them.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Steps of each run before it comes to its end.
        #[arg(long, default_value_t = DEFAULT_TCP_STEPS)]
        steps: u64,
    },
    /// Runs worlds of whole RDMA nodes: engines and verbs LNDs over a simulated RDMA network.
    Ib {
        /// How many seeds to run.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first of them.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Steps of each run before it comes to its end.
        #[arg(long, default_value_t = DEFAULT_IB_STEPS)]
        steps: u64,
    },
    /// Prints the bytes that each peer and each posted MD costs.
    Peers {
        /// How many peers.
        #[arg(long, default_value_t = 100_000)]
        peers: u32,
        /// How many MDs.
        #[arg(long, default_value_t = 100_000)]
        mds: u32,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.command {
        None => {
            let mut seen = Seen::default();
            let run = |seed| run(&Scenario { steps: args.steps, ..Scenario::from_seed(seed) });
            let done = run_seeds(args.seed, args.seeds, |seed| run(seed).map(|new| seen.add(&new)));
            report(done, &seen.list())
        }
        Some(Command::Tcp { seeds, seed, steps }) => {
            let mut seen = TcpSeen::default();
            let run = |seed| tcp::run(&TcpScenario { steps, ..TcpScenario::from_seed(seed) });
            let done = run_seeds(seed, seeds, |seed| run(seed).map(|new| seen.add(&new)));
            report(done, &seen.list())
        }
        Some(Command::Ib { seeds, seed, steps }) => {
            let mut seen = IbSeen::default();
            let run = |seed| ib::run(&IbScenario { steps, ..IbScenario::from_seed(seed) });
            let done = run_seeds(seed, seeds, |seed| run(seed).map(|new| seen.add(&new)));
            report(done, &seen.list())
        }
        Some(Command::Peers { peers, mds }) => match peers::measure(peers, mds) {
            Ok(cost) => {
                println!("{cost}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// Runs seeds until one fails; gives how many did not.
fn run_seeds(
    first: u64,
    count: u64,
    mut run: impl FnMut(u64) -> Result<(), Box<Failure>>,
) -> Result<u64, Box<Failure>> {
    let progress = ProgressBar::new(count);
    if let Ok(style) =
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} seed {msg} {pos}/{len} {per_sec}")
    {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(200));
    for seed in first..first.saturating_add(count) {
        progress.set_message(seed.to_string());
        run(seed).inspect_err(|_| progress.abandon())?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(count)
}

fn report(done: Result<u64, Box<Failure>>, seen: &[(&str, u64)]) -> ExitCode {
    match done {
        Ok(count) => {
            println!("{count} seeds agree with the model");
            for (name, times) in seen {
                println!("{times:>12} {name}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
