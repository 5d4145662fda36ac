//! The life of a session: its begin, keep-alive, expiry (lst 10.5) and end.

use lnet_nid::ProcessId;
use lnet_proto::lst::{Name, RequestBody, SessionId};

use super::session::{Batch, Session};
use super::steps::{AfterStep, Step};
use super::transaction::Outgoing;
use super::{Console, ConsoleError, Event, NewSession, NodeState, Report, SECOND_NS, TICK_NS, Warning};

impl Console {
    pub(super) fn new_session(&mut self, new: &NewSession, now_ns: u64) -> Result<AfterStep, ConsoleError> {
        match &self.session {
            Some(session) if !session.expired => {
                return Err(ConsoleError::SessionOpen { name: session.name });
            }
            _ => super::check::session(new)?,
        }
        let sid =
            SessionId::new(self.own, new.stamp).map_err(|_| ConsoleError::LargeNid { nid: self.own })?;
        self.abort_aside(now_ns);
        let batch = Batch::new(default_batch(), self.take_batch_id());
        let session = Session::new(new, sid, batch, now_ns);
        let info = session.info();
        self.session = Some(session);
        if new.force {
            self.events.push_back(Event::Warning(Warning::Forced));
        }
        Ok(AfterStep::Done(Ok(Report::Session(info))))
    }

    pub(super) fn end_session(&mut self, now_ns: u64) -> AfterStep {
        self.abort_aside(now_ns);
        let Some(session) = &self.session else {
            return AfterStep::Done(Ok(Report::End { nodes: Vec::new() }));
        };
        // When a session expires, its nodes get their RMSNs and the user is warned at once.
        for batch in session.batches.iter().filter(|batch| batch.running && !session.expired) {
            self.events.push_back(Event::Warning(Warning::EndedRunning { batch: batch.name }));
        }
        AfterStep::Send(Step::End, session.removal(session.active_nodes()))
    }

    pub(super) fn take_batch_id(&mut self) -> u64 {
        let id = self.next_batch;
        self.next_batch += 1;
        id
    }

    /// Returns when [`Console::tick`] has something to do.
    pub(super) fn next_tick_ns(&self) -> Option<u64> {
        let session = self.session.as_ref()?;
        (!session.expired || self.has_aside()).then_some(session.tick_ns)
    }

    /// Keeps the sessions of nodes alive, and ends this console's if no command came in time.
    pub(super) fn tick(&mut self, now_ns: u64) {
        let Some(session) = &mut self.session else { return };
        if now_ns < session.tick_ns {
            return;
        }
        // The next instant of the grid; ticks that were missed are not made up for.
        session.tick_ns += (now_ns - session.tick_ns) / TICK_NS * TICK_NS + TICK_NS;
        self.give_up_aside(now_ns);
        let Some(session) = &self.session else { return };
        let idle_ns = now_ns.saturating_sub(session.command_ns);
        if session.expired {
            return;
        }
        if self.running.is_none() && idle_ns >= u64::from(session.timeout_s) * SECOND_NS {
            self.expire(now_ns);
        } else {
            self.keep_alive(now_ns);
        }
    }

    /// Sends DEBUG to each ACTIVE node from which nothing came for half of its timeout.
    fn keep_alive(&mut self, now_ns: u64) {
        let Some(session) = &mut self.session else { return };
        let body = RequestBody::Debug { sid: session.sid, flags: 0 };
        let mut quiet = Vec::new();
        for (id, node) in &mut session.nodes {
            let half_ns = u64::from(node.timeout_s) * SECOND_NS / 2;
            let is_quiet = now_ns.saturating_sub(node.kept_ns) >= half_ns;
            if node.state() == NodeState::Active && half_ns > 0 && is_quiet {
                node.kept_ns = now_ns;
                quiet.push(*id);
            }
        }
        for id in quiet {
            self.post_aside(Outgoing::new(id, body), now_ns);
        }
        self.report_expired_nodes(now_ns);
    }

    /// Warns of clients of running batches whose sessions must have expired.
    fn report_expired_nodes(&mut self, now_ns: u64) {
        let Some(session) = &mut self.session else { return };
        for batch in session.batches.iter().filter(|batch| batch.running) {
            for id in batch.instances.keys() {
                let Some(node) = session.nodes.get_mut(id) else { continue };
                // A kernel node checks its timeouts as often as this console.
                let limit_ns = u64::from(node.timeout_s) * SECOND_NS + TICK_NS;
                let silent_ns = now_ns.saturating_sub(node.heard_ns);
                if node.timeout_s == 0 || silent_ns < limit_ns || node.expiry_reported {
                    continue;
                }
                node.expiry_reported = true;
                let warning =
                    Warning::NodeExpired { node: *id, silent_s: silent_ns / SECOND_NS, batch: batch.name };
                self.events.push_back(Event::Warning(warning));
            }
        }
    }

    /// Ends the session by its timeout: its nodes are sent RMSN, and it is shown until it is closed.
    fn expire(&mut self, now_ns: u64) {
        let Some(session) = &mut self.session else { return };
        session.expired = true;
        let timeout_s = session.timeout_s;
        for batch in session.batches.iter().filter(|batch| batch.running) {
            let warning = Warning::ExpiredRunning { timeout_s, batch: batch.name };
            self.events.push_back(Event::Warning(warning));
        }
        for rpc in session.removal(session.active_nodes()).outgoing {
            self.post_aside(rpc, now_ns);
        }
    }
}

impl Session {
    /// Returns the ACTIVE nodes, in the order of their NIDs.
    fn active_nodes(&self) -> Vec<ProcessId> {
        let active = self.nodes.iter().filter(|(_, node)| node.state() == NodeState::Active);
        active.map(|(id, _)| *id).collect()
    }
}

/// Returns the name of the batch that every session begins with.
fn default_batch() -> Name {
    Name::new("batch").unwrap_or(Name::EMPTY)
}
