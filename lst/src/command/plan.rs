//! A whole session in one command: `run --from NIDS --to NIDS brw read size=1M --duration 30`.

use std::path::PathBuf;

use lnet_nid::ProcessId;
use lnet_proto::lst::{DESTINATIONS_SAFE, Name};

use super::options::{self, Args, Opt};
use super::testing::{default_batch, distribution, test};
use super::{CommandError, Defaults, SESSION_TIMEOUT_S};
use crate::console::{AddTest, ConsoleOperation, Distribution, NewSession, Stat, Target, TestKind};

/// Seconds for which a plan measures if the command does not say it.
const DURATION_S: u32 = 10;

/// Seconds to wait for the STATs of a plan.
const STAT_WAIT_S: u32 = 5;

/// A session with one test that is run for a time, measured, stopped and ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The session to open; the plan ends it after the measurement.
    pub session: NewSession,
    /// The nodes that send the requests of the test.
    pub from: Vec<ProcessId>,
    /// The nodes that answer the requests of the test.
    pub to: Vec<ProcessId>,
    /// The kind of requests: PING, or BRW with its transfers.
    pub kind: TestKind,
    /// Units of a client for each of its servers.
    pub concurrency: u32,
    /// The assignment of servers to clients.
    pub distribution: Distribution,
    /// Seconds for which it runs, at least 1.
    pub duration_s: u32,
    /// Seconds of each measured interval, from 1 to the duration.
    pub interval_s: u32,
    /// Whether the results are printed as JSON.
    pub json: bool,
    /// The file for a page of the results.
    pub html: Option<PathBuf>,
}

impl Plan {
    /// Reads the words behind `run`.
    pub(super) fn parse(words: &[String], defaults: &Defaults) -> Result<Plan, CommandError> {
        let table = [
            Opt::Value("from"),
            Opt::Value("to"),
            Opt::Value("duration"),
            Opt::Value("interval"),
            Opt::Value("concurrency"),
            Opt::Value("distribute"),
            Opt::Flag("force"),
            Opt::Flag("json"),
            Opt::Value("html"),
        ];
        let mut args = Args::sort(words, &table)?;
        let (kind, concurrency) = test(&mut args)?;
        let duration_s = args.number("duration", DURATION_S)?;
        let interval_s = args.number("interval", 1)?;
        if !(1..=duration_s).contains(&interval_s) {
            let expected = format!("an interval of 1 to {duration_s} s, the duration");
            return Err(CommandError::word(&interval_s.to_string(), expected));
        }
        let to = list(&args, "to")?;
        // Without the option every client has every server, or as many as kernel nodes survive.
        let servers = to.len().clamp(1, DESTINATIONS_SAFE as usize) as u32;
        let distribution = match args.has("distribute") {
            true => distribution(&args)?,
            false => Distribution { clients: 1, servers },
        };
        Ok(Plan {
            session: NewSession {
                name: defaults.name,
                stamp: defaults.stamp,
                timeout_s: SESSION_TIMEOUT_S,
                force: args.has("force"),
                features: defaults.features,
            },
            from: list(&args, "from")?,
            to,
            kind,
            concurrency: args.number("concurrency", concurrency)?,
            distribution,
            duration_s,
            interval_s,
            json: args.has("json"),
            html: args.value("html").map(PathBuf::from),
        })
    }

    /// Returns the operations of the plan, in their order. The last one ends the session; a caller
    /// that gives up after a failure skips to it.
    #[must_use]
    pub fn operations(&self) -> Vec<ConsoleOperation> {
        let [clients, servers] = Plan::GROUPS.map(|name| Name::new(name).unwrap_or(Name::EMPTY));
        let batch = default_batch().unwrap_or(Name::EMPTY);
        let targets = vec![Target::Group(clients), Target::Group(servers)];
        let test = AddTest {
            batch,
            from: clients,
            to: servers,
            kind: self.kind,
            repeats: None,
            concurrency: self.concurrency,
            distribution: self.distribution,
        };
        let count = Some(self.duration_s.div_ceil(self.interval_s));
        let (delay_s, timeout_s) = (self.interval_s, STAT_WAIT_S);
        vec![
            ConsoleOperation::NewSession(self.session),
            ConsoleOperation::AddGroup { name: clients, nodes: self.from.clone() },
            ConsoleOperation::AddGroup { name: servers, nodes: self.to.clone() },
            ConsoleOperation::AddTest(test),
            ConsoleOperation::Run { batch, timeout_s: 0 },
            ConsoleOperation::Stat(Stat { targets: targets.clone(), timeout_s, delay_s, count }),
            ConsoleOperation::Stop { batch, force: false },
            ConsoleOperation::ShowError { targets },
            ConsoleOperation::EndSession,
        ]
    }

    /// The names of a plan's groups: its clients, its servers.
    pub const GROUPS: [&str; 2] = ["clients", "servers"];
}

fn list(args: &Args<'_>, option: &str) -> Result<Vec<ProcessId>, CommandError> {
    if !args.has(option) {
        return Err(CommandError::missing(format!("--{option} with a list of nodes")));
    }
    options::nodes(args.values(option))?.members()
}
