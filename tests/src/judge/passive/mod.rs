//! The passive side: the judge plays a kernel node. It accepts what a kernel accepts, resets where it resets, and holds
//! whoever connects to the [rules].

mod conn;
mod outgoing;
mod peers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::active::{PATIENCE, Policy, new_incarnation};
use super::frame::{ACK, GET, Message, PING_BITS, PUT, REPLY};
use super::info::{PingInfo, feature};
use super::session::{DISCOVERY_SINK, MIN_BULK, judge_answer};
use super::wire::{Nid, kind};
use super::{Report, rules};
use peers::{Peer, State};

/// What the judge is about to send: for proofs that a check can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A hello.
    Hello,
    /// A prefix, with the message behind it.
    Frame,
}

/// A change of what is sent.
pub type Tamper = Arc<dyn Fn(Stage, &mut Vec<u8>) + Send + Sync>;

/// How the judge plays.
#[derive(Clone)]
pub struct Play {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its NID.
    pub nid: Nid,
    /// Whom it accepts: [`Policy::Secure`] as a kernel, [`Policy::Hello`] where nobody has privileges.
    pub policy: Policy,
    /// Whether peers copy what they send, and so never ask for zero-copy acks, as nlx.
    pub copies: bool,
    /// Whether it discovers a peer as soon as that has its three connections.
    pub eager: bool,
    /// Whether it connects to each peer as soon as that connects to it, before it answers: they race.
    pub race: bool,
    /// How long it waits for answers.
    pub patience: Duration,
    /// Changes what is sent, where the judge itself is to be judged.
    pub tamper: Option<Tamper>,
}

impl Play {
    /// A kernel node, before which nlx stands.
    pub fn new(listen: SocketAddr, nid: Nid) -> Play {
        let (policy, patience) = (Policy::Secure, PATIENCE);
        Play { listen, nid, policy, copies: true, eager: false, race: false, patience, tamper: None }
    }
}

/// A judge that listens.
pub struct Passive {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    play: Play,
    incarnation: u64,
    /// How many connections there have been.
    numbers: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
    ended: AtomicBool,
}

