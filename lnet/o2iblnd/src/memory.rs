//! Registered memory: each region is registered once per device, and the registration is kept with
//! the region (S-401). Memory that cannot be registered is copied through bounded pools of bounce
//! buffers.
//!
//! Registering takes long: about a tenth of a second for each GiB. So it is done before any lock of
//! a connection is taken ([`register_source`], [`register_sink`]). Under such a lock, registrations
//! are only looked up ([`source_of`], [`sink_of`]); memory without one is copied. The one exception
//! is the pools' own memory of twice 8 MiB, which is registered once per NI.

use crate::o2ib::{Ni, Request};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use lnet_api::{Errno, TxToken};
use lnet_cpt::PartitionMemory;
use lnet_nid::Nid;
use lnet_proto::ib::RdmaFragment;
use lnet_region::{IoVec, LndSlot, ReadVec, Region, WriteVec};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::config::NS_PER_S;
use crate::conn::OpKey;
use crate::connection::Connection;
use crate::fabric::{Device, FabricError, Piece, RegisteredMemory};
use crate::op_data::{Described, PendingGet};
use crate::shard::O2ibRequest;
use crate::sizes::{BOUNCE_BYTES, BOUNCES};
use crate::writes::fragments;

/// The slot of a region in which this LND keeps its registrations.
const SLOT: LndSlot = LndSlot::new(1).expect("a slot");

/// The shortest memory that is registered, one page. Shorter memory is copied unless it is
/// registered already: a registration covers whole pages, and each short piece would need one.
const REGISTERED_MIN: usize = 4096;

/// The maximum number of devices with which one region is registered: more than a host has. Removed
/// devices count until the region is freed.
const DEVICES_MAX: usize = 16;

/// The time after which memory that a device has refused is offered to it again. After that time
/// other memory may have been freed, or the limit raised; one refusal in this time has no
/// noticeable cost.
const REFUSED_NS: u64 = 10 * NS_PER_S;

/// The registrations of one region or arena with the devices.
#[derive(Default)]
struct Known {
    by: Mutex<SmallVec<[KnownBy; 2]>>,
    /// Held during a registration. Existing registrations can be looked up during that time.
    registering: Mutex<()>,
}

/// The registrations with one device. A peer can write to memory while it has the key, so memory is
/// registered for peers only when they first need it.
struct KnownBy {
    device: Weak<dyn Device>,
    local: Option<Arc<dyn RegisteredMemory>>,
    remote: Option<Arc<dyn RegisteredMemory>>,
    /// The device has refused the memory, and none is offered to it before this time.
    refused_until_ns: u64,
}

/// The side that accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accessor {
    /// This node's own work requests.
    Node,
    /// Peers' RDMA writes.
    Peers,
}

impl Known {
    fn of(region: &Region) -> Option<&Known> {
        region.registration(SLOT, |_| Some(Box::new(Known::default())))?.downcast_ref()
    }

    /// Returns the memory's key on a device, if it is registered there.
    fn key(&self, device: &Arc<dyn Device>, by: Accessor) -> Option<u32> {
        self.by.lock().iter().find(|known| known.is_by(device))?.key(by)
    }

    /// Returns whether to register the memory with the device.
    fn is_wanted(&self, device: &Arc<dyn Device>, by: Accessor, now_ns: u64) -> bool {
        match self.by.lock().iter().find(|known| known.is_by(device)) {
            Some(known) => known.key(by).is_none() && known.refused_until_ns <= now_ns,
            None => true,
        }
    }

