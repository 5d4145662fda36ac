//! Registered memory: each region once per device, kept with the region (S-401); and bounded pools through which goes what
//! cannot be registered.
//!
//! To register takes long: about a tenth of a second for each GiB. So it is done before any lock of a connection is taken
//! ([`register_source`], [`register_sink`]); what is looked up under such a lock ([`source_of`], [`sink_of`]) is there, or is
//! copied. The one exception is the pools' own memory, of which there are twice 8 MiB, once per NI.

use crate::o2ib::{Ni, Request};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use lnet_api::{Errno, TxToken};
use lnet_cpt::PartitionMemory;
use lnet_nid::Nid;
use lnet_proto::ib::Fragment;
use lnet_region::{IoVec, LndSlot, ReadVec, Region, WriteVec};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::config::NS_PER_S;
use crate::conn::Key as OpKey;
use crate::connection::Connection;
use crate::fabric::{Device, FabricError, Memory, Piece};
use crate::item::{Described, PendingGet};
use crate::shard::Asked;
use crate::sizes::{BOUNCE_BYTES, BOUNCES};
use crate::writes::fragments;

/// Where regions keep what this LND knows of them.
const SLOT: LndSlot = LndSlot::new(1).expect("a slot");

/// Memory shorter than this is copied, if it is not registered already: to register takes pages, and many short pieces would
/// take as many registrations. A page.
const REGISTERED_MIN: usize = 4096;

/// Devices that know one region: more than a host has. What has been removed counts on as long as the region lives.
const DEVICES_MAX: usize = 16;

/// Memory that a device has refused is not offered to it again for so long. By then other memory may have been given back, or
/// the limit raised; and a refusal in so long costs nothing that shows.
const REFUSED_NS: u64 = 10 * NS_PER_S;

/// What devices know of one region or arena.
#[derive(Default)]
struct Known {
    by: Mutex<SmallVec<[KnownBy; 2]>>,
    /// Held while it is being registered: what is there already can be looked up meanwhile.
    registering: Mutex<()>,
}

/// What one device knows. Peers can write to memory as long as they know its key: so it is registered for them only when they
/// are first to.
struct KnownBy {
    device: Weak<dyn Device>,
    local: Option<Arc<dyn Memory>>,
    remote: Option<Arc<dyn Memory>>,
    /// The device has refused it, and is not asked again before.
    refused_until_ns: u64,
}

/// Who is to access memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// This node's own work requests.
    Us,
    /// Peers.
    Peers,
}

impl Known {
    fn of(region: &Region) -> Option<&Known> {
        region.registration(SLOT, |_| Some(Box::new(Known::default())))?.downcast_ref()
    }

    /// The key on a device, if that knows the memory.
    fn key(&self, device: &Arc<dyn Device>, by: By) -> Option<u32> {
        self.by.lock().iter().find(|known| known.is_by(device))?.key(by)
    }

    /// Whether the device is to be asked.
    fn is_wanted(&self, device: &Arc<dyn Device>, by: By, now_ns: u64) -> bool {
        match self.by.lock().iter().find(|known| known.is_by(device)) {
            Some(known) => known.key(by).is_none() && known.refused_until_ns <= now_ns,
            None => true,
        }
    }

