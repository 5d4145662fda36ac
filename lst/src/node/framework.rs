//! Framework requests: the checks that all of them pass, and the session's life (lst 6).

use std::sync::Arc;

use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    Features, LnetCounters, LstService, Name, Reply, ReplyBody, Request, RequestBody, SessionId, Statistics,
    VERSION,
};
use nix::errno::Errno;

use super::session::Session;
use super::shared::NodeShared;
use super::unit::deadline_ns;
use super::{
    Client, Config, Count, DataService, Fetch, Outcome, ReplyMessage, RequestDropReason, SessionView,
    TestInstance, Units,
};

/// The framework services of a node: its session, if any, and those that have ended with units still
/// running. A lock serializes its callers, as kernel nodes serialize these requests.
#[derive(Debug)]
pub struct Framework {
    pub(super) node: Arc<NodeShared>,
    pub(super) session: Option<Session>,
    /// Running clients of ended sessions. Their units hold them anyway, and memory bounds those.
    zombies: Vec<Vec<Arc<TestInstance>>>,
    is_shut_down: bool,
}

/// The session that has expired, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The id of the ended session.
    pub sid: SessionId,
    /// The name that the console chose.
    pub name: Name,
}

/// What a handled request leads to.
pub(super) enum Handled {
    Reply(ReplyBody),
    Run(Units),
    Fetch(Fetch),
}

/// Why a request is not fulfilled.
pub(super) enum Refusal {
    /// A reply has this status.
    Status(Errno),
    /// There is no reply.
    Drop(RequestDropReason),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Status(errno)
    }
}

impl Framework {
    /// Creates a node without a session.
    #[must_use]
    pub fn new(config: Config) -> Framework {
        let node = Arc::new(NodeShared::new(config));
        Framework { node, session: None, zombies: Vec::new(), is_shut_down: false }
    }

    /// The data services of the same node.
    #[must_use]
    pub fn data_service(&self) -> DataService {
        DataService::new(Arc::clone(&self.node))
    }

    /// Returns the session that the node holds, if it has one.
    #[must_use]
    pub fn session(&self) -> Option<SessionView> {
        self.session.as_ref().map(Session::view)
    }

    /// The session's test clients, in the order of their batches and of their addition.
    pub fn clients(&self) -> impl Iterator<Item = Client> {
        self.session.iter().flat_map(Session::clients)
    }