    /// Records the device's answer to a registration.
    fn note(
        &self,
        device: &Arc<dyn Device>,
        by: Accessor,
        result: Result<Arc<dyn RegisteredMemory>, FabricError>,
        now_ns: u64,
    ) -> Result<(), FabricError> {
        let mut list = self.by.lock();
        let index = match list.iter().position(|known| known.is_by(device)) {
            Some(index) => index,
            None => {
                list.retain(|known| known.device.strong_count() > 0);
                if list.len() >= DEVICES_MAX {
                    return Ok(());
                }
                let device = Arc::downgrade(device);
                list.push(KnownBy { device, local: None, remote: None, refused_until_ns: 0 });
                list.len() - 1
            }
        };
        let Some(known) = list.get_mut(index) else { return Ok(()) };
        match (result, by) {
            (Ok(memory), Accessor::Node) => known.local = Some(memory),
            (Ok(memory), Accessor::Peers) => known.remote = Some(memory),
            (Err(error), _) => {
                known.refused_until_ns = now_ns.saturating_add(REFUSED_NS);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl KnownBy {
    fn is_by(&self, device: &Arc<dyn Device>) -> bool {
        std::ptr::addr_eq(self.device.as_ptr(), Arc::as_ptr(device))
    }

    fn key(&self, by: Accessor) -> Option<u32> {
        match by {
            Accessor::Node => self.local.as_ref().or(self.remote.as_ref()).map(|memory| memory.local_key()),
            Accessor::Peers => self.remote.as_ref().map(|memory| memory.remote_key()),
        }
    }
}

/// Registers a region, or its arena, with the device of an NI, if it is not registered yet; the
/// registration ends with the region or arena. If the device refuses, the memory is copied, and is
/// offered to the device again [later](REFUSED_NS).
pub(crate) fn register(ni: &Ni, region: &Region, by: Accessor, now_ns: u64) {
    if let Some(known) = Known::of(region) {
        register_known(ni, region, known, by, now_ns);
    }
}

fn register_known(ni: &Ni, region: &Region, known: &Known, by: Accessor, now_ns: u64) {
    let device = &ni.own.device;
    let bytes = region.extent().1;
    if bytes < REGISTERED_MIN || !known.is_wanted(device, by, now_ns) {
        return;
    }
    let _alone = known.registering.lock();
    // Another thread may have registered the memory before this one got the lock.
    if !known.is_wanted(device, by, now_ns) {
        return;
    }
    let noted = known.note(device, by, device.register(region, by == Accessor::Peers), now_ns);
    if let Err(error) = noted
        && let Some(suppressed) = ni.own.refused_memory.say(now_ns)
    {
        tracing::warn!(nid = %ni.id.nid, %error, suppressed, "cannot register memory with the device: its data is copied");
    }
}

/// Registers a payload that is to be written from its own memory.
pub(crate) fn register_source(ni: &Ni, payload: &ReadVec, now_ns: u64) {
    let mut last = None;
    for (region, _) in payload.parts(0) {
        let Some(known) = Known::of(region) else { continue };
        // The pieces of a region, or of an arena, share one registration.
        if !last.replace(known).is_some_and(|last| std::ptr::eq(last, known)) {
            register_known(ni, region, known, Accessor::Node, now_ns);
        }
    }
}

/// Registers a sink into which peers are to write, if all of it belongs to one registration: a
/// descriptor has one key.
pub(crate) fn register_sink(ni: &Ni, sink: &WriteVec, now_ns: u64) {
    let mut parts = sink.parts(0).map(|(region, _)| (region, Known::of(region)));
    let Some((region, Some(known))) = parts.next() else { return };
    if parts.all(|(_, other)| other.is_some_and(|other| std::ptr::eq(other, known))) {
        register_known(ni, region, known, Accessor::Peers, now_ns);
    }
}

/// Collects the pieces of a payload from its start, for own work requests. `None` if any part is
/// not registered.
pub(crate) fn source_of(device: &Arc<dyn Device>, payload: &ReadVec, pieces: &mut Vec<Piece>) -> Option<()> {
    pieces.clear();
    for (region, part) in payload.parts(0) {
        let key = Known::of(region)?.key(device, Accessor::Node)?;
        let (address, length) = (region.address_of(part.start), u32::try_from(part.len()).ok()?);
        pieces.push(Piece { address, length, key });
    }
    Some(())
}

/// Adds the pieces of a payload to those of a message. Returns `false`, and adds none, if there are
/// more than `most`, or any part is not registered.
pub(crate) fn gather<const N: usize>(
    device: &Arc<dyn Device>,
    payload: &ReadVec,
    most: usize,
    pieces: &mut SmallVec<[Piece; N]>,
) -> bool
where
    [Piece; N]: smallvec::Array<Item = Piece>,
{
    let before = pieces.len();
    for (region, part) in payload.parts(0) {
        let known = region.registration(SLOT, |_| None).and_then(|known| known.downcast_ref::<Known>());
        let key = known
            .and_then(|known| known.key(device, Accessor::Node))
            .filter(|_| pieces.len() < before + most);
        let Some((key, length)) = key.zip(u32::try_from(part.len()).ok()) else {
            pieces.truncate(before);
            return false;
        };
        pieces.push(Piece { address: region.address_of(part.start), length, key });
    }
    true
}

/// The reason why memory cannot be described for a peer to write to. It is then copied, if there
/// are bounce buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undescribed {
    /// The device refuses the memory, or it is too short to be worth a registration.
    #[error(
        "memory is not registered, and there are no bounce buffers: see the earlier warning, and `ulimit -l`"
    )]
    Unregistered,
    /// The memory has several keys, and a descriptor has one.
    #[error(
        "the memory belongs to several registrations, and there are no bounce buffers: use pieces of one buffer"
    )]
    SeveralKeys,
    /// The memory has more fragments than the peer accepts.
    #[error(
        "memory lies in more than the {most} fragments that both nodes have agreed on: use buffers of fewer and larger fragments, \
         or raise map_on_demand of an old peer"
    )]
    Fragments {
        /// The maximum number of fragments.
        most: usize,
    },
}