impl Passive {
    /// Listens from now on.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn start(play: Play) -> io::Result<Passive> {
        let listener = TcpListener::bind(play.listen)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            play,
            incarnation: new_incarnation(),
            numbers: AtomicUsize::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
        });
        let for_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if for_thread.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (shared, number) = (for_thread.clone(), for_thread.new_number());
                std::thread::spawn(move || conn::serve(&shared, stream, number));
            }
        });
        Ok(Passive { shared, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was seen so far.
    pub fn report(&self) -> Report {
        self.shared.lock().record.report()
    }

    /// Sends a PUT and gives the bytes that were acknowledged, by the ACK and by the zero-copy ack both.
    ///
    /// # Errors
    /// What was missing or wrong; the report has it too.
    pub fn put(&self, peer: Nid, portal: u32, bits: u64, payload: &[u8]) -> Result<u32, String> {
        self.discover(peer)?;
        let handle = self.shared.lock().peer(peer)?.new_handle(self.shared.incarnation);
        let put = Message::put(self.shared.play.nid, peer, portal, bits, handle, payload);
        Ok(self.shared.ask(peer, &put)?.mlength())
    }

    /// Sends a GET and gives what came.
    ///
    /// # Errors
    /// As for [`Passive::put`].
    pub fn get(&self, peer: Nid, portal: u32, bits: u64, length: u32) -> Result<Vec<u8>, String> {
        self.discover(peer)?;
        let handle = self.shared.lock().peer(peer)?.new_handle(self.shared.incarnation);
        let get = Message::get(self.shared.play.nid, peer, portal, bits, handle, length);
        Ok(self.shared.ask(peer, &get)?.payload)
    }

    /// Pings a peer, and pushes if it wants that: what a kernel does before its first message.
    ///
    /// # Errors
    /// As for [`Passive::put`].
    pub fn discover(&self, peer: Nid) -> Result<(), String> {
        self.shared
            .wait(|state| state.peer(peer).is_ok().then_some(()), || format!("{peer} has not connected"))?;
        self.shared.discover(peer)
    }

    /// Waits until a rule is broken.
    ///
    /// # Errors
    /// It is not.
    pub fn wait_for_failure(&self, rule: &str) -> Result<(), String> {
        let broken = |state: &mut State| state.record.report().failures().contains_key(rule).then_some(());
        self.shared.wait(broken, || format!("{rule} is not broken"))
    }

    /// Waits until a peer has sent so many keepalives.
    ///
    /// # Errors
    /// It has not.
    pub fn wait_for_keepalives(&self, peer: Nid, count: usize) -> Result<(), String> {
        let sent = |state: &mut State| (state.peer(peer).ok()?.keepalives >= count).then_some(());
        self.shared.wait(sent, || format!("fewer than {count} keepalives"))
    }

    /// Waits until nobody is connected.
    ///
    /// # Errors
    /// Somebody still is.
    pub fn wait_for_end(&self) -> Result<(), String> {
        self.shared
            .wait(|state| state.peers.is_empty().then_some(()), || "somebody is still connected".to_string())
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // The thread that accepts sees the flag with the next connection.
        let _ = std::net::TcpStream::connect(self.address);
        let nids: Vec<Nid> = self.shared.lock().peers.keys().copied().collect();
        nids.into_iter().for_each(|nid| self.shared.lock().close_peer(nid));
    }
}

impl Shared {
    fn new_number(&self) -> usize {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something.
    fn wait<T>(
        &self,
        mut look: impl FnMut(&mut State) -> Option<T>,
        missing: impl Fn() -> String,
    ) -> Result<T, String> {
        let until = Instant::now() + self.play.patience;
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(missing());
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn discover(self: &Arc<Self>, nid: Nid) -> Result<(), String> {
        let own = self.play.nid;
        let (handle, complete) = {
            let mut state = self.lock();
            let peer = state.peer(nid)?;
            if peer.discovered {
                return Ok(());
            }
            (peer.new_handle(self.incarnation), peer.is_complete())
        };
        let answered = self.ask(nid, &Message::get(own, nid, 0, PING_BITS, handle, DISCOVERY_SINK))?;
        let info = self.judge_table(nid, &answered);
        if info?.features & feature::PUSHES == feature::PUSHES {
            let handle = self.lock().peer(nid)?.new_handle(self.incarnation);
            let push =
                Message::put(own, nid, 0, PING_BITS, handle, &PingInfo::of(own, feature::KERNEL).bytes());
            let ack = self.ask(nid, &push);
            self.lock().record.note(rules::PUSH, ack.map(drop));
        }
        let mut state = self.lock();
        let peer = state.peer(nid)?;
        peer.discovered = true;
        // It has answered behind all three hellos, so it knows its connections.
        peer.settled |= complete;
        Ok(())
    }

    /// What a peer says of itself, asked or not.
    fn judge_table(&self, nid: Nid, message: &Message) -> Result<PingInfo, String> {
        let info = PingInfo::parse(&message.payload);
        let verdict = info.clone().and_then(|info| {
            let known = info.nis.iter().any(|&(listed, _)| listed == nid);
            rules::must(known && info.sequence > 0, || format!("it says of itself {info:x?}"))
        });
        self.lock().record.note(rules::PING, verdict);
        info
    }

    /// Sends a PUT or GET; gives its answer, once the zero-copy ack has come too.
    fn ask(self: &Arc<Self>, nid: Nid, asked: &Message) -> Result<Message, String> {
        let handle = asked.handle();
        self.lock().peer(nid)?.asked.insert(handle, None);
        let cookie = self.send(nid, asked)?;
        let what = if asked.kind == GET { "REPLY" } else { "ACK" };
        let answered = self.wait(
            |state| match state.peer(nid) {
                Err(gone) => Some(Err(gone)),
                Ok(peer) => {
                    let acknowledged = cookie.is_none_or(|cookie| !peer.outstanding.contains_key(&cookie));
                    peer.asked.get(&handle).cloned().flatten().filter(|_| acknowledged).map(Ok)
                }
            },
            || format!("no {what}, or no zero-copy ack of cookie {cookie:?}"),
        );
        let mut state = self.lock();
        let answered = match answered {
            Ok(answered) => answered?,
            Err(missing) => {
                let waits =
                    |peer: &mut Peer| cookie.is_some_and(|cookie| peer.outstanding.contains_key(&cookie));
                let rule = match state.peer(nid).is_ok_and(waits) {
                    true => rules::ZC_ACK,
                    _ if asked.is_ping() => rules::PING,
                    _ if asked.is_push() => rules::PUSH,
                    _ => rules::ANSWERS,
                };
                state.record.note(rule, Err(missing.clone()));
                return Err(missing);
            }
        };
        let verdict = judge_answer(asked, &answered);
        state.record.note(rules::ANSWERS, verdict.clone());
        verdict.map(|()| answered)
    }

    /// Sends a message where a kernel would; gives the cookie it asks with, if it does.
    fn send(self: &Arc<Self>, nid: Nid, message: &Message) -> Result<Option<u64>, String> {
        let carries = self.lock().peer(nid)?.carries();
        if !carries {
            outgoing::connect(self, nid)?;
        }
        let (bytes, stream, cookie) = {
            let mut state = self.lock();
            let peer = state.peer(nid)?;
            let is_bulk = message.wire_bytes(peer.version) >= MIN_BULK;
            let conn = peer.choose(if is_bulk { kind::BULK_OUT } else { kind::CONTROL });
            let (stream, on) =
                conn.map(|conn| (conn.stream.clone(), conn.kind)).ok_or("no connection for it")?;
            let cookie = (message.payload.len() >= 16_384).then(|| peer.new_cookie(on));
            let message = message.clone().with_cookie(cookie.unwrap_or(0));
            (message.bytes(peer.version, super::wire::Order::Little), stream, cookie)
        };
        self.write(&stream, Stage::Frame, bytes)?;
        Ok(cookie)
    }

    fn write(&self, stream: &peers::Writer, stage: Stage, mut bytes: Vec<u8>) -> Result<(), String> {
        if let Some(tamper) = &self.play.tamper {
            tamper(stage, &mut bytes);
        }
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        io::Write::write_all(&mut *stream, &bytes).map_err(|error| format!("cannot send: {error}"))
    }

    /// What a kernel does with a message that is for it.
    fn respond(self: &Arc<Self>, nid: Nid, message: &Message) -> Result<(), String> {
        let own = self.play.nid;
        match message.kind {
            ACK | REPLY => {
                let mut state = self.lock();
                let peer = state.peer(nid)?;
                let known = match peer.asked.get_mut(&message.handle()) {
                    Some(place @ None) => {
                        *place = Some(message.clone());
                        true
                    }
                    _ => false,
                };
                let words = || format!("a message of type {} for no handle of ours", message.kind);
                // Whoever asked judges the rest of it.
                if !known {
                    state.record.note(rules::ANSWERS, Err(words()));
                }
                Ok(())
            }
            GET if message.is_ping() => {
                let mut info = PingInfo::of(own, feature::KERNEL).bytes();
                info.truncate(message.sink() as usize);
                self.send(nid, &message.answer(REPLY, own, &info)).map(drop)
            }
            PUT => {
                if message.is_push() {
                    // A kernel acknowledges it, whatever it says.
                    let _ = self.judge_table(nid, message);
                }
                let kept = message.is_push() || self.lock().store(message);
                if kept && message.handle() != super::frame::NO_HANDLE {
                    self.send(nid, &message.answer(ACK, own, &[]))?;
                }
                Ok(())
            }
            _ => {
                let stored = self.lock().stored(message);
                stored.map_or(Ok(()), |bytes| self.send(nid, &message.answer(REPLY, own, &bytes)).map(drop))
            }
        }
    }
}
