//! The serving side of the self-test: answers echoes, and moves bulk to and from the client's passive buffers.

use std::collections::HashMap;
use std::time::Duration;

use nlx::{Batch, Buffer, Descriptor, Domain, EndPoint, Event, NodeConfig, OpId, Queue, TransferMachine};

use super::protocol::{
    FROM_CLIENT, FROM_SERVER, HEAD_BYTES, Head, Kind, MESSAGE_BYTES, check_echo, write_echo,
};
use super::{BULK_BYTES, OPERATION_TIMEOUT, PORTAL, ReceivePool, pattern};
use crate::args::SelftestPeerArgs;
use crate::failure::{Context, Failure};
use crate::output;

/// Runs the server until the parent is gone; prints the transfer machine's address first.
pub(crate) fn run(args: &SelftestPeerArgs) -> Result<(), Failure> {
    // The parent owns this process: when it dies, however it dies, so does this.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).context("cannot tie to the parent")?;
    let config =
        NodeConfig::new().net(&args.net)?.accept_port(args.accept_port).cpt(args.partitions.config());
    let domain = Domain::in_process(&config)?;
    let nid = domain.nids().first().copied().ok_or_else(|| Failure::new("the node has no NID"))?;
    let machine = domain.transfer_machine(&format!("{nid}:12345:{PORTAL}:*"), Default::default())?;
    let mut server = Server::new(&domain, &machine)?;
    server.spoil = args.spoil;
    output::line(machine.address())?;
    loop {
        let mut next = machine.wait(None)?;
        while let Some(event) = next {
            server.handle(event)?;
            next = machine.take()?;
        }
        server.send_answers();
    }
}

/// A bulk transfer this side is active in.
struct Transfer {
    head: Head,
    client: EndPoint,
}

struct Server<'a> {
    domain: &'a Domain,
    machine: &'a TransferMachine,
    receives: ReceivePool,
    /// Small buffers for answers, and bulk buffers, while nothing uses them. Both grow to what the client has in flight.
    answers: Vec<Buffer>,
    bulk: Vec<Buffer>,
    /// Answers to what has come since the last wait: they leave together.
    batch: Batch,
    transfers: HashMap<OpId, Transfer>,
    verified_bytes: u64,
    errors: u64,
    /// Spoil the last byte of what has a sequence divisible by [`SPOIL_EACH`].
    spoil: bool,
}

/// One in so many, so that most of a spoiled self-test still works.
const SPOIL_EACH: u64 = 8;

