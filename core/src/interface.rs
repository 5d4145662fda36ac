//! The interface itself.

use std::os::fd::BorrowedFd;

use crate::{
    Address, BufferEvent, BufferHandle, CoreError, Errno, IoVec, Limits, Nid, Operation, Region,
    StartAddress, Submitted, TmOptions,
};

/// A domain: buffers are registered with it, and transfer machines started in it (S-1).
///
/// All calls may be made from any thread.
pub trait Core: Send + Sync {
    /// The limits.
    fn limits(&self) -> Limits;

    /// This node's NIDs at the moment, `0@lo` among them.
    fn nids(&self) -> Vec<Nid>;

    /// The clock of all deadlines: nanoseconds since some fixed moment, never running backwards.
    fn now_ns(&self) -> u64;

    /// New memory for buffers, zeroed, where the transport reaches it without a copy: by default the process's own; over a
    /// helper, memory that both share.
    ///
    /// # Errors
    /// EINVAL for 0 bytes, ENOMEM.
    fn allocate(&self, bytes: usize) -> Result<Region, CoreError> {
        Ok(Region::heap(bytes)?)
    }

    /// Makes memory ready for operations, in constant time (S-401).
    ///
    /// # Errors
    /// EFBIG beyond [`Limits`], ENOMEM when there are too many buffers, EFAULT for memory that the transport does not reach:
    /// it must be of [`Core::allocate`] of this domain then, or be registered with [`Core::register_copying`].
    fn register(&self, memory: &IoVec) -> Result<BufferHandle, CoreError>;

    /// Makes any memory ready, at the price of a copy of each message and each transfer where the transport does not reach
    /// it. Where it does, this is [`Core::register`].
    ///
    /// # Errors
    /// As there, but for EFAULT.
    fn register_copying(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.register(memory)
    }

    /// Forgets a buffer.
    ///
    /// # Errors
    /// EBUSY while an operation uses it, ENOENT if it is forgotten already.
    fn deregister(&self, buffer: BufferHandle) -> Result<(), CoreError>;

    /// Starts a transfer machine.
    ///
    /// # Errors
    /// EINVAL for a portal other than 1 to 63, ENOENT for a NID or PID that is not this node's, EADDRINUSE if the address is
    /// taken, EADDRNOTAVAIL if no id is free, ENOMEM, or what LNet says.
    fn tm_start(&self, address: &StartAddress, options: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError>;
}

/// A started transfer machine.
///
/// Operations are started from any thread. Events are waited for by one thread at a time, and given in the order in which
/// the transport produced them; the events of one operation in the order in which they happened, the last one marked
/// ([`BufferEvent::unlinked`]). An event is never lost: space for it is reserved before its operation starts (S-407).
/// Dropping a transfer machine cancels what is in flight and forgets its events.
pub trait CoreTm: Send + Sync {
    /// Its address, the transfer machine id filled in.
    fn address(&self) -> Address;

    /// Starts operations, and lets what they send leave together. Each is started or refused by itself, in this order; a
    /// refusal does not stop those behind it. `outcome` is told of each once, by its place and in order, before this returns.
    ///
    /// What can be checked at once is refused at once: the buffer is free and no event comes. What is found out later, or
    /// by somebody else (a transport may hand operations over to another process), is told by the operation's last event:
    /// a client must be ready for either. An operation may have ended already when `outcome` hears of it: its events lie in
    /// the queue, and only there. `outcome` is called without a lock, but must not call the transfer machine.
    ///
    /// A buffer has one operation at a time, in a batch too: a second one may be refused though the first ends within this
    /// call.
    ///
    /// `started_ns` is when they began, on [`Core::now_ns`]'s clock: their events' times count from it. A client that has
    /// taken the time for a deadline passes it on, so that an operation which ends at its deadline is as old as that; `None` is
    /// now.
    ///
    /// # Errors
    /// Of each operation: EINVAL for lengths and counts that do not fit the buffer and for a descriptor that cannot be, EPERM
    /// for one of the wrong direction, EFBIG for one of a size that does not fit, ENOENT for an unknown buffer, EBUSY for one
    /// in flight, ENOMEM without space for events, ESHUTDOWN after [`CoreTm::stop`], or what LNet says.
    ///
    /// ```
    /// use nlx_core::{Address, BufferHandle, CoreError, CoreTm, Operation, OperationKind};
    ///
    /// /// Sends the same number of bytes of each buffer; gives those that could not be sent.
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
    /// As there.
    fn submit(&self, operation: &Operation) -> Result<Submitted, CoreError> {
        self.submit_since(None, operation)
    }

