//! The LNet interface: the trait [`LNet`], its handles, and the parameters of its calls.

use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_proto::MAX_PAYLOAD;
use lnet_region::IoVec;

use crate::{DropWatcher, Event, EventHandler, Handler, LNetError};
use std::sync::Arc;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Opaque. A handle whose object is gone is stale; calls with it return ENOENT.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
    };
}

handle! {
    /// Names an event queue (`lnet_handle_eq_t`).
    EqHandle
}
handle! {
    /// Names a match entry (`lnet_handle_me_t`).
    MeHandle
}
handle! {
    /// Names a memory descriptor (`lnet_handle_md_t`); the object cookie of the wire handle
    /// (lnet-wire 5).
    MdHandle
}

bitflags::bitflags! {
    /// The options of an MD (lnet-semantics 3). The names are LNet's, without the prefix
    /// `LNET_MD_`.
    ///
    /// Bits without a name here are refused with EINVAL. LNet has some more; they are absent
    /// because other fields express them, or they have no meaning here:
    ///
    /// | LNet's | bit | why it is absent |
    /// | --- | --- | --- |
    /// | `KIOV` (and `IOVEC`, retired) | 0x0100 (0x0040) | memory is always a list of fragments, [`Md::memory`] |
    /// | `BULK_HANDLE` | 0x0200 | names a second MD, whose memory's place helps to choose an interface: here that is the CPU partition of the MD itself, the one of the thread that binds it |
    /// | `GNILND` | 0x1000 | internal to a driver |
    /// | `GPU_ADDR` | 0x2000 | memory belongs to the process; no driver here reads a GPU's |
    /// | `DISCARD` | 0x4000 | a hint of benchmarks that the payload may be thrown away; here it always arrives |
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MdOptions: u32 {
        /// An incoming PUT may match.
        const OP_PUT = 0x0001;
        /// An incoming GET may match.
        const OP_GET = 0x0002;
        /// The offset comes from the message header, not from the MD's running offset.
        const MANAGE_REMOTE = 0x0004;
        /// Messages that are too long are truncated, not dropped.
        const TRUNCATE = 0x0010;
        /// PUTs into this MD are never acknowledged.
        const ACK_DISABLE = 0x0020;
        /// `max_size` is valid: the largest single incoming message, in bytes.
        const MAX_SIZE = 0x0080;
        /// The wait for an ACK or REPLY is always bounded. This is the default: nlx behaves as LNet
        /// does with `lnet_response_tracking=3`.
        const TRACK_RESPONSE = 0x0400;
        /// The wait for an ACK or REPLY has no deadline. Only with this option can an operation
        /// last for ever. It ends with its peer's connections, its NI, or an unlink.
        const NO_TRACK_RESPONSE = 0x0800;
        /// An option of nlx, beyond the bits of LNet: acknowledged PUTs and GETs from this MD end
        /// with ENODATA as soon as an nlx node has dropped them because no buffer there takes them.
        /// Other nodes drop them without an answer.
        const TAKES_REFUSALS = 0x0001_0000;
    }
}

/// The number of operations that an MD takes before it is exhausted (lnet-semantics 5): each match,
/// each PUT or GET issued, each ACK and each REPLY counts one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// At most this number.
    Limited(u32),
    /// No limit (`LNET_MD_THRESH_INF`).
    Infinite,
}

/// A memory descriptor as its owner describes it (`lnet_md_t`).
#[derive(Debug, Clone)]
pub struct Md {
    /// The memory of the MD. At most 1 MiB for a free-floating MD; attached ones may be longer.
    pub memory: IoVec,
    /// The number of operations before the MD is exhausted.
    pub threshold: Threshold,
    /// Largest single incoming message in bytes; valid only with [`MdOptions::MAX_SIZE`].
    pub max_size: u32,
    /// The allowed operations and other options.
    pub options: MdOptions,
    /// A value of the owner, returned in each event.
    pub user_ptr: u64,
    /// The queue for the MD's events; `None` to discard them.
    pub eq: Option<EqHandle>,
}

