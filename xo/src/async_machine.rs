//! Transfer machines for asynchronous programs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use nlx_core::Queue;

use crate::{Error, Event, Machine, MachineBuilder, Op, Refused, Started, Stop, TransferMachine};
use inbox::Inbox;
use slots::CompletionSlots;

mod completion;
mod inbox;
mod messages;
#[cfg(all(test, loom))]
mod model;
mod slot;
mod slots;
mod stopping;

pub use completion::{Completed, Completion, Failed};
pub use messages::{NextMessage, Received};
pub use stopping::Stopping;

/// A transfer machine whose operations are futures, for any runtime.
///
/// An operation starts at the call of [`AsyncMachine::start`]. Its future ([`Completion`]) is ready
/// when the operation has ended, and returns the buffer. Dropping the future earlier cancels the
/// operation without waiting. An event thread drives the network and wakes the tasks, so no task
/// blocks. When the machine stops or fails, every future ends. In steady state only the runtime
/// allocates, for its tasks.
///
/// Receive buffers have no futures: [`AsyncMachine::post`] starts them, and
/// [`AsyncMachine::next_message`] returns their messages. An `AsyncMachine` dereferences to
/// [`Machine`], for end points, counters, and batches.
///
/// Dropping it stops the machine with abort and blocks until it has stopped; [`AsyncMachine::stop`]
/// does not block.
///
/// ```
/// use nlx::{AsyncMachine, Domain, NodeConfig, Op, Stop};
///
/// /// Answers one message with the message itself.
/// async fn echo(domain: &Domain, server: &AsyncMachine) -> Result<(), Box<dyn std::error::Error>> {
///     let received = server.next_message().await?;
///     let client = received.sender.ok_or("a message without a sender")?;
///     server.start(Op::send(domain.buffer_of(&received.message)?, &client)).await?;
///     Ok(())
/// }
///
/// async fn run() -> Result<(), Box<dyn std::error::Error>> {
///     let domain = Domain::in_process(&NodeConfig::new())?;
///     let server = domain.machine().start_async("0@lo:12345:31:1")?;
///     let client = domain.machine().start_async("0@lo:12345:31:*")?;
///     for machine in [&server, &client] {
///         machine.post(Op::receive(domain.allocate(64)?))?;
///     }
///     client.start(Op::send(domain.buffer_of(b"hello")?, &client.end_point("0@lo:12345:31:1")?)).await?;
///     echo(&domain, &server).await?;
///     assert_eq!(&*client.next_message().await?.message, b"hello");
///     server.stop(Stop::Abort, None).await?;
///     Ok(())
/// }
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(run())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncMachine {
    slots: Arc<CompletionSlots<Event>>,
    inbox: Arc<Inbox<Event>>,
    owner: TransferMachine,
}

static_assertions::assert_impl_all!(AsyncMachine: Send, Sync);
static_assertions::assert_impl_all!(Completion: Send, Sync, Unpin);
static_assertions::assert_impl_all!(NextMessage<'static>: Send, Unpin);

impl MachineBuilder<'_> {
    /// Starts the machine at this address, with an event thread, and with operations that are
    /// futures.
    ///
    /// # Errors
    /// The errors of [`MachineBuilder::start`].
    pub fn start_async(self, address: &str) -> Result<AsyncMachine, Error> {
        let (slots, inbox) = (CompletionSlots::new(), Arc::new(Inbox::new()));
        let ending = Ending { slots: slots.clone(), inbox: inbox.clone() };
        let owner = self.callbacks(move |_, event| ending.event(event)).start(address)?;
        Ok(AsyncMachine { slots, inbox, owner })
    }
}

impl AsyncMachine {
    /// Starts an operation. Its future fails with the error of [`Machine::start`] if the operation
    /// is refused, else with the errno of its last event.
    ///
    /// A peer can access the buffer of a passive operation as soon as this returns, through its
    /// [`Completion::offer`]; the future is ready when the peer has done so. A receive has no
    /// future, as it may take several messages: it is refused with EINVAL; use
    /// [`AsyncMachine::post`].
    ///
    /// ```
    /// # use nlx::{AsyncMachine, Domain, NodeConfig, Op};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let machine = domain.machine().start_async("0@lo:12345:31:1")?;
    /// # let run = async {
    /// let offered = machine.start(Op::passive_send(domain.buffer_of(b"hello")?));
    /// let read = machine.start(Op::active_receive(domain.allocate(5)?, offered.offer()));
    /// assert_eq!(&read.await?.buffer.read()?[..], b"hello");
    /// offered.await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # };
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(run)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(&self, op: Op) -> Completion {
        match op.queue() {
            Queue::MessageReceive => Completion::refused(op.refuse(Error::NoFuture)),
            _ => Completion::start(self.owner.machine(), &self.slots, op),
        }
    }

    /// Starts a receive, whose messages [`AsyncMachine::next_message`] returns. Any other operation
    /// runs without a future: its end is not reported, and its buffer is dropped at its end.
    ///
    /// # Errors
    /// The errors of [`Machine::start`].
    pub fn post(&self, op: Op) -> Result<Started, Refused> {
        self.owner.start(op)
    }

    /// Returns the next message of a receive buffer, in order of arrival. Receive buffers are
    /// posted with [`AsyncMachine::post`], or from a pool ([`MachineBuilder::pool`]).
    ///
    /// If a receive buffer ends without a message (timeout, cancel, stop of the machine), the
    /// future fails and returns the buffer. After the machine has ended and all messages are taken,
    /// it fails with ESHUTDOWN and without a buffer.
    ///
    /// Messages stay queued until they are taken, and keep their receive buffers busy.
    pub fn next_message(&self) -> NextMessage<'_> {
        NextMessage::new(&self.owner, &self.inbox)
    }

    /// Stops the machine like [`Machine::stop`], but without blocking the task that awaits it.
    /// Every future ends, with its buffer.
    pub fn stop(&self, how: Stop, timeout: Option<Duration>) -> Stopping {
        Stopping::start(self.owner.machine(), how, timeout)
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

/// Owned by the event thread's callback: when the thread ends, every wait ends.
struct Ending {
    slots: Arc<CompletionSlots<Event>>,
    inbox: Arc<Inbox<Event>>,
}

impl Ending {
    /// Queues a message; drops other events, which belong to operations without a future.
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
