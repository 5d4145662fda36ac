//! Registered memory: each region once per device, kept with the region (S-401); and a bounded pool through which goes what
//! cannot be registered.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use lnet_proto::MAX_PAYLOAD;
use lnet_proto::ib::Fragment;
use lnet_region::{IoVec, LndSlot, ReadVec, Region, WriteVec};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::conn::Key as OpKey;
use crate::connection::Connection;
use crate::fabric::{Device, Memory, Piece};
use crate::item::{Described, PendingGet};
use crate::shard::Request;
use crate::writes::fragments;

/// Where regions keep what this LND knows of them.
const SLOT: LndSlot = LndSlot::new(1).expect("a slot");

/// Memory shorter than this is copied, if it is not registered already: to register takes pages, and many short pieces would
/// take as many registrations. A page.
const REGISTERED_MIN: usize = 4096;

/// Devices that know one region: more than a host has. What has been removed counts on as long as the region lives.
const DEVICES_MAX: usize = 16;

/// Payloads that go through the pool at a time, per NI; fewer where the device takes no more memory at a time. Others wait.
const BOUNCES: usize = 16;

/// Bytes of each: LNet's largest payload.
const BOUNCE_BYTES: usize = MAX_PAYLOAD as usize;

/// What devices know of one region or arena.
#[derive(Default)]
struct Known(Mutex<SmallVec<[KnownBy; 2]>>);

/// What one device knows. Peers can write to memory as long as they know its key: so it is registered for them only when they
/// are first to.
struct KnownBy {
    device: Weak<dyn Device>,
    local: Option<Arc<dyn Memory>>,
    remote: Option<Arc<dyn Memory>>,
    /// The device has refused it; it is not asked again.
    refused: bool,
}

/// Who is to access memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// This node's own work requests.
    Us,
    /// Peers.
    Peers,
}

/// The key of a region's memory on a device; registered now if it was not. `None`: it must be copied. The device knows it as
/// long as the region, or its arena, lives.
pub(crate) fn key_of(device: &Arc<dyn Device>, region: &Region, by: By) -> Option<u32> {
    let known = region.registration(SLOT, |_| Some(Box::new(Known::default())))?;
    let mut list = known.downcast_ref::<Known>()?.0.lock();
    let place = match list.iter().position(|known| is_same(&known.device, device)) {
        Some(place) => place,
        None => {
            list.retain(|known| known.device.strong_count() > 0);
            if list.len() >= DEVICES_MAX {
                return None;
            }
            list.push(KnownBy { device: Arc::downgrade(device), local: None, remote: None, refused: false });
            list.len() - 1
        }
    };
    let known = list.get_mut(place)?;
    let there = match by {
        By::Us => known.local.as_ref().or(known.remote.as_ref()).map(|memory| memory.local_key()),
        By::Peers => known.remote.as_ref().map(|memory| memory.remote_key()),
    };
    if there.is_some() || known.refused || region.extent().1 < REGISTERED_MIN {
        return there;
    }
    match device.register(region, by == By::Peers) {
        Ok(memory) if by == By::Peers => Some(known.remote.insert(memory).remote_key()),
        Ok(memory) => Some(known.local.insert(memory).local_key()),
        Err(error) => {
            tracing::warn!(device = device.name(), %error, "memory is copied, for it cannot be registered");
            known.refused = true;
            None
        }
    }
}

fn is_same(known: &Weak<dyn Device>, device: &Arc<dyn Device>) -> bool {
    std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(device))
}

/// The pieces of a payload from its start, as own work requests name them. `None` if any of it cannot be registered.
pub(crate) fn source_of(device: &Arc<dyn Device>, payload: &ReadVec, pieces: &mut Vec<Piece>) -> Option<()> {
    pieces.clear();
    for (region, part) in payload.parts(0) {
        let key = key_of(device, region, By::Us)?;
        let (address, length) = (region.address_of(part.start), u32::try_from(part.len()).ok()?);
        pieces.push(Piece { address, length, key });
    }
    Some(())
}

