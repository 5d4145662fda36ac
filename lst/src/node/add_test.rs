//! TEST requests (lst 6, 9.1).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_nid::ProcessId;
use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    BULK_MAX, CONCURRENCY_MAX, Check, DESTINATIONS_MAX, Destinations, Direction, Features, LstService,
    ReplyBody, Request, RequestBody, SessionId, Test,
};
use nix::errno::Errno;

use super::framework::{Framework, Handled, Refusal};
use super::instance::TestInstance;
use super::progress::Progress;
use super::results::Results;
use super::session::{Member, Session};
use super::shared::MemoryCharge;
use super::{Count, Fetch, INSTANCE_BYTES, UNIT_BYTES, Work};

/// Most pages of a BRW test without [`Features::BULK_LENGTH`].
const PAGES_MAX: u32 = 256;

impl Framework {
    /// A server is added at once, a client when its list of destinations has come.
    pub(super) fn test(
        &mut self,
        request: &Request,
        test: &Test,
        order: ByteOrder,
    ) -> Result<Handled, Refusal> {
        if service(test).is_none() && order == ByteOrder::Big {
            self.count(Count::FatalOrder, 1);
        }
        self.check_test(test)?;
        if test.is_client {
            let length = test.destinations as usize * Destinations::LEN;
            return Ok(Handled::Fetch(Fetch { bulk_id: test.bulk_id, length, request: *request, order }));
        }
        self.add_server(test)?;
        Ok(Handled::Reply(ReplyBody::Test))
    }

    fn check_test(&mut self, test: &Test) -> Result<(), Errno> {
        let is_valid = service(test).is_some()
            && test.repeats != 0
            && (1..=CONCURRENCY_MAX).contains(&test.concurrency)
            && !test.sid.is_any()
            && test.destinations <= DESTINATIONS_MAX
            && (!test.is_client || test.destinations > 0);
        if !is_valid {
            return Err(Errno::EINVAL);
        }
        let batch = own_session(&mut self.session, test.sid)?.batch_for_test(test.batch)?;
        if batch.has_room() { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    fn add_server(&mut self, test: &Test) -> Result<(), Errno> {
        let charge = MemoryCharge::new(&self.node, INSTANCE_BYTES).ok_or(Errno::ENOMEM)?;
        let session = own_session(&mut self.session, test.sid)?;
        session.batch_for_test(test.batch)?.add(Member::Server { _charge: charge });
        self.node.add_server(service(test).ok_or(Errno::EINVAL)?);
        Ok(())
    }

    /// Adds the client whose list of destinations was fetched. The session may have ended, the batch
    /// may have been started, while it was.
    pub(super) fn add_client(&mut self, fetch: &Fetch, list: &[u8]) -> Result<(), Errno> {
        let RequestBody::Test(test) = fetch.request.body else { return Err(Errno::EINVAL) };
        self.check_test(&test)?;
        let features = fetch.request.features;
        let work = self.work(&test, features)?;
        if list.len() != fetch.length {
            return Err(Errno::EINVAL);
        }
        let units = test.concurrency * test.destinations;
        let charge = MemoryCharge::new(&self.node, charge(work, &test)).ok_or(Errno::ENOMEM)?;
        let destinations = destinations(list, fetch.order)?;
        let node = Arc::clone(&self.node);
        let session = own_session(&mut self.session, test.sid)?;
        if work == Work::Ping {
            node.ping_sequence.store(0, Ordering::Relaxed);
        }
        let instance = TestInstance {
            node,
            session: Arc::clone(&session.errors),
            work,
            features,
            repeats: test.repeats,
            stop_on_error: test.stop_on_error,
            destinations,
            concurrency: test.concurrency,
            progress: Progress::new(),
            results: Arc::new(Results::new(units)),
            _charge: charge,
        };
        session.batch_for_test(test.batch)?.add(Member::Client(Arc::new(instance)));
        Ok(())
    }

    /// What the units of a client do; EINVAL for parameters that kernel nodes refuse, and for those
    /// that stop some of them (lst 9.1, 13).
    fn work(&self, test: &Test, features: Features) -> Result<Work, Errno> {
        if service(test) != Some(LstService::Brw) {
            return Ok(Work::Ping);
        }
        let brw = test.brw(features);
        let page_size = self.node.config.page_size.get() as u32;
        let is_known = [Direction::READ, Direction::WRITE].contains(&brw.direction)
            && (Check::NONE.0..=Check::DISCARD.0).contains(&brw.check.0)
            && brw.offset.is_multiple_of(8);
        let length = if features.contains(Features::BULK_LENGTH) {
            Some(brw.length)
        } else {
            brw.length.checked_mul(page_size).filter(|_| brw.length <= PAGES_MAX)
        };
        let length = length.filter(|length| *length <= BULK_MAX && is_known).ok_or(Errno::EINVAL)?;
        let in_page = brw.offset % page_size;
        let pages = |length: u32| length.div_ceil(page_size);
        let fatal = match length {
            length if length == 0 || !length.is_multiple_of(8) => Some(Count::FatalLength),
            length if pages(in_page + length) != pages(length) => Some(Count::FatalOffset),
            _ => None,
        };
        if let Some(fatal) = fatal {
            self.count(fatal, 1);
            return Err(Errno::EINVAL);
        }
        Ok(Work::Brw { direction: brw.direction, check: brw.check, length })
    }
}

/// The tested service, if it is one.
fn service(test: &Test) -> Option<LstService> {
    [LstService::Brw, LstService::Ping].into_iter().find(|service| *service as u32 == test.service)
}

fn own_session(session: &mut Option<Session>, sid: SessionId) -> Result<&mut Session, Errno> {
    session.as_mut().filter(|session| session.sid == sid).ok_or(Errno::ENOENT)
}

/// Bytes of a client with all that its units need.
fn charge(work: Work, test: &Test) -> u64 {
    let (concurrency, destinations) = (u64::from(test.concurrency), u64::from(test.destinations));
    let units = concurrency * destinations;
    let lanes = Results::lanes(test.concurrency * test.destinations) as u64;
    INSTANCE_BYTES
        + lanes * Results::LANE_BYTES
        + destinations * size_of::<ProcessId>() as u64
        + units * (UNIT_BYTES + work.bulk_length() as u64)
}

fn destinations(list: &[u8], order: ByteOrder) -> Result<Vec<ProcessId>, Errno> {
    let mut destinations = Vec::new();
    destinations.try_reserve_exact(list.len() / Destinations::LEN).map_err(|_| Errno::ENOMEM)?;
    for destination in Destinations::new(list, order).iter() {
        destinations.push(destination.map_err(|_| Errno::EINVAL)?);
    }
    Ok(destinations)
}
