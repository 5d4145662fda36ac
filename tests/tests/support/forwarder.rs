//! A network between two nodes of this host, with weather: it delays, splits, joins and cuts what passes.
//!
//! Two nodes that have different ideas of the port on which all nodes listen meet nobody but the forwarder: it listens on
//! each node's address at the port where the other one expects it, and connects in the other's name.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::peer::Peer;

/// What the network does to what passes.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// How long each piece is under way.
    pub delay: Duration,
    /// The longest piece that arrives at once; the shortest is a byte.
    pub piece: usize,
    /// Each connection breaks after so many bytes in one direction.
    pub cut_after: Option<u64>,
}

pub const FAIR: Weather = Weather { delay: Duration::ZERO, piece: 1 << 16, cut_after: None };

/// The ports on which the one node and the other believe that all nodes listen.
const PORTS: [u16; 2] = [21_901, 21_902];

/// The network; it must be made before the nodes, and ends with the test's process.
pub struct Forwarder {
    sky: Arc<Sky>,
    nodes: [Ipv4Addr; 2],
}

struct Sky {
    weather: Mutex<Weather>,
    changed: Condvar,
    wires: Mutex<Vec<TcpStream>>,
}

impl Forwarder {
    pub fn new(nodes: [Ipv4Addr; 2]) -> Forwarder {
        let sky = Sky { weather: Mutex::new(FAIR), changed: Condvar::new(), wires: Mutex::default() };
        let sky = Arc::new(sky);
        for (here, there) in [(0, 1), (1, 0)] {
            let listener = TcpListener::bind((nodes[there], PORTS[here])).unwrap();
            let sky = sky.clone();
            std::thread::spawn(move || {
                for wire in listener.incoming().flatten() {
                    // The other node may be gone: then the one that connects sees the end.
                    let _ = sky.join(wire, nodes[here], (nodes[there], PORTS[there]).into());
                }
            });
        }
        Forwarder { sky, nodes }
    }

    /// Starts the two nodes.
    pub fn peers(&self, options: [&str; 2]) -> [Peer; 2] {
        [0, 1].map(|side| {
            let program = std::process::Command::new(env!("CARGO_BIN_EXE_nlx-peer"));
            let options = format!("port={} {}", PORTS[side], options[side]);
            Peer::spawn(program, &[self.nodes[side]], &options)
        })
    }

    pub fn set(&self, weather: Weather) {
        *self.sky.weather.lock().unwrap() = weather;
        self.sky.changed.notify_all();
    }

    /// Breaks all connections that there are.
    pub fn cut(&self) {
        for wire in self.sky.wires.lock().unwrap().drain(..) {
            let _ = wire.shutdown(Shutdown::Both);
        }
    }
}

impl Sky {
    fn join(self: &Arc<Sky>, wire: TcpStream, from: Ipv4Addr, to: SocketAddr) -> std::io::Result<()> {
        let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        other.bind(&SocketAddr::from((from, 0)).into())?;
        other.connect(&to.into())?;
        let other = TcpStream::from(other);
        for (source, sink) in [(wire.try_clone()?, other.try_clone()?), (other, wire)] {
            sink.set_nodelay(true)?;
            self.wires.lock().unwrap().push(sink.try_clone()?);
            let (pieces, under_way) = channel();
            let sky = self.clone();
            std::thread::spawn(move || sky.take_in(source, &pieces));
            let sky = self.clone();
            std::thread::spawn(move || sky.give_out(sink, &under_way));
        }
        Ok(())
    }

    /// Reads pieces, and notes when each is to arrive.
    fn take_in(&self, mut source: TcpStream, pieces: &Sender<(Instant, Vec<u8>)>) {
        let mut buffer = vec![0; 1 << 16];
        // Lengths of pieces that follow from nothing but their number.
        let mut length = 1;
        let mut passed = 0;
        loop {
            let weather = *self.weather.lock().unwrap();
            let left = weather.cut_after.map_or(u64::MAX, |most| most.saturating_sub(passed));
            length = length * 7 % 65_521;
            let most =
                (1 + length % weather.piece).min(buffer.len()).min(left.try_into().unwrap_or(usize::MAX));
            match source.read(&mut buffer[..most]) {
                Ok(count) if count > 0 => {
                    passed += count as u64;
                    if pieces.send((Instant::now() + weather.delay, buffer[..count].to_vec())).is_err() {
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

    /// Writes each piece when its time has come.
    fn give_out(&self, mut sink: TcpStream, pieces: &Receiver<(Instant, Vec<u8>)>) {
        for (due, bytes) in pieces {
            let mut weather = self.weather.lock().unwrap();
            while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                weather = self.changed.wait_timeout(weather, left).unwrap().0;
            }
            drop(weather);
            if sink.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = sink.shutdown(Shutdown::Both);
    }
}
