//! The data services: PING and BRW (lst 7).

use std::num::NonZeroUsize;
use std::sync::Arc;

use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    BULK_MAX, Brw, Check, Direction, Features, LstService, Reply, ReplyBody, Request, RequestBody, SessionId,
    VERSION,
};
use nix::errno::Errno;

use super::shared::NodeShared;
use super::{Count, Counters, ReplyMessage, RequestDropReason};
use crate::pattern;

/// The data services of a node, for one of the threads that serve them.
#[derive(Clone, Debug)]
pub struct DataService {
    node: Arc<NodeShared>,
    lane: usize,
}

/// What the caller does about a data request.
#[derive(Debug)]
pub enum Served {
    /// It sends the answer.
    Reply(ReplyMessage),
    /// It PUTs data to the request's source, then calls [`DataService::finish`].
    Push(Transfer),
    /// It GETs data from the request's source, then calls [`DataService::finish`].
    Pull(Transfer),
    /// It does nothing; the request has been counted as dropped.
    Drop(RequestDropReason),
}

/// The bulk data of a BRW request that is being served.
#[derive(Debug)]
pub struct Transfer {
    /// Match bits of the data, at the reply portal of the request's source.
    pub bulk_id: u64,
    /// Their bytes: 8 to [`BULK_MAX`], a multiple of 8.
    pub length: usize,
    /// How they are checked.
    pub check: Check,
    is_push: bool,
    page_size: NonZeroUsize,
    /// Byte order of the request's source.
    order: ByteOrder,
    /// Number of ended sessions when the request was received.
    session_ends: u64,
    reply_id: u64,
    features: Features,
}

impl Transfer {
    /// Prepares the buffer of the data before the transfer: fills it for a PUT, poisons it for a GET.
    pub fn prepare(&self, buffer: &mut [u8]) {
        let prepare = if self.is_push { pattern::fill } else { pattern::poison };
        prepare(self.check, self.page_size, buffer);
    }
}

impl DataService {
    pub(super) fn new(node: Arc<NodeShared>) -> DataService {
        DataService { node, lane: 0 }
    }

    /// The same services for another thread, which counts in this lane.
    #[must_use]
    pub fn on_lane(&self, lane: usize) -> DataService {
        DataService { node: Arc::clone(&self.node), lane }
    }

