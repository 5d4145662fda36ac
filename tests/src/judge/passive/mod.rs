//! The passive side: the judge plays a kernel node. It accepts what a kernel accepts, resets where
//! a kernel resets, and checks the [rules](super::rules) for every peer that connects.

mod conn;
mod handshake;
mod messages;
mod outgoing;
mod peers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Report;
use super::active::{Policy, TIME_LIMIT, new_incarnation};
use super::frame::Message;
use super::wire::Nid;
use peers::PassiveState;

/// The kind of bytes that the judge is about to send, for tests that change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The judge's hello.
    Hello,
    /// A prefix with its message.
    Frame,
}

/// A function that changes bytes before they are sent.
pub type Tamper = Arc<dyn Fn(Stage, &mut Vec<u8>) + Send + Sync>;

/// The parameters of the passive side.
#[derive(Clone)]
pub struct Play {
    /// The address at which the judge listens.
    pub listen: SocketAddr,
    /// The judge's NID.
    pub nid: Nid,
    /// The connections that the judge accepts: [`Policy::Secure`] as a kernel, [`Policy::Hello`]
    /// where processes have no privileges.
    pub policy: Policy,
    /// Set if peers copy what they send, as nlx does, and so never request zero-copy acks.
    pub copies: bool,
    /// Makes the judge discover a peer as soon as the peer has its three connections.
    pub eager: bool,
    /// Makes the judge connect to each peer that connects, before it answers, so that both sides
    /// are connecting.
    pub race: bool,
    /// Makes the judge push back to a NID that it has not discovered yet, as a kernel does.
    pub pushes_back: bool,
    /// The time limit for answers.
    pub patience: Duration,
    /// The function that changes sent bytes, for tests of the judge.
    pub tamper: Option<Tamper>,
}

impl Play {
    /// Creates a kernel node that judges nlx.
    pub fn new(listen: SocketAddr, nid: Nid) -> Play {
        let (policy, patience) = (Policy::Secure, TIME_LIMIT);
        let (eager, race, pushes_back) = (false, false, false);
        Play { listen, nid, policy, copies: true, eager, race, pushes_back, patience, tamper: None }
    }
}

/// A listening judge.
pub struct Passive {
    shared: Arc<PassiveShared>,
    address: SocketAddr,
}

struct PassiveShared {
    play: Play,
    incarnation: u64,
    /// The number of connections so far.
    numbers: AtomicUsize,
    state: Mutex<PassiveState>,
    changed: Condvar,
    ended: AtomicBool,
}

impl Passive {
    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// The error of `listen`.
    pub fn start(play: Play) -> io::Result<Passive> {
        let listener = TcpListener::bind(play.listen)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(PassiveShared {
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

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the observations so far.
    pub fn report(&self) -> Report {
        self.shared.lock().record.report()
    }

    /// Sends a PUT and returns the number of acknowledged bytes, after both the ACK and the
    /// zero-copy ack.
    ///
    /// # Errors
    ///
    /// The fault, which is also in the report.
    pub fn put(&self, peer: Nid, portal: u32, bits: u64, payload: &[u8]) -> Result<u32, String> {
        self.discover(peer)?;
        let handle = self.shared.lock().peer(peer)?.new_handle(self.shared.incarnation);
        let put = Message::put(self.shared.play.nid, peer, portal, bits, handle, payload);
        Ok(self.shared.ask(peer, &put)?.mlength())
    }

    /// Sends a GET and returns the received bytes.
    ///
    /// # Errors
    /// The errors of [`Passive::put`].
    pub fn get(&self, peer: Nid, portal: u32, bits: u64, length: u32) -> Result<Vec<u8>, String> {
        self.discover(peer)?;
        let handle = self.shared.lock().peer(peer)?.new_handle(self.shared.incarnation);
        let get = Message::get(self.shared.play.nid, peer, portal, bits, handle, length);
        Ok(self.shared.ask(peer, &get)?.payload)
    }

    /// Pings a peer, and pushes if its features request that: as a kernel does before its first
    /// message.
    ///
    /// # Errors
    /// The errors of [`Passive::put`].
    pub fn discover(&self, peer: Nid) -> Result<(), String> {
        self.shared
            .wait(|state| state.peer(peer).is_ok().then_some(()), || format!("{peer} has not connected"))?;
        self.shared.discover(peer)
    }

    /// Waits until a rule is broken.
    ///
    /// # Errors
    ///
    /// The time limit has passed.
    pub fn wait_for_failure(&self, rule: &str) -> Result<(), String> {
        let broken =
            |state: &mut PassiveState| state.record.report().failures().contains_key(rule).then_some(());
        self.shared.wait(broken, || format!("{rule} is not broken"))
    }

    /// Waits until a peer has sent `count` keepalives.
    ///
    /// # Errors
    ///
    /// The time limit has passed.
    pub fn wait_for_keepalives(&self, peer: Nid, count: usize) -> Result<(), String> {
        let sent = |state: &mut PassiveState| (state.peer(peer).ok()?.keepalives >= count).then_some(());
        self.shared.wait(sent, || format!("fewer than {count} keepalives"))
    }

    /// Waits until no peer is connected.
    ///
    /// # Errors
    ///
    /// The time limit has passed.
    pub fn wait_for_end(&self) -> Result<(), String> {
        let over =
            |state: &mut PassiveState| (state.peers.is_empty() && state.pushing_back == 0).then_some(());
        self.shared.wait(over, || "a peer is still connected".to_string())
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // The accepting thread sees the flag with the next connection.
        let _ = std::net::TcpStream::connect(self.address);
        let nids: Vec<Nid> = self.shared.lock().peers.keys().copied().collect();
        nids.into_iter().for_each(|nid| self.shared.lock().close_peer(nid));
    }
}

impl PassiveShared {
    fn new_number(&self) -> usize {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, PassiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` returns a value.
    fn wait<T>(
        &self,
        mut look: impl FnMut(&mut PassiveState) -> Option<T>,
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
}