impl Md {
    /// Checks an MD that is attached to a match entry. The rules are LNet's, and the same for every
    /// implementation (lnet-semantics 2).
    ///
    /// # Errors
    /// EINVAL for options without a name here, for options that allow neither PUT nor GET, and for
    /// a `max_size` beyond the memory.
    pub fn check_attached(&self) -> Result<(), LNetError> {
        if !self.allows_messages() {
            return Err(self.wrong_options("an attached descriptor must allow PUT or GET"));
        }
        self.check()
    }

    /// Checks an MD that sends PUTs and GETs (lnet-semantics 2).
    ///
    /// # Errors
    /// EINVAL for options without a name here or that allow PUT or GET, for more than 1 MiB, and
    /// for a `max_size` beyond the memory.
    pub fn check_bound(&self) -> Result<(), LNetError> {
        if self.allows_messages() {
            return Err(self.wrong_options("a free-floating descriptor must not allow PUT or GET"));
        }
        if self.memory.len() > MAX_PAYLOAD as usize {
            let rule = "a message has 1048576 bytes at the most";
            return Err(LNetError::Invalid { field: "length", value: self.memory.len() as u64, rule });
        }
        self.check()
    }

    /// Checks an MD that is made for a PUT or GET ([`LNet::bind_put`]).
    ///
    /// # Errors
    /// Those of [`Md::check_bound`], and EINVAL for a threshold of 0.
    pub fn check_sent(&self) -> Result<(), LNetError> {
        self.check_bound()?;
        if self.threshold == Threshold::Limited(0) {
            let rule = "a PUT or GET is one operation";
            return Err(LNetError::Invalid { field: "threshold", value: 0, rule });
        }
        Ok(())
    }

    fn check(&self) -> Result<(), LNetError> {
        // A program may pass numeric bits of LNet that have no name here.
        if !MdOptions::all().contains(self.options) {
            return Err(self.wrong_options("each bit must be one of MdOptions"));
        }
        if self.options.contains(MdOptions::MAX_SIZE) && self.max_size as usize > self.memory.len() {
            let rule = "no message can be longer than the memory";
            return Err(LNetError::Invalid { field: "max_size", value: u64::from(self.max_size), rule });
        }
        Ok(())
    }

    fn allows_messages(&self) -> bool {
        self.options.intersects(MdOptions::OP_PUT | MdOptions::OP_GET)
    }

    fn wrong_options(&self, rule: &'static str) -> LNetError {
        LNetError::Invalid { field: "options", value: u64::from(self.options.bits()), rule }
    }
}

/// The treatment of an exhausted MD (and its ME).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unlink {
    /// The MD stays until it is unlinked by a call (`LNET_RETAIN`).
    Retain,
    /// The MD is unlinked automatically (`LNET_UNLINK`).
    Auto,
}

/// The position of a new match entry in its portal's list (lnet-semantics 4).
///
/// On a node with several CPU partitions each entry lies in one of them; callbacks for MDs of one
/// partition do not run at the same time. The partition of an entry of a wildcard portal at the
/// head or the tail follows from the portal and the upper 12 bits of its match bits, the id of a
/// transfer machine: one partition has all entries of a machine, and the next one those of the
/// machine with the next id. The partition of an entry with ignore bits follows from the portal
/// alone, and so does that of all entries posted while the portal has such entries. In every
/// partition, entries are matched in the order of the portal's list, except while the portal has
/// entries with [`Position::Local`], and until a message finds that the portal has none any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// At the head (`LNET_INS_BEFORE`).
    Before,
    /// At the tail (`LNET_INS_AFTER`).
    After,
    /// At the tail of the caller's partition (`LNET_INS_LOCAL`). While a wildcard portal has such
    /// entries, a message tries one partition after the other, and takes the first entry of the
    /// first one that has a match.
    Local,
}

