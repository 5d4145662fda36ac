//! Runs many seeds of the simulator, or measures the memory of peers and buffers.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lnet_sim::ib::IbScenario;
use lnet_sim::lst::LstScenario;
use lnet_sim::tcp::TcpScenario;
use lnet_sim::{Counts, Scenario, Worlds};

#[path = "heap.rs"]
mod heap;
#[path = "peers.rs"]
mod peers;

/// Counts the bytes on the program's heap.
#[global_allocator]
static HEAP: heap::CountingHeap = heap::CountingHeap;

/// Runs worlds of LNet nodes over a simulated network and compares each step with a plain model.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    seeds: Seeds,
}

#[derive(Subcommand)]
enum Command {
    /// Runs worlds of whole TCP nodes: engines and TCP LNDs over a simulated TCP network.
    Tcp(Seeds),
    /// Runs worlds of whole RDMA nodes: engines and verbs LNDs over a simulated RDMA network.
    Ib(Seeds),
    /// Plays sessions of LNet's self-test between consoles and test nodes.
    Lst(Seeds),
    /// Prints the bytes that each peer and each posted MD costs.
    Peers {
        /// Number of peers.
        #[arg(long, default_value_t = 100_000)]
        peers: u32,
        /// Number of MDs.
        #[arg(long, default_value_t = 100_000)]
        mds: u32,
    },
}

/// The worlds to run.
#[derive(clap::Args)]
struct Seeds {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Runs this many more seeds, different ones each time: the clock gives the first.
    #[arg(long, default_value_t = 0)]
    fresh: u64,
    /// Steps of each run before it ends; each kind of world has its own default.
    #[arg(long)]
    steps: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.command {
        None => args.seeds.run::<Scenario>(),
        Some(Command::Tcp(seeds)) => seeds.run::<TcpScenario>(),
        Some(Command::Ib(seeds)) => seeds.run::<IbScenario>(),
        Some(Command::Lst(seeds)) => seeds.run::<LstScenario>(),
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

impl Seeds {
    /// Runs the seeds until one fails, and prints the counts. The first line printed for each range
    /// of seeds is a command that runs the range again.
    fn run<W: Worlds>(&self) -> ExitCode {
        let mut seen = W::Seen::default();
        let (command, steps) = (W::COMMAND, self.steps.unwrap_or(W::STEPS));
        let ranges = [(self.seed, self.seeds), (from_clock(), self.fresh)];
        for (first, count) in ranges.into_iter().filter(|(_, count)| *count > 0) {
            println!(
                "again: cargo run --release -p lnet-sim -- {command}--seeds {count} --seed {first} --steps {steps}"
            );
        }
        let progress = ProgressBar::new(self.seeds.saturating_add(self.fresh));
        if let Ok(style) =
            ProgressStyle::with_template("{elapsed_precise} {wide_bar} seed {msg} {pos}/{len} {per_sec}")
        {
            progress.set_style(style);
        }
        progress.enable_steady_tick(Duration::from_millis(200));
        for seed in ranges.into_iter().flat_map(|(first, count)| first..first.saturating_add(count)) {
            progress.set_message(seed.to_string());
            match W::of_seed(seed).run_for(steps) {
                Ok(new) => seen.add(&new),
                Err(failure) => {
                    progress.abandon();
                    eprintln!("{failure}");
                    return ExitCode::FAILURE;
                }
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        println!("{} seeds agree with the model", progress.position());
        for (name, times) in seen.list() {
            println!("{times:>12} {name}");
        }
        ExitCode::SUCCESS
    }
}

/// Returns a seed that no earlier run had: the nanoseconds of the clock.
fn from_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
