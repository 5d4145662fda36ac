//! A node of a test: it takes commands from one console, and does the work that INIT assigns.
//! Before INIT it has no role.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nlx::{Address, Domain, EndPoint, Errno};

use super::client::Client;
use super::command::{Command, Load, Plan, Refusal, Role, Status};
use super::commands::{Commands, ReceivedCommand};
use super::data::Driven;
use super::faults::{self, Faults};
use super::server::Server;
use super::service::{Service, ServiceState, Work};
use crate::failure::Failure;

/// Longest wait of one step of the work, so that commands are received.
const STEP: Duration = Duration::from_millis(20);

/// Interval at which a working node checks for commands.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Silence after which a console counts as gone: its test ends, and another console can begin one.
/// A console sends a command every second.
const CONSOLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of commands that may wait for a working node: its console has one in progress, and others
/// may send too.
const COMMANDS_WAITING: usize = 8;

/// A node's work in either role.
pub(super) type AnyWork = Box<dyn Work + Send>;

impl Work for AnyWork {
    fn step(&mut self, wait: Duration) -> Result<(), Failure> {
        (**self).step(wait)
    }

    fn start(&mut self) -> Result<(), Refusal> {
        (**self).start()
    }

    fn status(&mut self, from: usize) -> Result<Status, Refusal> {
        (**self).status(from)
    }

    fn stop(&mut self) -> Result<(), Refusal> {
        (**self).stop()
    }
}

/// Work that answers every command, and does nothing else.
struct Stub;

impl Work for Stub {
    fn step(&mut self, wait: Duration) -> Result<(), Failure> {
        std::thread::sleep(wait);
        Ok(())
    }

    fn start(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    fn status(&mut self, _: usize) -> Result<Status, Refusal> {
        Ok(Status { finished: true, ..Status::default() })
    }

    fn stop(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
}

pub(super) struct Node {
    domain: Domain,
    commands: Commands,
    faults: Arc<Faults>,
    service: Service<AnyWork>,
    /// The console whose test runs, and the time of its last command.
    console: Option<(Address, Instant)>,
    checked: Instant,
    /// Set for a node that is open to the network: it only serves, so that no console can make it
    /// flood another node.
    serves_only: bool,
}

impl Node {
    /// Starts a node with its commands at this address.
    pub(super) fn start(
        domain: &Domain,
        address: &str,
        faults: &Arc<Faults>,
        serves_only: bool,
    ) -> Result<Node, Failure> {
        Ok(Node {
            domain: domain.clone(),
            commands: Commands::start(domain, address, COMMANDS_WAITING)?,
            faults: faults.clone(),
            service: Service::new(),
            console: None,
            checked: Instant::now(),
            serves_only,
        })
    }

    /// Returns the address for its commands.
    pub(super) fn address(&self) -> String {
        self.commands.address()
    }

    /// Runs until `is_over` returns true.
    pub(super) fn run(&mut self, is_over: impl Fn() -> bool) -> Result<(), Failure> {
        while !is_over() {
            self.run_step()?;
        }
        Ok(())
    }

    /// Does a step of the work, if there is any, and handles a command, if one has come.
    pub(super) fn run_step(&mut self) -> Result<(), Failure> {
        let received = if self.service.state() == ServiceState::Ready {
            if let Err(refusal) = self.service.step(STEP) {
                tracing::warn!(reason = refusal.reason, "the test has failed on this node");
            }
            self.check_commands()?
        } else {
            self.commands.wait(Instant::now() + STEP)?
        };
        if let Some(received) = received {
            self.handle_command(received);
        }
        Ok(())
    }

    fn check_commands(&mut self) -> Result<Option<ReceivedCommand>, Failure> {
        let now = Instant::now();
        if now < self.checked + CHECK_INTERVAL {
            return Ok(None);
        }
        self.checked = now;
        if self.console.is_some_and(|(_, last_command)| now > last_command + CONSOLE_TIMEOUT) {
            tracing::warn!("the console has sent no command for {CONSOLE_TIMEOUT:?}: ending its test");
            self.end();
        }
        self.commands.take_received()
    }

    fn handle_command(&mut self, received: ReceivedCommand) {
        let ReceivedCommand { from, number, command } = received;
        let answer = self.answer(&from, command).unwrap_or_else(Command::Refused);
        // A sender that cannot be answered gets no answer.
        if let Err(failure) = self.commands.send(&from, number, answer) {
            tracing::debug!(%failure, "an answer was not sent");
        }
        if self.service.state() == ServiceState::Finished {
            self.end();
        }
    }

    fn answer(&mut self, from: &EndPoint, command: Command) -> Result<Command, Refusal> {
        if let Command::Init(plan) = command {
            return self.init(from, &plan);
        }
        match &mut self.console {
            Some((console, last_command)) if *console == from.address() => *last_command = Instant::now(),
            _ => return Err(Refusal::new(Errno::EPERM, "this node has another console, or none")),
        }
        let mut answer = self.service.command(&command)?;
        if let Command::StatusData(status) = &mut answer {
            status.nid = self.domain.nids().first().map(ToString::to_string).unwrap_or_default();
            status.rules = self.faults.counts();
        }
        Ok(answer)
    }

    fn init(&mut self, from: &EndPoint, plan: &Plan) -> Result<Command, Refusal> {
        if self.service.state() == ServiceState::Failed {
            self.end();
        }
        plan.check()?;
        if self.serves_only && plan.role != Role::Server {
            return Err(Refusal::new(Errno::EPERM, "this node is a server, and cannot be a client"));
        }
        let (domain, applied) = (&self.domain, &self.faults);
        let mut address = String::new();
        self.service.init(|| {
            applied.apply(&faults::rules(&plan.faults, plan.seed, plan.timeout)?)?;
            let (work, at) =
                work(domain, plan).map_err(|failure| Refusal::new(Errno::EIO, failure.to_string()))?;
            address = at;
            Ok(work)
        })?;
        self.console = Some((from.address(), Instant::now()));
        Ok(Command::InitDone(address))
    }

    fn end(&mut self) {
        self.service.fini();
        self.console = None;
        if self.serves_only && self.faults.apply(&[]).is_err() {
            tracing::warn!("cannot remove the fault rules of a finished test: they stay in force");
        }
    }
}

fn work(domain: &Domain, plan: &Plan) -> Result<(AnyWork, String), Failure> {
    fn at<P: super::data::Part>(driven: Driven<P>) -> (AnyWork, String) {
        let address = driven.address();
        (Box::new(driven), address)
    }
    match (plan.load, plan.role) {
        (Load::Stub, _) => Ok((Box::new(Stub), plan.address.clone())),
        (_, Role::Client) => Ok(at(Driven::start(domain, plan, Client::new(domain, plan)?)?)),
        (_, Role::Server) => Ok(at(Driven::start(domain, plan, Server::new(domain, plan))?)),
    }
}