impl Undescribed {
    pub(crate) fn errno(self) -> Errno {
        match self {
            Undescribed::Unregistered | Undescribed::SeveralKeys => Errno::ENOMEM,
            Undescribed::Fragments { .. } => Errno::EMSGSIZE,
        }
    }
}

/// Returns the description of a sink's first bytes for a descriptor: one key, and at most `most`
/// fragments.
///
/// # Errors
/// [`Undescribed`].
pub(crate) fn sink_of(
    device: &Arc<dyn Device>,
    sink: &WriteVec,
    bytes: usize,
    most: usize,
) -> Result<Described, Undescribed> {
    let mut one = None;
    let mut left = bytes;
    for (region, part) in sink.parts(0) {
        if left == 0 {
            break;
        }
        let known = Known::of(region).ok_or(Undescribed::Unregistered)?;
        if one.replace(known).is_some_and(|other| !std::ptr::eq(other, known)) {
            return Err(Undescribed::SeveralKeys);
        }
        left = left.saturating_sub(part.len());
    }
    let key = one.and_then(|known| known.key(device, Accessor::Peers)).ok_or(Undescribed::Unregistered)?;
    let mut left = bytes;
    let parts = sink.parts(0).map_while(|(region, part)| {
        let length = part.len().min(left);
        left -= length;
        (length > 0).then(|| RdmaFragment { length: length as u32, address: region.address_of(part.start) })
    });
    let fragments = fragments(parts, most).ok_or(Undescribed::Fragments { most })?;
    Ok(Described { key, fragments })
}

/// Logs that a transfer fails because its memory can neither be used where it lies nor copied.
/// Returns the errno.
pub(crate) fn warn_failed(conn: &Connection, reason: &dyn std::fmt::Display, errno: Errno) -> Errno {
    let ni = conn.ni();
    if let Some(suppressed) = ni.own.failed_transfers.say(conn.shard().own.now_ns()) {
        let peer = conn.peer.key.id.nid;
        tracing::warn!(%peer, %errno, suppressed, "a transfer failed: {reason}");
    }
    errno
}

