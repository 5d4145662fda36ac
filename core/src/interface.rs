//! The traits [`Core`] and [`CoreTm`].

use std::os::fd::BorrowedFd;

use crate::{
    Address, BufferEvent, BufferHandle, CoreError, Errno, IoVec, Limits, Nid, Operation, Region,
    StartAddress, Submitted, TmOptions,
};

/// A domain: registers buffers and starts transfer machines (S-1).
///
/// All calls may be made from any thread.
pub trait Core: Send + Sync {
    /// Returns the limits of buffers and operations.
    fn limits(&self) -> Limits;

    /// Returns this node's current NIDs, including `0@lo`.
    fn nids(&self) -> Vec<Nid>;

    /// Returns the time that all deadlines refer to: nanoseconds since a fixed moment, never
    /// decreasing.
    fn now_ns(&self) -> u64;

    /// Allocates zeroed memory for buffers that the transport reaches without a copy: by default
    /// memory of the process, over a helper memory that both share.
    ///
    /// # Errors
    /// EINVAL for 0 bytes, ENOMEM.
    fn allocate(&self, bytes: usize) -> Result<Region, CoreError> {
        Ok(Region::heap(bytes)?)
    }

    /// Makes memory ready for operations, in constant time (S-401).
    ///
    /// # Errors
    /// EFBIG beyond [`Limits`], ENOMEM when there are too many buffers, EFAULT for memory that the
    /// transport does not reach: use memory of [`Core::allocate`] of this domain, or
    /// [`Core::register_copying`].
    fn register(&self, memory: &IoVec) -> Result<BufferHandle, CoreError>;

    /// Makes any memory ready for operations. Memory that the transport does not reach is copied
    /// for each message and each transfer; for all other memory this is [`Core::register`].
    ///
    /// # Errors
    /// The errors of [`Core::register`], without EFAULT.
    fn register_copying(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.register(memory)
    }

    /// Removes a buffer from the domain.
    ///
    /// # Errors
    /// EBUSY while an operation uses it, ENOENT if it is not registered.
    fn deregister(&self, buffer: BufferHandle) -> Result<(), CoreError>;

    /// Starts a transfer machine.
    ///
    /// # Errors
    /// EINVAL for a portal other than 1 to 63, ENOENT for a NID or PID that this node does not
    /// have, EADDRINUSE if the address is taken, EADDRNOTAVAIL if no id is free, ENOMEM, or an
    /// error of LNet.
    fn tm_start(&self, address: &StartAddress, options: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError>;
}

/// A started transfer machine.
///
/// Operations are started from any thread. One thread at a time waits for events. Events come in
/// the order in which the transport produced them, those of one operation in the order in which
/// they happened, the last one marked ([`BufferEvent::unlinked`]). An event is never lost: its
/// space is reserved before its operation starts (S-407). Dropping a transfer machine cancels what
/// is in flight and discards its events.
pub trait CoreTm: Send + Sync {
    /// Returns the transfer machine's address, with its id.
    fn address(&self) -> Address;

