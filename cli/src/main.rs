//! `nlx`: the tools of nlx. `nlx selftest` shows that everything works, `nlx serve` runs a node that answers pings,
//! `nlx ping` asks a node who it is.

#![forbid(unsafe_code)]

mod args;
mod failure;
mod output;
mod ping;
mod selftest;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    init_log();
    let outcome = match args.command {
        Command::Selftest(options) => selftest::run(&options),
        Command::SelftestPeer(options) => selftest::run_peer(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Ping(options) => ping::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_quiet() {
                output::complain(format_args!("nlx: {failure}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error; `NLX_LOG` chooses them as `RUST_LOG` does elsewhere, for instance `NLX_LOG=debug`.
fn init_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("NLX_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
