//! The console: controls servers and clients step by step through a test, and collects their
//! results (motr-transport 10.2).

use std::time::{Duration, Instant};

use nlx::request::{RequestError, RequestOptions, Requester};
use nlx::{Address, Domain, EndPoint};

use super::command::{Answer, COMMAND_BYTES, Command, LATENCIES_MAX, Plan, Refusal, Role, Status, is_unique};
use super::result::total;
use crate::failure::Failure;

/// Time within which a command is answered (motr-transport 10.2).
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Sleep of the console between polls for answers, and while clients measure: a sleep costs them
/// nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const WATCH_INTERVAL: Duration = Duration::from_millis(10);

/// Interval at which clients are asked for their progress; the servers are asked every tenth time.
const ROUND: Duration = Duration::from_millis(100);
const SERVER_ROUNDS: u32 = 10;

/// Time beyond their own that clients get before the test fails.
const EXTRA_TIME: Duration = Duration::from_secs(10);

/// Number of timeouts within which an operation's last try ends, or is found missing.
const TIMEOUTS: u32 = 4;

/// Time that servers get to count operations that clients have counted already.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// Largest number of values of one node's histogram: latencies have at most a third of it. A node
/// that reports more is faulty.
const VALUES_MAX: usize = 128 << 10;

/// An observer of a running test.
pub(super) trait TestObserver {
    /// Fails if a process of the test has ended.
    fn check(&mut self) -> Result<(), Failure>;
    /// Returns whether the test is to end early.
    fn is_stopped(&self) -> bool;
    /// Shows the progress of the clients.
    fn round(&mut self, clients: &[Status]);
}

/// The result of one test.
pub(super) struct Finding {
    pub(super) clients: Vec<Status>,
    pub(super) servers: Vec<Status>,
    /// Set if the test ran to its end.
    pub(super) complete: bool,
    /// The addresses of the transfer machines for data.
    pub(super) client_addresses: Vec<String>,
    pub(super) server_addresses: Vec<String>,
}

pub(super) struct Console {
    commands: Requester,
    servers: Vec<EndPoint>,
    clients: Vec<EndPoint>,
    /// Data addresses of the servers and of the clients.
    pub(super) data: [Vec<String>; 2],
    run: u16,
}

/// One of the two groups of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Servers,
    Clients,
}

impl Console {
    /// Starts a console with its commands at `address`, for these servers and clients.
    pub(super) fn start(
        domain: &Domain,
        address: &str,
        servers: &[String],
        clients: &[String],
    ) -> Result<Console, Failure> {
        if !is_unique(&[servers, clients].concat()) {
            return Err(Failure::new("a node is named twice"));
        }
        let machine = domain.transfer_machine(address, Default::default())?;
        let options = RequestOptions {
            deadline: COMMAND_TIMEOUT,
            message_max: COMMAND_BYTES,
            ..RequestOptions::default()
        };
        let commands = Requester::new(machine, options)?;
        let find = |list: &[String]| {
            list.iter().map(|at| commands.machine().end_point(at)).collect::<Result<_, _>>()
        };
        let (servers, clients) = (find(servers)?, find(clients)?);
        let data = [&servers, &clients].map(|nodes: &Vec<_>| nodes.iter().map(data_address).collect());
        Ok(Console { commands, servers, clients, data, run: 0 })
    }

    fn nodes(&self, group: Group) -> &[EndPoint] {
        match group {
            Group::Servers => &self.servers,
            Group::Clients => &self.clients,
        }
    }

    /// Runs a test: INIT, START, STATUS until the clients have finished, STOP. `plan` is a
    /// client's; role, addresses and the total in flight are filled in for each node.
    pub(super) fn test(&mut self, plan: &Plan, watch: &mut dyn TestObserver) -> Result<Finding, Failure> {
        let (server_addresses, client_addresses) = self.init(plan, watch)?;
        for group in [Group::Servers, Group::Clients] {
            self.ask(group, |_| Command::Start, watch, POLL_INTERVAL)?;
        }
        let complete = self.watch(plan, watch)?;
        let clients = self.statuses(Group::Clients, watch)?;
        self.ask(Group::Clients, |_| Command::Stop, watch, POLL_INTERVAL)?;
        let operations = total(clients.iter().map(|status| status.operations));
        let servers = self.settled(operations, watch)?;
        self.ask(Group::Servers, |_| Command::Stop, watch, POLL_INTERVAL)?;
        Ok(Finding { clients, servers, complete, client_addresses, server_addresses })
    }

    fn init(
        &mut self,
        plan: &Plan,
        watch: &mut dyn TestObserver,
    ) -> Result<(Vec<String>, Vec<String>), Failure> {
        let in_flight = plan.in_flight.saturating_mul(self.clients.len() as u32);
        let (server_run, client_run) = (self.run, self.run.wrapping_add(1));
        self.run = self.run.wrapping_add(1 + self.clients.len() as u16);
        let init = |role, run, in_flight, peers: &[String], address| {
            let plan = Plan { role, run, in_flight, peers: peers.to_vec(), address, ..plan.clone() };
            Command::Init(plan)
        };
        let [server_data, client_data] = self.data.clone();
        let done = |answer| match answer {
            Answer::Address(address) => Ok(address),
            _ => Err(Failure::new("a node answered INIT with another message")),
        };
        let servers = self.ask(
            Group::Servers,
            |server| init(Role::Server, server_run, in_flight, &[], server_data[server].clone()),
            watch,
            POLL_INTERVAL,
        )?;
        let servers: Vec<String> = servers.into_iter().map(done).collect::<Result<_, _>>()?;
        let clients = self.ask(
            Group::Clients,
            |client| {
                let run = client_run.wrapping_add(client as u16);
                init(Role::Client, run, plan.in_flight, &servers, client_data[client].clone())
            },
            watch,
            POLL_INTERVAL,
        )?;
        let clients = clients.into_iter().map(done).collect::<Result<_, _>>()?;
        Ok((servers, clients))
    }