/// A bounce buffer in use; dropping it returns it to the pool.
pub(crate) struct Bounce {
    pool: Arc<BouncePool>,
    index: usize,
    /// The peer whose transfer uses the buffer.
    nid: Nid,
    bytes: usize,
    /// The lease on the buffer.
    memory: Option<WriteVec>,
    local_key: u32,
    remote_key: u32,
    address: u64,
}

/// Bytes of a bounce buffer.
const BYTES: usize = BOUNCE_BYTES as usize;

/// Bounce buffers of one pool. An NI has two pools: peers write to the buffers of one, this node
/// writes from those of the other.
const COUNT: usize = BOUNCES as usize / 2;

/// A pool of bounce buffers of an NI, allocated when the first is needed. Buffers that this node
/// writes from are in a separate pool, so that peers have no key to them. The memory is spread
/// over the NUMA nodes of all partitions.
pub(crate) struct BouncePool {
    by: Accessor,
    memory: PartitionMemory,
    buffers: Mutex<Buffers>,
}

#[derive(Default)]
struct Buffers {
    made: Option<Made>,
    /// The device has refused all memory for the pool, and is offered none before this time.
    refused_until_ns: u64,
    free: Vec<usize>,
    /// The peers for whose transfers buffers are in use, one entry per buffer.
    held: Vec<Nid>,
    /// The waiters, in order of arrival.
    waiting: VecDeque<Waiting>,
}

impl Buffers {
    /// Returns whether a peer may have another buffer: it must hold fewer buffers than are free. So
    /// a peer that returns none gets at most half of the buffers, and the last free buffer goes
    /// only to a peer that holds none.
    fn has_one_for(&self, nid: Nid) -> bool {
        self.held.iter().filter(|holder| **holder == nid).count() < self.free.len()
    }
}

/// A queued waiter.
struct Waiting {
    id: WaiterId,
    nid: Nid,
    until_ns: u64,
    /// The waiter; `None` while it has been notified of a free buffer and has not tried to take it
    /// yet. If another operation takes the buffer first, the waiter keeps its position in the
    /// queue.
    waiter: Option<Waiter>,
}

/// Identifies a waiter while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterId {
    /// An operation of the connection at this address.
    Operation(usize, OpKey),
    Get(TxToken),
}

impl WaiterId {
    pub(crate) fn operation(conn: &Arc<Connection>, operation: OpKey) -> WaiterId {
        WaiterId::Operation(Arc::as_ptr(conn).addr(), operation)
    }
}

struct Made {
    memory: Arc<dyn RegisteredMemory>,
    vec: IoVec,
    address: u64,
    count: usize,
}

/// A waiter for a bounce buffer.
pub(crate) enum Waiter {
    /// An operation of a connection.
    Operation(Arc<Connection>, OpKey),
    /// A GET that is not queued yet.
    Get(Box<PendingGet>),
}

impl Waiter {
    fn conn(&self) -> &Arc<Connection> {
        match self {
            Waiter::Operation(conn, _) => conn,
            Waiter::Get(pending) => &pending.conn,
        }
    }

    fn id(&self) -> WaiterId {
        match self {
            Waiter::Operation(conn, operation) => WaiterId::operation(conn, *operation),
            Waiter::Get(pending) => WaiterId::Get(pending.token),
        }
    }

    /// Requests the driver to retry the waiter, because a buffer is free.
    fn notify(self) {
        match self {
            Waiter::Operation(conn, operation) => {
                conn.shard().clone().request(Request::Own(O2ibRequest::Prepare(conn, operation)));
            }
            Waiter::Get(pending) => {
                let conn = pending.conn.clone();
                conn.shard().request(Request::Own(O2ibRequest::BeginGet(pending)));
            }
        }
    }
}

