//! A world of lst: its hosts, its network, its time, and the checks.

use std::net::IpAddr;
use std::sync::Arc;

use lnet_api::Lnd;
use lnet_nid::{Net, NetType, Nid, ProcessId};
use lnet_proto::lst::{Check as DataCheck, Direction, Features, Name};
use nlx_lst::console::{
    AddTest, BrwTest, ConsoleOperation, Distribution, Event, NewSession, NodeFailure, Report, Target,
    TestKind,
};
use nlx_lst::node::{Config, UNIT_BYTES};

use super::host::{Check, Host};
use super::program::{Answers, answers, command, expected};
use super::{LstScenario, LstSeen};
use crate::kit::Trace;
use crate::run::Play;
use crate::{Rng, SimNet, Step};

/// Turns of each host after an event on the network.
const TURNS: u32 = 4;

/// Interval of the hosts' timers.
const TICK_NS: u64 = 100_000_000;

/// Time within which a command ends: a stop waits for 90 s, between RPCs of 30 s each.
const COMMAND_MAX_NS: u64 = 200 * SECOND_NS;

/// Time after which no node is in a session of a console that is gone, and no RPC is in flight: the
/// session timeout, then the RPC timeout.
const SETTLE_NS: u64 = 200 * SECOND_NS;

/// The longest cut.
const CUT_MAX_NS: u64 = 40 * SECOND_NS;

/// Bytes that the tests of a node may use.
const MEMORY: u64 = 4 << 20;

/// Bytes of each transfer of the last test, which needs most of this memory.
const LAST_LENGTH: u32 = 1 << 20;

const SECOND_NS: u64 = 1_000_000_000;

/// A command in progress.
struct Running {
    text: String,
    expected: Option<Vec<ProcessId>>,
    until_ns: u64,
}

pub(super) struct World {
    scenario: LstScenario,
    rng: Rng,
    net: Arc<SimNet>,
    lnd: Arc<dyn Lnd>,
    /// The test nodes, then the consoles.
    hosts: Vec<Host>,
    /// The commands in progress, by host.
    running: Vec<Option<Running>>,
    /// The number of the next life of a host, and of the next session.
    lives: u64,
    is_calm: bool,
    seen: LstSeen,
    trace: Trace,
}

fn nid(index: usize) -> Nid {
    Nid::new_ip(Net::new(NetType::TCP, 0), IpAddr::from([10, 0, 0, index as u8 + 1]))
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or(Name::EMPTY)
}

impl World {
    pub(super) fn new(scenario: LstScenario, traced: bool) -> Check<World> {
        let mut rng = Rng::new(scenario.seed);
        let net = SimNet::new(rng.next_u64(), Arc::new(()));
        let lnd = net.lnd(NetType::TCP, scenario.link.clone()).map_err(|error| error.to_string())?;
        net.after(TICK_NS, 0);
        let count = scenario.nodes + scenario.consoles;
        let mut world = World {
            scenario,
            rng,
            net,
            lnd,
            hosts: Vec::new(),
            running: (0..count).map(|_| None).collect(),
            lives: 0,
            is_calm: false,
            seen: LstSeen::default(),
            trace: Trace::new(traced),
        };
        for index in 0..count {
            let host = world.start(index)?;
            world.hosts.push(host);
        }
        Ok(world)
    }

    /// Starts a host, a console or a node, in a new life.
    fn start(&mut self, index: usize) -> Check<Host> {
        self.lives += 1;
        let host = Host::start(nid(index), &self.lnd, self.lives, self.scenario.defect)?;
        if index >= self.scenario.nodes {
            return host.with_console();
        }
        host.with_node(Config { memory_max: MEMORY, ..Config::default() })
    }

