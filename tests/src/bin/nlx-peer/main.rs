//! Nodes of the tests, in a separate process, that execute commands from their input.
//!
//! `nlx-peer port=21900 partitions=2 node=tcp(127.0.0.1) node=tcp(127.0.0.2)` starts two nodes and
//! prints `ready`. Each line on standard input is `NODE COMMAND JOB key=value…`, where NODE counts
//! from 0 (or is `all`) and JOB is a number that the test chooses; each answer is `NODE WORD JOB
//! key=value…`. The process ends with its standard input. `station.rs` documents the commands.

mod board;
mod list;
mod memory;
mod op;
mod options;
mod random;
mod station;
mod words;

use std::io::{BufRead, stdin};
use std::process::ExitCode;
use std::sync::mpsc;

use options::Options;
use station::{CommandSender, PeerNode};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("nlx-peer: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let options = Options::from_args(std::env::args().skip(1))?;
    let (ready, readiness) = mpsc::channel();
    let mut nodes = Vec::new();
    for number in 0..options.nodes.len() {
        let (commands, receiver) = CommandSender::channel()?;
        let (options, ready) = (options.clone(), ready.clone());
        let work = move || match PeerNode::start(number, &options, receiver) {
            Ok(station) => {
                let _ = ready.send(Ok(()));
                station.serve();
            }
            Err(reason) => {
                let _ = ready.send(Err(reason));
            }
        };
        let thread = std::thread::Builder::new().spawn(work).map_err(|error| error.to_string())?;
        nodes.push((commands, thread));
    }
    for _ in &nodes {
        readiness.recv().map_err(|_| "a node's thread has ended".to_string())??;
    }
    if let Some(count) = options.descriptors {
        limit_descriptors(count)?;
    }
    words::say("ready");
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (to, command) = line.split_once(' ').ok_or_else(|| format!("no command in {line:?}"))?;
        match to.parse::<usize>() {
            Ok(number) => nodes.get(number).ok_or_else(|| format!("no node {number}"))?.0.give(command),
            Err(_) => nodes.iter().for_each(|(commands, _)| commands.give(command)),
        }
    }
    for (commands, thread) in nodes {
        commands.give("quit 0");
        thread.join().map_err(|_| "a node's thread has panicked".to_string())?;
    }
    Ok(())
}

/// Allows this process `more` descriptors beyond those that it has.
fn limit_descriptors(more: u64) -> Result<(), String> {
    use nix::sys::resource::{Resource, setrlimit};
    let now = std::fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?.count() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, now + more, now + more).map_err(|errno| errno.to_string())
}
