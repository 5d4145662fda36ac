//! Transfer machines for asynchronous programs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use nlx_core::{Descriptor, Queue};

use crate::wanted::{Started, Wanted};
use crate::{Buffer, EndPoint, Error, Event, Machine, MachineBuilder, Refused, TransferMachine};
use inbox::Inbox;
use slots::Slots;

mod completion;
mod inbox;
mod large;
mod messages;
#[cfg(all(test, loom))]
mod model;
mod slot;
mod slots;
mod stopping;

pub use completion::{Completed, Completion, Failed};
pub use messages::{NextMessage, Received};
pub use stopping::Stopping;

/// A transfer machine whose operations are futures, of no particular runtime.
///
/// An operation starts at the call. Its future ([`Completion`]) is ready when the operation has ended, and gives its buffer
/// back; dropped before, it cancels the operation without waiting. An event thread moves the network and wakes the tasks, so
/// no task ever blocks. A machine that stops or fails ends every future. In steady state nothing is allocated but what the
/// runtime allocates for its tasks.
///
/// The machine itself ([`Machine`]) is there too, for end points, counters, and for what has no future here: the receive
/// buffers of [`Machine::receive`] take the messages that [`AsyncMachine::next_message`] gives, and the buffers of other
/// operations that are started with its methods are given up at their end, whatever that is.
///
/// Dropping it stops the machine with abort, and waits for that: see [`AsyncMachine::stop`] for an end without waiting.
///
/// ```
/// use nlx::{AsyncMachine, Domain, NodeConfig, Receive};
///
/// /// Answers one message with the message itself.
/// async fn echo(domain: &Domain, server: &AsyncMachine) -> Result<(), Box<dyn std::error::Error>> {
///     let received = server.next_message().await?;
///     let mut buffer = domain.allocate(received.message.len())?;
///     buffer.write()?.copy_from_slice(&received.message);
///     let client = received.sender.ok_or("a message without a sender")?;
///     server.send(buffer, received.message.len(), &client, None).await?;
///     Ok(())
/// }
///
/// async fn run() -> Result<(), Box<dyn std::error::Error>> {
///     let domain = Domain::in_process(&NodeConfig::new())?;
///     let server = domain.machine().start_async("0@lo:12345:31:1")?;
///     let client = domain.machine().start_async("0@lo:12345:31:*")?;
///     for machine in [&server, &client] {
///         machine.receive(domain.allocate(64)?, Receive { min_receive_size: 64, max_messages: 1 }, None)?;
///     }
///     let mut question = domain.allocate(5)?;
///     question.write()?.copy_from_slice(b"hello");
///     client.send(question, 5, &client.end_point("0@lo:12345:31:1")?, None).await?;
///     echo(&domain, &server).await?;
///     assert_eq!(&*client.next_message().await?.message, b"hello");
///     server.stop(true, None).await?;
///     Ok(())
/// }
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(run())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncMachine {
    slots: Arc<Slots<Event>>,
    inbox: Arc<Inbox<Event>>,
    owner: TransferMachine,
}

static_assertions::assert_impl_all!(AsyncMachine: Send, Sync);
static_assertions::assert_impl_all!(Completion: Send, Sync, Unpin);
static_assertions::assert_impl_all!(NextMessage<'static>: Send, Unpin);

impl MachineBuilder<'_> {
    /// Starts it at this address, with an event thread and operations that are futures.
    ///
    /// # Errors
    /// As [`MachineBuilder::start`].
    pub fn start_async(self, address: &str) -> Result<AsyncMachine, Error> {
        let (slots, inbox) = (Slots::new(), Arc::new(Inbox::new()));
        let ending = Ending { slots: slots.clone(), inbox: inbox.clone() };
        let owner = self.callbacks(move |_, event| ending.event(event)).start(address)?;
        Ok(AsyncMachine { slots, inbox, owner })
    }
}

