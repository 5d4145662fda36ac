//! The server: threads that wait for events of one transfer machine, and handle each.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use nlx::{
    Address, Buffer, BufferPool, BufferPoolOptions, Colour, Domain, EndPoint, Errno, Event, Offer, Op,
    Provision, Queue, Stop, TransferMachine,
};

use crate::Outcome;
use crate::disk::{self, Disk, lock};
use crate::protocol::{MESSAGE_MAX, Name, Numbered, PIECE, Reply, Request, decode, encode};

/// The timeout of a piece: a client that takes longer is considered dead.
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));

/// The number of buffers for pieces, and so the maximum number of simultaneous transfers of all
/// clients.
const PIECES: usize = 8;

/// Maximum number of requests that wait for such a buffer; further ones get EAGAIN.
const WAITING_MAX: usize = 1024;

/// Posted receive buffers, 1 MiB each; the same number is free in their pool.
const REQUEST_BUFFERS: usize = 4;
const REQUESTS: Provision = Provision {
    min_receive_size: MESSAGE_MAX,
    max_messages: 1024,
    buffers: REQUEST_BUFFERS,
    colour: Colour::Any,
};

pub(crate) struct Server {
    tm: TransferMachine,
    disk: Disk,
    /// Memory for pieces. Dropping a buffer returns it to its pool.
    pieces: BufferPool,
    /// Memory for answers, which grows as needed.
    answers: BufferPool,
    work: Mutex<Work>,
}

/// The state that the threads share.
#[derive(Default)]
struct Work {
    /// Pieces that wait for a buffer.
    waiting: VecDeque<Piece>,
    /// The pieces in transfer, by the tags of their buffers.
    moving: HashMap<u64, Piece>,
    last_tag: u64,
}

/// A transfer that a client has requested.
struct Piece {
    client: EndPoint,
    number: u64,
    offer: Offer,
    transfer: Transfer,
}

enum Transfer {
    Write { upload: u64, offset: u64 },
    Read { name: Name, version: u64, offset: u64 },
}

impl Server {
    pub(crate) fn start(domain: &Domain, address: &str, disk: Disk) -> Outcome<Server> {
        let pieces = domain.pool(BufferPoolOptions::new(PIECE))?;
        pieces.provision(PIECES)?;
        let answers = domain.pool(BufferPoolOptions::new(MESSAGE_MAX).below_threshold(|pool| {
            // Without memory, no answer is sent, and the client repeats its request.
            let _ = pool.provision(8);
        }))?;
        answers.provision(8)?;
        // The transfer machine takes its receive buffers from this pool, and keeps
        // `REQUEST_BUFFERS` of them posted.
        let requests = domain.pool(BufferPoolOptions::new(1 << 20))?;
        requests.provision(2 * REQUEST_BUFFERS)?;
        let tm = domain.machine().pool(&requests, REQUESTS).start(address)?;
        Ok(Server { tm, disk, pieces, answers, work: Mutex::default() })
    }

    pub(crate) fn address(&self) -> Address {
        self.tm.address()
    }