    /// Starts operations, and sends their messages together. Each is started or refused separately,
    /// in this order; a refusal does not stop the following ones. `outcome` is called once per
    /// operation, with its index, in order, before this returns.
    ///
    /// An error that the caller's side can detect is refused at once: the buffer is free and no
    /// event follows. An error that is detected later, or by another process that carries out the
    /// operations, is reported by the operation's last event: a client must handle both. An
    /// operation may have ended when `outcome` is called for it: its events are then in the queue,
    /// and only there. `outcome` is called without a lock, but must not call the transfer machine.
    ///
    /// A buffer has one operation at a time, in a batch too: a second one may be refused even if
    /// the first ends within this call.
    ///
    /// `started_ns` is the time at which the operations began, on [`Core::now_ns`]'s clock; the
    /// times in their events count from it. A client that has read the clock for a deadline passes
    /// that time, so that an operation that ends at its deadline has lasted exactly the
    /// timeout. `None` means now.
    ///
    /// # Errors
    /// Of each operation: EINVAL for lengths and counts that do not fit the buffer and for an
    /// invalid descriptor, EPERM for a descriptor of the wrong direction, EFBIG for one whose size
    /// does not fit, ENOENT for an unknown buffer, EBUSY for one in flight, ENOMEM without space
    /// for events, ESHUTDOWN after [`CoreTm::stop`], [`CoreError::QueueCorrupt`] (EIO) once
    /// [`CoreTm::events_get`] has failed, or an error of LNet.
    ///
    /// ```
    /// use nlx_core::{Address, BufferHandle, CoreError, CoreTm, Operation, OperationKind};
    ///
    /// /// Sends the same number of bytes of each buffer; returns those that could not be sent.
    /// fn send_all(
    ///     tm: &dyn CoreTm, buffers: &[BufferHandle], length: u64, to: Address,
    /// ) -> Vec<(BufferHandle, CoreError)> {
    ///     let kind = OperationKind::Send { length, to };
    ///     let operations: Vec<_> = buffers.iter().map(|&buffer| Operation { buffer, cookie: 0, kind }).collect();
    ///     let mut refused = Vec::new();
    ///     tm.submit_all(None, &operations, &mut |at, outcome| refused.extend(outcome.err().map(|error| (buffers[at], error))));
    ///     refused
    /// }
    /// ```
    fn submit_all(
        &self,
        started_ns: Option<u64>,
        operations: &[Operation],
        outcome: &mut dyn FnMut(usize, Result<Submitted, CoreError>),
    );

    /// Starts an operation: a batch of one ([`CoreTm::submit_all`]).
    ///
    /// # Errors
    /// The errors of [`CoreTm::submit_all`].
    fn submit(&self, operation: &Operation) -> Result<Submitted, CoreError> {
        self.submit_since(None, operation)
    }

    /// Starts an operation that began at `started_ns`: a batch of one ([`CoreTm::submit_all`]).
    ///
    /// # Errors
    /// The errors of [`CoreTm::submit_all`].
    fn submit_since(&self, started_ns: Option<u64>, operation: &Operation) -> Result<Submitted, CoreError> {
        let mut reported = None;
        self.submit_all(started_ns, std::slice::from_ref(operation), &mut |_, outcome| {
            reported = Some(outcome)
        });
        reported.unwrap_or_else(|| unreachable!("a transport tells the outcome of each operation"))
    }

    /// Requests the end of the operation of `buffer` that has this cookie. Its last event still
    /// follows: with ECANCELED, or with its result if it completed first (S-414).
    ///
    /// # Errors
    /// ENOENT if the buffer has no such operation, or no longer.
    fn cancel(&self, buffer: BufferHandle, cookie: u64) -> Result<(), CoreError>;

    /// Removes the oldest events and writes them to `events` in order. Returns their number; a
    /// number below `events.len()` does not mean that the queue is empty. Taking events in batches
    /// costs less than one by one.
    ///
    /// ```
    /// use nlx_core::{BufferEvent, CoreError, CoreTm};
    ///
    /// /// Counts the operations that have ended, without waiting for others.
    /// fn ended(tm: &dyn CoreTm) -> Result<usize, CoreError> {
    ///     let (mut events, mut ended) = ([BufferEvent::ZERO; 16], 0);
    ///     while let count @ 1.. = tm.events_get(&mut events)? {
    ///         ended += events[..count].iter().filter(|event| event.unlinked()).count();
    ///     }
    ///     Ok(ended)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CoreError::QueueCorrupt`] (EIO) if this process has overwritten the queue: its events are
    /// lost, all later calls fail in the same way, and [`CoreTm::has_ended`] is true. A client of a
    /// helper whose queue is corrupt loses its domain instead, and each operation fails with
    /// ENOTCONN.
    fn events_get(&self, events: &mut [BufferEvent]) -> Result<usize, CoreError>;

