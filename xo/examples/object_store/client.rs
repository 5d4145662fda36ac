//! The client: sends one request at a time, and the bytes that belong to it.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nlx::{Buffer, Domain, EndPoint, Errno, Event, Op, OpId, Queue, TmOptions, TransferMachine};

use crate::Outcome;
use crate::protocol::{MESSAGE_MAX, Name, Numbered, Object, PIECE, PORTAL, Reply, Request, decode, encode};

/// The timeout of a request: a server that takes longer is considered dead.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of restarts of a get whose object is replaced during the transfer.
const RESTARTS_MAX: usize = 5;

pub(crate) struct Client {
    domain: Domain,
    tm: TransferMachine,
    server: EndPoint,
    /// The number of the last request.
    number: u64,
    /// Memory for a piece; allocated again if an error has lost it.
    piece: Option<Buffer>,
}

/// Returns a receive operation for up to 64 answers.
fn answers(buffer: Buffer) -> Op {
    Op::receive(buffer).min_receive_size(MESSAGE_MAX).max_messages(64)
}

impl Client {
    pub(crate) fn new(domain: &Domain, server: &str) -> Outcome<Client> {
        let nid = domain.nids().first().copied().ok_or("a node without a network")?;
        let tm = domain.transfer_machine(&format!("{nid}:12345:{PORTAL}:*"), TmOptions::default())?;
        // Two, so that one receives while the other is posted again.
        for _ in 0..2 {
            tm.start(answers(domain.allocate(2 * MESSAGE_MAX)?))?;
        }
        let server = tm.end_point(server)?;
        // An earlier program at this address may still be sent answers: each program starts from a
        // different number.
        let number = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos() as u64;
        Ok(Client { domain: domain.clone(), tm, server, number, piece: None })
    }

    /// Stores `length` bytes of `source` as an object.
    pub(crate) fn put(&mut self, name: &Name, length: u64, mut source: impl Read) -> Outcome<()> {
        let upload = match self.call(Request::Create { name: name.clone(), length }, None)? {
            (Reply::Upload { upload }, _) => upload,
            other => return Err(unexpected(name, other)),
        };
        let mut offset = 0;
        while offset < length {
            let bytes = PIECE.min(usize::try_from(length - offset).unwrap_or(PIECE));
            let mut piece = self.piece()?;
            source.read_exact(&mut piece.write()?[..bytes])?;
            match self.call(Request::Write { upload, offset }, Some(Op::passive_send(piece).length(bytes)))? {
                (Reply::Done, piece) => self.piece = piece,
                other => return Err(unexpected(name, other)),
            }
            offset += bytes as u64;
        }
        self.done(name, Request::Commit { upload })
    }

    /// Writes all bytes of an object to the target that `start` returns; `start` is called again
    /// after each restart.
    pub(crate) fn get<W: Write>(&mut self, name: &Name, mut start: impl FnMut() -> Outcome<W>) -> Outcome<W> {
        for _ in 0..RESTARTS_MAX {
            let mut target = start()?;
            if self.get_version(name, &mut target)? {
                return Ok(target);
            }
        }
        Err(format!("{name} has been replaced {RESTARTS_MAX} times while it was read").into())
    }

    /// Returns false if the object was replaced during the transfer.
    fn get_version(&mut self, name: &Name, target: &mut impl Write) -> Outcome<bool> {
        let (length, version) = match self.call(Request::Stat { name: name.clone() }, None)? {
            (Reply::Stat { length, version }, _) => (length, version),
            other => return Err(unexpected(name, other)),
        };
        let mut offset = 0;
        while offset < length {
            let bytes = PIECE.min(usize::try_from(length - offset).unwrap_or(PIECE));
            let piece = self.piece()?;
            let request = Request::Read { name: name.clone(), version, offset };
            match self.call(request, Some(Op::passive_receive(piece).length(bytes)))? {
                (Reply::Done, Some(piece)) => {
                    target.write_all(&piece.read()?[..bytes])?;
                    self.piece = Some(piece);
                }
                (Reply::Failed { errno, .. }, piece) if errno == Errno::ESTALE as i32 => {
                    self.piece = piece;
                    return Ok(false);
                }
                other => return Err(unexpected(name, other)),
            }
            offset += bytes as u64;
        }
        Ok(true)
    }

