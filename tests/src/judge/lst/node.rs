//! The raw test node: its connections, its bulk, and its misbehaviour.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::data::{filled, is_right};
use super::message::{Lst, REPLIES, Sid, service, status};
use super::state::{Counters, State, Step};
use crate::judge::Target;
use crate::judge::active::{TIME_LIMIT, new_incarnation};
use crate::judge::dial::prepare;
use crate::judge::frame::{Message, NO_HANDLE, PUT};
use crate::judge::session::Session;
use crate::judge::wire::{Hello, Nid, Order, kind, request};

/// A misbehaviour of a node with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no reply; a list that a request offers is not fetched.
    NoReply,
    /// The reply comes after the reply to the next request.
    Late,
    /// The reply has these features.
    Features(u32),
    /// The reply has this session.
    Session(Sid),
    /// The reply has this status, such as ENOMEM, and there is no bulk.
    Status(u32),
    /// The data of a READ are wrong in their first byte.
    WrongData,
    /// The node closes its connections after the bulk, before the reply.
    Dies,
}

/// A listening test node.
pub struct TestNode {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    nid: Nid,
    incarnation: u64,
    state: Mutex<State>,
    faults: Mutex<VecDeque<(u64, Fault)>>,
    ended: AtomicBool,
}

/// An accepted connection: its type in the view of this node, and the incarnation of the peer.
type Accepted = (TcpStream, u32, u64);

impl TestNode {
    /// Starts to listen.
    ///
    /// # Errors
    /// The error of `listen`.
    pub fn start(listen: SocketAddr, nid: Nid) -> io::Result<TestNode> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let (state, faults, ended) = Default::default();
        let shared = Arc::new(Shared { nid, incarnation: new_incarnation(), state, faults, ended });
        let for_thread = shared.clone();
        std::thread::spawn(move || accept_all(&for_thread, &listener));
        Ok(TestNode { shared, address })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Misbehaves with the next request of a service that no earlier fault is meant for.
    pub fn misbehave(&self, service: u64, fault: Fault) {
        lock(&self.shared.faults).push_back((service, fault));
    }

    /// Returns its counters.
    pub fn counters(&self) -> Counters {
        lock(&self.shared.state).counters
    }

    /// Returns the lists of destinations that it has fetched.
    pub fn destinations(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.state).destinations.clone()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // The accepting thread sees the flag with the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections; serves a peer once it has its three connections, as kernel nodes have.
fn accept_all(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut waiting: HashMap<Nid, Vec<Accepted>> = HashMap::new();
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut stream) = stream else { continue };
        let Some(hello) = shake_hands(shared, &mut stream) else { continue };
        let conns = waiting.entry(hello.src).or_default();
        conns.push((stream, kind::inverse(hello.kind), hello.src_incarnation));
        if conns.len() == 3 {
            let (shared, conns) = (shared.clone(), std::mem::take(conns));
            // A fault of the peer ends its connections, which the peer's test sees.
            std::thread::spawn(move || serve(&shared, hello.src, conns));
        }
    }
}

/// Reads request and hello, and answers the hello.
fn shake_hands(shared: &Shared, stream: &mut TcpStream) -> Option<Hello> {
    prepare(stream, TIME_LIMIT).ok()?;
    let expected = request(shared.nid, Order::Little);
    let mut asked = vec![0; expected.len()];
    stream.read_exact(&mut asked).ok()?;
    if asked != expected {
        return None;
    }
    let (hello, _) = Hello::read(stream).ok()?;
    let reply = Hello {
        src: shared.nid,
        dst: hello.src,
        src_pid: hello.dst_pid.max(crate::judge::wire::PID),
        dst_pid: hello.src_pid,
        src_incarnation: shared.incarnation,
        dst_incarnation: hello.src_incarnation,
        kind: kind::inverse(hello.kind),
        ..hello.clone()
    };
    stream.write_all(&reply.bytes(Order::Little)).ok()?;
    Some(hello)
}

