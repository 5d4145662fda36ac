//! Transactions: RPCs that are sent at once and whose answers are waited for together (lst 10.3).

use lnet_nid::ProcessId;
use lnet_proto::lst::{Features, LstService, Reply, ReplyBody, Request, RequestBody};
use nix::errno::Errno;

use super::session::Batch;
use super::steps::Running;
use super::{
    Console, ConsoleRpc, DOWN_WAIT_S, DestinationList, Event, NodeAnswer, NodeFailure, NodeState, SECOND_NS,
    WAIT_S, Warning,
};

/// An RPC to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: ProcessId,
    pub(super) body: RequestBody,
    /// The list of destinations of a TEST for a client.
    pub(super) destinations: Option<Vec<u8>>,
}

impl Outgoing {
    pub(super) fn new(to: ProcessId, body: RequestBody) -> Outgoing {
        Outgoing { to, body, destinations: None }
    }
}

/// An RPC in flight.
#[derive(Debug)]
pub(super) struct Pending {
    node: ProcessId,
    service: LstService,
    /// Its place in the transaction; `None` for keep-alive and expiry.
    slot: Option<usize>,
    deadline_ns: u64,
}

/// The answers so far of the operation's current step.
#[derive(Debug)]
pub(super) struct Transaction {
    answers: Vec<NodeAnswer<Reply>>,
    open: usize,
    pub(super) sent_ns: u64,
    pub(super) deadline_ns: u64,
    /// Whether a node that does not answer in time is DOWN.
    pub(super) marks_down: bool,
    /// The status that counts as success.
    pub(super) forgives: Option<Errno>,
}

/// Until the answer comes.
const UNANSWERED: Result<Reply, NodeFailure> = Err(NodeFailure::Rpc(Errno::EINPROGRESS));

impl Transaction {
    pub(super) fn is_complete(&self) -> bool {
        self.open == 0
    }

    pub(super) fn into_answers(self) -> Vec<NodeAnswer<Reply>> {
        self.answers
    }
}

impl Console {
    /// Sends the RPCs of a transaction.
    pub(super) fn post_transaction(
        &mut self,
        outgoing: Vec<Outgoing>,
        wait_s: u32,
        forgives: Option<Errno>,
        now_ns: u64,
    ) -> Transaction {
        let deadline_ns = now_ns + u64::from(wait_s) * SECOND_NS;
        let transaction = Transaction {
            answers: outgoing
                .iter()
                .map(|rpc| NodeAnswer { node: rpc.to, state: NodeState::Unknown, answer: UNANSWERED })
                .collect(),
            open: outgoing.len(),
            sent_ns: now_ns,
            deadline_ns,
            marks_down: wait_s >= DOWN_WAIT_S,
            forgives,
        };
        for (slot, rpc) in outgoing.into_iter().enumerate() {
            self.post(rpc, Some(slot), deadline_ns);
        }
        transaction
    }

    /// Sends an RPC that belongs to no operation.
    pub(super) fn post_aside(&mut self, rpc: Outgoing, now_ns: u64) {
        self.post(rpc, None, now_ns + u64::from(WAIT_S) * SECOND_NS);
    }

    fn post(&mut self, rpc: Outgoing, slot: Option<usize>, deadline_ns: u64) {
        let Outgoing { to, mut body, destinations } = rpc;
        let reply_id = self.ids.take();
        let destinations = destinations.map(|bytes| DestinationList { bulk_id: self.ids.take(), bytes });
        if let (RequestBody::Test(test), Some(list)) = (&mut body, &destinations) {
            test.bulk_id = list.bulk_id;
        }
        let features = self.session.as_ref().map_or_else(Default::default, |session| session.features);
        let request = Request::new(features, reply_id, body);
        let service = request.service();
        self.pending.insert(reply_id, Pending { node: to, service, slot, deadline_ns });
        self.rpcs.push_back(ConsoleRpc { to, service, reply_id, request: request.emit(), destinations });
    }

    /// Takes the outcome of an RPC.
    pub(super) fn take_outcome(&mut self, reply_id: u64, outcome: Result<&[u8], Errno>, now_ns: u64) {
        let Some(Pending { node, service, slot, .. }) = self.pending.remove(&reply_id) else { return };
        let reply = match outcome {
            Ok(bytes) => Reply::parse(service, bytes).map_err(|_| Errno::EPROTO),
            Err(errno) => Err(errno),
        };
        match reply {
            Ok(reply) => {
                let state = self.note_reply(node, &reply, now_ns);
                let answer = self.judge(service, reply);
                self.fill(slot, state, answer);
            }
            Err(errno) => self.fail(node, slot, errno, now_ns),
        }
    }