/// The result of a request for a bounce buffer.
pub(crate) enum BounceResult {
    /// A buffer was free.
    Bounce(Bounce, Waiter),
    /// All buffers are in use: the waiter is queued, and notified when one is free.
    Later,
    /// There is no buffer, because the device refuses the memory.
    Never(Waiter),
}

impl BouncePool {
    /// Creates a pool without buffers, for work requests of this node or of peers.
    pub(crate) fn new(by: Accessor, memory: PartitionMemory) -> BouncePool {
        BouncePool { by, memory, buffers: Mutex::default() }
    }

    /// Takes a buffer of `bytes` bytes, or queues the waiter.
    pub(crate) fn take(
        self: &Arc<BouncePool>,
        device: &Arc<dyn Device>,
        bytes: usize,
        now_ns: u64,
        waiter: Waiter,
    ) -> BounceResult {
        let mut buffers = self.buffers.lock();
        if buffers.made.is_none() && buffers.refused_until_ns <= now_ns {
            // The memory is spread over all partitions, because they share the pool.
            buffers.made = self.memory.near(None, || Made::new(device, self.by));
            buffers.free = (0..buffers.made.as_ref().map_or(0, |made| made.count)).collect();
            buffers.refused_until_ns = now_ns.saturating_add(REFUSED_NS);
        }
        if buffers.made.is_none() || bytes > BYTES {
            return BounceResult::Never(waiter);
        }
        let (nid, id) = (waiter.conn().peer.key.id.nid, waiter.id());
        let queued = buffers.waiting.iter().position(|waiting| waiting.id == id);
        let index = if buffers.has_one_for(nid) { buffers.free.pop() } else { None };
        let Some(index) = index else {
            // The wait takes at most half of the connection's timeout, so that the timeout does not
            // close the connection.
            let until_ns = now_ns.saturating_add(waiter.conn().ni().timeout_ns / 2);
            match queued.and_then(|at| buffers.waiting.get_mut(at)) {
                Some(waiting) => waiting.waiter = Some(waiter),
                None => {
                    buffers.waiting.push_back(Waiting { id, nid, until_ns, waiter: Some(waiter) });
                }
            }
            return BounceResult::Later;
        };
        queued.and_then(|at| buffers.waiting.remove(at));
        let start = index * BYTES;
        let leased = buffers.made.as_ref().map(|made| (made, made.vec.write(start..start + bytes)));
        let Some((made, Ok(memory))) = leased else { return BounceResult::Never(waiter) };
        let bounce = Bounce {
            pool: self.clone(),
            index,
            nid,
            bytes,
            local_key: made.memory.local_key(),
            remote_key: made.memory.remote_key(),
            address: made.address + start as u64,
            memory: Some(memory),
        };
        buffers.held.push(nid);
        drop(buffers);
        // With more buffers in use, a waiter that was refused before may be allowed one.
        self.pass_on();
        BounceResult::Bounce(bounce, waiter)
    }

    /// Notifies the first waiter for which a buffer is free, if any. Must be called when the waiter
    /// that was notified last has taken its buffer, has gone, or no longer needs one.
    pub(crate) fn pass_on(&self) {
        let waiter = {
            let mut guard = self.buffers.lock();
            let buffers = &mut *guard;
            let can_come = |waiting: &Waiting| waiting.waiter.is_some() && buffers.has_one_for(waiting.nid);
            let first = buffers.waiting.iter().position(can_come);
            first.and_then(|at| buffers.waiting.get_mut(at)?.waiter.take())
        };
        if let Some(waiter) = waiter {
            waiter.notify();
        }
    }

    /// Records that a notified waiter has been handled: it has taken a buffer, waits again, or no
    /// longer needs one.
    pub(crate) fn waiter_done(&self, id: WaiterId) {
        let gone = |waiting: &Waiting| waiting.id == id && waiting.waiter.is_none();
        self.buffers.lock().waiting.retain(|waiting| !gone(waiting));
        self.pass_on();
    }

