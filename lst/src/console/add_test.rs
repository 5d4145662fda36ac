//! Adding a test: TEST to all servers, then to all clients (lst 10.3).

use lnet_nid::ProcessId;
use lnet_proto::lst::{BrwParameter, Check, Features, LstService, RequestBody, SessionId, Test};
use nix::errno::Errno;

use super::session::{self, Instance, Session};
use super::steps::{AfterStep, Round, Step, StepEnd};
use super::transaction::Outgoing;
use super::{
    AddTest, Console, ConsoleError, Event, NodeAnswer, NodeFailure, Report, TESTS_MAX, TestKind, Warning,
    check,
};

/// A test that is being added.
#[derive(Debug)]
pub(super) struct PendingTest {
    add: AddTest,
    serial: usize,
    /// Servers of which it is unknown whether they know check 4, if the test uses it.
    probed: Vec<ProcessId>,
    servers: Vec<ProcessId>,
    clients: Vec<ProcessId>,
    /// The request, as the clients get it except for the destinations.
    template: Test,
    /// RPCs that a server expects at once.
    expected: u32,
}

impl Console {
    pub(super) fn add_test(&mut self, add: AddTest) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        let mut plan = PendingTest::new(session, add)?;
        let probed = session.without_discard_knowledge(&plan);
        plan.probed = probed;
        if let Some(batch) = session.batch_mut(add.batch) {
            plan.serial = batch.serials;
            batch.serials += 1;
            // From now on the groups cannot change. A test that is refused is removed again.
            batch.tests.push(session::Test { add, serial: plan.serial });
        }
        Ok(self.begin_plan(Box::new(plan)))
    }

    /// Probes the servers if that is needed, before they get the test itself.
    fn begin_plan(&mut self, plan: Box<PendingTest>) -> AfterStep {
        if plan.probed.is_empty() {
            let round = plan.to_servers();
            return AfterStep::Send(Step::Servers(plan), round);
        }
        let batch = self.take_batch_id();
        let round = plan.probe(batch);
        AfterStep::Send(Step::Probe(plan), round)
    }

    /// Ends [`Step::Probe`]: a server that refuses check 4 would die of a request with it.
    pub(super) fn probed(&mut self, plan: Box<PendingTest>, ended: StepEnd) -> AfterStep {
        for answer in &ended.answers {
            let node = self.session.as_mut().and_then(|session| session.nodes.get_mut(&answer.node));
            let knows = match answer.answer {
                Ok(_) => Some(true),
                Err(NodeFailure::Refused(Errno::EINVAL)) => Some(false),
                Err(_) => None,
            };
            if let Some(node) = node {
                node.discards = knows;
            }
            if knows == Some(false) {
                self.withdraw(&plan);
                return AfterStep::Done(Err(check::unknown_discard(answer.node)));
            }
        }
        let nodes = ended.successes();
        if all_succeeded(&nodes) {
            let round = plan.to_servers();
            return AfterStep::Send(Step::Servers(plan), round);
        }
        self.withdraw(&plan);
        AfterStep::Done(Ok(Report::Test { batch: plan.add.batch, number: None, nodes }))
    }

    /// Ends [`Step::Servers`].
    pub(super) fn servers_added(&mut self, plan: Box<PendingTest>, ended: StepEnd) -> AfterStep {
        let servers = ended.successes();
        self.note_instances(&plan, false, &servers);
        if !all_succeeded(&servers) {
            self.withdraw(&plan);
            return AfterStep::Done(Ok(Report::Test { batch: plan.add.batch, number: None, nodes: servers }));
        }
        let round = plan.to_clients();
        AfterStep::Send(Step::Clients { plan, servers }, round)
    }

    /// Ends [`Step::Clients`].
    pub(super) fn clients_added(
        &mut self,
        plan: &PendingTest,
        mut nodes: Vec<NodeAnswer<()>>,
        ended: StepEnd,
    ) -> Report {
        let clients = ended.successes();
        self.note_instances(plan, true, &clients);
        let batch = plan.add.batch;
        let number = match all_succeeded(&clients) {
            true => self.number_of(plan),
            false => {
                self.withdraw(plan);
                None
            }
        };
        let leftovers = clients.iter().filter(|client| client.answer.is_ok()).count();
        if number.is_none() && leftovers > 0 {
            self.events.push_back(Event::Warning(Warning::TestLeftovers { batch, nodes: leftovers }));
        }
        nodes.extend(clients);
        Report::Test { batch, number, nodes }
    }

    fn note_instances(&mut self, plan: &PendingTest, is_client: bool, nodes: &[NodeAnswer<()>]) {
        let batch = self.session.as_mut().and_then(|session| session.batch_mut(plan.add.batch));
        let Some(batch) = batch else { return };
        for node in nodes.iter().filter(|node| node.answer.is_ok()) {
            batch.note_instance(node.node, Instance { serial: plan.serial, is_client });
        }
    }

    /// Returns the place of the test in its batch, from 1.
    fn number_of(&self, plan: &PendingTest) -> Option<u32> {
        let batch = self.session.as_ref()?.batch(plan.add.batch).ok()?;
        let place = batch.tests.iter().position(|test| test.serial == plan.serial)?;
        Some(place as u32 + 1)
    }

    /// Removes a test that was refused.
    fn withdraw(&mut self, plan: &PendingTest) {
        let batch = self.session.as_mut().and_then(|session| session.batch_mut(plan.add.batch));
        if let Some(batch) = batch {
            batch.tests.retain(|test| test.serial != plan.serial);
        }
    }
}

