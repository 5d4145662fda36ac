//! Registered memory.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use lnet_region::{Fragment, IoVec, ReadVec, Region, RegionError, WriteVec};
use nlx_core::{BufferHandle, CoreError};

use crate::Error;
use crate::domain::{Domain, DomainInner};
use crate::pool::{self, PoolMember};
use crate::quotas::LimitedObject;

/// Maximum number of parts of a large buffer, 16 GiB in all: an offer of this number of parts still
/// fits into one message of 1 MiB.
pub(crate) const PARTS_MAX: usize = 1 << 14;

/// The handle of a large buffer; no buffer of a transport has it.
const NO_HANDLE: BufferHandle = BufferHandle(u64::MAX);

/// Registered memory for operations.
///
/// It is moved into an operation and returned with the operation's last event. In between
/// operations, the program reads and writes its bytes through [`Buffer::read`] and
/// [`Buffer::write`], except where a [`crate::Message`] still lends them out.
///
/// A buffer of more bytes than one operation accepts ([`nlx_core::Limits::buffer_bytes_max`], 1
/// MiB) is *large*: it is registered in parts of that size, and bulk operations split it
/// ([`crate::Op`]); messages refuse it with EFBIG.
///
/// ```compile_fail,E0382
/// # fn example(tm: &nlx::TransferMachine, mut buffer: nlx::Buffer, to: &nlx::EndPoint) -> Result<(), nlx::Error> {
/// tm.start(nlx::Op::send(buffer, to)).expect("it is sent");
/// buffer.write()?; // error: the buffer is in flight
/// # Ok(())
/// # }
/// ```
///
/// Dropping a buffer of a [`crate::BufferPool`] returns it to the pool; dropping any other
/// deregisters it and frees its memory.
pub struct Buffer(BufferInner);

/// A refused operation, with its buffer. No event follows.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// The buffer, unchanged.
    pub buffer: Buffer,
    /// The reason.
    pub error: Error,
}

/// The treatment of memory that the transport cannot access.
#[derive(Clone, Copy)]
pub(crate) enum Foreign {
    /// Refuse it.
    Refused,
    /// Register it, and copy data from and to it for each operation.
    Copied,
}

/// The registration of a buffer; `Some` until the drop.
struct BufferInner(Option<Box<Registered>>);

struct Registered {
    domain: Arc<DomainInner>,
    memory: IoVec,
    tag: u64,
    /// Set while a buffer of a pool is outside the pool.
    member: Option<PoolMember>,
    registration: Registration,
}

/// The registration of the memory with the transport.
enum Registration {
    /// Registered as one buffer.
    One(BufferHandle),
    /// Registered as several buffers, one for each part. A part is `None` while an operation holds
    /// it.
    Parts(Box<[Option<Buffer>]>),
}