    /// A host dies, and comes back.
    fn kill(&mut self, index: usize) -> Check {
        self.trace.add(|| [format!("{} dies", self.hosts[index].id)]);
        self.net.crash(nid(index));
        self.hosts[index] = self.start(index)?;
        let was_running = self.running[index].take().is_some();
        if index < self.scenario.nodes {
            self.seen.nodes_died += 1;
        } else {
            self.seen.consoles_died += 1;
            self.seen.died_in_command += u64::from(was_running);
        }
        Ok(())
    }

    /// Runs the next event, and what follows from it.
    fn happen(&mut self) -> Check {
        if let Some(Step::Timer(_)) = self.net.step() {
            self.net.after(TICK_NS, 0);
            let now_ns = self.net.now_ns();
            for host in &mut self.hosts {
                host.tick(now_ns, &mut self.seen)?;
            }
        }
        self.handle_all()?;
        if !self.is_calm && self.rng.below(1_000_000) < self.scenario.trouble {
            self.trouble()?;
        }
        Ok(())
    }

    fn trouble(&mut self) -> Check {
        let index = self.rng.index(self.hosts.len());
        if self.rng.chance(7_000) {
            let other = self.rng.index(self.hosts.len());
            let time_ns = self.rng.below(CUT_MAX_NS);
            if index != other {
                self.trace.add(|| [format!("a cut of hosts {index} and {other}, {time_ns} ns")]);
                self.net.cut(nid(index), nid(other), time_ns);
            }
            return Ok(());
        }
        self.kill(index)?;
        self.handle_all()
    }

    /// Handles the events of all hosts until there are none, or for a limited number of rounds: a node
    /// that tests itself produces events without end while the virtual time does not advance.
    fn handle_all(&mut self) -> Check {
        let now_ns = self.net.now_ns();
        for _ in 0..TURNS {
            let mut found = false;
            for index in 0..self.hosts.len() {
                found |= self.hosts[index].handle_events(now_ns, &mut self.seen)?;
                self.take_results(index)?;
            }
            if !found {
                break;
            }
        }
        Ok(())
    }