    /// Removes the oldest event, if there is one: a batch of one ([`CoreTm::events_get`]).
    ///
    /// # Errors
    /// The errors of [`CoreTm::events_get`].
    fn event_get(&self) -> Result<Option<BufferEvent>, CoreError> {
        let mut event = BufferEvent::ZERO;
        Ok((self.events_get(std::slice::from_mut(&mut event))? == 1).then_some(event))
    }

    /// Waits until there is an event (`true`), or until the deadline on [`Core::now_ns`]'s clock
    /// has passed, [`CoreTm::wake`] was called, or [`CoreTm::dropped`] has grown (`false`). With a
    /// deadline in the past it checks once; `None` is no deadline (MT-230).
    fn event_wait(&self, deadline_ns: Option<u64>) -> bool;

    /// Returns whether there is an event; changes nothing (MT-231).
    fn pending(&self) -> bool;

    /// Polls the network once, without sleeping. Ends the announcement of [`CoreTm::arm`].
    fn poll(&self);

    /// Returns a descriptor for a program that sleeps in its own event loop instead of
    /// [`CoreTm::event_wait`]. After [`CoreTm::arm`] it becomes readable when the program should
    /// call [`CoreTm::poll`].
    ///
    /// # Errors
    /// EOPNOTSUPP if the transport has no descriptor, EMFILE or ENFILE.
    fn descriptor(&self) -> Result<BorrowedFd<'_>, CoreError> {
        Err(no_descriptor())
    }

    /// Announces that the program sleeps on the descriptor: it becomes readable as soon as
    /// [`CoreTm::event_wait`] would return (an event, the deadline, [`CoreTm::wake`]) or the
    /// network must be polled. The announcement holds until [`CoreTm::poll`]. Returns false, and
    /// announces nothing, if there is a reason to poll already.
    ///
    /// # Errors
    /// The errors of [`CoreTm::descriptor`], and ENOMEM.
    fn arm(&self, deadline_ns: Option<u64>) -> Result<bool, CoreError> {
        let _ = deadline_ns;
        Err(no_descriptor())
    }

    /// Ends the current wait, or the next one if no thread waits.
    fn wake(&self);

    /// Binds the calling thread permanently to the processors nearest to this transfer machine's
    /// memory; meant for the thread that takes its events. By default, and where all processors are
    /// equally near, it does nothing.
    ///
    /// # Errors
    /// An error of the system: EPERM if this process may not use some of the processors.
    fn bind_thread(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Runs `allocate`; memory that it touches first, and that it gets from [`Core::allocate`], is
    /// placed near those processors. By default the placement is left to the system.
    fn near(&self, allocate: &mut dyn FnMut()) {
        allocate();
    }

    /// Returns the number of messages for this transfer machine that were lost since its start
    /// because no receive buffer took them: none was posted, or it had too little room for the
    /// message. Motr's core drops them silently (X13).
    ///
    /// The number only grows. Growth ends a wait that has not reported it yet: once, independent of
    /// the number of messages lost meanwhile. The senders get no error. Messages that a lazy portal
    /// holds ([`TmOptions::lazy`]) are not lost, unless the node drops those for which it has no
    /// memory. By default a transport loses none.
    fn dropped(&self) -> u64 {
        0
    }

    /// Returns whether the transport below has been shut down: no events are added to the present
    /// ones.
    fn has_ended(&self) -> bool {
        false
    }

    /// Returns the number of event slots that are reserved by operations whose last event has not
    /// been taken.
    fn needed(&self) -> usize;

    /// Stops the transfer machine: its address becomes free, and every later [`CoreTm::submit`] is
    /// refused. A second call does nothing.
    ///
    /// # Errors
    /// EBUSY until the last event of every operation has been taken.
    fn stop(&self) -> Result<(), CoreError>;
}

fn no_descriptor() -> CoreError {
    CoreError::Transport {
        action: "give a descriptor to sleep on",
        reason: "the transport has none".into(),
        errno: Errno::EOPNOTSUPP,
    }
}