    /// Notes what the device says.
    fn note(
        &self,
        device: &Arc<dyn Device>,
        by: By,
        said: Result<Arc<dyn Memory>, FabricError>,
        now_ns: u64,
    ) -> Result<(), FabricError> {
        let mut list = self.by.lock();
        let place = match list.iter().position(|known| known.is_by(device)) {
            Some(place) => place,
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
        let Some(known) = list.get_mut(place) else { return Ok(()) };
        match (said, by) {
            (Ok(memory), By::Us) => known.local = Some(memory),
            (Ok(memory), By::Peers) => known.remote = Some(memory),
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

    fn key(&self, by: By) -> Option<u32> {
        match by {
            By::Us => self.local.as_ref().or(self.remote.as_ref()).map(|memory| memory.local_key()),
            By::Peers => self.remote.as_ref().map(|memory| memory.remote_key()),
        }
    }
}

/// Makes a region's memory known to the device of an NI, if it is not, as long as the region or its arena lives. What the
/// device refuses is copied, and it is asked again [later](REFUSED_NS).
pub(crate) fn register(ni: &Ni, region: &Region, by: By, now_ns: u64) {
    if let Some(known) = Known::of(region) {
        register_known(ni, region, known, by, now_ns);
    }
}

fn register_known(ni: &Ni, region: &Region, known: &Known, by: By, now_ns: u64) {
    let device = &ni.own.device;
    let bytes = region.extent().1;
    if bytes < REGISTERED_MIN || !known.is_wanted(device, by, now_ns) {
        return;
    }
    let _alone = known.registering.lock();
    // Another thread may have done it meanwhile.
    if !known.is_wanted(device, by, now_ns) {
        return;
    }
    let noted = known.note(device, by, device.register(region, by == By::Peers), now_ns);
    if let Err(error) = noted
        && let Some(unsaid) = ni.own.refused_memory.say(now_ns)
    {
        tracing::warn!(nid = %ni.id.nid, %error, unsaid, "memory is copied, for it cannot be registered");
    }
}

/// Makes a payload known that is to be written from its place.
pub(crate) fn register_source(ni: &Ni, payload: &ReadVec, now_ns: u64) {
    let mut last = None;
    for (region, _) in payload.parts(0) {
        let Some(known) = Known::of(region) else { continue };
        // The pieces of a region, or of an arena, have one registration.
        if !last.replace(known).is_some_and(|last| std::ptr::eq(last, known)) {
            register_known(ni, region, known, By::Us, now_ns);
        }
    }
}

/// Makes a sink known into which peers are to write, if it lies in memory of one registration: a descriptor has one key.
pub(crate) fn register_sink(ni: &Ni, sink: &WriteVec, now_ns: u64) {
    let mut parts = sink.parts(0).map(|(region, _)| (region, Known::of(region)));
    let Some((region, Some(known))) = parts.next() else { return };
    if parts.all(|(_, other)| other.is_some_and(|other| std::ptr::eq(other, known))) {
        register_known(ni, region, known, By::Peers, now_ns);
    }
}

/// The pieces of a payload from its start, as own work requests name them. `None` if any of it is not registered.
pub(crate) fn source_of(device: &Arc<dyn Device>, payload: &ReadVec, pieces: &mut Vec<Piece>) -> Option<()> {
    pieces.clear();
    for (region, part) in payload.parts(0) {
        let key = Known::of(region)?.key(device, By::Us)?;
        let (address, length) = (region.address_of(part.start), u32::try_from(part.len()).ok()?);
        pieces.push(Piece { address, length, key });
    }
    Some(())
}

/// Adds the pieces of a payload to those of a message. `false`, and none is added, if there are more than so many, or any of it is
/// not registered already.
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
        let key = known.and_then(|known| known.key(device, By::Us)).filter(|_| pieces.len() < before + most);
        let Some((key, length)) = key.zip(u32::try_from(part.len()).ok()) else {
            pieces.truncate(before);
            return false;
        };
        pieces.push(Piece { address: region.address_of(part.start), length, key });
    }
    true
}

/// Why a peer cannot be told to write to memory where it lies. It is copied then, if there are bounce buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undescribed {
    /// The device refuses it, or it is too short to be worth it.
    #[error(
        "memory is not registered, and there are no bounce buffers: see the warning of that, and `ulimit -l`"
    )]
    Unregistered,
    /// A descriptor has one key.
    #[error(
        "memory of several registrations has no one key, and there are no bounce buffers: use pieces of one buffer"
    )]
    SeveralKeys,
    /// The peer has asked for fewer.
    #[error(
        "memory lies in more than the {most} fragments that both nodes have agreed on: use buffers of fewer and larger fragments, \
         or raise map_on_demand of an old peer"
    )]
    Fragments {
        /// The most.
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

/// The first bytes of a sink as a descriptor names them: one key, and at most so many fragments.
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
    let key = one.and_then(|known| known.key(device, By::Peers)).ok_or(Undescribed::Unregistered)?;
    let mut left = bytes;
    let parts = sink.parts(0).map_while(|(region, part)| {
        let length = part.len().min(left);
        left -= length;
        (length > 0).then(|| Fragment { length: length as u32, address: region.address_of(part.start) })
    });
    let fragments = fragments(parts, most).ok_or(Undescribed::Fragments { most })?;
    Ok(Described { key, fragments })
}

/// Tells that a transfer fails, for its memory can neither be used where it lies nor copied. Gives the errno.
pub(crate) fn tell_failed(conn: &Connection, why: &dyn std::fmt::Display, errno: Errno) -> Errno {
    let ni = conn.ni();
    if let Some(unsaid) = ni.own.failed_transfers.say(conn.shard().own.now_ns()) {
        let peer = conn.peer.key.id.nid;
        tracing::warn!(%peer, %errno, unsaid, "a transfer fails: {why}");
    }
    errno
}

