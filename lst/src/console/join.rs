//! JOIN: a node asks to become a member of a group (lst 10.6).

use lnet_nid::ProcessId;
use lnet_proto::lst::{
    Features, LstService, MESSAGE_LEN, Name, Reply, ReplyBody, Request, RequestBody, SessionId, VERSION,
};
use nix::errno::Errno;

use super::session::Session;
use super::{Console, NodeState, check};

impl Console {
    pub(super) fn take_join(
        &mut self,
        from: ProcessId,
        request: &[u8],
        now_ns: u64,
    ) -> Option<(u64, [u8; MESSAGE_LEN])> {
        let (request, _) = Request::parse(LstService::Join, request).ok()?;
        let RequestBody::Join { sid, group } = request.body else { return None };
        let admitted = match request.version {
            VERSION => self.open().map_err(|error| error.errno()),
            _ => Err(Errno::EPROTO),
        };
        let admitted = admitted.and_then(|session| session.admit(from, sid, request.features, group, now_ns));
        Some((request.reply_id, self.join_reply(admitted.err()).emit()))
    }

    fn join_reply(&self, status: Option<Errno>) -> Reply {
        let status = status.map_or(0, |errno| errno as u32);
        let session = self.session.as_ref().filter(|session| !session.expired);
        let (features, sid, timeout_s, name) = match session {
            Some(session) => (session.features, session.sid, session.timeout_s, session.name),
            None => (Features::BULK_LENGTH, SessionId::NONE, 0, Name::EMPTY),
        };
        Reply { features, status, sid, body: ReplyBody::Join { timeout_s, name } }
    }
}

impl Session {
    /// Makes a node an ACTIVE member of a group, which is made if it does not exist.
    fn admit(
        &mut self,
        from: ProcessId,
        sid: SessionId,
        features: Features,
        group: Name,
        now_ns: u64,
    ) -> Result<(), Errno> {
        if features != self.features {
            return Err(Errno::EPROTO);
        }
        if sid != SessionId::NONE && sid != self.sid {
            return Err(Errno::EBUSY);
        }
        self.refuse_used(group).map_err(|error| error.errno())?;
        if self.group(group).is_ok_and(|group| group.nodes.contains(&from)) {
            return Err(Errno::EEXIST);
        }
        // An empty name has no group that could be listed.
        if group == Name::EMPTY {
            return Ok(());
        }
        check::group(group, &[from]).map_err(|error| error.errno())?;
        self.refuse_growth(group, &[from]).map_err(|error| error.errno())?;
        self.agree(features);
        self.put_group(group, vec![from], now_ns);
        if let Some(node) = self.nodes.get_mut(&from) {
            node.heard(NodeState::Active, now_ns);
        }
        Ok(())
    }
}