impl Domain {
    /// Allocates a buffer, zeroed and contiguous, in memory that the transport accesses without a
    /// copy: over a helper, shared memory. A buffer of more than
    /// [`nlx_core::Limits::buffer_bytes_max`] (1 MiB) is [large](Buffer). Its pages lie on the NUMA
    /// node of the thread that touches them first, which [`Machine::near`](crate::Machine::near)
    /// changes.
    ///
    /// # Errors
    /// EINVAL for 0 bytes, EFBIG beyond 16 GiB, ENOMEM.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        Buffer::allocate(self.inner().clone(), bytes)
    }

    /// Allocates a buffer of exactly these bytes: a message, say.
    ///
    /// # Errors
    /// The errors of [`Domain::allocate`].
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer, Error> {
        let mut buffer = self.allocate(bytes.len())?;
        buffer.write()?.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Registers existing memory, of up to [`nlx_core::Limits::segments_max`] segments of any
    /// alignment. A buffer of more than [`nlx_core::Limits::buffer_bytes_max`] is [large](Buffer).
    ///
    /// # Errors
    /// EFBIG beyond 16 GiB; ENOMEM when too many buffers are registered; every part of a large one
    /// counts. Over a helper, EFAULT for memory that is not shared with it: use
    /// [`Domain::register_copying`].
    pub fn register(&self, memory: IoVec) -> Result<Buffer, Error> {
        Buffer::register(self.inner().clone(), memory, Foreign::Refused)
    }

    /// Like [`Domain::register`], but also accepts memory that the transport cannot access, over a
    /// helper, and then copies each message and each transfer. In-process nothing is copied, and
    /// this is [`Domain::register`].
    ///
    /// # Errors
    /// The errors of [`Domain::register`], without EFAULT.
    pub fn register_copying(&self, memory: IoVec) -> Result<Buffer, Error> {
        Buffer::register(self.inner().clone(), memory, Foreign::Copied)
    }

    /// Registers a vector of bytes, which stay where they are. [`Region::from_vec`] and
    /// [`Domain::register`] do the same for several segments, or for bytes that the program needs
    /// back as a vector.
    ///
    /// # Errors
    /// EINVAL for no bytes, else as [`Domain::register`]: over a helper EFAULT, where
    /// [`Domain::adopt_copying`] accepts them.
    pub fn adopt(&self, bytes: impl Into<Vec<u8>>) -> Result<Buffer, Error> {
        self.register(IoVec::whole(Region::from_vec(bytes.into())?))
    }

    /// Like [`Domain::adopt`], through [`Domain::register_copying`].
    ///
    /// ```
    /// let domain = nlx::Domain::in_process(&nlx::NodeConfig::new())?;
    /// let buffer = domain.adopt_copying("wherever the network runs")?;
    /// assert_eq!(buffer.read()?.len(), 25);
    /// # Ok::<(), nlx::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL for no bytes, else as [`Domain::register_copying`].
    pub fn adopt_copying(&self, bytes: impl Into<Vec<u8>>) -> Result<Buffer, Error> {
        self.register_copying(IoVec::whole(Region::from_vec(bytes.into())?))
    }
}

impl Buffer {
    /// Registers memory, in parts if it is more than one operation accepts.
    pub(crate) fn register(
        domain: Arc<DomainInner>,
        memory: IoVec,
        foreign: Foreign,
    ) -> Result<Buffer, Error> {
        domain.check_here()?;
        let part_bytes = domain.core().limits().buffer_bytes_max;
        let registration = if memory.len() <= part_bytes {
            Registration::One(register_one(&domain, &memory, foreign)?)
        } else {
            let parts = split(&memory, part_bytes)?.into_iter();
            let registered = parts.enumerate().map(|(index, part)| {
                let mut part = Buffer::register(domain.clone(), part, foreign)?;
                part.set_tag(index as u64);
                Ok::<_, Error>(Some(part))
            });
            Registration::Parts(registered.collect::<Result<_, _>>()?)
        };
        let registered = Registered { domain, memory, tag: 0, member: None, registration };
        Ok(Buffer(BufferInner(Some(Box::new(registered)))))
    }