    /// Serves with this number of threads until the machine is stopped.
    pub(crate) fn run(&self, workers: usize) -> Outcome<()> {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(|| self.work())).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|_| Err("a worker has panicked".into())))
        })
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) -> Outcome<()> {
        Ok(self.tm.stop(Stop::Abort, TIMEOUT)?)
    }

    /// Handles events. A waiting thread drives the network; here several threads take turns.
    fn work(&self) -> Outcome<()> {
        loop {
            match self.tm.wait(None) {
                Ok(Some(event)) => self.handle(event),
                Ok(None) => {}
                Err(error) if error.errno() == Errno::ESHUTDOWN => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn handle(&self, event: Event) {
        match event.queue {
            Queue::MessageReceive => {
                let message = event.message.as_deref().map(decode::<Request>);
                // The message is no longer needed. The buffer returns to its pool once all its
                // messages are dropped.
                drop(event.message);
                drop(event.buffer);
                match (message, event.sender) {
                    (Some(Ok((request, offer))), Some(client)) => self.request(client, request, offer),
                    (Some(Err(error)), client) => eprintln!("no request, from {client:?}: {error}"),
                    _ => {}
                }
            }
            Queue::ActiveBulkReceive | Queue::ActiveBulkSend => self.moved(event),
            // An answer has left, or its client is gone.
            _ => {}
        }
    }

    fn request(&self, client: EndPoint, request: Numbered<Request>, offer: Option<Offer>) {
        let (address, number) = (client.address(), request.number);
        let result = match (request.body, offer) {
            (Request::Write { upload, offset }, Some(offer)) => {
                return self.queue(Piece {
                    client,
                    number,
                    offer,
                    transfer: Transfer::Write { upload, offset },
                });
            }
            (Request::Read { name, version, offset }, Some(offer)) => {
                return self.queue(Piece {
                    client,
                    number,
                    offer,
                    transfer: Transfer::Read { name, version, offset },
                });
            }
            (Request::Write { .. } | Request::Read { .. }, None) => Err(Errno::EINVAL),
            (Request::Create { name, length }, _) => {
                self.disk.create(address, name, length).map(|upload| Reply::Upload { upload })
            }
            (Request::Commit { upload }, _) => self.disk.commit(address, upload).map(|()| Reply::Done),
            (Request::Stat { name }, _) => {
                self.disk.stat(&name).map(|(length, version)| Reply::Stat { length, version })
            }
            (Request::List { after }, _) => {
                self.disk.list(&after).map(|(objects, more)| Reply::Objects { objects, more })
            }
            (Request::Delete { name }, _) => self.disk.delete(&name).map(|()| Reply::Done),
        };
        self.reply(&client, number, result);
    }

    /// Starts the transfer of a piece, or queues it until a buffer is free.
    fn queue(&self, piece: Piece) {
        if piece.offer.length() > PIECE as u64 {
            return self.reply(&piece.client, piece.number, Err(Errno::EFBIG));
        }
        let mut work = lock(&self.work);
        // Under the lock: a buffer that is returned now goes to a waiting piece, or is taken here.
        match self.pieces.get(Colour::Any).ok().flatten() {
            Some(buffer) => {
                drop(work);
                self.begin(piece, buffer);
            }
            None if work.waiting.len() < WAITING_MAX => work.waiting.push_back(piece),
            None => {
                drop(work);
                self.reply(&piece.client, piece.number, Err(Errno::EAGAIN));
            }
        }
    }

    /// Reads the client's offer, or fills it.
    fn begin(&self, piece: Piece, mut buffer: Buffer) {
        // The length was checked when the piece was queued.
        let length = piece.offer.length() as usize;
        if let Transfer::Read { name, version, offset } = &piece.transfer
            && let Err(errno) = self.fill(&mut buffer, length, name, *version, *offset)
        {
            return self.end(piece, buffer, Err(errno));
        }
        let mut work = lock(&self.work);
        work.last_tag += 1;
        let tag = work.last_tag;
        // The event carries the tag, and may come before this returns, in another thread.
        buffer.set_tag(tag);
        let op = match piece.transfer {
            Transfer::Write { .. } => Op::active_receive(buffer, &piece.offer),
            Transfer::Read { .. } => Op::active_send(buffer, &piece.offer).length(length),
        };
        work.moving.insert(tag, piece);
        drop(work);
        let started = self.tm.start(op.timeout(TIMEOUT));
        if let Err(refused) = started
            && let Some(piece) = lock(&self.work).moving.remove(&tag)
        {
            self.end(piece, refused.buffer, Err(refused.error.errno()));
        }
    }

    fn fill(
        &self,
        buffer: &mut Buffer,
        length: usize,
        name: &Name,
        version: u64,
        offset: u64,
    ) -> disk::Result<()> {
        let mut bytes = buffer.write().map_err(|error| error.errno())?;
        self.disk.read(name, version, offset, &mut bytes[..length])
    }

    /// Handles the end of a transfer.
    fn moved(&self, event: Event) {
        let Some(piece) = lock(&self.work).moving.remove(&event.tag) else { return };
        let Some(buffer) = event.buffer else { return };
        let result = event.status.and_then(|()| match piece.transfer {
            Transfer::Read { .. } => Ok(()),
            Transfer::Write { upload, offset } => {
                let bytes = buffer.read().map_err(|error| error.errno())?;
                self.disk.write(piece.client.address(), upload, offset, &bytes[..event.length])
            }
        });
        self.end(piece, buffer, result);
    }

    /// Sends the answer, and passes the buffer to the next piece.
    fn end(&self, piece: Piece, buffer: Buffer, result: disk::Result<()>) {
        self.reply(&piece.client, piece.number, result.map(|()| Reply::Done));
        let mut work = lock(&self.work);
        match work.waiting.pop_front() {
            None => drop(buffer),
            Some(next) => {
                drop(work);
                self.begin(next, buffer);
            }
        }
    }

    /// Sends an answer. A client that does not get it repeats its request, or is gone.
    fn reply(&self, client: &EndPoint, number: u64, result: disk::Result<Reply>) {
        let body = result.unwrap_or_else(|errno| Reply::failed(errno, errno.desc()));
        let sent = encode(&Numbered { number, body }, None).and_then(|bytes| {
            let mut buffer = self.answers.get(Colour::Any)?.ok_or("no memory")?;
            buffer.write()?[..bytes.len()].copy_from_slice(&bytes);
            self.tm.start(Op::send(buffer, client).length(bytes.len()).timeout(TIMEOUT))?;
            Ok(())
        });
        if let Err(error) = sent {
            eprintln!("no answer to {client}: {error}");
        }
    }
}