/// A match entry as its owner describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeSpec {
    /// The portal of the entry.
    pub portal: Portal,
    /// The process that may match: a NID or `Nid::ANY`, a PID or `Pid::ANY`.
    pub match_id: ProcessId,
    /// The bits that a message must carry. The upper 12 select the CPU partition of the entry
    /// ([`Position`]).
    pub match_bits: MatchBits,
    /// Bits that are not compared. On a node with several CPU partitions such an entry makes
    /// messages for other entries of the portal slower: they may have to search all partitions at
    /// once.
    pub ignore_bits: MatchBits,
    /// [`Unlink::Auto`] if the entry is unlinked with its MD.
    pub unlink: Unlink,
    /// The position of the entry in the portal's list.
    pub position: Position,
}

impl MeSpec {
    /// Makes an entry at the tail of its portal's list that any process may match, by exactly these
    /// bits, and that is unlinked with its MD.
    #[must_use]
    pub const fn new(portal: Portal, match_bits: MatchBits) -> MeSpec {
        MeSpec {
            portal,
            match_id: ProcessId::ANY,
            match_bits,
            ignore_bits: MatchBits(0),
            unlink: Unlink::Auto,
            position: Position::After,
        }
    }
}

/// The request for an acknowledgement of a PUT by the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckRequest {
    /// The target acknowledges the PUT (`LNET_ACK_REQ`).
    Ack,
    /// The target does not acknowledge the PUT (`LNET_NOACK_REQ`).
    NoAck,
}

/// A PUT of a whole MD (`LNetPut`): of a bound one, identified by its handle, or of one that the
/// call makes ([`LNet::bind_put`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put<M = MdHandle> {
    /// The local NID to send from; `None` lets LNet choose.
    pub source: Option<Nid>,
    /// The source: the handle of a bound MD, or an [`Md`].
    pub md: M,
    /// The request for an ACK event when the target has the data.
    pub ack: AckRequest,
    /// The process whose buffer is written.
    pub target: ProcessId,
    /// The target's portal.
    pub portal: Portal,
    /// The target's match bits.
    pub match_bits: MatchBits,
    /// Offset into the target's MD in bytes, used if that MD has [`MdOptions::MANAGE_REMOTE`].
    pub offset: u32,
    /// Header data: 64 bits delivered beside the payload.
    pub hdr_data: u64,
}

impl<M> Put<M> {
    /// Returns the PUT with another MD, and the MD that this one had.
    pub fn with_md<N>(self, md: N) -> (Put<N>, M) {
        let Put { source, md: before, ack, target, portal, match_bits, offset, hdr_data } = self;
        (Put { source, md, ack, target, portal, match_bits, offset, hdr_data }, before)
    }
}

/// A GET into a whole MD (`LNetGet`): into a bound one, identified by its handle, or into one that
/// the call makes ([`LNet::bind_get`]).
///
/// The reply may be shorter than the MD, with one exception. Over RDMA (`o2ib`) an MD longer than
/// 3976 bytes is written by the target's device, and kernel nodes lose part of a reply that ends
/// inside a fragment of it (lnet-measured, "Short replies over o2ib"). The SEND event of such a GET
/// has EIO, and there is no REPLY, unless the target is a node of nlx. For a kernel node the MD
/// must be of exactly the length of the requested data, or at most 3976 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Get<M = MdHandle> {
    /// The local NID to send from; `None` lets LNet choose.
    pub source: Option<Nid>,
    /// The destination of the reply: the handle of a bound MD, or an [`Md`].
    pub md: M,
    /// The process whose buffer is read.
    pub target: ProcessId,
    /// The target's portal.
    pub portal: Portal,
    /// The target's match bits.
    pub match_bits: MatchBits,
    /// Offset into the target's MD in bytes, used if that MD has [`MdOptions::MANAGE_REMOTE`].
    pub offset: u32,
}

impl<M> Get<M> {
    /// Returns the GET with another MD, and the MD that this one had.
    pub fn with_md<N>(self, md: N) -> (Get<N>, M) {
        let Get { source, md: before, target, portal, match_bits, offset } = self;
        (Get { source, md, target, portal, match_bits, offset }, before)
    }
}

