//! More requests than a client may make, and between them packets with descriptors, those whose `close` sleeps among them; and
//! connections that end and begin anew meanwhile: `throttled CONNECTIONS SOCKETS`.

use std::convert::Infallible;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::unistd::pipe;
use nlx_tests::attack::linger::Sink;
use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::wire::{self, kind};

use crate::{Target, hold, number};

/// Requests of a connection in each turn, more than are carried out meanwhile.
const TURN: u64 = 32;
/// Turns of all connections from one packet with a descriptor to the next of the same connection.
const QUIET_TURNS: usize = 4;
/// Turns after which a connection ends, with whatever is in its socket.
const LIFE_TURNS: usize = 24;
/// Turns in all: some seconds of the helper's.
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

/// What is sent.
struct Flood {
    sink: Sink,
    /// Sockets that linger which are still to be sent.
    lingering: usize,
    /// A descriptor that does no harm.
    harmless: OwnedFd,
    packets: u64,
    with_descriptors: u64,
}

impl Flood {
    fn new(lingering: usize) -> Result<Flood, String> {
        let (harmless, _) = pipe().map_err(|errno| format!("no pipe: {errno}"))?;
        Ok(Flood { sink: Sink::default(), lingering, harmless, packets: 0, with_descriptors: 0 })
    }

    /// Sends as much as there is room for, and reads the answers. False if the connection is at its end.
    fn turn(&mut self, client: &Client, age: usize) -> bool {
        for _ in 0..TURN {
            if client.socket.try_send(&wire::packet(kind::SYNC, self.packets, &[])).is_err() {
                break;
            }
            self.packets += 1;
        }
        if age.is_multiple_of(QUIET_TURNS) {
            // It ends the connection.
            self.send_descriptor(client);
        }
        while client.socket.is_readable(Duration::ZERO).unwrap_or(false) {
            match client.socket.receive(Duration::ZERO) {
                Ok(Some(_)) => {}
                // Cut off.
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
        // If it was not taken, this close is the last, and sleeps.
        std::thread::spawn(move || drop(socket));
    }
}