    /// Starts an operation that began at this moment: a batch of one ([`CoreTm::submit_all`]).
    ///
    /// # Errors
    /// As there.
    fn submit_since(&self, started_ns: Option<u64>, operation: &Operation) -> Result<Submitted, CoreError> {
        let mut told = None;
        self.submit_all(started_ns, std::slice::from_ref(operation), &mut |_, outcome| told = Some(outcome));
        told.unwrap_or_else(|| unreachable!("a transport tells the outcome of each operation"))
    }

    /// Asks for the end of the operation that `buffer` has, if it carries this cookie. Its last event still comes: with
    /// ECANCELED, or with what it was if the operation won (S-414).
    ///
    /// # Errors
    /// ENOENT if there is no such operation (any more).
    fn cancel(&self, buffer: BufferHandle, cookie: u64) -> Result<(), CoreError>;

    /// Removes the oldest events, at most as many as `events` has places, and writes them there in order. Returns their number;
    /// less than there are places does not mean that no event waits. Events cost less together than one by one.
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
    /// [`CoreError::QueueCorrupt`] (EIO), from then on for ever, if this process has overwritten the queue: what it held is lost, and
    /// [`CoreTm::has_ended`]. The queue of a helper's client that is corrupt ends its domain instead, and each operation with ENOTCONN.
    fn events_get(&self, events: &mut [BufferEvent]) -> Result<usize, CoreError>;

    /// Removes the oldest event, if there is one: a batch of one ([`CoreTm::events_get`]).
    ///
    /// # Errors
    /// As there.
    fn event_get(&self) -> Result<Option<BufferEvent>, CoreError> {
        let mut event = BufferEvent::ZERO;
        Ok((self.events_get(std::slice::from_mut(&mut event))? == 1).then_some(event))
    }

    /// Waits until there is an event (`true`), or until the deadline on [`Core::now_ns`]'s clock has passed,
    /// [`CoreTm::wake`] was called, or [`CoreTm::dropped`] has grown (`false`). A deadline in the past still looks; `None` is
    /// no deadline (MT-230).
    fn event_wait(&self, deadline_ns: Option<u64>) -> bool;

    /// Whether there is an event; asking changes nothing (MT-231).
    fn pending(&self) -> bool;

    /// Moves the network forward once, without sleeping. Ends what [`CoreTm::arm`] announced.
    fn poll(&self);

    /// For a program that sleeps in a loop of its own instead of [`CoreTm::event_wait`]: a descriptor that becomes readable
    /// when it should call [`CoreTm::poll`], once [`CoreTm::arm`] has announced that it sleeps.
    ///
    /// # Errors
    /// EOPNOTSUPP if the transport has none, EMFILE or ENFILE.
    fn descriptor(&self) -> Result<BorrowedFd<'_>, CoreError> {
        Err(no_descriptor())
    }

    /// Announces that the program sleeps on the descriptor: it is readable as soon as [`CoreTm::event_wait`] would return, for
    /// an event, the deadline or [`CoreTm::wake`], or the network wants to be moved forward. The announcement holds until
    /// [`CoreTm::poll`]. False if there is reason to poll already; then nothing is announced.
    ///
    /// # Errors
    /// As [`CoreTm::descriptor`], and ENOMEM.
    fn arm(&self, deadline_ns: Option<u64>) -> Result<bool, CoreError> {
        let _ = deadline_ns;
        Err(no_descriptor())
    }

    /// Ends the wait of whoever waits now, or the next one if nobody does.
    fn wake(&self);

    /// Binds the calling thread, for good, to the processors that are nearest to what this transfer machine has: best for a
    /// thread that takes its events. By default, and where all are equally near, the thread stays where it is.
    ///
    /// # Errors
    /// What the system says: EPERM if this process may not use some of them.
    fn bind_thread(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Runs `allocate`, so that the memory that it is the first to touch lies near those processors. By default it lies
    /// anywhere.
    fn near(&self, allocate: &mut dyn FnMut()) {
        allocate();
    }

    /// Messages for this transfer machine that were lost since its start, because there was no receive buffer that took
    /// them: none was posted, or it had less room than the message is long. Motr's core drops them without a word (X13).
    ///
    /// It only grows, and a wait that has not noticed yet ends when it does: once, however many messages are lost meanwhile.
    /// Senders notice nothing. Messages that a lazy portal keeps waiting ([`TmOptions::lazy`]) are not lost, unless the node drops those for which it has no memory. By default a
    /// transport loses none.
    fn dropped(&self) -> u64 {
        0
    }

    /// Whether the transport below has been shut down: waiting brings nothing more than what is there.
    fn has_ended(&self) -> bool {
        false
    }

    /// Event slots reserved by the operations whose last event has not been taken.
    fn needed(&self) -> usize;

    /// Ends the transfer machine: its address is free again, and every later [`CoreTm::submit`] is refused. Stopping it
    /// twice does nothing.
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