impl Session {
    /// Returns the servers that must be probed before a test with check 4.
    fn without_discard_knowledge(&self, plan: &PendingTest) -> Vec<ProcessId> {
        match plan.add.kind {
            TestKind::Brw(brw) if brw.check == Check::DISCARD => {
                let unknown =
                    |node: &&ProcessId| self.nodes.get(node).is_none_or(|node| node.discards != Some(true));
                plan.servers.iter().filter(unknown).copied().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl PendingTest {
    fn new(session: &Session, add: AddTest) -> Result<PendingTest, ConsoleError> {
        let batch = session.batch(add.batch)?;
        if batch.running {
            return Err(ConsoleError::Running { batch: add.batch });
        }
        if batch.serials >= TESTS_MAX {
            return Err(ConsoleError::TooMany { what: "tests of a batch", limit: TESTS_MAX });
        }
        let clients = session.group(add.from)?.nodes.clone();
        let servers = session.group(add.to)?.nodes.clone();
        check::test(&add, servers.len(), session.features)?;
        session.refuse_inactive(&servers)?;
        session.refuse_inactive(&clients)?;
        let expected = expected(&add, clients.len(), servers.len());
        let template = template(&add, session.sid, batch.id, session.features)?;
        Ok(PendingTest { add, serial: 0, probed: Vec::new(), servers, clients, template, expected })
    }

    fn to_servers(&self) -> Round {
        let body = RequestBody::Test(Test {
            is_client: false,
            destinations: 0,
            repeats: self.expected,
            ..self.template
        });
        Round::new(self.servers.iter().map(|node| Outgoing::new(*node, body)).collect())
    }

    fn to_clients(&self) -> Round {
        let clients = self.clients.iter().enumerate();
        Round::new(clients.map(|(number, node)| self.to_client(*node, &self.destinations(number))).collect())
    }

    /// Returns a TEST for a client with itself as destination, which never runs.
    fn probe(&self, batch: u64) -> Round {
        let probe = |node: &ProcessId| {
            let mut rpc = self.to_client(*node, std::slice::from_ref(node));
            if let RequestBody::Test(test) = &mut rpc.body {
                (test.batch, test.repeats, test.concurrency) = (batch, 1, 1);
            }
            rpc
        };
        Round::new(self.probed.iter().map(probe).collect())
    }

    fn to_client(&self, to: ProcessId, servers: &[ProcessId]) -> Outgoing {
        // Nodes without a 4-byte address are in no group.
        let list = servers.iter().filter_map(|server| check::destination(*server).ok()).flatten().collect();
        let destinations = servers.len() as u32;
        let body = RequestBody::Test(Test { destinations, ..self.template });
        Outgoing { to, body, destinations: Some(list) }
    }

    /// Returns the servers of a client: a run of the group, which wraps around.
    fn destinations(&self, client: usize) -> Vec<ProcessId> {
        let (dist, span) = (self.add.distribution.clients as usize, self.add.distribution.servers as usize);
        let first = client / dist * span % self.servers.len();
        (first..first + span).map(|place| self.servers[place % self.servers.len()]).collect()
    }
}

/// Returns how many RPCs a server must expect at once.
fn expected(add: &AddTest, clients: usize, servers: usize) -> u32 {
    let (dist, span) = (u64::from(add.distribution.clients), u64::from(add.distribution.servers));
    let (clients, servers) = ((clients as u64).div_ceil(dist), (servers as u64).div_ceil(span));
    let expected = clients.div_ceil(servers) * dist * u64::from(add.concurrency);
    expected.min(i32::MAX as u64) as u32
}

fn template(add: &AddTest, sid: SessionId, batch: u64, features: Features) -> Result<Test, ConsoleError> {
    let service = match add.kind {
        TestKind::Ping => LstService::Ping,
        TestKind::Brw(_) => LstService::Brw,
    };
    let test = Test {
        bulk_id: 0,
        sid,
        batch,
        service: service as u32,
        repeats: add.repeats.unwrap_or(u32::MAX),
        concurrency: add.concurrency,
        is_client: true,
        stop_on_error: true,
        destinations: 0,
        parameter: [0; 12],
    };
    let TestKind::Brw(brw) = add.kind else { return Ok(test) };
    let in_bytes = features.contains(Features::BULK_LENGTH);
    let length = if in_bytes { brw.length } else { brw.length / check::PAGE };
    let brw = BrwParameter { direction: brw.direction, check: brw.check, length, offset: brw.offset };
    let refused = |_| check::range("the direction or check", brw.check.0.into(), 1, 4);
    test.with_brw(&brw, features).map_err(refused)
}

fn all_succeeded(nodes: &[NodeAnswer<()>]) -> bool {
    nodes.iter().all(|node| node.answer.is_ok())
}