/// The limit for the events that a polled queue keeps: 64 Ki, about 16 MiB.
pub const EQ_COUNT_MAX: usize = 1 << 16;

/// An event taken from a polled queue (`LNetEQPoll`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// The queue of the event.
    pub eq: EqHandle,
    /// The oldest event of the queue.
    pub event: Event,
    /// Events of this queue that were overwritten before this one, because the queue was full
    /// (EOVERFLOW).
    pub missed: u64,
}

/// The distance to a node (`LNetDist`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance {
    /// 0 for this node itself, 1 for a node on one of its networks.
    pub hops: u32,
    /// The index, among this node's NIs, of the NI that leads to the node: a lower one is
    /// preferred.
    pub order: u32,
    /// The local NID from which a message to the node is sent.
    pub source: Nid,
}

/// The API of LNet (lnet-semantics 2). None of these calls blocks; any thread may make them, but
/// not from inside an event callback.
pub trait LNet: Send + Sync {
    /// Makes an event queue whose events are passed to `handler` (S-311: a count of 0, callback
    /// only).
    fn eq_alloc(&self, handler: Arc<dyn EventHandler>) -> Result<EqHandle, LNetError> {
        self.eq_alloc_for(Handler::Shared(handler))
    }

    /// Makes an event queue like [`LNet::eq_alloc`], with a handler of either kind. ENOMEM when
    /// there are too many queues.
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError>;

