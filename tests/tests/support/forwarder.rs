//! A network between two nodes of this host, with faults: it delays, splits, joins and cuts data.
//!
//! The two nodes are configured with different ports for all nodes, so that each can only connect
//! to the forwarder: it listens on each node's address at the port that the other node uses, and
//! connects in the other's name.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::peer::Peer;

/// Delays, split writes and breaks that the forwarder adds.
#[derive(Debug, Clone, Copy)]
pub struct NetworkFaults {
    /// The delay of each piece.
    pub delay: Duration,
    /// The maximum size of a piece in bytes; the minimum is a byte.
    pub piece: usize,
    /// The number of bytes in one direction after which a connection breaks.
    pub cut_after: Option<u64>,
}

pub const NO_FAULTS: NetworkFaults = NetworkFaults { delay: Duration::ZERO, piece: 1 << 16, cut_after: None };

/// The ports that the two nodes use for all nodes.
const PORTS: [u16; 2] = [21_901, 21_902];

/// The network; it must be created before the nodes, and ends with the test's process.
pub struct Forwarder {
    network: Arc<FaultNetwork>,
    nodes: [Ipv4Addr; 2],
}

struct FaultNetwork {
    faults: Mutex<NetworkFaults>,
    changed: Condvar,
    wires: Mutex<Vec<TcpStream>>,
}

impl Forwarder {
    pub fn new(nodes: [Ipv4Addr; 2]) -> Forwarder {
        let network =
            FaultNetwork { faults: Mutex::new(NO_FAULTS), changed: Condvar::new(), wires: Mutex::default() };
        let network = Arc::new(network);
        for (here, there) in [(0, 1), (1, 0)] {
            let listener = TcpListener::bind((nodes[there], PORTS[here])).unwrap();
            let network = network.clone();
            std::thread::spawn(move || {
                for wire in listener.incoming().flatten() {
                    // If the other node is gone, the connecting node gets the end of the
                    // connection.
                    let _ = network.join(wire, nodes[here], (nodes[there], PORTS[there]).into());
                }
            });
        }
        Forwarder { network, nodes }
    }

    /// Starts the two nodes.
    pub fn peers(&self, options: [&str; 2]) -> [Peer; 2] {
        [0, 1].map(|side| {
            let program = std::process::Command::new(env!("CARGO_BIN_EXE_nlx-peer"));
            let options = format!("port={} {}", PORTS[side], options[side]);
            Peer::spawn(program, &[self.nodes[side]], &options)
        })
    }

    pub fn set(&self, faults: NetworkFaults) {
        *self.network.faults.lock().unwrap() = faults;
        self.network.changed.notify_all();
    }

    /// Breaks all current connections.
    pub fn cut(&self) {
        for wire in self.network.wires.lock().unwrap().drain(..) {
            let _ = wire.shutdown(Shutdown::Both);
        }
    }
}

impl FaultNetwork {
    fn join(
        self: &Arc<FaultNetwork>,
        wire: TcpStream,
        from: Ipv4Addr,
        to: SocketAddr,
    ) -> std::io::Result<()> {
        let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        other.bind(&SocketAddr::from((from, 0)).into())?;
        other.connect(&to.into())?;
        let other = TcpStream::from(other);
        for (source, sink) in [(wire.try_clone()?, other.try_clone()?), (other, wire)] {
            sink.set_nodelay(true)?;
            self.wires.lock().unwrap().push(sink.try_clone()?);
            let (pieces, under_way) = channel();
            let network = self.clone();
            std::thread::spawn(move || network.take_in(source, &pieces));
            let network = self.clone();
            std::thread::spawn(move || network.give_out(sink, &under_way));
        }
        Ok(())
    }

    /// Reads pieces, and assigns each the time of its arrival.
    fn take_in(&self, mut source: TcpStream, pieces: &Sender<(Instant, Vec<u8>)>) {
        let mut buffer = vec![0; 1 << 16];
        // The lengths of pieces derive only from their number.
        let mut length = 1;
        let mut passed = 0;
        loop {
            let faults = *self.faults.lock().unwrap();
            let left = faults.cut_after.map_or(u64::MAX, |most| most.saturating_sub(passed));
            length = length * 7 % 65_521;
            let most =
                (1 + length % faults.piece).min(buffer.len()).min(left.try_into().unwrap_or(usize::MAX));
            match source.read(&mut buffer[..most]) {
                Ok(count) if count > 0 => {
                    passed += count as u64;
                    if pieces.send((Instant::now() + faults.delay, buffer[..count].to_vec())).is_err() {
                        return;
                    }
                }
                _ => {
                    let _ = source.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
    }

    /// Writes each piece at its time of arrival.
    fn give_out(&self, mut sink: TcpStream, pieces: &Receiver<(Instant, Vec<u8>)>) {
        for (due, bytes) in pieces {
            let mut faults = self.faults.lock().unwrap();
            while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                faults = self.changed.wait_timeout(faults, left).unwrap().0;
            }
            drop(faults);
            if sink.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = sink.shutdown(Shutdown::Both);
    }
}
