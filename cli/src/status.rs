//! `nlx status`: shows the state of the nodes that run on this host.

mod helper;
mod node;
mod print;
mod services;

use std::io;
use std::time::{Duration, Instant};

use lnet_api::Errno;
use lnet_node::{
    Asker, HostNodes, RunningNode, UnreadFolder, escaped, running_nodes_with, visit_for_another,
};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::args::{StatusArgs, StatusAskerArgs};
use crate::failure::{Context, Failure};
use crate::output;
use node::NodeStatus;

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let asker = Asker::new(program, ["status-asker"]).accept_descriptors(args.accept_descriptors);
    let deadline = Instant::now() + args.timeout;
    let HostNodes { mut nodes, unread } = running_nodes_with(&asker, deadline, args.pid);
    nodes.retain(|node| args.pid.is_none_or(|pid| node.pid() == pid));
    let unread = unread.iter().map(|folder| unvisited(folder, args.timeout));
    let unread: Vec<Failure> = match (nodes.is_empty(), args.pid) {
        // The node may be in a folder that was not read.
        (true, Some(_)) => std::iter::once(no_node(args.pid)).chain(unread).collect(),
        (false, Some(_)) => Vec::new(),
        (_, None) => unread.collect(),
    };
    if nodes.is_empty() && unread.is_empty() {
        return Err(no_node(args.pid));
    }
    let answers = Answers::of(nodes, deadline, args.timeout, unread);
    if args.json {
        output::line(answers.to_json())?;
    } else if args.all || args.pid.is_some() || answers.nodes.len() == 1 {
        answers.read().try_for_each(output::line)?;
    } else if !answers.nodes.is_empty() {
        output::line(print::overview(answers.read()))?;
    }
    answers.verdict(args.json)
}

/// Visits one folder for another process, then ends. The owner of the folder can delay each of its
/// calls without bound.
pub(crate) fn run_asker(args: &StatusAskerArgs) -> Result<(), Failure> {
    set_pdeathsig(Signal::SIGKILL).context("cannot tie to the parent")?;
    visit_for_another(&args.task).context("cannot pass on the nodes' answers")
}

fn no_node(pid: Option<u32>) -> Failure {
    let message = match pid {
        Some(pid) => format!("process {pid} has no node that can be queried"),
        None => "no node that can be queried runs on this host".to_string(),
    };
    Failure::at("find", Errno::ESRCH, message).hint(
        "'nlx serve', 'nlx selftest' and 'nlxd' run one; other programs offer theirs with NodeConfig::status(true), or 'status: 1' \
         in their configuration; root sees those of all users",
    )
}

/// Describes a folder that was not read, or not in time.
fn unvisited(folder: &UnreadFolder, timeout: Duration) -> Failure {
    let (path, error) = (folder.path().display(), folder.error());
    let problem = format!("{path}: its nodes are not shown");
    match error.kind() {
        io::ErrorKind::TimedOut => {
            let reason = format!("{problem}: it did not answer in {} s", timeout.as_secs_f64());
            Failure::at("find", Errno::ETIMEDOUT, reason)
                .hint("a user's process may hold it up: see 'ps' for those of its owner, and --timeout")
        }
        _ => Failure::at("find", Errno::EIO, format!("{problem}: the process that reads it: {error}")),
    }
}

/// The answers of the nodes.
struct Answers {
    /// The answers as text: parsed, an answer can take several times its memory.
    nodes: Vec<String>,
    silent: Vec<Failure>,
}

impl Answers {
    /// Reads all answers until the deadline, which is `timeout` after the start; the nodes have
    /// been asked at the same time. `silent` starts with the folders that were not read.
    fn of(found: Vec<RunningNode>, deadline: Instant, timeout: Duration, silent: Vec<Failure>) -> Answers {
        let mut answers = Answers { nodes: Vec::new(), silent };
        for node in found {
            let pid = node.pid();
            let refused =
                |errno, reason: String| Failure::at("read", errno, format!("process {pid}: {reason}"));
            let answer = match node.read(deadline) {
                Ok(text) => NodeStatus::parse(&text)
                    .and_then(|status| match status.pid == pid {
                        true => Ok(text),
                        false => Err(format!("it claims to be process {}", status.pid)),
                    })
                    .map_err(|reason| refused(Errno::EPROTO, reason)),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(refused(
                    Errno::ETIMEDOUT,
                    format!("its node did not answer in {} s", timeout.as_secs_f64()),
                )
                .hint("it may be stopped, or have too much else to do: see 'ps', and --timeout")),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    Err(refused(Errno::EPERM, error.to_string()))
                }
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    let failure = refused(Errno::EFBIG, error.to_string());
                    // The system's message is enough for a single answer.
                    Err(match error.raw_os_error() {
                        Some(_) => failure,
                        None => failure.hint("'nlx status PID' asks one process alone"),
                    })
                }
                Err(error) => Err(refused(Errno::EIO, error.to_string())),
            };
            match answer {
                Ok(node) => answers.nodes.push(node),
                Err(failure) => answers.silent.push(failure),
            }
        }
        answers
    }

    /// Parses the answers one after the other.
    fn read(&self) -> impl Iterator<Item = NodeStatus> {
        self.nodes.iter().filter_map(|text| NodeStatus::parse(text).ok())
    }

    /// Formats one object, with the nodes that did not answer beside the others.
    fn to_json(&self) -> String {
        let mut all = String::from(r#"{"nodes":["#);
        for (number, text) in self.nodes.iter().enumerate() {
            all.push_str(if number > 0 { "," } else { "" });
            all.push_str(&escaped(text));
        }
        let errors: Vec<String> = self.silent.iter().map(|failure| failure.to_json().to_string()).collect();
        all + &format!(r#"],"errors":[{}]}}"#, errors.join(","))
    }

    /// Returns a failure if a node did not answer; all such nodes are reported.
    fn verdict(mut self, printed: bool) -> Result<(), Failure> {
        match (self.silent.is_empty(), printed) {
            (true, _) => return Ok(()),
            (false, true) => return Err(Failure::quiet()),
            (false, false) => {}
        }
        let first = self.silent.remove(0);
        self.silent.iter().for_each(|failure| output::print_error(format_args!("nlx: {failure}")));
        Err(first)
    }
}