    /// Removes and returns a waiter whose deadline has passed.
    pub(crate) fn overdue(&self, now_ns: u64) -> Option<Waiter> {
        let mut buffers = self.buffers.lock();
        let is_overdue = |waiting: &Waiting| waiting.waiter.is_some() && waiting.until_ns <= now_ns;
        let first = buffers.waiting.iter().position(is_overdue)?;
        buffers.waiting.remove(first)?.waiter
    }

    /// Removes all waiters, as the NI has ended. Returns the GETs among them.
    pub(crate) fn abandon(&self) -> Vec<PendingGet> {
        let waiting = std::mem::take(&mut self.buffers.lock().waiting);
        let get = |waiting: Waiting| match waiting.waiter {
            Some(Waiter::Get(pending)) => Some(*pending),
            Some(Waiter::Operation(..)) | None => None,
        };
        waiting.into_iter().filter_map(get).collect()
    }

    /// Returns the number of buffers in use.
    pub(crate) fn in_use(&self) -> usize {
        let buffers = self.buffers.lock();
        buffers.made.as_ref().map_or(0, |made| made.count - buffers.free.len())
    }
}

impl Made {
    /// Allocates 8, 2 or 1 buffers: the largest of these numbers that the device accepts. If it
    /// does not accept 8, memory is scarce, and 2 buffers leave some for other pools.
    fn new(device: &Arc<dyn Device>, by: Accessor) -> Option<Made> {
        let mut count = COUNT;
        loop {
            let region = Region::pages(count * BYTES).ok()?;
            match device.register(&region, by == Accessor::Peers) {
                Ok(memory) => {
                    return Some(Made {
                        memory,
                        address: region.address_of(0),
                        count,
                        vec: IoVec::whole(region),
                    });
                }
                Err(error) if count == 1 => {
                    tracing::warn!(device = device.name(), %error, "there are no bounce buffers: transfers that need one fail with ENOMEM");
                    return None;
                }
                Err(_) => count = (count / 4).max(1),
            }
        }
    }
}

impl Bounce {
    /// Returns the length of the buffer in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the buffer as a piece of an own work request.
    pub(crate) fn piece(&self) -> Piece {
        Piece { address: self.address, length: self.bytes as u32, key: self.local_key }
    }

    /// Returns the description of the buffer for a descriptor. The buffer is cleared first, so that
    /// a peer that reports a write which it has not made causes no data of another transfer to be
    /// delivered.
    pub(crate) fn described(&mut self) -> Described {
        if let Some(bytes) = self.memory.as_mut().and_then(WriteVec::as_mut_slice) {
            bytes.fill(0);
        }
        let fragment = RdmaFragment { length: self.bytes as u32, address: self.address };
        Described { key: self.remote_key, fragments: SmallVec::from_slice(&[fragment]) }
    }

    /// Copies the first bytes of a payload into the buffer.
    pub(crate) fn load(&mut self, payload: &ReadVec) {
        if let Some(bytes) = self.memory.as_mut().and_then(WriteVec::as_mut_slice) {
            payload.copy_to(0, bytes);
        }
    }

    /// Copies the first `bytes` bytes, which the peer has written, into the sink; never more, as
    /// the rest may be other transfers' data. Returns the number of bytes copied.
    pub(crate) fn store(&self, sink: &mut WriteVec, bytes: usize) -> usize {
        let written = self.memory.as_ref().and_then(WriteVec::as_slice).and_then(|all| all.get(..bytes));
        written.map_or(0, |written| sink.copy_from(0, written))
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        self.memory = None;
        {
            let mut buffers = self.pool.buffers.lock();
            buffers.free.push(self.index);
            if let Some(at) = buffers.held.iter().position(|holder| *holder == self.nid) {
                buffers.held.swap_remove(at);
            }
        }
        self.pool.pass_on();
    }
}