/// Serves the requests of a peer until its connections end.
fn serve(shared: &Shared, peer: Nid, conns: Vec<Accepted>) -> Result<(), String> {
    let at = conns.first().and_then(|(stream, ..)| stream.peer_addr().ok()).ok_or("no address")?;
    let target = Target { privileged: false, ..Target::new(at, peer, shared.nid) };
    let mut session = Session::new(&target);
    for (stream, kind, incarnation) in conns {
        session.take(stream, kind, incarnation)?;
    }
    let mut late = None;
    // Requests that came while the node waited for the data of another.
    let mut waiting = VecDeque::new();
    loop {
        let message = match waiting.pop_front() {
            Some(message) => message,
            None => session.message()?.1,
        };
        let to = message.bits();
        if message.kind != PUT || message.portal() != service::portal(to) {
            return Err(format!("an unexpected message {message:x?}"));
        }
        let reply = answer(shared, (&mut session, &mut waiting), &message)?;
        let Some((reply, is_late)) = reply else { continue };
        if is_late {
            late = Some(reply);
            continue;
        }
        session.send_best(&reply)?;
        if let Some(late) = late.take() {
            session.send_best(&late)?;
        }
    }
}

/// Moves the bulk of a request; returns its reply, and whether it is sent late. An error ends the
/// connections.
fn answer(
    shared: &Shared,
    (session, waiting): (&mut Session<'_>, &mut VecDeque<Message>),
    message: &Message,
) -> Result<Option<(Message, bool)>, String> {
    let to = message.bits();
    let fault = take_fault(shared, to);
    let step = lock(&shared.state).step(to, &message.payload);
    let Some(asked) = Lst::received(&message.payload) else { return Ok(None) };
    let reply = match (step, fault) {
        (Step::Silent, _) | (_, Some(Fault::NoReply)) => return Ok(None),
        (Step::Reply(reply), _) => reply,
        (Step::Fetch(_, reply) | Step::Put(_, reply), Some(Fault::Status(_))) => reply,
        (Step::Fetch(length, reply), _) => fetch(shared, (session, waiting), message, &asked, length, reply)?,
        (Step::Put(length, reply), fault) => {
            let mut data = filled(length as usize, asked.at(48), Order::Little);
            data[0] ^= u8::from(fault == Some(Fault::WrongData));
            lock(&shared.state).counters.bulk_put += u64::from(length);
            session.send_best(&put(shared, message, asked.wide(32), &data))?;
            reply
        }
    };
    let reply = match fault {
        Some(Fault::Features(features)) => reply.u32(20, features),
        Some(Fault::Session(sid)) => reply.sid(28, sid),
        Some(Fault::Status(status)) => reply.u32(24, status),
        Some(Fault::Dies) => return Err("the node dies".to_string()),
        _ => reply,
    };
    Ok(Some((put(shared, message, asked.reply_id(), &reply.bytes), fault == Some(Fault::Late))))
}

/// Takes the first fault that is meant for a service.
fn take_fault(shared: &Shared, to: u64) -> Option<Fault> {
    let mut faults = lock(&shared.faults);
    let at = faults.iter().position(|&(service, _)| service == to)?;
    faults.remove(at).map(|(_, fault)| fault)
}

/// Builds a PUT of a reply or of bulk data to the sender of a request.
fn put(shared: &Shared, asked: &Message, bits: u64, bytes: &[u8]) -> Message {
    let put = Message::put(shared.nid, asked.src, REPLIES, bits, NO_HANDLE, bytes);
    Message { dest_pid: asked.src_pid, ..put }
}

/// Fetches the data of a WRITE, or a list of destinations; returns the reply.
fn fetch(
    shared: &Shared,
    (session, waiting): (&mut Session<'_>, &mut VecDeque<Message>),
    message: &Message,
    asked: &Lst,
    length: u32,
    reply: Lst,
) -> Result<Lst, String> {
    let handle = session.handle();
    let get = Message::get(shared.nid, message.src, REPLIES, asked.wide(32), handle, length);
    session.send_best(&get)?;
    let bytes = session.reply_among(&get, waiting)?.payload;
    let mut state = lock(&shared.state);
    state.counters.bulk_got += bytes.len() as u64;
    if message.bits() == service::TEST {
        state.destinations.push(bytes);
        return Ok(reply);
    }
    let right = bytes.len() == length as usize && is_right(&bytes, asked.at(48), asked.order);
    Ok(if right { reply } else { reply.u32(24, status::EBADMSG) })
}
