//! Commands that ask nodes.

use lnet_nid::ProcessId;

use super::options::{self, Args, Opt};
use super::testing::default_batch;
use super::{Command, CommandError, QueryView, StatView, View};
use crate::console::{ConsoleOperation, Query, Stat, Target};

/// Seconds to wait for replies if the command does not say it.
const TIMEOUT_S: u32 = 5;

/// Seconds between two rounds if the command does not say it.
const DELAY_S: u32 = 5;

pub(super) fn query(words: &[String]) -> Result<Command, CommandError> {
    let table = [
        Opt::Value("test"),
        Opt::Flag("server"),
        Opt::Value("timeout"),
        Opt::Value("delay"),
        Opt::Value("loop"),
        Opt::Flag("active"),
        Opt::Flag("idle"),
        Opt::Flag("error"),
        Opt::Flag("all"),
    ];
    let mut args = Args::sort(words, &table)?;
    let batch = args.next().map_or_else(default_batch, options::name)?;
    args.end()?;
    let operation = ConsoleOperation::Query(Query {
        batch,
        test: args.number("test", 0)?,
        servers: args.has("server"),
        timeout_s: args.number("timeout", TIMEOUT_S)?,
        count: Some(args.number("loop", 1)?),
        delay_s: args.number("delay", DELAY_S)?,
    });
    let shown = |name| args.has("all") || args.has(name);
    let view = QueryView { active: shown("active"), idle: shown("idle"), error: shown("error") };
    Ok(Command::Operation { operation, view: View::Query(view) })
}

pub(super) fn stat(words: &[String]) -> Result<Command, CommandError> {
    let table = [
        Opt::Flag("bw"),
        Opt::Flag("rate"),
        Opt::Flag("read"),
        Opt::Flag("write"),
        Opt::Flag("avg"),
        Opt::Flag("min"),
        Opt::Flag("max"),
        Opt::Flag("mbs"),
        Opt::Value("timeout"),
        Opt::Value("delay"),
        Opt::Value("count"),
    ];
    let mut args = Args::sort(words, &table)?;
    let targets = targets(&mut args)?;
    let operation = ConsoleOperation::Stat(Stat {
        targets,
        timeout_s: args.number("timeout", TIMEOUT_S)?,
        delay_s: args.number("delay", DELAY_S)?,
        count: args.optional_number("count")?,
    });
    Ok(Command::Operation { operation, view: View::Stat(stat_view(&args)) })
}

/// Returns what is printed: of each kind what was named, or all if none was.
fn stat_view(args: &Args<'_>) -> StatView {
    let shown = |name, kind: &[&str]| args.has(name) || !kind.iter().any(|other| args.has(other));
    let (what, way, sum) = (["bw", "rate"], ["read", "write"], ["avg", "min", "max"]);
    StatView {
        rate: shown("rate", &what),
        bandwidth: shown("bw", &what),
        received: shown("write", &way),
        sent: shown("read", &way),
        average: shown("avg", &sum),
        minimum: shown("min", &sum),
        maximum: shown("max", &sum),
        mbs: args.has("mbs"),
    }
}

pub(super) fn show_error(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[Opt::Flag("session")])?;
    let operation = ConsoleOperation::ShowError { targets: targets(&mut args)? };
    Ok(Command::Operation { operation, view: View::Errors { session_only: args.has("session") } })
}

pub(super) fn ping(words: &[String]) -> Result<Command, CommandError> {
    let table = [
        Opt::Flag("session"),
        Opt::Value("group"),
        Opt::Value("batch"),
        Opt::Flag("server"),
        Opt::Value("nodes"),
        Opt::Value("timeout"),
    ];
    let args = Args::sort(words, &table)?;
    args.end()?;
    let target = match (args.has("session"), args.value("group"), args.value("batch"), args.value("nodes")) {
        (true, None, None, None) => Target::Session,
        (false, Some(group), None, None) => Target::Group(options::name(group)?),
        (false, None, Some(batch), None) => {
            Target::Batch { name: options::name(batch)?, servers: args.has("server") }
        }
        (false, None, None, Some(_)) => Target::Nodes(options::nodes(args.values("nodes"))?.members()?),
        _ => return Err(CommandError::missing("one of --session, --group, --batch, --nodes")),
    };
    let operation = ConsoleOperation::Ping { target, timeout_s: args.number("timeout", TIMEOUT_S)? };
    Ok(Command::Operation { operation, view: View::All })
}

/// Reads groups, and nodes, which have an `@`. The nodes are one target.
fn targets(args: &mut Args<'_>) -> Result<Vec<Target>, CommandError> {
    let words: Vec<&str> = std::iter::from_fn(|| args.next()).collect();
    let (nodes, groups): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.contains('@'));
    let groups = groups.into_iter().map(|group| options::name(group).map(Target::Group));
    let mut targets: Vec<Target> = groups.collect::<Result<_, _>>()?;
    if !nodes.is_empty() {
        let nodes: Vec<ProcessId> = options::nodes(nodes.into_iter())?.members()?;
        targets.push(Target::Nodes(nodes));
    }
    match targets.is_empty() {
        true => Err(CommandError::missing("a group, or a list of nodes such as 10.0.0.[1-4]@tcp")),
        false => Ok(targets),
    }
}