/// The first bytes of a sink as a descriptor names them: one key, and at most so many fragments. `None` if it lies in memory of
/// several registrations, or any that cannot be registered.
pub(crate) fn sink_of(
    device: &Arc<dyn Device>,
    sink: &WriteVec,
    bytes: usize,
    most: usize,
) -> Option<Described> {
    let mut key = None;
    let mut left = bytes;
    for (region, part) in sink.parts(0) {
        if left == 0 {
            break;
        }
        let own = key_of(device, region, By::Peers)?;
        if *key.get_or_insert(own) != own {
            return None;
        }
        left = left.saturating_sub(part.len());
    }
    let mut left = bytes;
    let parts = sink.parts(0).map_while(|(region, part)| {
        let length = part.len().min(left);
        left -= length;
        (length > 0).then(|| Fragment { length: length as u32, address: region.address_of(part.start) })
    });
    Some(Described { key: key?, fragments: fragments(parts, most)? })
}

/// A bounce buffer in use; goes back when it is dropped.
pub(crate) struct Bounce {
    pool: Arc<Pool>,
    place: usize,
    bytes: usize,
    /// The lease on it.
    memory: Option<WriteVec>,
    local_key: u32,
    remote_key: u32,
    address: u64,
}

/// The bounce buffers of an NI: made when the first is needed.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Buffers>);

#[derive(Default)]
struct Buffers {
    made: Option<Made>,
    free: Vec<usize>,
    waiting: VecDeque<Waiter>,
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
    /// Tells it that there is a buffer.
    fn tell(self) {
        match self {
            Waiter::Operation(conn, operation) => {
                conn.shard().clone().request(Request::Prepare(conn, operation));
            }
            Waiter::Get(pending) => {
                let conn = pending.conn.clone();
                conn.shard().request(Request::BeginGet(pending));
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
    /// There never will be: the device refuses the memory.
    Never(Waiter),
}

impl Pool {
    /// A buffer of so many bytes, or a place in the line for one.
    pub(crate) fn take(self: &Arc<Pool>, device: &Arc<dyn Device>, bytes: usize, waiter: Waiter) -> Taken {
        let mut buffers = self.0.lock();
        if buffers.made.is_none() {
            buffers.made = Made::new(device);
            buffers.free = (0..buffers.made.as_ref().map_or(0, |made| made.count)).collect();
        }
        if buffers.made.is_none() || bytes > BOUNCE_BYTES {
            return Taken::Never(waiter);
        }
        let Some(place) = buffers.free.pop() else {
            buffers.waiting.push_back(waiter);
            return Taken::Later;
        };
        let start = place * BOUNCE_BYTES;
        let leased = buffers.made.as_ref().map(|made| (made, made.vec.write(start..start + bytes)));
        let Some((made, Ok(memory))) = leased else { return Taken::Never(waiter) };
        let bounce = Bounce {
            pool: self.clone(),
            place,
            bytes,
            local_key: made.memory.local_key(),
            remote_key: made.memory.remote_key(),
            address: made.address + start as u64,
            memory: Some(memory),
        };
        Taken::Bounce(bounce, waiter)
    }

    /// If there is a buffer, the next in the line is told: the last who was has gone, or does not need it any more.
    pub(crate) fn pass_on(&self) {
        let waiter = {
            let mut buffers = self.0.lock();
            if buffers.free.is_empty() { None } else { buffers.waiting.pop_front() }
        };
        if let Some(waiter) = waiter {
            waiter.tell();
        }
    }

    /// Nobody waits any more: the NI has ended. Gives the GETs that did.
    pub(crate) fn abandon(&self) -> Vec<PendingGet> {
        let waiting = std::mem::take(&mut self.0.lock().waiting);
        let get = |waiter| match waiter {
            Waiter::Get(pending) => Some(*pending),
            Waiter::Operation(..) => None,
        };
        waiting.into_iter().filter_map(get).collect()
    }

    /// Buffers in use.
    pub(crate) fn in_use(&self) -> usize {
        let buffers = self.0.lock();
        buffers.made.as_ref().map_or(0, |made| made.count - buffers.free.len())
    }
}

impl Made {
    /// As many buffers as the device takes.
    fn new(device: &Arc<dyn Device>) -> Option<Made> {
        let mut count = BOUNCES;
        loop {
            let region = Region::heap(count * BOUNCE_BYTES).ok()?;
            match device.register(&region, true) {
                Ok(memory) => {
                    return Some(Made {
                        memory,
                        address: region.address_of(0),
                        count,
                        vec: IoVec::whole(region),
                    });
                }
                Err(error) if count == 1 => {
                    tracing::warn!(device = device.name(), %error, "there are no bounce buffers");
                    return None;
                }
                Err(_) => count /= 2,
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

    /// As a descriptor names it.
    pub(crate) fn described(&self) -> Described {
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
        self.pool.0.lock().free.push(self.place);
        self.pool.pass_on();
    }
}
