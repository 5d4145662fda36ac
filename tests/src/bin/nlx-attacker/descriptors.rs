//! Sends foreign descriptors; and holds the maximum of the helper's descriptors: `descriptors
//! CONNECTIONS`.

use std::convert::Infallible;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, kind};

use crate::{Target, hold, number};

/// The time limit for an answer to a packet with descriptors: a blocked helper gives none.
const TIME_LIMIT: Duration = Duration::from_millis(500);
/// The number of consecutive connections without an answer after which the helper is considered
/// blocked, or to refuse all descriptors.
const UNANSWERED_MAX: u32 = 10;
/// Requests whose answers do not fit into a socket: after them the helper reads nothing until
/// answers are read.
const STOPPERS: u64 = 60;
/// The maximum of arenas that each connection requests.
const ARENAS: usize = 64;

/// Sends descriptors, over a new connection each time.
pub(crate) struct Sender<'t> {
    target: &'t Target,
    unanswered: u32,
    pub(crate) packets: u64,
}

impl<'t> Sender<'t> {
    pub(crate) fn new(target: &'t Target) -> Sender<'t> {
        Sender { target, unanswered: 0, packets: 0 }
    }

    /// Returns whether further descriptors would not get through.
    pub(crate) fn is_refused(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }

    /// Sends descriptors with requests, `each` at a time. Closes them here before the helper
    /// receives them, so that the helper's `close` is the last.
    pub(crate) fn send<F: AsRawFd + Send + 'static>(&mut self, fds: Vec<F>, each: usize) {
        let connected = Socket::connect(&self.target.socket);
        let answered = connected.is_ok_and(|socket| self.send_over(&socket, fds, each).is_ok());
        self.unanswered = if answered { 0 } else { self.unanswered + 1 };
    }

    fn send_over<F: AsRawFd + Send + 'static>(
        &mut self,
        socket: &Socket,
        fds: Vec<F>,
        each: usize,
    ) -> Result<(), Errno> {
        let answer = || socket.receive(TIME_LIMIT)?.ok_or(Errno::EPIPE);
        socket.try_send(&wire::packet(kind::HELLO, 1, &wire::hello("descriptors", wire::VERSION)))?;
        answer()?;
        (0..STOPPERS).try_for_each(|id| socket.try_send(&wire::packet(kind::NIDS, id, &[])))?;
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        for some in raw.chunks(each) {
            socket.send(&wire::packet(kind::SYNC, self.packets, &[]), some)?;
            self.packets += 1;
        }
        // If the helper has received none, this close is the last, and blocks.
        std::thread::spawn(move || drop(fds));
        (0..STOPPERS + raw.len().div_ceil(each) as u64).try_for_each(|_| answer().map(drop))
    }
}

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [connections] = *args else { return Err("CONNECTIONS is missing".into()) };
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let mut held = Vec::new();
    for _ in 0..number::<usize>(connections)? {
        let Ok(mut client) = Client::connect(&target.socket, "descriptors") else { break };
        let arenas: Vec<_> = (0..ARENAS).map_while(|_| client.arena(4096, false).ok()).collect();
        held.push((client, arenas));
    }
    let arenas: usize = held.iter().map(|(_, arenas)| arenas.len()).sum();
    hold(&format!("{} connections and {arenas} arenas", held.len()))
}