impl AsyncMachine {
    /// Sends the first `length` bytes of a buffer as a message; its success means that they have left.
    ///
    /// The future fails as [`Machine::send`] does when that refuses, or with what its last event says.
    pub fn send(
        &self,
        buffer: Buffer,
        length: usize,
        to: &EndPoint,
        timeout: Option<Duration>,
    ) -> Completion {
        self.start(Wanted::send(buffer, length, to, timeout))
    }

    /// Lets whoever gets the descriptor write into a buffer, once. The buffer can be reached when this returns; the future
    /// is ready when it has been.
    ///
    /// # Errors
    /// As [`Machine::passive_receive`].
    pub fn passive_receive(
        &self,
        buffer: Buffer,
        timeout: Option<Duration>,
    ) -> Result<(Completion, Descriptor), Refused> {
        self.start_passive(Wanted::passive_receive(buffer, timeout))
    }

    /// Lets whoever gets the descriptor read the first `length` bytes of a buffer, once. The buffer can be reached when this
    /// returns; the future is ready when it has been.
    ///
    /// # Errors
    /// As [`Machine::passive_send`].
    pub fn passive_send(
        &self,
        buffer: Buffer,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<(Completion, Descriptor), Refused> {
        self.start_passive(Wanted::passive_send(buffer, length, timeout))
    }

    /// Reads a peer's buffer, all that it sends.
    ///
    /// The future fails as [`Machine::active_receive`] does when that refuses, or with what its last event says.
    pub fn active_receive(
        &self,
        buffer: Buffer,
        descriptor: &Descriptor,
        timeout: Option<Duration>,
    ) -> Completion {
        self.start(Wanted::active_receive(buffer, descriptor, timeout))
    }

    /// Writes the first `length` bytes of a buffer into a peer's buffer; its success means that they have arrived.
    ///
    /// The future fails as [`Machine::active_send`] does when that refuses, or with what its last event says.
    pub fn active_send(
        &self,
        buffer: Buffer,
        length: usize,
        descriptor: &Descriptor,
        timeout: Option<Duration>,
    ) -> Completion {
        self.start(Wanted::active_send(buffer, length, descriptor, timeout))
    }

    /// The next message that a receive buffer has taken, in the order in which they came. Receive buffers are posted with
    /// [`Machine::receive`], or by a pool ([`MachineBuilder`]).
    ///
    /// A receive buffer that ends without a message (its timeout, a cancel, the stop of the machine) is a failure that
    /// gives the buffer back. ESHUTDOWN, without a buffer, when the machine has ended and every message has been given.
    ///
    /// Messages that nobody asks for wait here, and their receive buffers with them.
    pub fn next_message(&self) -> NextMessage<'_> {
        NextMessage::new(&self.owner, &self.inbox)
    }

    /// Ends the machine: as [`Machine::stop`], but without blocking the task that awaits it. Every future ends, with its
    /// buffer.
    pub fn stop(&self, abort: bool, timeout: Option<Duration>) -> Stopping {
        Stopping::start(self.owner.machine(), abort, timeout)
    }

    fn start(&self, wanted: Wanted) -> Completion {
        Completion::start(self.owner.machine(), &self.slots, |machine, owner| {
            machine.start(wanted.owned_by(owner)).map(|started| started.op)
        })
    }

    fn start_passive(&self, wanted: Wanted) -> Result<(Completion, Descriptor), Refused> {
        Completion::try_start(self.owner.machine(), &self.slots, |machine, owner| {
            machine.start(wanted.owned_by(owner)).map(Started::passive)
        })
    }
}

impl Deref for AsyncMachine {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.owner
    }
}

impl fmt::Debug for AsyncMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Async{:?}", self.owner)
    }
}

/// What the event thread holds: with the thread end the waits.
struct Ending {
    slots: Arc<Slots<Event>>,
    inbox: Arc<Inbox<Event>>,
}

impl Ending {
    /// An event of an operation without a future.
    fn event(&self, event: Event) {
        if event.queue == Queue::MessageReceive {
            self.inbox.push(event);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.slots.close();
        self.inbox.close();
    }
}