    pub(crate) fn list(&mut self) -> Outcome<Vec<Object>> {
        let mut all: Vec<Object> = Vec::new();
        loop {
            let after = all.last().map_or(String::new(), |object| object.name.to_string());
            match self.call(Request::List { after }, None)? {
                (Reply::Objects { objects, more }, _) => {
                    all.extend(objects);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(unexpected("the list", other)),
            }
        }
    }

    pub(crate) fn delete(&mut self, name: &Name) -> Outcome<()> {
        self.done(name, Request::Delete { name: name.clone() })
    }

    pub(crate) fn put_file(&mut self, name: &Name, path: &Path) -> Outcome<()> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        self.put(name, length, file)
    }

    /// Writes an object to a file, which is renamed to `path` once it is complete.
    pub(crate) fn get_file(&mut self, name: &Name, path: &Path) -> Outcome<()> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let got = self.get(name, || Ok(File::create(&partial)?));
        let kept = got.and_then(|file| Ok(file.sync_all().and_then(|()| fs::rename(&partial, path))?));
        kept.inspect_err(|_| drop(fs::remove_file(&partial)))
    }

    fn done(&mut self, name: &Name, request: Request) -> Outcome<()> {
        match self.call(request, None)? {
            (Reply::Done, _) => Ok(()),
            other => Err(unexpected(name, other)),
        }
    }

    /// Takes the memory for a piece.
    fn piece(&mut self) -> Outcome<Buffer> {
        Ok(self.piece.take().map_or_else(|| self.domain.allocate(PIECE), Ok)?)
    }

    /// Sends a request with the offer of a passive operation, and waits for the answer and for the
    /// buffer.
    fn call(&mut self, request: Request, bulk: Option<Op>) -> Outcome<(Reply, Option<Buffer>)> {
        let staged = bulk.map(|op| self.tm.start(op.timeout(TIMEOUT))).transpose()?;
        self.number += 1;
        let request = Numbered { number: self.number, body: request };
        let bytes = encode(&request, staged.as_ref().map(|staged| &staged.offer))?;
        self.tm.start(Op::send(self.domain.buffer_of(&bytes)?, &self.server).timeout(TIMEOUT))?;
        self.answer(staged.map(|staged| staged.op))
    }

    /// Waits for the answer to the last request, and for the end of the passive operation `moving`
    /// that carries its bytes.
    fn answer(&mut self, mut moving: Option<OpId>) -> Outcome<(Reply, Option<Buffer>)> {
        let deadline = Instant::now() + TIMEOUT;
        let (mut reply, mut moved) = (None, Ok(()));
        let mut piece = None;
        while reply.is_none() || moving.is_some() {
            let rest = deadline.saturating_duration_since(Instant::now());
            let Some(mut event) = self.tm.wait(Some(rest))? else {
                return Err(format!("{} has not answered within {TIMEOUT:?}", self.server).into());
            };
            if Some(event.op) == moving {
                (moving, moved, piece) = (None, event.status, event.buffer);
                continue;
            }
            match event.queue {
                Queue::MessageReceive => {
                    let answer = self.read(&mut event)?;
                    // A server that refuses a request does not use the buffer.
                    if let (Some(Reply::Failed { .. }), Some(op)) = (&answer, moving) {
                        self.tm.cancel(op);
                    }
                    reply = answer.or(reply);
                }
                _ => event.status.map_err(|errno| format!("{}: {}", self.server, errno.desc()))?,
            }
        }
        match reply {
            Some(reply @ Reply::Failed { .. }) => Ok((reply, piece)),
            Some(reply) => {
                moved.map(|()| (reply, piece)).map_err(|errno| format!("the bytes: {}", errno.desc()).into())
            }
            None => Err("no answer".into()),
        }
    }

    /// Returns the answer in a message, unless it belongs to an earlier request.
    fn read(&self, event: &mut Event) -> Outcome<Option<Reply>> {
        let answer = event.message.take().map(|message| decode::<Reply>(&message)).transpose()?;
        if let Some(buffer) = event.buffer.take() {
            self.tm.start(answers(buffer))?;
        }
        let (answer, _) = answer.unzip();
        Ok(answer.filter(|answer| answer.number == self.number).map(|answer| answer.body))
    }
}

/// Returns the error for a refused request or an unexpected answer.
fn unexpected(
    object: impl Display,
    (reply, _): (Reply, Option<Buffer>),
) -> Box<dyn std::error::Error + Send + Sync> {
    match reply {
        Reply::Failed { message, .. } => format!("{object}: {message}").into(),
        other => format!("{object}: unexpected answer: {other:?}").into(),
    }
}