    /// Polls until the clients have finished; returns false if the test was stopped before.
    fn watch(&mut self, plan: &Plan, watch: &mut dyn TestObserver) -> Result<bool, Failure> {
        let time_limit = plan.duration + plan.timeout * TIMEOUTS + EXTRA_TIME;
        let begun = Instant::now();
        for round in 1.. {
            let next = Instant::now() + ROUND;
            while Instant::now() < next && !watch.is_stopped() {
                std::thread::sleep(WATCH_INTERVAL);
            }
            watch.check()?;
            let clients = self.status_of(Group::Clients, 0, watch, WATCH_INTERVAL)?;
            watch.round(&clients);
            if clients.iter().all(|status| status.finished) {
                return Ok(true);
            }
            if watch.is_stopped() {
                return Ok(false);
            }
            if round % SERVER_ROUNDS == 0 {
                self.status_of(Group::Servers, 0, watch, WATCH_INTERVAL)?;
            }
            if begun.elapsed() > time_limit {
                return Err(Failure::new(format!("the clients have not finished after {time_limit:?}")));
            }
        }
        Ok(false)
    }

    /// Returns the servers' final status, once they have counted as many operations as the clients,
    /// or after [`SETTLE_TIME`]: operations may be lost.
    fn settled(&mut self, operations: u64, watch: &mut dyn TestObserver) -> Result<Vec<Status>, Failure> {
        let deadline = Instant::now() + SETTLE_TIME;
        loop {
            let servers = self.status_of(Group::Servers, 0, watch, POLL_INTERVAL)?;
            let counted = total(servers.iter().map(|status| status.operations));
            let lost = servers.iter().any(|status| status.lost > 0);
            if counted >= operations || lost || Instant::now() >= deadline || watch.is_stopped() {
                return Ok(servers);
            }
        }
    }

    /// Returns the final status of a group, with all latencies.
    fn statuses(&mut self, group: Group, watch: &mut dyn TestObserver) -> Result<Vec<Status>, Failure> {
        let mut whole: Vec<Status> = Vec::new();
        let mut from = 0;
        loop {
            let parts = self.status_of(group, from, watch, POLL_INTERVAL)?;
            let more = parts.iter().any(|part| part.latencies.len() == LATENCIES_MAX);
            match whole.is_empty() {
                true => whole = parts,
                false => {
                    for (whole, part) in whole.iter_mut().zip(parts) {
                        whole.latencies.extend(part.latencies);
                    }
                }
            }
            if !more {
                return Ok(whole);
            }
            from += LATENCIES_MAX as u32;
            if from as usize >= VALUES_MAX {
                return Err(Failure::new(format!(
                    "a node reports more than {VALUES_MAX} different latencies"
                )));
            }
        }
    }

    fn status_of(
        &mut self,
        group: Group,
        from: u32,
        watch: &mut dyn TestObserver,
        interval: Duration,
    ) -> Result<Vec<Status>, Failure> {
        let answers = self.ask(group, |_| Command::Status(from), watch, interval)?;
        let status = |answer| match answer {
            Answer::Status(status) => Ok(*status),
            _ => Err(Failure::new("a node answered STATUS with another message")),
        };
        answers.into_iter().map(status).collect()
    }

    /// Sends a command to each node of a group, and receives the answers of all of them. Between polls
    /// it sleeps outside of the transport: the network would repeatedly be handed over to a thread that
    /// sleeps in it beside one that measures.
    fn ask(
        &mut self,
        group: Group,
        command: impl Fn(usize) -> Command,
        watch: &mut dyn TestObserver,
        interval: Duration,
    ) -> Result<Vec<Answer>, Failure> {
        let nodes = self.nodes(group).to_vec();
        let mut calls = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            calls.push(self.commands.start(node, &serde_json::to_vec(&command(index))?)?);
        }
        let mut answers: Vec<Option<Answer>> = vec![None; nodes.len()];
        while answers.iter().any(Option::is_none) {
            let Some(finished) = self.commands.wait(Some(Duration::ZERO))? else {
                watch.check()?;
                std::thread::sleep(interval);
                continue;
            };
            // The ends of calls of a command that has failed are ignored.
            let Some(index) = calls.iter().position(|call| *call == finished.call) else { continue };
            let node = nodes[index].address();
            let answer = finished.outcome.map_err(|error| unanswered(&node, &error))?;
            let answer = serde_json::from_slice::<Result<Answer, Refusal>>(&answer)?;
            let refused = |refusal: Refusal| Failure::new(format!("{node} refuses: {}", refusal.reason));
            answers[index] = Some(answer.map_err(refused)?);
        }
        Ok(answers.into_iter().flatten().collect())
    }
}

/// Describes a node that does not answer a command, or cannot be reached.
fn unanswered(node: &Address, error: &RequestError) -> Failure {
    let step = if let RequestError::Unreachable { .. } = error { "send" } else { "answer" };
    let errno = error.errno();
    Failure::at(step, errno, format!("{node}: {error} ({errno:?})")).hint(hint(node)).about(node.nid)
}

fn hint(node: &Address) -> String {
    let nid = node.nid;
    format!(
        "does 'nlx selftest --server' run there, with the same --accept-port? 'nlx ping {nid}' says how far a message comes, \
         and with '--size 1M --to-nlx' whether a long one does"
    )
}

/// Returns the address of a node's data: its own NID, and the portal of the self-test.
fn data_address(node: &EndPoint) -> String {
    let address = node.address();
    format!("{}:{}:{}:*", address.nid, address.pid, super::PORTAL)
}