/// A bounce buffer in use; goes back when it is dropped.
pub(crate) struct Bounce {
    pool: Arc<Pool>,
    place: usize,
    /// The peer for which it is.
    nid: Nid,
    bytes: usize,
    /// The lease on it.
    memory: Option<WriteVec>,
    local_key: u32,
    remote_key: u32,
    address: u64,
}

/// Bytes of a bounce buffer.
const BYTES: usize = BOUNCE_BYTES as usize;

/// Bounce buffers of one pool: of an NI's, one half is written from, the other written to.
const COUNT: usize = BOUNCES as usize / 2;

/// Bounce buffers of an NI: made when the first is needed. Those that payloads are written from have a pool of their own, for peers
/// have no key to it. Their memory is spread over the NUMA nodes of all partitions.
pub(crate) struct Pool {
    by: By,
    memory: PartitionMemory,
    buffers: Mutex<Buffers>,
}

#[derive(Default)]
struct Buffers {
    made: Option<Made>,
    /// The device has refused all memory for it, and is not asked again before.
    refused_until_ns: u64,
    free: Vec<usize>,
    /// Who has the others.
    held: Vec<Nid>,
    /// Who waits, in the order in which they came.
    waiting: VecDeque<Waiting>,
}

impl Buffers {
    /// Whether a peer may have another one: it never has more than it leaves to others, and the last is for one who has none. So a
    /// peer that gives none back takes half of them, and as many such peers as there are buffers take one each.
    fn has_one_for(&self, nid: Nid) -> bool {
        self.held.iter().filter(|holder| **holder == nid).count() < self.free.len()
    }
}

/// A place in the line.
struct Waiting {
    who: Who,
    nid: Nid,
    until_ns: u64,
    /// `None`: it has been told that there is a buffer, and is about to come. If another was quicker, it waits on in its place.
    waiter: Option<Waiter>,
}

/// Names who waits, as long as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Of the connection at this address.
    Operation(usize, OpKey),
    Get(TxToken),
}

impl Who {
    pub(crate) fn operation(conn: &Arc<Connection>, operation: OpKey) -> Who {
        Who::Operation(Arc::as_ptr(conn).addr(), operation)
    }
}

struct Made {
    memory: Arc<dyn Memory>,
    vec: IoVec,
    address: u64,
    count: usize,
}

/// Who waits for a buffer.
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

    fn who(&self) -> Who {
        match self {
            Waiter::Operation(conn, operation) => Who::operation(conn, *operation),
            Waiter::Get(pending) => Who::Get(pending.token),
        }
    }

    /// Tells it that there is a buffer.
    fn tell(self) {
        match self {
            Waiter::Operation(conn, operation) => {
                conn.shard().clone().request(Request::Own(Asked::Prepare(conn, operation)));
            }
            Waiter::Get(pending) => {
                let conn = pending.conn.clone();
                conn.shard().request(Request::Own(Asked::BeginGet(pending)));
            }
        }
    }
}

/// What came of asking for a bounce buffer.
pub(crate) enum Taken {
    /// Here it is.
    Bounce(Bounce, Waiter),
    /// All are in use: the waiter is told when there is one.
    Later,
    /// There is none: the device refuses the memory.
    Never(Waiter),
}

impl Pool {
    /// An empty one, for work requests of this node or of peers.
    pub(crate) fn new(by: By, memory: PartitionMemory) -> Pool {
        Pool { by, memory, buffers: Mutex::default() }
    }

    /// A buffer of so many bytes, or a place in the line for one.
    pub(crate) fn take(
        self: &Arc<Pool>,
        device: &Arc<dyn Device>,
        bytes: usize,
        now_ns: u64,
        waiter: Waiter,
    ) -> Taken {
        let mut buffers = self.buffers.lock();
        if buffers.made.is_none() && buffers.refused_until_ns <= now_ns {
            // All partitions share it.
            buffers.made = self.memory.near(None, || Made::new(device, self.by));
            buffers.free = (0..buffers.made.as_ref().map_or(0, |made| made.count)).collect();
            buffers.refused_until_ns = now_ns.saturating_add(REFUSED_NS);
        }
        if buffers.made.is_none() || bytes > BYTES {
            return Taken::Never(waiter);
        }
        let (nid, who) = (waiter.conn().peer.key.id.nid, waiter.who());
        let told = buffers.waiting.iter().position(|waiting| waiting.who == who);
        let place = if buffers.has_one_for(nid) { buffers.free.pop() } else { None };
        let Some(place) = place else {
            // What waits for it has the whole of the timeout: its connection is not closed for this.
            let until_ns = now_ns.saturating_add(waiter.conn().ni().timeout_ns / 2);
            match told.and_then(|at| buffers.waiting.get_mut(at)) {
                Some(waiting) => waiting.waiter = Some(waiter),
                None => {
                    buffers.waiting.push_back(Waiting { who, nid, until_ns, waiter: Some(waiter) });
                }
            }
            return Taken::Later;
        };
        told.and_then(|at| buffers.waiting.remove(at));
        let start = place * BYTES;
        let leased = buffers.made.as_ref().map(|made| (made, made.vec.write(start..start + bytes)));
        let Some((made, Ok(memory))) = leased else { return Taken::Never(waiter) };
        let bounce = Bounce {
            pool: self.clone(),
            place,
            nid,
            bytes,
            local_key: made.memory.local_key(),
            remote_key: made.memory.remote_key(),
            address: made.address + start as u64,
            memory: Some(memory),
        };
        buffers.held.push(nid);
        drop(buffers);
        // Others may have one of those that are left, that could not when they were fewer.
        self.pass_on();
        Taken::Bounce(bounce, waiter)
    }