    /// Derives the state of a node from its reply.
    fn note_reply(&mut self, node: ProcessId, reply: &Reply, now_ns: u64) -> NodeState {
        let Some(session) = &mut self.session else { return NodeState::Unknown };
        let state = NodeState::of_reply(reply.sid, session.sid);
        let Some(known) = session.nodes.get_mut(&node) else { return state };
        let before = known.state();
        known.heard(state, now_ns);
        known.note_timeout(reply);
        let state = known.state();
        let is_lost = before == NodeState::Active && state != NodeState::Active;
        if is_lost && reply.body != ReplyBody::RemoveSession {
            let ran = |batch: &&Batch| batch.running && batch.has_client(node);
            if let Some(batch) = session.batches.iter().find(ran) {
                let warning = Warning::SessionLost { node, state, batch: batch.name };
                self.events.push_back(Event::Warning(warning));
            }
        }
        state
    }

    /// Returns the reply if it is a success.
    fn judge(&mut self, service: LstService, reply: Reply) -> Result<Reply, NodeFailure> {
        let forgiven = self.running.as_ref().and_then(|running| running.forgives());
        let status = Errno::from_raw(reply.status.try_into().unwrap_or(0));
        if reply.status != 0 && forgiven != Some(status) {
            return Err(NodeFailure::Refused(status));
        }
        let fits = match service {
            _ if reply.features.has_unknown() => false,
            LstService::MakeSession => self.agree(reply.features),
            _ => true,
        };
        if fits { Ok(reply) } else { Err(NodeFailure::Refused(Errno::EPROTO)) }
    }

    /// Returns whether the features of a node that has joined are those of the session.
    fn agree(&mut self, features: Features) -> bool {
        let Some(session) = &mut self.session else { return false };
        let asked = session.features;
        let fits = session.agree(features);
        if session.features != asked {
            self.events.push_back(Event::Warning(Warning::FeaturesChanged { features }));
        }
        fits
    }

    /// Ends an RPC that has no reply, or an unreadable one (EPROTO). ECANCELED, ESHUTDOWN and EINTR
    /// come from this host, and do not change the node's state.
    fn fail(&mut self, node: ProcessId, slot: Option<usize>, errno: Errno, now_ns: u64) {
        let marks_down = self.running.as_ref().is_some_and(Running::marks_down);
        let own = matches!(errno, Errno::ECANCELED | Errno::ESHUTDOWN | Errno::EINTR | Errno::EPROTO);
        let is_forced = self.session.as_ref().is_some_and(|session| session.force);
        let known = self.session.as_mut().and_then(|session| session.nodes.get_mut(&node));
        let state = known.map_or(NodeState::Unknown, |known| {
            if slot.is_some() && marks_down && !own {
                if is_forced && errno == Errno::ETIMEDOUT && known.state() == NodeState::Active {
                    self.events.push_back(Event::Warning(Warning::SilentForced { node }));
                }
                known.set_state(NodeState::Down, now_ns);
            }
            known.state()
        });
        self.fill(slot, state, Err(NodeFailure::Rpc(errno)));
    }

    /// Enters an answer into the transaction.
    fn fill(&mut self, slot: Option<usize>, state: NodeState, answer: Result<Reply, NodeFailure>) {
        let transaction = self.running.as_mut().and_then(Running::transaction);
        let (Some(transaction), Some(slot)) = (transaction, slot) else { return };
        if let Some(entry) = transaction.answers.get_mut(slot) {
            (entry.state, entry.answer) = (state, answer);
            transaction.open -= 1;
        }
    }

    /// Gives up the RPCs of the transaction that are still in flight.
    pub(super) fn give_up(&mut self, errno: Errno, now_ns: u64) {
        self.drop_pending(|pending| pending.slot.is_some(), errno, now_ns);
    }

    /// Gives up the RPCs aside of operations whose time is over.
    pub(super) fn give_up_aside(&mut self, now_ns: u64) {
        let over = |pending: &Pending| pending.slot.is_none() && pending.deadline_ns <= now_ns;
        self.drop_pending(over, Errno::ETIMEDOUT, now_ns);
    }

    /// Gives up all RPCs aside of operations: their session ends.
    pub(super) fn abort_aside(&mut self, now_ns: u64) {
        self.drop_pending(|pending| pending.slot.is_none(), Errno::ECANCELED, now_ns);
    }

    /// Returns whether an RPC aside of operations is in flight.
    pub(super) fn has_aside(&self) -> bool {
        self.pending.values().any(|pending| pending.slot.is_none())
    }

    fn drop_pending(&mut self, given_up: impl Fn(&Pending) -> bool, errno: Errno, now_ns: u64) {
        let given_up = self.pending.iter().filter(|(_, pending)| given_up(pending));
        let ids: Vec<u64> = given_up.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(Pending { node, slot, .. }) = self.pending.remove(&id) else { continue };
            // One that was not even taken for sending has nothing to be withdrawn.
            match self.rpcs.iter().position(|rpc| rpc.reply_id == id) {
                Some(at) => drop(self.rpcs.remove(at)),
                None => self.aborts.push_back(id),
            }
            self.fail(node, slot, errno, now_ns);
        }
    }
}