    /// When [`Framework::expire`] is due next, if ever.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let deadline = self.session.as_ref().map(|session| session.deadline_ns);
        deadline.filter(|deadline| *deadline != u64::MAX)
    }

    /// Ends the session if it has expired. [`Framework::handle`] and [`Framework::fetched`] do this
    /// first.
    pub fn expire(&mut self, now_ns: u64) -> Option<Expired> {
        let session = self.session.as_ref().filter(|session| session.deadline_ns <= now_ns)?;
        let expired = Expired { sid: session.sid, name: session.name };
        self.end_session();
        Some(expired)
    }

    /// Ends the session, and drops all requests from now on.
    pub fn shut_down(&mut self) {
        self.is_shut_down = true;
        self.end_session();
    }

    /// Handles a request to one of the framework services. `lnet` is called for STAT only.
    #[must_use]
    pub fn handle(
        &mut self,
        service: LstService,
        payload: &[u8],
        lnet: impl FnOnce() -> LnetCounters,
        now_ns: u64,
    ) -> Outcome {
        self.expire(now_ns);
        self.count(Count::Received, 1);
        if service.is_data() || service == LstService::Join {
            return self.dropped(RequestDropReason::NotServed(service));
        }
        let (request, order) = match Request::parse(service, payload) {
            Ok(parsed) => parsed,
            Err(error) => return self.dropped(error.into()),
        };
        let checked = self.check(&request, now_ns);
        let handled = checked.and_then(|()| self.dispatch(&request, order, lnet, now_ns));
        self.outcome(&request, handled)
    }

    /// Refuses a request of a node that may not use this one: the status is EACCES, and the reply
    /// shows nothing of the session.
    #[must_use]
    pub fn refuse(&mut self, service: LstService, payload: &[u8]) -> Outcome {
        self.count(Count::Received, 1);
        let request = match Request::parse(service, payload) {
            Ok((request, _)) => request,
            Err(error) => return self.dropped(error.into()),
        };
        self.count(Count::Strangers, 1);
        let body = self.error_body(service, Errno::EACCES);
        let (features, status) = (Features::BULK_LENGTH, Errno::EACCES as u32);
        Outcome::Reply(ReplyMessage::new(
            request.reply_id,
            &Reply { features, status, sid: SessionId::NONE, body },
        ))
    }

    /// Continues a TEST request with its list of destinations, or with the error of the GET.
    #[must_use]
    pub fn fetched(&mut self, fetch: &Fetch, list: Result<&[u8], Errno>, now_ns: u64) -> Outcome {
        self.expire(now_ns);
        let handled = match list {
            Ok(list) => {
                self.count(Count::BulkGot, list.len() as u64);
                self.add_client(fetch, list)
                    .map(|()| Handled::Reply(ReplyBody::Test))
                    .map_err(Refusal::Status)
            }
            Err(errno) => {
                self.node.count_failure(0, errno);
                Err(Refusal::Drop(RequestDropReason::Bulk(errno)))
            }
        };
        self.outcome(&fetch.request, handled)
    }

    /// Makes the checks that all services have in common, in the order of lst 6.
    fn check(&mut self, request: &Request, now_ns: u64) -> Result<(), Refusal> {
        if request.version != VERSION {
            return Err(Errno::EPROTO.into());
        }
        if self.is_shut_down {
            return Err(Refusal::Drop(RequestDropReason::ShutDown));
        }
        let timeout_ns = self.node.config.session_timeout_ns;
        if let Some(session) = &mut self.session {
            session.deadline_ns = deadline_ns(now_ns, timeout_ns);
        }
        let is_refused = match request.service() {
            LstService::MakeSession | LstService::Debug => request.features.has_unknown(),
            _ => self.session.as_ref().is_some_and(|session| session.features != request.features),
        };
        if is_refused { Err(Errno::EPROTO.into()) } else { Ok(()) }
    }

    fn dispatch(
        &mut self,
        request: &Request,
        order: ByteOrder,
        lnet: impl FnOnce() -> LnetCounters,
        now_ns: u64,
    ) -> Result<Handled, Refusal> {
        let body = match request.body {
            RequestBody::Test(test) => return self.test(request, &test, order),
            RequestBody::Batch { sid, batch, op, test, argument } => {
                return self.batch(sid, batch, op, test, argument);
            }
            RequestBody::MakeSession { sid, force, name } => {
                self.make_session(sid, force != 0, name, request.features, now_ns)?
            }
            RequestBody::RemoveSession { sid } => self.remove_session(sid)?,
            RequestBody::Debug { .. } => self.debug()?,
            RequestBody::Stat { sid, .. } => self.stat(sid, lnet, now_ns)?,
            RequestBody::Join { .. } | RequestBody::Brw(_) | RequestBody::Ping { .. } => {
                return Err(Refusal::Drop(RequestDropReason::NotServed(request.service())));
            }
        };
        Ok(Handled::Reply(body))
    }

    fn outcome(&self, request: &Request, handled: Result<Handled, Refusal>) -> Outcome {
        let session = self.session.as_ref();
        let features = session.map_or(Features::BULK_LENGTH, |session| session.features);
        match handled {
            Ok(Handled::Reply(body)) => Outcome::Reply(self.answer(request, features, 0, body)),
            Ok(Handled::Run(units)) => {
                let body = ReplyBody::Batch { active: 0, time: 0 };
                Outcome::Run(self.answer(request, features, 0, body), units)
            }
            Ok(Handled::Fetch(fetch)) => Outcome::Fetch(fetch),
            Err(Refusal::Status(errno)) => {
                let features = if errno == Errno::EPROTO { Features::BULK_LENGTH } else { features };
                let body = self.error_body(request.service(), errno);
                Outcome::Reply(self.answer(request, features, errno as u32, body))
            }
            Err(Refusal::Drop(reason)) => self.dropped(reason),
        }
    }

    /// Every answer has the session that the node holds now: consoles derive the node's state from it.
    fn answer(&self, request: &Request, features: Features, status: u32, body: ReplyBody) -> ReplyMessage {
        let sid = self.session.as_ref().map_or(SessionId::NONE, |session| session.sid);
        ReplyMessage::new(request.reply_id, &Reply { features, status, sid, body })
    }

    /// The rest of a reply with an error: zeros, where kernel nodes leave bytes of earlier replies.
    fn error_body(&self, service: LstService, errno: Errno) -> ReplyBody {
        match service {
            LstService::MakeSession => match &self.session {
                Some(session) if errno == Errno::EBUSY => {
                    ReplyBody::MakeSession { timeout_s: self.timeout_s(), name: session.name }
                }
                _ => ReplyBody::MakeSession { timeout_s: 0, name: Name::EMPTY },
            },
            LstService::RemoveSession => ReplyBody::RemoveSession,
            LstService::Batch => ReplyBody::Batch { active: 0, time: 0 },
            LstService::Test => ReplyBody::Test,
            LstService::Stat => ReplyBody::Stat(Statistics::default()),
            // The others have no errors.
            _ => ReplyBody::Debug { timeout_s: 0, batches: 0, name: Name::EMPTY },
        }
    }

    /// Returns the session timeout as replies carry it, in seconds.
    pub(super) fn timeout_s(&self) -> u32 {
        let seconds = self.node.config.session_timeout_ns / 1_000_000_000;
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// Ends the session, if there is one: units and data requests are aborted.
    pub(super) fn end_session(&mut self) {
        self.zombies.retain(|clients| is_running(clients));
        let Some(session) = self.session.take() else { return };
        let running = session.end();
        if !running.is_empty() {
            self.zombies.push(running);
        }
        self.node.end_session();
    }

    /// Number of ended sessions with units that have not ended.
    pub(super) fn zombies(&mut self) -> u32 {
        self.zombies.retain(|clients| is_running(clients));
        self.zombies.len() as u32
    }

    fn dropped(&self, reason: RequestDropReason) -> Outcome {
        self.count(Count::Dropped, 1);
        Outcome::Drop(reason)
    }

    pub(super) fn count(&self, count: Count, amount: u64) {
        self.node.counters.add(0, count, amount);
    }
}

fn is_running(clients: &[Arc<TestInstance>]) -> bool {
    clients.iter().any(|client| client.running() > 0)
}
