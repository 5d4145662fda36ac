//! The server: a service on a transfer machine.

use std::sync::{Arc, Mutex};

use nlx::service::machines::{Machines, Registered};
use nlx::service::rpc::{Decision, ResponderOptions, Rpc, RpcHandler, RpcRequest};
use nlx::service::{BufferOptions, Pool, PoolOptions, Service, Transport};
use nlx::{Address, Descriptor, Domain, Errno, TmOptions};

use crate::Outcome;
use crate::disk::{self, Disk, lock};
use crate::protocol::{MESSAGE_MAX, PIECE, Reply, Request};

/// 16 requests of the greatest length fit into a buffer of 1 MiB; there are at most 256 at a time, of
/// all clients. Each has memory for its answer, and for a piece if it transfers one.
const BUFFERS: BufferOptions = BufferOptions {
    request_max: MESSAGE_MAX,
    reply_max: MESSAGE_MAX,
    requests_per_buffer: 16,
    buffers_min: 2,
    buffers_max: 16,
};

type Step = Decision<Descriptor, Registered>;

pub(crate) struct Server {
    service: Arc<Service<Machines, Rpc<Machines, Store>>>,
    pool: Pool,
    pub(crate) address: Address,
}

impl Server {
    /// Serves with at most this number of threads until it is dropped.
    pub(crate) fn start(domain: &Domain, address: &str, disk: Disk, workers: u32) -> Outcome<Server> {
        let machines = domain.machines(address, TmOptions::default())?;
        let options = PoolOptions { threads_max: workers.max(1), ..PoolOptions::default() };
        let pool = Pool::start("store", machines.clone(), 1, options)?;
        let store = Store { disk, machines: machines.clone(), pieces: Mutex::default() };
        let rpc = Rpc::new(&pool, &ResponderOptions::default(), store)?;
        let address = machines.address();
        Ok(Server { service: Service::start(&pool, machines, BUFFERS, rpc)?, pool, address })
    }

    /// Blocks until the network has ended.
    pub(crate) fn wait(&self) {
        self.pool.wait_for_end();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.service.end();
    }
}

/// The handler of requests, called by the threads of the pool.
pub(crate) struct Store {
    disk: Disk,
    machines: Machines,
    /// Memory of transfers that have ended.
    pieces: Mutex<Vec<Registered>>,
}

/// A transfer in progress.
pub(crate) struct Transfer {
    memory: Registered,
    /// The upload and the offset to which the bytes belong; `None` if the client reads them.
    to: Option<(u64, u64)>,
}

impl RpcHandler<Machines> for Store {
    type State = Option<Transfer>;

    fn request(&self, request: RpcRequest<'_, Machines, Self::State>) -> Step {
        let RpcRequest { from, bytes, offers, answer, state, .. } = request;
        let decided = match serde_json::from_slice(bytes) {
            Err(_) => Err(Errno::EBADMSG),
            Ok(Request::Write { upload, offset }) => self.piece().and_then(|memory| {
                let offer = offers.readable(0).ok_or(Errno::EINVAL)?.offer;
                *state = Some(Transfer { memory: memory.clone(), to: Some((upload, offset)) });
                Ok(Decision::Pull { offer, memory })
            }),
            Ok(Request::Read { name, version, offset }) => self.piece().and_then(|memory| {
                let offered = offers.writable(0).ok_or(Errno::EINVAL)?;
                let room = offered.length.min(PIECE);
                let mut bytes = memory.memory().write(0..room).map_err(|error| error.errno())?;
                let bytes = bytes.as_mut_slice().unwrap_or_default();
                let length = self.disk.read(&name, version, offset, bytes)?;
                *state = Some(Transfer { memory: memory.clone(), to: None });
                Ok(Decision::Push { offer: offered.offer, memory, length })
            }),
            Ok(request) => self.reply(*from, request).and_then(|reply| answer_with(&reply, answer)),
        };
        decided.unwrap_or_else(Decision::Refuse)
    }

    fn moved(&self, request: RpcRequest<'_, Machines, Self::State>, outcome: Result<usize, Errno>) -> Step {
        let written = outcome.and_then(|length| match request.state {
            Some(Transfer { memory, to: Some((upload, offset)) }) => {
                let bytes = memory.memory().read(0..length).map_err(|error| error.errno())?;
                self.disk.write(*request.from, *upload, *offset, bytes.as_slice().unwrap_or_default())
            }
            _ => Ok(()),
        });
        written.and_then(|()| answer_with(&Reply::Done, request.answer)).unwrap_or_else(Decision::Refuse)
    }

    fn ended(&self, state: &mut Self::State, _: Result<(), Errno>) {
        lock(&self.pieces).extend(state.take().map(|transfer| transfer.memory));
    }
}

impl Store {
    /// Returns memory for a piece.
    fn piece(&self) -> disk::Result<Registered> {
        let free = lock(&self.pieces).pop();
        free.map_or_else(|| self.machines.allocate(0, PIECE), Ok)
    }

    fn reply(&self, client: Address, request: Request) -> disk::Result<Reply> {
        match request {
            Request::Create { name, length } => {
                self.disk.create(client, name, length).map(|upload| Reply::Upload { upload })
            }
            Request::Commit { upload } => self.disk.commit(client, upload).map(|()| Reply::Done),
            Request::Stat { name } => {
                self.disk.stat(&name).map(|(length, version)| Reply::Stat { length, version })
            }
            Request::List { after } => {
                self.disk.list(&after).map(|(objects, more)| Reply::Objects { objects, more })
            }
            Request::Delete { name } => self.disk.delete(&name).map(|()| Reply::Done),
            // They transfer bytes.
            Request::Write { .. } | Request::Read { .. } => Err(Errno::EINVAL),
        }
    }
}

/// Writes the answer.
fn answer_with(reply: &Reply, mut answer: &mut [u8]) -> disk::Result<Step> {
    let room = answer.len();
    serde_json::to_writer(&mut answer, reply).map_err(|_| Errno::EMSGSIZE)?;
    Ok(Decision::Answer { length: room - answer.len() })
}
