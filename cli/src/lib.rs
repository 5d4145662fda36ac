//! The programs of nlx: the tools, and the helper process `nlxd`.
//!
//! `nlx selftest` tests the whole stack, `nlx lst` is LNet's self-test (node and console), `nlx serve` runs a node that answers pings, `nlx ping` and
//! `nlx discover` query nodes, `nlx status` shows the nodes that run on this host, `nlx net show`
//! shows the networks of a configuration, `nlx net devices` what this host has for networks over
//! RDMA, `nlx o2iblnd-calc` the results of the tunables of two RDMA nodes.

#![deny(unsafe_code)]

mod args;
mod calc;
mod discover;
mod failure;
mod help;
mod lst;
mod machine;
mod man;
mod net;
mod nids;
mod nlxd;
mod output;
mod ping;
mod ports;
mod progress;
mod random;
mod selftest;
mod serve;
mod services;
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
use tracing_subscriber::filter::LevelFilter;

use args::{Args, Command, NetCommand};
use failure::Failure;

/// Runs `nlx`, the tools.
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
        Command::Lst(options) => lst::run(&options),
        Command::Net(NetCommand::Show(options)) => net::run(&options),
        Command::Net(NetCommand::Devices(options)) => net::devices::run(&options),
        Command::O2iblndCalc(options) => calc::run(&options),
        Command::Selftest(options) => selftest::run(&options),
        Command::SelftestPeer(options) => selftest::run_peer(&options),
        Command::SelftestHelper(options) => selftest::run_helper(&options),
        Command::StatusAsker(options) => status::run_asker(&options),
        Command::Completions(options) => man::completions(&options),
        Command::Man(options) => man::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_failure(&failure, json);
            ExitCode::from(failure.code())
        }
    }
}

/// Runs `nlxd`, the helper process.
pub fn nlxd() -> ExitCode {
    nlxd::main()
}

/// Prints a failure: as JSON on standard output for programs, else on standard error for people.
fn print_failure(failure: &Failure, json: bool) {
    if failure.is_quiet() {
        return;
    }
    if !json || output::json(&failure.to_line()).is_err() {
        output::print_error(format_args!("nlx: {failure}"));
    }
}

/// Handles invalid arguments and requests for help.
fn misused(error: &clap::Error) -> ExitCode {
    const USAGE: u8 = 2;
    let wants_json = std::env::args().any(|argument| argument == "--json");
    if !error.use_stderr() {
        // An error here means that the reader has closed the pipe.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if wants_json {
        let text = error.to_string();
        let words = text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let message = words.strip_prefix("error: ").unwrap_or(&words);
        print_failure(&Failure::at("arguments", Errno::EINVAL, message).hint("see --help"), true);
    } else {
        let _ = error.print();
    }
    ExitCode::from(USAGE)
}

/// The forms of `NLX_LOG`, as advice in a warning.
const LOG_FORMS: &str = "one of off, error, warn, info, debug, trace, or MODULE=LEVEL with a module of nlx, for instance \
                         'lnet_socklnd=debug'; several with commas";

/// Parses `NLX_LOG`. A word that is neither a level nor a module of nlx is refused, because it
/// would match no event.
///
/// # Errors
/// The invalid part, and the reason.
fn log_filter(text: &str) -> Result<EnvFilter, String> {
    const MODULES: [&str; 3] = ["lnet", "nlx", "ibverbs"];
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // Spans and fields, which may have any name, follow '['.
        let target = part.split(['=', '[']).next().unwrap_or(part);
        let is_level = !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_ok();
        let is_module = target.is_empty() || MODULES.iter().any(|module| target.starts_with(module));
        if !is_level && !is_module {
            return Err(format!("'{target}' is neither a level nor a module of nlx"));
        }
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Logs go to standard error, in colours if that is a terminal. `NLX_LOG` filters them as
/// `RUST_LOG` does elsewhere, for instance `NLX_LOG=debug`.
fn init_log() {
    let warnings = || EnvFilter::new("warn");
    let filter = match std::env::var("NLX_LOG") {
        Ok(text) => log_filter(&text).unwrap_or_else(|error| {
            output::print_error(format_args!(
                "nlx: NLX_LOG={text}: {error}; warnings are logged, as without it\n     try: {LOG_FORMS}"
            ));
            warnings()
        }),
        Err(_) => warnings(),
    };
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_that_matches_nothing_is_refused_by_name() {
        for good in [
            "",
            "debug",
            "OFF",
            "5",
            "lnet_socklnd=debug",
            "info,nlx_cli::serve=trace",
            "lnet",
            "[span]=info",
        ] {
            assert!(log_filter(good).is_ok(), "{good}");
        }
        for (bad, named) in [("debgu", "'debgu'"), ("info,ksocklnd=debug", "'ksocklnd'"), ("9", "'9'")] {
            let refused = log_filter(bad).unwrap_err();
            assert!(refused.starts_with(named), "{bad}: {refused}");
        }
        assert!(log_filter("nlx=loud").is_err());
    }
}
