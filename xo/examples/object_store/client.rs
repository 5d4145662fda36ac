//! The client: calls the server, and offers memory for the bytes of objects.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nlx::service::client::{Call, ClientOptions};
use nlx::service::machines::{Machines, Registered};
use nlx::service::rpc::{RequestError, RequestOptions};
use nlx::service::{self, Pool, PoolOptions, Transport};
use nlx::{Address, Domain, Errno, TmOptions};

use crate::Outcome;
use crate::protocol::{MESSAGE_MAX, Name, Object, PIECE, PORTAL, Reply, Request};

/// The deadline of a call: a server that takes longer is considered dead.
const DEADLINE: Duration = Duration::from_secs(60);

/// Maximum number of restarts of a get whose object is replaced during the transfer.
const RESTARTS_MAX: usize = 5;

pub(crate) struct Client {
    calls: Arc<service::Client<Machines>>,
    server: Address,
    /// Memory for a piece.
    piece: Registered,
    _pool: Pool,
}

impl Client {
    pub(crate) fn new(domain: &Domain, server: &str) -> Outcome<Client> {
        let nid = domain.nids().first().copied().ok_or("a node without a network")?;
        let machines = domain.machines(&format!("{nid}:12345:{PORTAL}:*"), TmOptions::default())?;
        let pool = Pool::start("client", machines.clone(), 1, PoolOptions::default())?;
        let piece = machines.allocate(0, PIECE)?;
        let request =
            RequestOptions { message_max: MESSAGE_MAX, deadline: DEADLINE, ..RequestOptions::default() };
        let options = ClientOptions { request, ..ClientOptions::default() };
        let calls = service::Client::start(&pool, machines, options)?;
        Ok(Client { calls, server: server.parse()?, piece, _pool: pool })
    }

    /// Stores `length` bytes of `source` as an object.
    pub(crate) fn put(&mut self, name: &Name, length: u64, mut source: impl Read) -> Outcome<()> {
        let Reply::Upload { upload } = self.ask(name, &Request::Create { name: name.clone(), length })?
        else {
            return Err(unexpected(name));
        };
        let mut offset = 0;
        while offset < length {
            let bytes = piece_of(length - offset);
            {
                let mut piece = self.piece.memory().write(0..bytes)?;
                source.read_exact(piece.as_mut_slice().unwrap_or_default())?;
            }
            let request = Request::Write { upload, offset };
            let written = self.call(&request, |call| call.readable(&self.piece, bytes));
            written.map_err(|error| failed(name, error))?;
            offset += bytes as u64;
        }
        self.ask(name, &Request::Commit { upload }).map(drop)
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
        let Reply::Stat { length, version } = self.ask(name, &Request::Stat { name: name.clone() })? else {
            return Err(unexpected(name));
        };
        let mut offset = 0;
        while offset < length {
            let bytes = piece_of(length - offset);
            let request = Request::Read { name: name.clone(), version, offset };
            match self.call(&request, |call| call.writable(&self.piece)) {
                // What it has not filled are bytes of an earlier piece.
                Ok((_, Some(moved))) if moved == bytes => {}
                Ok(_) => return Err(unexpected(name)),
                Err(RequestError::Refused { errno: Errno::ESTALE }) => return Ok(false),
                Err(error) => return Err(failed(name, error)),
            }
            let piece = self.piece.memory().read(0..bytes)?;
            target.write_all(piece.as_slice().unwrap_or_default())?;
            offset += bytes as u64;
        }
        Ok(true)
    }

    pub(crate) fn list(&mut self) -> Outcome<Vec<Object>> {
        let mut all: Vec<Object> = Vec::new();
        loop {
            let after = all.last().map_or(String::new(), |object| object.name.to_string());
            let Reply::Objects { objects, more } = self.ask("the list", &Request::List { after })? else {
                return Err(unexpected("the list"));
            };
            all.extend(objects);
            if !more {
                return Ok(all);
            }
        }
    }

    pub(crate) fn delete(&mut self, name: &Name) -> Outcome<()> {
        self.ask(name, &Request::Delete { name: name.clone() }).map(drop)
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

    /// Makes a call without bulk, about this object.
    fn ask(&self, object: impl Display, request: &Request) -> Outcome<Reply> {
        self.call(request, |call| call).map(|(reply, _)| reply).map_err(|error| failed(object, error))
    }

    /// Makes a call, with the memory that `offer` adds to it. Returns the reply, and the number of bytes
    /// that the server has moved.
    fn call(
        &self,
        request: &Request,
        offer: impl for<'a> FnOnce(Call<'a, Machines>) -> Call<'a, Machines>,
    ) -> Result<(Reply, Option<usize>), RequestError> {
        let no_json = |error: serde_json::Error| RequestError::System {
            errno: Errno::EBADMSG,
            text: format!("a message: {error}"),
        };
        let request = serde_json::to_vec(request).map_err(no_json)?;
        let answer = offer(self.calls.call(self.server, &request)).wait()?;
        let moved = answer.moved.first().copied().flatten();
        serde_json::from_slice(&answer.bytes).map(|reply| (reply, moved)).map_err(no_json)
    }
}

/// Returns the length of the next piece.
fn piece_of(left: u64) -> usize {
    PIECE.min(usize::try_from(left).unwrap_or(PIECE))
}

/// Returns the error for a call without an answer.
fn failed(object: impl Display, error: RequestError) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        RequestError::Refused { errno } => format!("{object}: {}", errno.desc()).into(),
        error => format!("{object}: {error}").into(),
    }
}

fn unexpected(object: impl Display) -> Box<dyn std::error::Error + Send + Sync> {
    format!("{object}: an unexpected answer").into()
}
