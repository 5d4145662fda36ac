//! The units of a test: each has one destination, and at most one RPC in flight (lst 9.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_nid::ProcessId;
use lnet_proto::ByteOrder;
use lnet_proto::lst::{Brw, Direction, LstService, MESSAGE_LEN, Reply, ReplyBody, Request, RequestBody};
use nix::errno::Errno;

use super::{Count, TestInstance, Work};
use crate::{Ids, pattern};

/// The units of a batch that was started. Those that are not taken end with this value.
#[derive(Debug)]
pub struct Units {
    instances: std::vec::IntoIter<Arc<TestInstance>>,
    current: Option<Arc<TestInstance>>,
    /// Number of units of `current` that have been taken.
    taken: u32,
}

impl Units {
    /// The units of these tests, which have been counted as running.
    pub(super) fn new(instances: Vec<Arc<TestInstance>>) -> Units {
        let mut instances = instances.into_iter();
        Units { current: instances.next(), instances, taken: 0 }
    }
}

impl Iterator for Units {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let instance = Arc::clone(self.current.as_ref()?);
        let unit = Unit::new(instance, self.taken);
        self.taken += 1;
        if self.taken == unit.instance.units() {
            self.current = self.instances.next();
            self.taken = 0;
        }
        Some(unit)
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
    }
}

/// The client of one test at one destination. It ends when it is dropped.
#[derive(Debug)]
pub struct Unit {
    instance: Arc<TestInstance>,
    index: u32,
    /// RPCs that are still to be done; negative as `i32` is without end.
    left: u32,
    /// Number of the PING in flight.
    sequence: u32,
    began_ns: u64,
}

/// An RPC of a unit: the reply buffer and the bulk buffer are posted before the request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRpc {
    /// The process that the request is sent to, and the only one that replies.
    pub to: ProcessId,
    /// Portal and match bits of the request.
    pub service: LstService,
    /// The payload of the PUT.
    pub request: [u8; MESSAGE_LEN],
    /// Match bits of the reply.
    pub reply_id: u64,
    /// The bulk data, if any.
    pub bulk: Option<BulkBuffer>,
    /// The time at which the RPC times out, on the clock of the caller.
    pub deadline_ns: u64,
}

/// The bulk buffer of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkBuffer {
    /// The match bits of the buffer, which the request carries.
    pub id: u64,
    /// Whether the server PUTs into it (READ); otherwise it GETs from it (WRITE).
    pub is_sink: bool,
    /// Bytes of the buffer: the length of the transfer.
    pub length: usize,
}

/// The end of an RPC: request, bulk and reply have ended, or their buffers have been unlinked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcEnd<'a> {
    /// The reply, of any length.
    Reply(&'a [u8]),
    /// An operation of LNet has failed.
    Failed(Errno),
    /// [`UnitRpc::deadline_ns`] has passed.
    Expired,
    /// [`Unit::is_aborted`], or the node is shutting down.
    Aborted,
}

impl Unit {
    fn new(instance: Arc<TestInstance>, index: u32) -> Unit {
        let left = instance.repeats;
        Unit { instance, index, left, sequence: 0, began_ns: 0 }
    }

    /// The test that it is a part of.
    #[must_use]
    pub fn instance(&self) -> &Arc<TestInstance> {
        &self.instance
    }

    /// Returns the process that the unit sends to.
    #[must_use]
    pub fn destination(&self) -> ProcessId {
        self.instance.destinations[(self.index / self.instance.concurrency) as usize]
    }

