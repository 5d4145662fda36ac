//! A node of a test: it takes commands from one console, and does the work that INIT assigns.
//! Before INIT it has no role.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nlx::request::{Request, Responder, ResponderOptions};
use nlx::{Address, Domain, Errno};

use super::client::Client;
use super::command::{Answer, COMMAND_BYTES, Command, Load, Plan, Refusal, Role, Status};
use super::data::{Driven, Part};
use super::faults::{self, Faults};
use super::server::Server;
use super::service::{Service, Work};
use crate::failure::Failure;

/// Longest wait of one step of the work, so that commands are received.
const STEP: Duration = Duration::from_millis(20);

/// Interval at which a working node checks for commands.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Silence after which a console counts as gone: its test ends, and another console can begin one.
/// A console sends a command every second.
const CONSOLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of consoles whose last answers a node stores: one has the test, and others may ask.
const CONSOLES_MAX: usize = 64;

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
}

pub(super) struct Node {
    domain: Domain,
    commands: Responder,
    faults: Arc<Faults>,
    service: Service,
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
        let options = ResponderOptions {
            message_max: COMMAND_BYTES,
            sessions_max: CONSOLES_MAX,
            ..ResponderOptions::default()
        };
        let machine = domain.transfer_machine(address, Default::default())?;
        Ok(Node {
            domain: domain.clone(),
            commands: Responder::new(machine, options)?,
            faults: faults.clone(),
            service: Service::Uninitialized,
            console: None,
            checked: Instant::now(),
            serves_only,
        })
    }

    /// Returns the address for its commands.
    pub(super) fn address(&self) -> String {
        self.commands.machine().address().to_string()
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
        let mut wait = STEP;
        if self.service.is_ready() {
            if let Err(refusal) = self.service.step(STEP) {
                tracing::warn!(reason = refusal.reason, "the test has failed on this node");
            }
            let now = Instant::now();
            if now < self.checked + CHECK_INTERVAL {
                return Ok(());
            }
            self.checked = now;
            if self.console.is_some_and(|(_, last_command)| now > last_command + CONSOLE_TIMEOUT) {
                tracing::warn!("the console has sent no command for {CONSOLE_TIMEOUT:?}: ending its test");
                self.end();
            }
            wait = Duration::ZERO;
        }
        match self.commands.next(Some(wait))? {
            Some(request) => self.handle(&request),
            None => Ok(()),
        }
    }

    fn handle(&mut self, request: &Request) -> Result<(), Failure> {
        let invalid =
            |error: serde_json::Error| Refusal::new(Errno::EPROTO, format!("not a command: {error}"));
        let command = serde_json::from_slice(request).map_err(invalid);
        let answer = command.and_then(|command| self.answer(request.client().address(), &command));
        // A console that cannot be answered repeats its command.
        if let Err(error) = self.commands.answer(request, &serde_json::to_vec(&answer)?) {
            tracing::debug!(%error, "an answer was not sent");
        }
        Ok(())
    }

    fn answer(&mut self, from: Address, command: &Command) -> Result<Answer, Refusal> {
        if let Command::Init(plan) = command {
            return self.init(from, plan);
        }
        match &mut self.console {
            Some((console, last_command)) if *console == from => *last_command = Instant::now(),
            _ => return Err(Refusal::new(Errno::EPERM, "this node has another console, or none")),
        }
        let mut answer = self.service.command(command)?;
        if let Answer::Status(status) = &mut answer {
            status.nid = self.domain.nids().first().map(ToString::to_string).unwrap_or_default();
            status.rules = self.faults.counts();
        }
        if *command == Command::Stop {
            self.end();
        }
        Ok(answer)
    }

    fn init(&mut self, from: Address, plan: &Plan) -> Result<Answer, Refusal> {
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
        self.console = Some((from, Instant::now()));
        Ok(Answer::Address(address))
    }

    fn end(&mut self) {
        self.service = Service::Uninitialized;
        self.console = None;
        if self.serves_only && self.faults.apply(&[]).is_err() {
            tracing::warn!("cannot remove the fault rules of a finished test: they stay in force");
        }
    }
}

/// Returns the work of a plan, and the address of its transfer machine for data.
fn work(domain: &Domain, plan: &Plan) -> Result<(Box<dyn Work>, String), Failure> {
    fn at<P: Part>(driven: Driven<P>) -> (Box<dyn Work>, String) {
        let address = driven.address();
        (Box::new(driven), address)
    }
    Ok(match (plan.load, plan.role) {
        (Load::Stub, _) => (Box::new(Stub), plan.address.clone()),
        (_, Role::Client) => at(Driven::start(domain, plan, Client::new(domain, plan)?)?),
        (_, Role::Server) => at(Driven::start(domain, plan, Server::new(domain, plan))?),
    })
}
