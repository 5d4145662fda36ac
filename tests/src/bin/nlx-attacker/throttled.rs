//! Sends more requests than a client may make, and among them packets with descriptors, some of
//! which block in `close`; its connections end and start anew: `throttled CONNECTIONS SOCKETS`.

use std::convert::Infallible;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::unistd::pipe;
use nlx_tests::attack::linger::Sink;
use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::wire::{self, kind};

use crate::{Target, hold, number};

/// The number of requests of a connection in each turn: more than the helper executes in that time.
const TURN: u64 = 32;
/// Turns of all connections between two packets with a descriptor of the same connection.
const QUIET_TURNS: usize = 4;
/// The number of turns after which a connection ends, whatever its socket contains.
const LIFE_TURNS: usize = 24;
/// The number of turns: some seconds of the helper's.
const TURNS: usize = 1000;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [connections, sockets] = *args else { return Err("CONNECTIONS SOCKETS are missing".into()) };
    let (connections, sockets) = (number::<usize>(connections)?, number::<usize>(sockets)?);
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let mut flood = Flood::new(sockets)?;
    let mut clients: Vec<Option<Client>> = (0..connections).map(|_| None).collect();
    for turn in 0..TURNS {
        let place = turn % connections;
        let age = turn / connections + place;
        if clients[place].is_none() || age.is_multiple_of(LIFE_TURNS) {
            clients[place] = Client::connect(&target.socket, "throttled").ok();
        }
        let Some(client) = &clients[place] else { continue };
        if !flood.turn(client, age) {
            clients[place] = None;
        }
    }
    let Flood { packets, with_descriptors, .. } = flood;
    hold(&format!("{packets} packets, {with_descriptors} more with descriptors"))
}

/// The state of the attack.
struct Flood {
    sink: Sink,
    /// The number of lingering sockets still to be sent.
    lingering: usize,
    /// A harmless descriptor.
    harmless: OwnedFd,
    packets: u64,
    with_descriptors: u64,
}

impl Flood {
    fn new(lingering: usize) -> Result<Flood, String> {
        let (harmless, _) = pipe().map_err(|errno| format!("no pipe: {errno}"))?;
        Ok(Flood { sink: Sink::default(), lingering, harmless, packets: 0, with_descriptors: 0 })
    }

    /// Sends until there is no room, and reads the answers. Returns false if the connection has
    /// ended.
    fn turn(&mut self, client: &Client, age: usize) -> bool {
        for _ in 0..TURN {
            if client.socket.try_send(&wire::packet(kind::SYNC, self.packets, &[])).is_err() {
                break;
            }
            self.packets += 1;
        }
        if age.is_multiple_of(QUIET_TURNS) {
            // The helper closes the connection because of it.
            self.send_descriptor(client);
        }
        while client.socket.is_readable(Duration::ZERO).unwrap_or(false) {
            match client.socket.receive(Duration::ZERO) {
                Ok(Some(_)) => {}
                // The helper has cut the client off.
                _ => return false,
            }
        }
        true
    }

    fn send_descriptor(&mut self, client: &Client) {
        let packet = wire::packet(kind::SYNC, self.packets, &[]);
        let linger = self.lingering > 0;
        let Some(socket) = linger.then(|| self.sink.lingering().ok()).flatten() else {
            let sent = client.socket.try_send_with(&packet, &[self.harmless.as_raw_fd()]);
            return self.with_descriptors += u64::from(sent.is_ok());
        };
        self.lingering -= 1;
        let sent = client.socket.try_send_with(&packet, &[socket.as_raw_fd()]);
        self.with_descriptors += u64::from(sent.is_ok());
        // If the helper has not taken it, this close is the last, and blocks.
        std::thread::spawn(move || drop(socket));
    }
}
