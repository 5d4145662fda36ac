//! The session of a node, its batches and their tests (lst 6).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_proto::lst::{Features, Name, SessionId, Statistics};
use nix::errno::Errno;

use super::instance::SessionErrors;
use super::shared::MemoryCharge;
use super::{BATCHES_MAX, BatchReport, INSTANCES_MAX, TestInstance, Units};

/// The state of a session at a test node: its batches, and its deadline.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) sid: SessionId,
    pub(super) name: Name,
    pub(super) features: Features,
    /// MKSN requests less RMSN requests.
    pub(super) references: u32,
    pub(super) made_ns: u64,
    /// When it expires; `u64::MAX` is never.
    pub(super) deadline_ns: u64,
    pub(super) errors: Arc<SessionErrors>,
    pub(super) batches: Vec<Batch>,
}

/// Tests that run together.
#[derive(Debug)]
pub(super) struct Batch {
    id: u64,
    tests: Vec<Member>,
}

/// A test at this node. The console counts both kinds.
#[derive(Debug)]
pub(super) enum Member {
    Server { _charge: MemoryCharge },
    Client(Arc<TestInstance>),
}

/// A test client of a session, for reports.
#[derive(Clone, Debug)]
pub struct Client {
    /// The console's number of its batch.
    pub batch: u64,
    /// Its number among the node's tests of the batch, from 1.
    pub test: usize,
    /// The test client, with its work and results.
    pub instance: Arc<TestInstance>,
}

/// The session that a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its id, with the NID of its console.
    pub sid: SessionId,
    /// The name that its console chose.
    pub name: Name,
    /// The features that the console chose; every later request must carry the same.
    pub features: Features,
    /// When it was made.
    pub made_ns: u64,
}

impl Session {
    pub(super) fn view(&self) -> SessionView {
        SessionView { sid: self.sid, name: self.name, features: self.features, made_ns: self.made_ns }
    }

    pub(super) fn batch(&mut self, id: u64) -> Option<&mut Batch> {
        self.batches.iter_mut().find(|batch| batch.id == id)
    }

    /// The batch to which a test is to be added; a new one, if the id is unknown.
    pub(super) fn batch_for_test(&mut self, id: u64) -> Result<&mut Batch, Errno> {
        let found = self.batches.iter().position(|batch| batch.id == id);
        let index = match found {
            Some(index) if self.batches[index].is_active() => return Err(Errno::EBUSY),
            Some(index) => index,
            None if self.batches.len() == BATCHES_MAX => return Err(Errno::ENOMEM),
            None => {
                self.batches.push(Batch { id, tests: Vec::new() });
                self.batches.len() - 1
            }
        };
        Ok(&mut self.batches[index])
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = Client> {
        self.batches.iter().flat_map(|batch| {
            let tests = batch.tests.iter().enumerate();
            tests.filter_map(|(index, member)| match member {
                Member::Server { .. } => None,
                Member::Client(instance) => {
                    Some(Client { batch: batch.id, test: index + 1, instance: Arc::clone(instance) })
                }
            })
        })
    }

    /// Adds the session's part of a STAT reply.
    pub(super) fn statistics(&self, node: Statistics, now_ns: u64) -> Statistics {
        Statistics {
            session_ms: (now_ns.saturating_sub(self.made_ns) / 1_000_000) as u32,
            active_batches: self.batches.iter().filter(|batch| batch.is_active()).count() as u32,
            brw_errors: self.errors.brw.load(Ordering::Relaxed),
            ping_errors: self.errors.ping.load(Ordering::Relaxed),
            ..node
        }
    }

    /// Aborts all units. Returns the clients that have units which have not ended yet.
    pub(super) fn end(&self) -> Vec<Arc<TestInstance>> {
        let all = self.batches.iter().flat_map(Batch::clients);
        let running = all.filter(|client| client.running() > 0);
        running.inspect(|client| client.progress.stop(true)).map(Arc::clone).collect()
    }
}

impl Batch {
    fn clients(&self) -> impl Iterator<Item = &Arc<TestInstance>> {
        self.tests.iter().filter_map(|member| match member {
            Member::Server { .. } => None,
            Member::Client(instance) => Some(instance),
        })
    }

    /// Number of clients that have units which have not ended.
    pub(super) fn active_clients(&self) -> u32 {
        self.clients().filter(|client| client.running() > 0).count() as u32
    }

    pub(super) fn is_active(&self) -> bool {
        self.active_clients() > 0
    }

    pub(super) fn has_room(&self) -> bool {
        self.tests.len() < INSTANCES_MAX
    }

    pub(super) fn add(&mut self, member: Member) {
        self.tests.push(member);
    }

    /// Starts all clients, unless one of them is active.
    pub(super) fn run(&self) -> Units {
        if self.is_active() {
            return Units::new(Vec::new());
        }
        let clients: Vec<_> = self.clients().map(Arc::clone).collect();
        for client in &clients {
            client.progress.start(client.units());
        }
        Units::new(clients)
    }

    pub(super) fn stop(&self, abort: bool) {
        self.clients().for_each(|client| client.progress.stop(abort));
    }

    pub(super) fn report(&self) -> BatchReport {
        let clients = self.clients().count();
        BatchReport {
            id: self.id,
            servers: self.tests.len() - clients,
            clients,
            running_clients: self.active_clients(),
            running_units: self.clients().map(|client| client.running()).sum(),
            errors: self.clients().map(|client| client.results.errors()).sum(),
        }
    }

    /// The answer to QUERY: active clients of the batch, or the running units of one test.
    pub(super) fn query(&self, test: u32) -> Result<u32, Errno> {
        let Ok(number) = i32::try_from(test) else { return Err(Errno::EINVAL) };
        if number == 0 {
            return Ok(self.active_clients());
        }
        match self.tests.get(number as usize - 1) {
            None => Err(Errno::ENOENT),
            Some(Member::Server { .. }) => Ok(0),
            Some(Member::Client(instance)) => Ok(instance.running()),
        }
    }
}
