//! What each framework request does, except TEST (lst 6).

use std::sync::Arc;

use lnet_proto::lst::{BatchOp, Features, LnetCounters, Name, ReplyBody, SessionId};
use nix::errno::Errno;

use super::RequestDropReason;
use super::framework::{Framework, Handled, Refusal};
use super::instance::SessionErrors;
use super::session::Session;
use super::unit::deadline_ns;

impl Framework {
    pub(super) fn make_session(
        &mut self,
        sid: SessionId,
        force: bool,
        name: Name,
        features: Features,
        now_ns: u64,
    ) -> Result<ReplyBody, Errno> {
        if sid.is_any() {
            return Err(Errno::EINVAL);
        }
        match &mut self.session {
            Some(session) if session.sid == sid => session.references = session.references.saturating_add(1),
            Some(_) if !force => return Err(Errno::EBUSY),
            _ => {
                self.end_session();
                self.session = Some(Session {
                    sid,
                    name,
                    features,
                    references: 1,
                    made_ns: now_ns,
                    deadline_ns: deadline_ns(now_ns, self.node.config.session_timeout_ns),
                    errors: Arc::new(SessionErrors::default()),
                    batches: Vec::new(),
                });
            }
        }
        Ok(ReplyBody::MakeSession { timeout_s: self.timeout_s(), name: Name::EMPTY })
    }

    pub(super) fn remove_session(&mut self, sid: SessionId) -> Result<ReplyBody, Errno> {
        if sid.is_any() {
            return Err(Errno::EINVAL);
        }
        let session = self.session.as_mut().ok_or(Errno::ESRCH)?;
        if session.sid != sid {
            return Err(Errno::EBUSY);
        }
        session.references -= 1;
        if session.references == 0 {
            self.end_session();
        }
        Ok(ReplyBody::RemoveSession)
    }

    pub(super) fn debug(&self) -> Result<ReplyBody, Errno> {
        let session = self.session.as_ref().ok_or(Errno::ESRCH)?;
        Ok(ReplyBody::Debug { timeout_s: self.timeout_s(), batches: 0, name: session.name })
    }

    pub(super) fn stat(
        &mut self,
        sid: SessionId,
        lnet: impl FnOnce() -> LnetCounters,
        now_ns: u64,
    ) -> Result<ReplyBody, Errno> {
        if sid.is_any() {
            return Err(Errno::EINVAL);
        }
        let zombie_sessions = self.zombies();
        let session = self.session.as_ref().filter(|session| session.sid == sid).ok_or(Errno::ESRCH)?;
        let mut statistics = self.node.counters.statistics(lnet());
        statistics.zombie_sessions = zombie_sessions;
        Ok(ReplyBody::Stat(session.statistics(statistics, now_ns)))
    }

    pub(super) fn batch(
        &mut self,
        sid: SessionId,
        id: u64,
        op: BatchOp,
        test: u32,
        argument: u32,
    ) -> Result<Handled, Refusal> {
        let session = self.session.as_mut().filter(|session| session.sid == sid).ok_or(Errno::ESRCH)?;
        let batch = session.batch(id).ok_or(Errno::ENOENT)?;
        let active = match op {
            BatchOp::RUN => return Ok(Handled::Run(batch.run())),
            BatchOp::STOP => {
                let abort = argument != 0;
                batch.stop(abort);
                if abort {
                    self.node.announce_abort();
                }
                0
            }
            BatchOp::QUERY => batch.query(test)?,
            BatchOp(op) => return Err(Refusal::Drop(RequestDropReason::Opcode(op))),
        };
        Ok(Handled::Reply(ReplyBody::Batch { active, time: 0 }))
    }
}
