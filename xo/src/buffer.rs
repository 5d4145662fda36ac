//! Registered memory.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use lnet_region::{Fragment, IoVec, ReadVec, Region, RegionError, WriteVec};
use nlx_core::{BufferHandle, CoreError};

use crate::Error;
use crate::domain::{Domain, Inner};
use crate::pool::{self, Member};
use crate::quotas::Object;

/// The most parts of a large buffer, which makes 16 GiB: the offer of that many still fits into one message of 1 MiB.
pub(crate) const PARTS_MAX: usize = 1 << 14;

/// No buffer of a transport has this handle.
const NO_HANDLE: BufferHandle = BufferHandle(u64::MAX);

/// Registered memory that an operation can be given.
///
/// It is moved into the operation and comes back with the operation's last event. While it is here, its bytes are read and
/// written through [`Buffer::read`] and [`Buffer::write`], except where a [`crate::Message`] still lends them out.
///
/// One of more bytes than an operation takes ([`nlx_core::Limits::buffer_bytes_max`], 1 MiB) is *large*: it is registered in
/// parts of that size, and bulk operations split it ([`crate::Op`]); messages refuse it with EFBIG.
///
/// ```compile_fail,E0382
/// # fn example(tm: &nlx::TransferMachine, mut buffer: nlx::Buffer, to: &nlx::EndPoint) -> Result<(), nlx::Error> {
/// tm.start(nlx::Op::send(buffer, to)).expect("it is sent");
/// buffer.write()?; // error: the buffer is in flight
/// # Ok(())
/// # }
/// ```
///
/// A buffer of a [`crate::BufferPool`] goes back there when it is dropped; any other is deregistered and its memory freed.
pub struct Buffer(Held);

/// An operation was not started: here is the buffer again. No event comes.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// The buffer, as it was.
    pub buffer: Buffer,
    /// Why.
    pub error: Error,
}

/// What a transport that does not reach memory does with it.
#[derive(Clone, Copy)]
pub(crate) enum Foreign {
    /// Refuse it.
    Refused,
    /// Copy to it and from it.
    Copied,
}

/// There until it is dropped.
struct Held(Option<Box<Registered>>);

struct Registered {
    domain: Arc<Inner>,
    memory: IoVec,
    tag: u64,
    /// Of a buffer that belongs to a pool and is not there.
    member: Option<Member>,
    registration: Registration,
}

/// How the transport knows the memory.
enum Registration {
    /// As one buffer.
    One(BufferHandle),
    /// As several: a buffer for each part, which is away while an operation has it.
    Parts(Box<[Option<Buffer>]>),
}

