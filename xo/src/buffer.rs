//! Registered memory.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use lnet_region::{IoVec, ReadVec, WriteVec};
use nlx_core::BufferHandle;

use crate::Error;
use crate::domain::Inner;

/// Registered memory that an operation can be given.
///
/// It is moved into the operation and comes back with the operation's last event. While it is here, its bytes are read and
/// written through [`Buffer::read`] and [`Buffer::write`], except where a [`crate::Message`] still lends them out.
///
/// ```compile_fail,E0382
/// # fn example(tm: &nlx::TransferMachine, mut buffer: nlx::Buffer, to: &nlx::EndPoint) -> Result<(), nlx::Error> {
/// tm.send(buffer, 5, to, None).expect("it is sent");
/// buffer.write()?; // error: the buffer is in flight
/// # Ok(())
/// # }
/// ```
pub struct Buffer(Box<Registered>);

struct Registered {
    domain: Arc<Inner>,
    handle: BufferHandle,
    memory: IoVec,
}

impl Buffer {
    pub(crate) fn register(domain: Arc<Inner>, memory: IoVec) -> Result<Buffer, Error> {
        let handle = domain.core().register(&memory)?;
        Ok(Buffer(Box::new(Registered { domain, handle, memory })))
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

    pub(crate) fn handle(&self) -> BufferHandle {
        self.0.handle
    }

    pub(crate) fn is_of(&self, domain: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0.domain, domain)
    }

    /// Whether nobody holds bytes that an operation would write to, or writes bytes it would read.
    pub(crate) fn check_unlent(&self, receives: bool, range: Range<usize>) -> Result<(), Error> {
        let memory = &self.0.memory;
        let checked = if receives { memory.check_write(range) } else { memory.check_read(range) };
        Ok(checked?)
    }

    fn segments(&self) -> Error {
        Error::Segments { segments: self.0.memory.fragments().len() }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Err(error) = self.domain.core().deregister(self.handle) {
            // Only when its transfer machine could not be stopped: LNet keeps the memory, and the registration with it.
            tracing::warn!(%error, "a buffer stays registered");
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.0.handle.0, self.len())
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