impl<'a> Server<'a> {
    fn new(domain: &'a Domain, machine: &'a TransferMachine) -> Result<Server<'a>, Failure> {
        let receives = ReceivePool::post(domain, machine)?;
        Ok(Server {
            domain,
            machine,
            receives,
            answers: Vec::new(),
            bulk: Vec::new(),
            batch: Batch::new(),
            transfers: HashMap::new(),
            verified_bytes: 0,
            errors: 0,
            spoil: false,
        })
    }

    fn handle(&mut self, event: Event) -> Result<(), Failure> {
        match event.queue {
            Queue::MessageReceive => self.message(event),
            Queue::MessageSend => {
                self.errors += u64::from(event.status.is_err());
                self.answers.extend(event.buffer);
                Ok(())
            }
            Queue::ActiveBulkReceive | Queue::ActiveBulkSend => self.transferred(event),
            queue => Err(Failure::new(format!("an event of queue {queue:?} that was never used"))),
        }
    }

    fn message(&mut self, mut event: Event) -> Result<(), Failure> {
        let buffer = event.buffer.take();
        if let (Some(message), Some(client)) = (event.message.take(), event.sender.take()) {
            self.request(&message, client)?;
        } else {
            self.errors += 1;
        }
        self.receives.repost(self.machine, buffer)
    }

    fn request(&mut self, bytes: &[u8], client: EndPoint) -> Result<(), Failure> {
        let Ok(head) = Head::read(bytes) else {
            self.errors += 1;
            return Ok(());
        };
        match head.kind {
            Kind::Echo => {
                let good = check_echo(&head, FROM_CLIENT, bytes);
                if !good {
                    return self.refuse(&head, &client);
                }
                self.verified_bytes += head.length;
                let spoils = self.spoils(&head);
                self.answer(&client, |answer| {
                    let end = write_echo(&head, FROM_SERVER, answer);
                    answer[end - 1] ^= u8::from(spoils);
                    end
                })
            }
            Kind::Write | Kind::Read => self.transfer(head, &bytes[HEAD_BYTES..], client),
            Kind::Report => {
                let kind = if self.errors == 0 { Kind::Good } else { Kind::Bad };
                let report = Head { kind, length: self.verified_bytes, ..head };
                self.answer_head(&client, report)
            }
            Kind::Good | Kind::Bad => self.refuse(&head, &client),
        }
    }

    /// Begins to move a client's bulk buffer.
    fn transfer(&mut self, head: Head, descriptor: &[u8], client: EndPoint) -> Result<(), Failure> {
        let Ok(descriptor) = Descriptor::from_bytes(descriptor) else { return self.refuse(&head, &client) };
        let mut buffer = match self.bulk.pop() {
            Some(buffer) => buffer,
            None => self.domain.allocate(BULK_BYTES)?,
        };
        let length = head.length as usize;
        let begun = if head.kind == Kind::Write {
            self.machine.active_receive(buffer, &descriptor, Some(OPERATION_TIMEOUT))
        } else {
            let spoils = self.spoils(&head);
            let mut bytes = buffer.write()?;
            let end = length.min(BULK_BYTES);
            pattern::fill(FROM_SERVER, head.sequence, &mut bytes[..end]);
            bytes[end.saturating_sub(1)] ^= u8::from(spoils);
            drop(bytes);
            self.machine.active_send(buffer, length, &descriptor, Some(OPERATION_TIMEOUT))
        };
        match begun {
            Ok(operation) => {
                self.transfers.insert(operation, Transfer { head, client });
                Ok(())
            }
            Err(refused) => {
                self.bulk.push(refused.buffer);
                self.refuse(&head, &client)
            }
        }
    }

    fn transferred(&mut self, event: Event) -> Result<(), Failure> {
        let Transfer { head, client } =
            self.transfers.remove(&event.op).ok_or_else(|| Failure::new("an event of no transfer"))?;
        let mut good = event.status.is_ok() && event.length as u64 == head.length;
        if let Some(buffer) = event.buffer {
            if good && head.kind == Kind::Write {
                good = pattern::check(FROM_CLIENT, head.sequence, &buffer.read()?[..event.length]);
                self.verified_bytes += if good { head.length } else { 0 };
            }
            self.bulk.push(buffer);
        }
        match (good, head.kind) {
            (false, _) => self.refuse(&head, &client),
            (true, Kind::Write) => self.answer_head(&client, Head { kind: Kind::Good, ..head }),
            // The client's own event tells it that the bytes have arrived.
            (true, _) => Ok(()),
        }
    }

    fn spoils(&self, head: &Head) -> bool {
        self.spoil && head.sequence.is_multiple_of(SPOIL_EACH)
    }

    fn refuse(&mut self, head: &Head, client: &EndPoint) -> Result<(), Failure> {
        self.errors += 1;
        self.answer_head(client, Head { kind: Kind::Bad, ..*head })
    }

    fn answer_head(&mut self, client: &EndPoint, head: Head) -> Result<(), Failure> {
        self.answer(client, |bytes| {
            head.write(bytes);
            HEAD_BYTES
        })
    }

    fn answer(&mut self, client: &EndPoint, write: impl FnOnce(&mut [u8]) -> usize) -> Result<(), Failure> {
        let mut buffer = match self.answers.pop() {
            Some(buffer) => buffer,
            None => self.domain.allocate(MESSAGE_BYTES)?,
        };
        let length = write(&mut buffer.write()?);
        self.batch.send(buffer, length, client, Some(OPERATION_TIMEOUT));
        Ok(())
    }

    /// Sends the answers.
    fn send_answers(&mut self) {
        for refused in self.machine.submit(&mut self.batch).filter_map(Result::err) {
            self.errors += 1;
            self.answers.push(refused.buffer);
        }
    }
}

/// How long the parent waits for the server's address.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);