    /// If there is a buffer for one of those in the line, the first of them is told: the last who was has taken his, has gone, or does
    /// not need it any more.
    pub(crate) fn pass_on(&self) {
        let waiter = {
            let mut guard = self.buffers.lock();
            let buffers = &mut *guard;
            let can_come = |waiting: &Waiting| waiting.waiter.is_some() && buffers.has_one_for(waiting.nid);
            let first = buffers.waiting.iter().position(can_come);
            first.and_then(|at| buffers.waiting.get_mut(at)?.waiter.take())
        };
        if let Some(waiter) = waiter {
            waiter.tell();
        }
    }

    /// Who was told has come: it has taken a buffer, waits on, or does not need one any more.
    pub(crate) fn came(&self, who: Who) {
        let gone = |waiting: &Waiting| waiting.who == who && waiting.waiter.is_none();
        self.buffers.lock().waiting.retain(|waiting| !gone(waiting));
        self.pass_on();
    }

    /// Takes out one who has waited too long.
    pub(crate) fn overdue(&self, now_ns: u64) -> Option<Waiter> {
        let mut buffers = self.buffers.lock();
        let is_overdue = |waiting: &Waiting| waiting.waiter.is_some() && waiting.until_ns <= now_ns;
        let first = buffers.waiting.iter().position(is_overdue)?;
        buffers.waiting.remove(first)?.waiter
    }

    /// Nobody waits any more: the NI has ended. Gives the GETs that did.
    pub(crate) fn abandon(&self) -> Vec<PendingGet> {
        let waiting = std::mem::take(&mut self.buffers.lock().waiting);
        let get = |waiting: Waiting| match waiting.waiter {
            Some(Waiter::Get(pending)) => Some(*pending),
            Some(Waiter::Operation(..)) | None => None,
        };
        waiting.into_iter().filter_map(get).collect()
    }

    /// Buffers in use.
    pub(crate) fn in_use(&self) -> usize {
        let buffers = self.buffers.lock();
        buffers.made.as_ref().map_or(0, |made| made.count - buffers.free.len())
    }
}

impl Made {
    /// Buffers that the device takes. Where it does not take all, memory is scarce, and two leave some for other pools.
    fn new(device: &Arc<dyn Device>, by: By) -> Option<Made> {
        let mut count = COUNT;
        loop {
            let region = Region::pages(count * BYTES).ok()?;
            match device.register(&region, by == By::Peers) {
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
    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// As own work requests name it.
    pub(crate) fn piece(&self) -> Piece {
        Piece { address: self.address, length: self.bytes as u32, key: self.local_key }
    }

    /// As a descriptor names it. It is cleared: a peer that says that it has written, and has not, hands on nothing that was
    /// another's.
    pub(crate) fn described(&mut self) -> Described {
        if let Some(bytes) = self.memory.as_mut().and_then(WriteVec::as_mut_slice) {
            bytes.fill(0);
        }
        let fragment = Fragment { length: self.bytes as u32, address: self.address };
        Described { key: self.remote_key, fragments: SmallVec::from_slice(&[fragment]) }
    }

    /// Takes the first bytes of a payload.
    pub(crate) fn load(&mut self, payload: &ReadVec) {
        if let Some(bytes) = self.memory.as_mut().and_then(WriteVec::as_mut_slice) {
            payload.copy_to(0, bytes);
        }
    }

    /// Gives the first bytes, which have been written to it; never more, for the rest is others'. Gives how many.
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
            buffers.free.push(self.place);
            if let Some(at) = buffers.held.iter().position(|holder| *holder == self.nid) {
                buffers.held.swap_remove(at);
            }
        }
        self.pool.pass_on();
    }
}