    /// Takes the events of a console.
    fn take_results(&mut self, index: usize) -> Check {
        while let Some(event) = self.hosts[index].console.as_mut().and_then(|console| console.next_event()) {
            match event {
                Event::Done(outcome) => {
                    let Some(running) = self.running[index].take() else {
                        return Err(format!("console {index}: a result without a command: {outcome:?}"));
                    };
                    self.trace.add(|| [format!("console {index}: {} ends: {outcome:?}", running.text)]);
                    if let Ok(report) = outcome {
                        self.check_report(&running, &report)?;
                    }
                }
                Event::Progress(report) => drop(self.count(&report)),
                Event::Warning(_) => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, report: &Report) -> Answers {
        let answers = answers(report);
        for (_, answer) in &answers {
            self.seen.results += 1;
            match answer {
                Ok(()) => {}
                Err(NodeFailure::Refused(_)) => self.seen.refusals += 1,
                Err(NodeFailure::Rpc(_)) => self.seen.rpc_failures += 1,
            }
        }
        answers
    }

    /// Checks that each node of a command has a result.
    fn check_report(&mut self, running: &Running, report: &Report) -> Check {
        let answers = self.count(report);
        let unanswered = |(_, answer): &&(ProcessId, Result<(), NodeFailure>)| {
            *answer == Err(NodeFailure::Rpc(nix::errno::Errno::EINPROGRESS))
        };
        if let Some((node, _)) = answers.iter().find(unanswered) {
            return Err(format!("{}: {node} has no result", running.text));
        }
        let Some(expected) = &running.expected else { return Ok(()) };
        let mut found: Vec<ProcessId> = answers.iter().map(|(node, _)| *node).collect();
        let mut expected = expected.clone();
        found.sort();
        expected.sort();
        if found == expected {
            Ok(())
        } else {
            Err(format!("{}: results of {found:?}, not of {expected:?}", running.text))
        }
    }

    /// Begins a command on a console; nothing, if the console refuses it.
    fn begin(&mut self, index: usize, operation: ConsoleOperation) -> Check {
        let now_ns = self.net.now_ns();
        let Some(console) = &mut self.hosts[index].console else { return Ok(()) };
        let running = Running {
            text: format!("console {index}: {operation:?}"),
            expected: expected(&operation, console),
            until_ns: now_ns + COMMAND_MAX_NS,
        };
        self.trace.add(|| [format!("{now_ns}: {}", running.text)]);
        self.seen.commands += 1;
        match console.begin(operation, now_ns) {
            Ok(()) => {
                self.running[index] = Some(running);
                self.handle_all()
            }
            Err(error) => {
                self.trace.add(|| [format!("refused: {error}")]);
                self.seen.refused += 1;
                Ok(())
            }
        }
    }

    /// Lets everything happen until all commands have ended.
    fn finish(&mut self) -> Check {
        while self.running.iter().any(Option::is_some) {
            self.happen()?;
            let now_ns = self.net.now_ns();
            if let Some(late) = self.running.iter().flatten().find(|running| running.until_ns < now_ns) {
                return Err(format!("{} does not end", late.text));
            }
        }
        self.hosts.iter().try_for_each(Host::check_counters)
    }

    fn pass(&mut self, time_ns: u64) -> Check {
        let until_ns = self.net.now_ns() + time_ns;
        while self.net.now_ns() < until_ns {
            self.happen()?;
        }
        Ok(())
    }

    fn consoles(&self) -> std::ops::Range<usize> {
        self.scenario.nodes..self.hosts.len()
    }

    fn nodes(&self) -> Vec<ProcessId> {
        self.hosts[..self.scenario.nodes].iter().map(|host| host.id).collect()
    }

    fn expired_consoles(&self) -> u64 {
        let sessions = self.hosts.iter().filter_map(|host| host.console.as_ref()?.session());
        sessions.filter(|session| session.expired).count() as u64
    }

    /// A session that finds all nodes free, without zombies, and with all of their memory.
    fn last_session(&mut self) -> Check {
        let console = self.scenario.nodes;
        let (all, batch) = (name("all"), name("batch"));
        // The console is restarted, so that no session is left in it.
        self.hosts[console].end(self.net.now_ns(), &mut self.seen)?;
        self.kill(console)?;
        self.lives += 1;
        let session = NewSession {
            name: name("last"),
            stamp: self.lives as i64,
            timeout_s: 300,
            force: false,
            features: Features::BULK_LENGTH,
        };
        let units = MEMORY / u64::from(LAST_LENGTH) - 1;
        let brw =
            BrwTest { direction: Direction::READ, check: DataCheck::FULL, length: LAST_LENGTH, offset: 0 };
        let test = AddTest {
            batch,
            from: all,
            to: all,
            kind: TestKind::Brw(brw),
            repeats: Some(1),
            concurrency: units as u32,
            distribution: Distribution { clients: 1, servers: 1 },
        };
        debug_assert!(units * (UNIT_BYTES + u64::from(LAST_LENGTH)) > MEMORY / 2);
        for operation in [
            ConsoleOperation::NewSession(session),
            ConsoleOperation::AddGroup { name: all, nodes: self.nodes() },
            ConsoleOperation::AddTest(test),
            ConsoleOperation::ShowError { targets: vec![Target::Group(all)] },
        ] {
            let result = self.must_succeed(console, operation)?;
            if let Report::Errors(targets) = &result {
                let zombies: u32 =
                    targets.iter().flat_map(|target| target.results()).map(|of| of.zombie_sessions).sum();
                if zombies > 0 {
                    return Err(format!("{zombies} sessions are zombies"));
                }
            }
        }
        self.must_succeed(console, ConsoleOperation::EndSession)?;
        self.drain()
    }

    /// Carries out a command by hand; all nodes must succeed.
    fn must_succeed(&mut self, index: usize, operation: ConsoleOperation) -> Check<Report> {
        let text = format!("{operation:?}");
        let now_ns = self.net.now_ns();
        let Some(console) = &mut self.hosts[index].console else { return Err("no console".to_string()) };
        console.begin(operation, now_ns).map_err(|error| format!("{text}: {error}"))?;
        let until_ns = now_ns + COMMAND_MAX_NS;
        loop {
            let console = self.hosts[index].console.as_mut();
            let event = console.and_then(|console| console.next_event());
            match event {
                Some(Event::Done(outcome)) => {
                    let report = outcome.map_err(|error| format!("{text}: {error}"))?;
                    let failed = answers(&report).into_iter().find(|(_, answer)| answer.is_err());
                    return failed.map_or(Ok(report), |failed| Err(format!("{text}: {failed:?}")));
                }
                Some(_) => {}
                None if self.net.now_ns() > until_ns => return Err(format!("{text} does not end")),
                None => {
                    self.running[index] = None;
                    self.step_quietly()?;
                }
            }
        }
    }

    /// Runs the next event without taking results of consoles.
    fn step_quietly(&mut self) -> Check {
        let is_timer = matches!(self.net.step(), Some(Step::Timer(_)));
        let now_ns = self.net.now_ns();
        if is_timer {
            self.net.after(TICK_NS, 0);
        }
        for host in &mut self.hosts {
            if is_timer {
                host.tick(now_ns, &mut self.seen)?;
            }
            host.handle_events(now_ns, &mut self.seen)?;
        }
        Ok(())
    }

    /// Lets all messages arrive.
    fn drain(&mut self) -> Check {
        while self.net.has_traffic() {
            self.happen()?;
        }
        Ok(())
    }
}

impl Play for World {
    type Seen = LstSeen;

    fn step(&mut self) -> Check {
        let expired = self.expired_consoles();
        for index in self.consoles() {
            // Sometimes several consoles have a command at the same time.
            if self.rng.chance(7_000) {
                let nodes = self.nodes();
                self.lives += 1;
                let stamp = self.lives as i64;
                let Some(console) = &self.hosts[index].console else { continue };
                let operation = command(console, &nodes, stamp, &mut self.rng);
                self.begin(index, operation)?;
            }
        }
        self.finish()?;
        // Mostly soon, sometimes after so long that sessions expire, or almost do.
        let pauses = match self.rng.below(10) {
            0 => [30 * SECOND_NS, 70 * SECOND_NS, 110 * SECOND_NS],
            _ => [1_000_000, 100_000_000, 3 * SECOND_NS],
        };
        let pause_ns = self.rng.pick(&pauses);
        self.pass(pause_ns)?;
        self.seen.expired_consoles += self.expired_consoles().saturating_sub(expired);
        self.hosts.iter().try_for_each(Host::check_counters)
    }

    fn settle(&mut self) -> Check {
        self.net.end_faults();
        self.is_calm = true;
        for index in self.consoles() {
            // A console that is gone leaves its session to its nodes.
            if self.rng.chance(5_000) {
                self.kill(index)?;
            } else {
                self.begin(index, ConsoleOperation::EndSession)?;
            }
        }
        self.finish()?;
        self.pass(SETTLE_NS)?;
        self.drain()?;
        self.hosts.iter_mut().try_for_each(Host::check_idle)?;
        self.last_session()?;
        self.hosts.iter_mut().try_for_each(Host::check_idle)?;
        let now_ns = self.net.now_ns();
        let seen = &mut self.seen;
        self.hosts.iter_mut().try_for_each(|host| host.end(now_ns, seen))?;
        self.seen.late = self.hosts.iter().map(|host| host.engine.counters().drop_count).sum();
        let network = self.net.seen();
        (self.seen.cuts, self.seen.disconnects) = (network.cuts, network.disconnects);
        // Engines and their network hold references to each other.
        self.net.crash_all();
        Ok(())
    }

    fn seen(&self) -> LstSeen {
        self.seen
    }

    fn trace_lines(&mut self) -> Vec<String> {
        self.net.crash_all();
        self.trace.lines()
    }
}