    /// Returns the counters of the node, which the framework shares.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.node.counters
    }

    /// Returns whether a test of the session has a server of this data service. Requests are dropped
    /// otherwise: kernel nodes have no buffers for them, and do not answer (lst 9.3).
    #[must_use]
    pub fn has_server(&self, service: LstService) -> bool {
        self.node.has_server(service)
    }

    /// Returns a number that changes when units or transfers have been aborted.
    #[must_use]
    pub fn aborts(&self) -> u64 {
        self.node.aborts()
    }

    /// Returns whether the session has ended since the request of this transfer was received.
    #[must_use]
    pub fn is_aborted(&self, transfer: &Transfer) -> bool {
        self.node.session_ends() != transfer.session_ends
    }

    /// Serves a PING request: checks the magic and returns the reply to send.
    #[must_use]
    pub fn ping(&self, payload: &[u8]) -> Served {
        let request = match self.receive(LstService::Ping, payload) {
            Ok((request, _)) => request,
            Err(reason) => return self.dropped(reason),
        };
        let RequestBody::Ping { sequence, .. } = request.body else {
            return self.dropped(RequestDropReason::NotServed(request.service()));
        };
        let (status, features) = match request.features {
            features if request.version != VERSION => (Errno::EPROTO as u32, features),
            features if features.has_unknown() => (Errno::EPROTO as u32, Features::BULK_LENGTH),
            features => (0, features),
        };
        reply(request.reply_id, features, status, ReplyBody::Ping { sequence })
    }

    /// Serves a BRW request up to its transfer.
    #[must_use]
    pub fn brw(&self, payload: &[u8]) -> Served {
        let (request, order) = match self.receive(LstService::Brw, payload) {
            Ok(received) => received,
            Err(reason) => return self.dropped(reason),
        };
        let RequestBody::Brw(brw) = request.body else {
            return self.dropped(RequestDropReason::NotServed(request.service()));
        };
        if request.version != VERSION {
            return reply(request.reply_id, request.features, Errno::EPROTO as u32, ReplyBody::Brw);
        }
        match self.transfer(&request, &brw, order) {
            Ok(transfer) if transfer.is_push => Served::Push(transfer),
            Ok(transfer) => Served::Pull(transfer),
            Err((status, features)) => {
                self.count(Count::FatalRequest, 1);
                reply(request.reply_id, features, status as u32, ReplyBody::Brw)
            }
        }
    }

    /// The transfer of a BRW request, or the status and features of its refusal (lst 7.2). Kernel
    /// nodes of some releases stop in all the cases that are refused.
    fn transfer(
        &self,
        request: &Request,
        brw: &Brw,
        order: ByteOrder,
    ) -> Result<Transfer, (Errno, Features)> {
        let features = request.features;
        let page_size = self.node.config.page_size;
        let is_known = [Direction::READ, Direction::WRITE].contains(&brw.direction)
            && (Check::NONE.0..=Check::DISCARD.0).contains(&brw.check.0);
        if !is_known {
            return Err((Errno::EINVAL, features));
        }
        if features.has_unknown() {
            return Err((Errno::EPROTO, Features::BULK_LENGTH));
        }
        let length = brw.length as usize;
        let unit = if features.contains(Features::BULK_LENGTH) { 8 } else { page_size.get() };
        if !length.is_multiple_of(unit) || !(1..=BULK_MAX).contains(&brw.length) {
            return Err((Errno::EINVAL, features));
        }
        Ok(Transfer {
            bulk_id: brw.bulk_id,
            length,
            check: brw.check,
            is_push: brw.direction == Direction::READ,
            page_size,
            order,
            session_ends: self.node.session_ends(),
            reply_id: request.reply_id,
            features,
        })
    }

    /// Ends a transfer: [`Served::Reply`] or [`Served::Drop`].
    ///
    /// `data` is what a GET has brought, any slice after a PUT, or the error of the operation.
    #[must_use]
    pub fn finish(&self, transfer: &Transfer, data: Result<&[u8], Errno>) -> Served {
        let data = match data {
            Ok(data) => data,
            Err(errno) => {
                self.node.count_failure(self.lane, errno);
                return self.dropped(RequestDropReason::Bulk(errno));
            }
        };
        let length = transfer.length as u64;
        self.count(if transfer.is_push { Count::BulkPut } else { Count::BulkGot }, length);
        if self.is_aborted(transfer) {
            return self.dropped(RequestDropReason::Aborted);
        }
        let intact = transfer.is_push
            || data.len() == transfer.length
                && pattern::is_intact(transfer.check, transfer.page_size, data, transfer.order);
        let status = if intact { 0 } else { Errno::EBADMSG as u32 };
        reply(transfer.reply_id, transfer.features, status, ReplyBody::Brw)
    }

    /// Counts a reply that could not be sent.
    pub fn reply_failed(&self, errno: Errno) {
        self.node.count_failure(self.lane, errno);
        self.count(Count::Dropped, 1);
    }

    fn receive(
        &self,
        service: LstService,
        payload: &[u8],
    ) -> Result<(Request, ByteOrder), RequestDropReason> {
        self.count(Count::Received, 1);
        let received = Request::parse(service, payload)?;
        if self.has_server(service) { Ok(received) } else { Err(RequestDropReason::NoServer(service)) }
    }

    fn dropped(&self, reason: RequestDropReason) -> Served {
        self.count(Count::Dropped, 1);
        Served::Drop(reason)
    }

    fn count(&self, count: Count, amount: u64) {
        self.node.counters.add(self.lane, count, amount);
    }
}

fn reply(reply_id: u64, features: Features, status: u32, body: ReplyBody) -> Served {
    let reply = Reply { features, status, sid: SessionId::NONE, body };
    Served::Reply(ReplyMessage::new(reply_id, &reply))
}
