//! The programs of nlx: the tools, and the helper process `nlxd`.
//!
//! `nlx selftest` shows that everything works, `nlx serve` runs a node that answers pings,
//! `nlx ping` and `nlx discover` ask a node who it is, `nlx status` looks at the nodes that run here, `nlx net show` tells
//! what a configuration gives on this host, `nlx net devices` what there is for networks over RDMA, `nlx o2iblnd-calc` what
//! the tunables of two RDMA nodes come to.

#![deny(unsafe_code)]

mod args;
mod calc;
mod descriptors;
mod discover;
mod failure;
mod help;
mod man;
mod net;
mod nlxd;
mod output;
mod ping;
mod ports;
mod selftest;
mod serve;
mod setup;
mod signals;
mod source;
mod status;
mod svg;
mod tables;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::FromArgMatches;
use lnet_api::Errno;
use tracing_subscriber::EnvFilter;

use args::{Args, Command, NetCommand};
use failure::Failure;

/// `nlx`: the tools.
pub fn nlx() -> ExitCode {
    let args = help::command().try_get_matches().and_then(|matches| Args::from_arg_matches(&matches));
    let args = match args {
        Ok(args) => args,
        Err(error) => return misused(&error),
    };
    init_log();
    let json = args.command.json();
    let outcome = match args.command {
        Command::Ping(options) => ping::run(&options),
        Command::Discover(options) => discover::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Net(NetCommand::Show(options)) => net::run(&options),
        Command::Net(NetCommand::Devices(options)) => net::devices::run(&options),
        Command::O2iblndCalc(options) => calc::run(&options),
        Command::Selftest(options) => selftest::run(&options),
        Command::SelftestPeer(options) => selftest::run_peer(&options),
        Command::SelftestHelper(options) => selftest::run_helper(&options),
        Command::Completions(options) => man::completions(&options),
        Command::Man(options) => man::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure, json);
            ExitCode::FAILURE
        }
    }
}

/// `nlxd`: the helper process.
pub fn nlxd() -> ExitCode {
    nlxd::main()
}

/// Programs that read JSON read standard output; people read standard error.
fn tell(failure: &Failure, json: bool) {
    if failure.is_quiet() {
        return;
    }
    if !json || output::json(&serde_json::json!({ "error": failure.to_json() })).is_err() {
        output::complain(format_args!("nlx: {failure}"));
    }
}

/// Arguments that cannot be read, or a wish for help.
fn misused(error: &clap::Error) -> ExitCode {
    const USAGE: u8 = 2;
    let wants_json = std::env::args().any(|argument| argument == "--json");
    if !error.use_stderr() {
        // A reader that has gone away has read enough.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if wants_json {
        let text = error.to_string();
        let words = text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let message = words.strip_prefix("error: ").unwrap_or(&words);
        tell(&Failure::at("arguments", Errno::EINVAL, message).hint("see --help"), true);
    } else {
        let _ = error.print();
    }
    ExitCode::from(USAGE)
}

/// Logs go to standard error, in colours if that is a terminal; `NLX_LOG` chooses them as `RUST_LOG` does elsewhere, for
/// instance `NLX_LOG=debug`.
fn init_log() {
    let warnings = || EnvFilter::new("warn");
    let filter = match std::env::var("NLX_LOG") {
        Ok(text) => EnvFilter::try_new(&text).unwrap_or_else(|error| {
            output::complain(format_args!(
                "nlx: NLX_LOG={text}: {error}; warnings are logged, as without it"
            ));
            warnings()
        }),
        Err(_) => warnings(),
    };
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}