    /// Returns whether its RPC in flight is to be aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.instance.progress.is_aborting()
    }

    /// Begins the next RPC and prepares its bulk buffer, which has [`Work::bulk_length`] bytes.
    ///
    /// Returns `None` when the unit has nothing more to do; the caller then drops it.
    #[must_use]
    pub fn begin(&mut self, ids: &Ids, buffer: &mut [u8], now_ns: u64) -> Option<UnitRpc> {
        let instance = &*self.instance;
        if self.left == 0 || instance.progress.is_stopping() {
            return None;
        }
        let reply_id = ids.take();
        let (body, bulk) = match instance.work {
            Work::Ping => {
                self.sequence = instance.node.ping_sequence.fetch_add(1, Ordering::Relaxed);
                let (seconds, nanoseconds) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
                (RequestBody::Ping { sequence: self.sequence, seconds, nanoseconds }, None)
            }
            Work::Brw { direction, check, length } => {
                let is_sink = direction == Direction::READ;
                let prepare = if is_sink { pattern::poison } else { pattern::fill };
                prepare(check, instance.node.config.page_size, buffer);
                let bulk = BulkBuffer { id: ids.take(), is_sink, length: length as usize };
                (RequestBody::Brw(Brw { bulk_id: bulk.id, direction, length, check }), Some(bulk))
            }
        };
        instance.node.counters.add(self.index as usize, Count::Sent, 1);
        self.began_ns = now_ns;
        Some(UnitRpc {
            to: self.destination(),
            service: instance.work.service(),
            request: Request::new(instance.features, reply_id, body).emit(),
            reply_id,
            bulk,
            deadline_ns: deadline_ns(now_ns, instance.node.config.rpc_timeout_ns),
        })
    }

    /// Ends the RPC that [`Unit::begin`] has begun. `data` is the bulk buffer of a READ.
    pub fn ended(&mut self, end: RpcEnd<'_>, data: &[u8], now_ns: u64) {
        let instance = &*self.instance;
        let lane = self.index as usize;
        match end {
            RpcEnd::Expired => instance.node.counters.add(lane, Count::Expired, 1),
            RpcEnd::Failed(errno) => instance.node.count_failure(lane, errno),
            RpcEnd::Reply(_) | RpcEnd::Aborted => {}
        }
        if self.left as i32 > 0 {
            self.left -= 1;
        }
        let succeeded = matches!(end, RpcEnd::Reply(reply) if self.is_right(reply, data));
        if succeeded {
            instance.results.record(lane, now_ns.saturating_sub(self.began_ns));
        } else {
            instance.count_error();
            if instance.stop_on_error {
                self.left = 0;
            }
        }
    }

    /// Whether the reply and the data are what was asked for.
    fn is_right(&self, payload: &[u8], data: &[u8]) -> bool {
        let work = self.instance.work;
        let Ok(reply) = Reply::parse(work.service(), payload) else { return false };
        match (work, reply.body) {
            (Work::Ping, ReplyBody::Ping { sequence }) => reply.status == 0 && sequence == self.sequence,
            (Work::Brw { direction, check, length }, ReplyBody::Brw) => {
                let page_size = self.instance.node.config.page_size;
                reply.status == 0
                    && (direction == Direction::WRITE
                        || data.len() == length as usize
                            && pattern::is_intact(check, page_size, data, order_of(payload)))
            }
            _ => false,
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.instance.progress.unit_ended();
    }
}

impl TestInstance {
    fn count_error(&self) {
        if self.progress.is_stopping() {
            return;
        }
        self.results.errors.fetch_add(1, Ordering::Relaxed);
        let session = match self.work {
            Work::Ping => &self.session.ping,
            Work::Brw { .. } => &self.session.brw,
        };
        session.fetch_add(1, Ordering::Relaxed);
    }
}

/// The byte order of a message that was parsed: its first byte is one of 0x0d, which the magic number
/// ends with, and 0xee.
fn order_of(message: &[u8]) -> ByteOrder {
    if message.first() == Some(&0xee) { ByteOrder::Big } else { ByteOrder::Little }
}

/// When something times out that begins now; a timeout of 0 is none.
pub(super) fn deadline_ns(now_ns: u64, timeout_ns: u64) -> u64 {
    if timeout_ns == 0 { u64::MAX } else { now_ns.saturating_add(timeout_ns) }
}