impl Domain {
    /// A buffer of new memory, zeroed and in one piece, where the transport reaches it without a copy: over a helper, memory
    /// that both share. One of more than [`nlx_core::Limits::buffer_bytes_max`] (1 MiB) is [large](Buffer).
    ///
    /// # Errors
    /// EINVAL for 0 bytes, EFBIG beyond 16 GiB, ENOMEM.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        Buffer::allocate(self.inner().clone(), bytes)
    }

    /// A buffer that holds these bytes, and has room for no others: a message, say.
    ///
    /// # Errors
    /// As [`Domain::allocate`].
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer, Error> {
        let mut buffer = self.allocate(bytes.len())?;
        buffer.write()?.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// A buffer of memory that is there already, of up to [`nlx_core::Limits::segments_max`] segments of any alignment. One of more
    /// than [`nlx_core::Limits::buffer_bytes_max`] is [large](Buffer).
    ///
    /// # Errors
    /// EFBIG beyond 16 GiB, ENOMEM when too many buffers are registered; every part of a large one counts. Over a helper EFAULT
    /// for memory that it does not share: [`Domain::register_copying`] takes that.
    pub fn register(&self, memory: IoVec) -> Result<Buffer, Error> {
        Buffer::register(self.inner().clone(), memory, Foreign::Refused)
    }

    /// The same, at the price of a copy of each message and each transfer where the transport does not reach the memory: over a
    /// helper. In-process nothing is copied, and this is [`Domain::register`].
    ///
    /// # Errors
    /// As [`Domain::register`], without EFAULT.
    pub fn register_copying(&self, memory: IoVec) -> Result<Buffer, Error> {
        Buffer::register(self.inner().clone(), memory, Foreign::Copied)
    }

    /// A buffer of the program's own bytes, which stay where they are. [`Region::from_vec`] and [`Domain::register`] do the
    /// same for several segments, or for bytes that are wanted back as a vector.
    ///
    /// # Errors
    /// EINVAL for no bytes, else as [`Domain::register`]: over a helper EFAULT, and [`Domain::adopt_copying`] takes them.
    pub fn adopt(&self, bytes: impl Into<Vec<u8>>) -> Result<Buffer, Error> {
        self.register(IoVec::whole(Region::from_vec(bytes.into())?))
    }

    /// The same, by [`Domain::register_copying`].
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
    /// Registers memory: in parts, if it is more than an operation takes.
    pub(crate) fn register(domain: Arc<Inner>, memory: IoVec, foreign: Foreign) -> Result<Buffer, Error> {
        domain.check_here()?;
        let part_bytes = domain.core().limits().buffer_bytes_max;
        let registration = if memory.len() <= part_bytes {
            Registration::One(register_one(&domain, &memory, foreign)?)
        } else {
            let parts = split(&memory, part_bytes)?.into_iter();
            let registered = parts.enumerate().map(|(place, part)| {
                let mut part = Buffer::register(domain.clone(), part, foreign)?;
                part.set_tag(place as u64);
                Ok::<_, Error>(Some(part))
            });
            Registration::Parts(registered.collect::<Result<_, _>>()?)
        };
        let registered = Registered { domain, memory, tag: 0, member: None, registration };
        Ok(Buffer(Held(Some(Box::new(registered)))))
    }

    /// A buffer of new memory, which the transport reaches.
    pub(crate) fn allocate(domain: Arc<Inner>, bytes: usize) -> Result<Buffer, Error> {
        domain.check_here()?;
        check_length(bytes, domain.core().limits().buffer_bytes_max)?;
        let memory = IoVec::whole(domain.core().allocate(bytes)?);
        Buffer::register(domain, memory, Foreign::Refused)
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.memory.len()
    }

    /// The memory itself, for what [`Buffer::read`] and [`Buffer::write`] cannot do: several segments, parts of the buffer,
    /// copies between buffers.
    pub fn memory(&self) -> &IoVec {
        &self.0.memory
    }

    /// The bytes, to be read.
    ///
    /// # Errors
    /// [`Error::Segments`] if they do not lie in one piece.
    pub fn read(&self) -> Result<Reading<'_>, Error> {
        let lease = self.0.memory.read(0..self.len())?;
        match lease.as_slice() {
            Some(_) => Ok(Reading { lease, _buffer: self }),
            None => Err(self.segments()),
        }
    }

    /// The bytes, to be written.
    ///
    /// # Errors
    /// EBUSY while a [`crate::Message`] lends some of them out; [`Error::Segments`] if they do not lie in one piece.
    pub fn write(&mut self) -> Result<Writing<'_>, Error> {
        let lease = self.0.memory.write(0..self.len())?;
        match lease.as_slice() {
            Some(_) => Ok(Writing { lease, _buffer: self }),
            None => Err(self.segments()),
        }
    }

    /// The client's own number for it, 0 at first.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.0.tag
    }

    /// Sets the client's own number: each event of the buffer's operations brings it ([`crate::Event::tag`]), so that a
    /// program finds what an event belongs to. Motr's pointer for private use.
    pub fn set_tag(&mut self, tag: u64) {
        self.0.tag = tag;
    }

    /// The transport's name for it; a large buffer has none.
    pub(crate) fn handle(&self) -> BufferHandle {
        match self.0.registration {
            Registration::One(handle) => handle,
            Registration::Parts(_) => NO_HANDLE,
        }
    }

    /// Whether it is registered in parts.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.0.registration, Registration::Parts(_))
    }

    /// Whether one operation takes it.
    pub(crate) fn check_single(&self) -> Result<(), Error> {
        if self.is_large() {
            let limit = self.0.domain.core().limits().buffer_bytes_max;
            return Err(Error::Large { bytes: self.len(), limit });
        }
        Ok(())
    }

    /// The parts of a large buffer; none of another one, which is its own only part.
    pub(crate) fn parts(&mut self) -> Option<&mut [Option<Buffer>]> {
        match &mut self.0.registration {
            Registration::One(_) => None,
            Registration::Parts(parts) => Some(parts),
        }
    }

    /// Whether no part is away: with an operation of a transfer machine that is gone, and could not be stopped.
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        match &self.0.registration {
            Registration::Parts(parts) if parts.iter().any(Option::is_none) => {
                Err(CoreError::BufferBusy { buffer: NO_HANDLE }.into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_of(&self, domain: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0.domain, domain)
    }

    /// Whether the program holds no bytes that an operation would write to, and writes none it would read. Other operations
    /// on the same bytes are its own business.
    pub(crate) fn check_unlent(&self, receives: bool, range: Range<usize>) -> Result<(), Error> {
        let memory = &self.0.memory;
        let checked = if receives { memory.check_incoming(range) } else { memory.check_outgoing(range) };
        Ok(checked?)
    }

    pub(crate) fn member(&self) -> Option<&Member> {
        self.0.member.as_ref()
    }

    pub(crate) fn join(&mut self, member: Member) {
        self.0.member = Some(member);
    }

    pub(crate) fn part(&mut self) -> Option<Member> {
        self.0.member.take()
    }

    fn segments(&self) -> Error {
        Error::Segments { segments: self.0.memory.fragments().len() }
    }
}

/// Registers a buffer of the transport, if the domain allows one more.
fn register_one(domain: &Inner, memory: &IoVec, foreign: Foreign) -> Result<BufferHandle, Error> {
    let (ledger, core) = (domain.ledger(), domain.core());
    ledger.give(Object::Buffers, 1)?;
    ledger.give(Object::Bytes, memory.len() as u64).inspect_err(|_| ledger.take_back(Object::Buffers, 1))?;
    let registered = match foreign {
        Foreign::Refused => core.register(memory),
        Foreign::Copied => core.register_copying(memory),
    };
    Ok(registered.inspect_err(|_| give_back(domain, memory))?)
}

fn give_back(domain: &Inner, memory: &IoVec) {
    domain.ledger().take_back(Object::Buffers, 1);
    domain.ledger().take_back(Object::Bytes, memory.len() as u64);
}

/// Whether a buffer of so many bytes has no more parts than it may.
fn check_length(bytes: usize, part_bytes: usize) -> Result<(), Error> {
    let limit = part_bytes.saturating_mul(PARTS_MAX);
    match bytes <= limit {
        true => Ok(()),
        false => Err(CoreError::TooLong { object: "large buffer", bytes, limit }.into()),
    }
}

/// Pieces of memory of `part_bytes` each, the last one of what is left.
fn split(memory: &IoVec, part_bytes: usize) -> Result<Vec<IoVec>, Error> {
    check_length(memory.len(), part_bytes)?;
    let starts = (0..memory.len()).step_by(part_bytes);
    let part = |start: usize| slice(memory, start..memory.len().min(start + part_bytes));
    Ok(starts.map(part).collect::<Result<_, RegionError>>()?)
}

/// A range of a buffer's memory.
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

impl Deref for Held {
    type Target = Registered;

    fn deref(&self) -> &Registered {
        self.0.as_deref().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Registered {
        self.0.as_deref_mut().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut registered) = self.0.take()
            // A pool that a child has inherited is its parent's.
            && registered.domain.in_owner_process()
            && let Some(member) = registered.member.take()
        {
            pool::go_home(Buffer(Held(Some(registered))), member);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Registration::One(handle) = self.registration else { return };
        if !self.domain.in_owner_process() {
            return;
        }
        give_back(&self.domain, &self.memory);
        match self.domain.core().deregister(handle) {
            // What a helper knew of it is gone with the helper.
            Ok(()) | Err(CoreError::Disconnected { .. }) => {}
            // Only when its transfer machine could not be stopped: LNet keeps the memory, and the registration with it.
            Err(error) => tracing::warn!(%error, "a buffer stays registered"),
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

/// A buffer's bytes while they are read.
#[derive(Debug)]
pub struct Reading<'a> {
    lease: ReadVec,
    _buffer: &'a Buffer,
}

impl Deref for Reading<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // In one piece, as `Buffer::read` made sure.
        self.lease.as_slice().unwrap_or(&[])
    }
}

/// A buffer's bytes while they are written.
#[derive(Debug)]
pub struct Writing<'a> {
    lease: WriteVec,
    _buffer: &'a mut Buffer,
}

impl Deref for Writing<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // In one piece, as `Buffer::write` made sure.
        self.lease.as_slice().unwrap_or(&[])
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.lease.as_mut_slice().unwrap_or(&mut [])
    }
}