    /// Allocates memory that the transport can access, and registers it.
    pub(crate) fn allocate(domain: Arc<DomainInner>, bytes: usize) -> Result<Buffer, Error> {
        domain.check_here()?;
        check_length(bytes, domain.core().limits().buffer_bytes_max)?;
        let memory = IoVec::whole(domain.core().allocate(bytes)?);
        Buffer::register(domain, memory, Foreign::Refused)
    }

    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.memory.len()
    }

    /// Returns the memory, for uses that [`Buffer::read`] and [`Buffer::write`] do not cover:
    /// several segments, parts of the buffer, copies between buffers.
    pub fn memory(&self) -> &IoVec {
        &self.0.memory
    }

    /// Borrows the bytes for reading.
    ///
    /// # Errors
    /// [`Error::Segments`] if they are not contiguous.
    pub fn read(&self) -> Result<Reading<'_>, Error> {
        let lease = self.0.memory.read(0..self.len())?;
        match lease.as_slice() {
            Some(_) => Ok(Reading { lease, _buffer: self }),
            None => Err(self.segments()),
        }
    }

    /// Borrows the bytes for writing.
    ///
    /// # Errors
    /// EBUSY while a [`crate::Message`] lends some of them out; [`Error::Segments`] if they are not
    /// contiguous.
    pub fn write(&mut self) -> Result<Writing<'_>, Error> {
        let lease = self.0.memory.write(0..self.len())?;
        match lease.as_slice() {
            Some(_) => Ok(Writing { lease, _buffer: self }),
            None => Err(self.segments()),
        }
    }

    /// Returns the client's number for this buffer; initially 0.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.0.tag
    }

    /// Sets the client's number for this buffer. Each event of its operations carries it
    /// ([`crate::Event::tag`]), so that the program can relate events to its own data. This is
    /// Motr's pointer for private use.
    pub fn set_tag(&mut self, tag: u64) {
        self.0.tag = tag;
    }

    /// Returns the transport's handle; `NO_HANDLE` for a large buffer.
    pub(crate) fn handle(&self) -> BufferHandle {
        match self.0.registration {
            Registration::One(handle) => handle,
            Registration::Parts(_) => NO_HANDLE,
        }
    }

    /// Returns whether the buffer is registered in parts.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.0.registration, Registration::Parts(_))
    }

    /// Refuses a large buffer, for operations that do not split it.
    pub(crate) fn check_single(&self) -> Result<(), Error> {
        if self.is_large() {
            let limit = self.0.domain.core().limits().buffer_bytes_max;
            return Err(Error::Large { bytes: self.len(), limit });
        }
        Ok(())
    }

    /// Returns the parts of a large buffer; `None` for any other.
    pub(crate) fn parts(&mut self) -> Option<&mut [Option<Buffer>]> {
        match &mut self.0.registration {
            Registration::One(_) => None,
            Registration::Parts(parts) => Some(parts),
        }
    }

    /// Refuses a large buffer with a missing part: an operation of a dropped transfer machine that
    /// could not be stopped holds it.
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        match &self.0.registration {
            Registration::Parts(parts) if parts.iter().any(Option::is_none) => {
                Err(CoreError::BufferBusy { buffer: NO_HANDLE }.into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_of(&self, domain: &Arc<DomainInner>) -> bool {
        Arc::ptr_eq(&self.0.domain, domain)
    }

    /// Refuses the operation if the program holds a slice of bytes that it would write to, or
    /// writes to bytes that it would read. Overlapping operations on the same bytes are not
    /// checked.
    pub(crate) fn check_unlent(&self, receives: bool, range: Range<usize>) -> Result<(), Error> {
        let memory = &self.0.memory;
        let checked = if receives { memory.check_incoming(range) } else { memory.check_outgoing(range) };
        Ok(checked?)
    }

    pub(crate) fn member(&self) -> Option<&PoolMember> {
        self.0.member.as_ref()
    }

    pub(crate) fn set_member(&mut self, member: PoolMember) {
        self.0.member = Some(member);
    }

    pub(crate) fn take_member(&mut self) -> Option<PoolMember> {
        self.0.member.take()
    }

    fn segments(&self) -> Error {
        Error::Segments { segments: self.0.memory.fragments().len() }
    }
}

/// Registers a buffer with the transport, if the domain's quotas allow one more.
fn register_one(domain: &DomainInner, memory: &IoVec, foreign: Foreign) -> Result<BufferHandle, Error> {
    let (usage, core) = (domain.usage(), domain.core());
    usage.reserve(LimitedObject::Buffers, 1)?;
    usage
        .reserve(LimitedObject::Bytes, memory.len() as u64)
        .inspect_err(|_| usage.release(LimitedObject::Buffers, 1))?;
    let registered = match foreign {
        Foreign::Refused => core.register(memory),
        Foreign::Copied => core.register_copying(memory),
    };
    Ok(registered.inspect_err(|_| release_quota(domain, memory))?)
}

fn release_quota(domain: &DomainInner, memory: &IoVec) {
    domain.usage().release(LimitedObject::Buffers, 1);
    domain.usage().release(LimitedObject::Bytes, memory.len() as u64);
}

/// Refuses a length that would need more than `PARTS_MAX` parts.
fn check_length(bytes: usize, part_bytes: usize) -> Result<(), Error> {
    let limit = part_bytes.saturating_mul(PARTS_MAX);
    match bytes <= limit {
        true => Ok(()),
        false => Err(CoreError::TooLong { object: "large buffer", bytes, limit }.into()),
    }
}

/// Splits memory into pieces of `part_bytes` each; the last one has the rest.
fn split(memory: &IoVec, part_bytes: usize) -> Result<Vec<IoVec>, Error> {
    check_length(memory.len(), part_bytes)?;
    let starts = (0..memory.len()).step_by(part_bytes);
    let part = |start: usize| slice(memory, start..memory.len().min(start + part_bytes));
    Ok(starts.map(part).collect::<Result<_, RegionError>>()?)
}

/// Returns a range of a buffer's memory.
fn slice(memory: &IoVec, range: Range<usize>) -> Result<IoVec, RegionError> {
    let mut fragments = Vec::new();
    let mut at = 0;
    for fragment in memory.fragments() {
        let (begin, end) = (range.start.max(at), range.end.min(at + fragment.len()));
        if begin < end {
            let offset = fragment.offset() + begin - at;
            fragments.push(Fragment::new(fragment.region().clone(), offset, end - begin)?);
        }
        at += fragment.len();
    }
    IoVec::new(fragments)
}

impl Deref for BufferInner {
    type Target = Registered;

    fn deref(&self) -> &Registered {
        self.0.as_deref().unwrap_or_else(|| unreachable!("the registration exists until the drop"))
    }
}

impl DerefMut for BufferInner {
    fn deref_mut(&mut self) -> &mut Registered {
        self.0.as_deref_mut().unwrap_or_else(|| unreachable!("the registration exists until the drop"))
    }
}

impl Drop for BufferInner {
    fn drop(&mut self) {
        if let Some(mut registered) = self.0.take()
            // A pool that a forked child has inherited belongs to the parent.
            && registered.domain.in_owner_process()
            && let Some(member) = registered.member.take()
        {
            pool::return_buffer(Buffer(BufferInner(Some(registered))), member);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Registration::One(handle) = self.registration else { return };
        if !self.domain.in_owner_process() {
            return;
        }
        release_quota(&self.domain, &self.memory);
        match self.domain.core().deregister(handle) {
            // The helper's registration ended with the connection to it.
            Ok(()) | Err(CoreError::Disconnected { .. }) => {}
            // Only if its transfer machine could not be stopped: LNet keeps the memory, and the
            // registration with it.
            Err(error) => tracing::warn!(%error, "cannot deregister a dropped buffer"),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.registration {
            Registration::One(handle) => write!(f, "Buffer({:#x}, {} bytes)", handle.0, self.len()),
            Registration::Parts(parts) => write!(f, "Buffer({} bytes in {} parts)", self.len(), parts.len()),
        }
    }
}

/// A buffer's bytes, borrowed for reading.
#[derive(Debug)]
pub struct Reading<'a> {
    lease: ReadVec,
    _buffer: &'a Buffer,
}

impl Deref for Reading<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // One contiguous slice: `Buffer::read` has checked this.
        self.lease.as_slice().unwrap_or(&[])
    }
}

/// A buffer's bytes, borrowed for writing.
#[derive(Debug)]
pub struct Writing<'a> {
    lease: WriteVec,
    _buffer: &'a mut Buffer,
}

impl Deref for Writing<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // One contiguous slice: `Buffer::write` has checked this.
        self.lease.as_slice().unwrap_or(&[])
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.lease.as_mut_slice().unwrap_or(&mut [])
    }
}