    /// Makes an event queue that keeps the last `count` events (rounded up to a power of two) until
    /// they are polled, and passes each also to `handler`, if there is one (S-311). Polling takes a
    /// lock that callbacks do not take, so [`LNet::eq_alloc`] is preferable where it suffices.
    /// EINVAL for a count of 0 or above [`EQ_COUNT_MAX`], ENOMEM when there are too many queues.
    fn eq_alloc_polled(
        &self,
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError>;

    /// Removes and returns the oldest event of the first of these queues that has one (`LNetEQGet`,
    /// and `LNetEQPoll` without its wait; a waiting thread drives the node, see
    /// [`crate::wait_until`]). ENOENT if a queue is gone, EINVAL if it cannot be polled.
    fn eq_poll(&self, eqs: &[EqHandle]) -> Result<Option<Polled>, LNetError>;

    /// Frees an event queue. EBUSY while an MD still uses it, ENOENT if it is gone.
    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError>;

    /// Posts a match entry. EPERM if it does not fit the portal's type (S-101, S-103): the first
    /// entry makes a portal *unique* (a certain process, no ignore bits) or *wildcard*; ENOMEM when
    /// there are too many entries.
    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError>;

    /// Posts a match entry directly before or after `beside` (`LNetMEInsert`), on the same portal:
    /// `me.portal` must be that one. EPERM on a unique portal, where order has no meaning (S-103),
    /// or if the entry does not fit the portal's type; EINVAL for [`Position::Local`]; ENOENT if
    /// `beside` is gone.
    fn me_insert(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError>;

    /// Removes a match entry; an attached MD is unlinked as by [`LNet::md_unlink`].
    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError>;

    /// Attaches an MD to a match entry. EBUSY if the entry has an MD already: both stay as they
    /// are; ENOENT if the entry is gone. On any other failure the entry is unlinked too, as in
    /// LNet: EINVAL unless the MD allows PUT or GET, ENOENT if its EQ is gone, ENOMEM when there
    /// are too many MDs.
    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError>;

    /// Makes a free-floating MD for a PUT or GET of this node. EINVAL if it allows PUT or GET, or
    /// is longer than 1 MiB.
    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError>;

    /// Unlinks an MD (lnet-semantics 7). An idle MD gives one UNLINK event before the call returns,
    /// a busy one sets `unlinked` in its last event. The message that was last sent from it is
    /// withdrawn if it has not begun to leave, and ends with ECANCELED; one that has begun
    /// continues. ENOENT if the MD is gone already.
    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError>;

    /// Sends a PUT. ENOENT if the MD is gone, exhausted or attached, EHOSTUNREACH without a route
    /// to the target. Later failures are reported in the SEND event.
    fn put(&self, put: &Put) -> Result<(), LNetError>;

    /// Sends a GET; errors as for [`LNet::put`].
    fn get(&self, get: &Get) -> Result<(), LNetError>;

    /// Binds an MD and sends a PUT from it, as [`LNet::md_bind`] with [`Unlink::Auto`] and
    /// [`LNet::put`] do, at less cost. LNet has no such call.
    ///
    /// Returns the MD's handle, or `None` if the MD has ended inside the call: its last event has
    /// been delivered. The handle may already be stale, because other threads end MDs too. Events
    /// may arrive before the call returns, as for [`LNet::put`].
    ///
    /// # Errors
    /// Those of both calls, and EINVAL for a threshold of 0. Then nothing is sent, no MD remains,
    /// and there is no event. Later failures are reported in the SEND event.
    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError>;

    /// Binds an MD and sends a GET into it, as [`LNet::bind_put`].
    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError>;

    /// Makes a portal *lazy*: PUTs that match nothing wait until a buffer is posted
    /// (`LNetSetLazyPortal`, S-109). With `false` the portal drops them again, including those that
    /// wait (`LNetClearLazyPortal`). On portal 0, which the node itself uses, no message ever
    /// waits.
    fn set_lazy(&self, portal: Portal, lazy: bool);

    /// Registers `watcher` for every PUT that is lost from now on because no buffer takes it; the
    /// node keeps it for its lifetime. LNet has no such call: in LNet, a program without buffers
    /// gets no report of the loss. A message dropped for another reason (a push to portal 0, a
    /// header that breaks the protocol) is only counted.
    ///
    /// # Errors
    /// EBUSY if there is a watcher already: one serves all users of the node.
    fn watch_drops(&self, watcher: Arc<dyn DropWatcher>) -> Result<(), LNetError>;

    /// Returns the CPU partition of a wildcard portal's entries with these match bits, while
    /// no entry of the portal has ignore bits (S-308). Their events are delivered there. By default
    /// there is one partition.
    fn home(&self, portal: Portal, bits: MatchBits) -> usize {
        let _ = (portal, bits);
        0
    }

    /// Returns the distance to a node and the NID from which it is reached (`LNetDist`).
    /// EHOSTUNREACH without a route to it.
    fn distance(&self, nid: Nid) -> Result<Distance, LNetError>;

    /// Returns the processes of this node: one per local NID, including `0@lo` (`LNetGetId`).
    fn local_ids(&self) -> Vec<ProcessId>;

    /// Calls `look` with each of [`LNet::local_ids`]. `look` must not call LNet. Implementations
    /// avoid allocation where they can.
    fn for_each_local_id(&self, look: &mut dyn FnMut(ProcessId)) {
        self.local_ids().into_iter().for_each(look);
    }
}

#[cfg(test)]
mod tests {
    use crate::Errno;
    use lnet_region::Region;

    use super::*;

    fn md(options: MdOptions) -> Md {
        let memory = IoVec::whole(Region::heap(8).unwrap());
        Md { memory, threshold: Threshold::Limited(1), max_size: 0, options, user_ptr: 0, eq: None }
    }

    /// LNet's options that have no meaning here, and bits without any meaning, are refused.
    #[test]
    fn bits_without_a_name_are_refused() {
        assert_eq!(
            (md(MdOptions::empty()).check_bound(), md(MdOptions::OP_PUT).check_attached()),
            (Ok(()), Ok(()))
        );
        for bit in (0..u32::BITS).map(|bit| 1 << bit).filter(|&bit| MdOptions::from_bits(bit).is_none()) {
            let unknown = MdOptions::from_bits_retain(bit);
            for refused in [md(unknown).check_bound(), md(MdOptions::OP_PUT | unknown).check_attached()] {
                assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL);
            }
        }
    }
}
