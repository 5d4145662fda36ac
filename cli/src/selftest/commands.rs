//! The end points of the commands: each node and the console have a transfer machine for them, with
//! one receive buffer for each peer.

use std::time::{Duration, Instant};

use nlx::{Buffer, Domain, EndPoint, Errno, Event, Op, Queue, TransferMachine};

use super::command::{COMMAND_BYTES, Command, Numbered};
use crate::failure::Failure;

/// Time within which a command, or its answer, is sent and received (motr-transport 10.2).
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest number of messages being sent, each in a buffer: more than a console has nodes. A sender
/// that takes no answers gets no more of them.
const SENDS_MAX: usize = 1024;

/// Largest number of invalid messages and completed sends that are handled once the time is over,
/// so that a flood of them cannot stop other work.
const STRAY_MAX: usize = 1024;

/// An end point that sends and receives commands.
pub(super) struct Commands {
    domain: Domain,
    machine: TransferMachine,
    idle: Vec<Buffer>,
    /// Number of commands and answers that are being sent.
    sending: usize,
    /// The last error of a send, until it is taken.
    unsent: Option<Errno>,
    /// Number of invalid messages.
    invalid: u64,
}

/// A received command.
#[derive(Debug)]
pub(super) struct ReceivedCommand {
    pub(super) from: EndPoint,
    pub(super) number: u32,
    pub(super) command: Command,
}

impl Commands {
    /// Starts an end point at this address, with room for one command of each of `peers`.
    pub(super) fn start(domain: &Domain, address: &str, peers: usize) -> Result<Commands, Failure> {
        let machine = domain.transfer_machine(address, Default::default())?;
        let commands = Commands {
            domain: domain.clone(),
            machine,
            idle: Vec::new(),
            sending: 0,
            unsent: None,
            invalid: 0,
        };
        for _ in 0..peers {
            commands.post(domain.allocate(COMMAND_BYTES)?)?;
        }
        Ok(commands)
    }

    pub(super) fn address(&self) -> String {
        self.machine.address().to_string()
    }

    pub(super) fn end_point(&self, address: &str) -> Result<EndPoint, Failure> {
        Ok(self.machine.end_point(address)?)
    }

    /// Sends a command, or the answer to the command with this number.
    pub(super) fn send(&mut self, to: &EndPoint, number: u32, command: Command) -> Result<(), Failure> {
        let command = Numbered { number, command };
        let length = command.length()?;
        if length > COMMAND_BYTES {
            return Err(Failure::new(format!(
                "the command has {length} bytes: at most {COMMAND_BYTES} are allowed"
            )));
        }
        if self.sending >= SENDS_MAX {
            return Err(Failure::new(format!(
                "the limit of {SENDS_MAX} commands and answers in flight is reached"
            )));
        }
        let mut buffer = match self.idle.pop() {
            Some(buffer) => buffer,
            None => self.domain.allocate(COMMAND_BYTES)?,
        };
        let length = command.encode(&mut buffer.write()?)?;
        self.machine
            .start(Op::send(buffer, to).length(length).timeout(COMMAND_TIMEOUT))
            .map_err(|refused| refused.error)?;
        self.sending += 1;
        Ok(())
    }

    /// Waits for the next command until the deadline; drives the network meanwhile.
    pub(super) fn wait(&mut self, deadline: Instant) -> Result<Option<ReceivedCommand>, Failure> {
        let mut late = 0;
        while late < STRAY_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            late += usize::from(left.is_zero());
            match self.machine.wait(Some(left))? {
                Some(event) => {
                    if let Some(received) = self.take(event)? {
                        return Ok(Some(received));
                    }
                }
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns the next command, if it has arrived. Polls the network once, and never sleeps: the
    /// network would repeatedly be handed over to a thread that sleeps in the transport beside one
    /// that measures.
    pub(super) fn poll(&mut self) -> Result<Option<ReceivedCommand>, Failure> {
        for _ in 0..STRAY_MAX {
            let Some(event) = self.machine.poll()? else { break };
            if let Some(received) = self.take(event)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    /// Returns and clears the last error of a send.
    pub(super) fn take_unsent(&mut self) -> Option<Errno> {
        self.unsent.take()
    }

    /// Returns the next command, if another thread has received it.
    pub(super) fn take_received(&mut self) -> Result<Option<ReceivedCommand>, Failure> {
        for _ in 0..STRAY_MAX {
            let Some(event) = self.machine.take()? else { break };
            if let Some(received) = self.take(event)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    fn take(&mut self, mut event: Event) -> Result<Option<ReceivedCommand>, Failure> {
        let buffer = event.buffer.take();
        if event.queue != Queue::MessageReceive {
            if event.queue == Queue::MessageSend {
                self.unsent = event.status.err().or(self.unsent);
            }
            self.sending -= usize::from(buffer.is_some());
            self.idle.extend(buffer);
            return Ok(None);
        }
        let decoded = event.message.take().map(|message| Numbered::decode(&message));
        if let Some(buffer) = buffer {
            self.post(buffer)?;
        }
        let (Some(Ok(Numbered { number, command })), Some(from)) = (decoded, event.sender) else {
            self.invalid += 1;
            tracing::debug!(invalid = self.invalid, "a message that is not a command");
            return Ok(None);
        };
        Ok(Some(ReceivedCommand { from, number, command }))
    }

    fn post(&self, buffer: Buffer) -> Result<(), Failure> {
        self.machine
            .start(Op::receive(buffer).min_receive_size(COMMAND_BYTES))
            .map_err(|refused| refused.error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
