//! A passive LNet node of raw bytes (lnet-wire 6, 16, 21 to 25): it has no code of the tested node.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The node's information and behaviour.
#[derive(Clone)]
pub struct Manners {
    pub features: u32,
    /// The NIDs of the node on `tcp`.
    pub addresses: Vec<Ipv4Addr>,
    /// True to delay the answer to a ping until the node's own ping has been answered, as a kernel
    /// node does.
    pub asks_first: bool,
    pub answers_pings: bool,
    pub acknowledges_pushes: bool,
    /// The time after which the node pushes back once it has acknowledged a push, as a kernel node
    /// does that did not know the other one.
    pub pushes_back: Option<Duration>,
    /// The number of NIDs that the node claims in addition to its list.
    pub claims_more: u32,
    /// True to delay the answer to the hello of a bulk connection, and to check whether the other
    /// side closes the connection during the delay.
    pub hesitates: bool,
    /// True to read the payloads of PUTs; otherwise the node stops reading from a connection with
    /// such a payload.
    pub reads_payloads: bool,
}

impl Manners {
    pub fn of(address: Ipv4Addr) -> Manners {
        Manners {
            features: 0x1e,
            addresses: vec![address],
            asks_first: true,
            answers_pings: true,
            acknowledges_pushes: true,
            pushes_back: None,
            claims_more: 0,
            hesitates: false,
            reads_payloads: true,
        }
    }
}

/// The node's counters.
#[derive(Default)]
pub struct Seen {
    pub pings: AtomicUsize,
    /// The number of valid answers to the node's own pings.
    pub answers: AtomicUsize,
    pub pushes: AtomicUsize,
    /// The number of valid acknowledgements of the node's own pushes.
    pub acks: AtomicUsize,
    /// The number of completed handshakes.
    pub hellos: AtomicUsize,
    /// The number of connections closed by the other side, with all of its data read.
    pub ends: AtomicUsize,
    /// The number of connections that ended in another way: within a handshake, or with a reset.
    pub broken: AtomicUsize,
    /// The number of PUTs with an unread payload.
    pub stuck: AtomicUsize,
}

/// The delay of [`Manners::hesitates`].
const HESITATION: Duration = Duration::from_millis(100);

/// Starts the node at the first of its addresses; it ends with the process.
pub fn start(port: u16, manners: Manners) -> Arc<Seen> {
    let listener = TcpListener::bind((manners.addresses[0], port)).expect("the port is free");
    let seen = Arc::new(Seen::default());
    let shared = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (manners, seen) = (manners.clone(), shared.clone());
            thread::spawn(move || {
                let greeted = Connection::greet(stream, &manners, &seen);
                let end = greeted.map(|mut connection| connection.serve());
                let count = match end {
                    Ok(error) if error.kind() == ErrorKind::UnexpectedEof => &seen.ends,
                    _ => &seen.broken,
                };
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    seen
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn nid4(address: Ipv4Addr) -> u64 {
    const TCP: u64 = 2 << 48;
    TCP | u64::from(u32::from(address))
}

const LNET_PID: u32 = 12345;
const PING_BITS: u64 = 1 << 63;
/// The type of connection that carries no bulk.
const CONTROL: u32 = 1;
const ACK: u32 = 0;
const PUT: u32 = 1;
const GET: u32 = 2;
const REPLY: u32 = 3;
/// The handle of this node's ping.
const MY_HANDLE: [u8; 16] = *b"a ping of mine..";
/// The handle of this node's push.
const MY_PUSH: [u8; 16] = *b"a push of mine..";

struct Connection<'a> {
    stream: TcpStream,
    manners: &'a Manners,
    seen: &'a Seen,
    /// The other side's NID, from its hello.
    peer: u64,
    /// A ping whose answer is delayed.
    held: Option<[u8; 72]>,
    has_asked: bool,
}

impl<'a> Connection<'a> {
    fn greet(mut stream: TcpStream, manners: &'a Manners, seen: &'a Seen) -> Result<Connection<'a>> {
        let mut request = [0; 16];
        stream.read_exact(&mut request)?;
        let wanted = (u32_at(&request, 0), u32_at(&request, 4), u64_at(&request, 8));
        assert_eq!(wanted, (0xacce_7100, 1, nid4(manners.addresses[0])));
        let mut hello = [0; 56];
        stream.read_exact(&mut hello)?;
        assert_eq!((u32_at(&hello, 0), u32_at(&hello, 4)), (0x4572_6963, 3));
        assert_eq!(u32_at(&hello, 52), 0, "no addresses follow");
        let peer = u64_at(&hello, 8);
        let mine = match u32_at(&hello, 48) {
            2 => 3_u32,
            3 => 2,
            other => other,
        };
        let mut answer = hello;
        answer[8..16].copy_from_slice(&hello[16..24]);
        answer[16..24].copy_from_slice(&hello[8..16]);
        answer[32..40].copy_from_slice(&77_u64.to_le_bytes());
        answer[40..48].copy_from_slice(&hello[32..40]);
        answer[48..52].copy_from_slice(&mine.to_le_bytes());
        if manners.hesitates && mine != CONTROL {
            stream.set_read_timeout(Some(HESITATION))?;
            let heard = stream.read(&mut [0]).map_err(|error| error.kind());
            if !matches!(heard, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)) {
                return Err(Error::other("the other side hangs up within the handshake"));
            }
            stream.set_read_timeout(None)?;
        }
        // The handshake is counted before the answer leaves, because the test may check the count
        // at once.
        seen.hellos.fetch_add(1, Ordering::SeqCst);
        stream.write_all(&answer)?;
        Ok(Connection { stream, manners, seen, peer, held: None, has_asked: false })
    }

    /// Serves until the connection ends; returns the reason.
    fn serve(&mut self) -> Error {
        loop {
            if let Err(error) = self.message() {
                return error;
            }
        }
    }

    fn message(&mut self) -> Result<()> {
        let mut prefix = [0; 24];
        self.stream.read_exact(&mut prefix)?;
        if u32_at(&prefix, 0) == 0xc0 {
            return Ok(());
        }
        let mut header = [0; 72];
        self.stream.read_exact(&mut header)?;
        if u32_at(&header, 24) == PUT && !self.manners.reads_payloads {
            self.seen.stuck.fetch_add(1, Ordering::SeqCst);
            loop {
                thread::park();
            }
        }
        let mut payload = vec![0; u32_at(&header, 28) as usize];
        self.stream.read_exact(&mut payload)?;
        match u32_at(&header, 24) {
            GET => self.pinged(&header),
            REPLY => self.answered(&header, &payload),
            PUT => self.pushed(&header, &payload),
            ACK => self.acknowledged(&header),
            _ => Ok(()),
        }
    }

    fn pinged(&mut self, header: &[u8; 72]) -> Result<()> {
        assert_eq!((u64_at(header, 48), u32_at(header, 56)), (PING_BITS, 0));
        self.seen.pings.fetch_add(1, Ordering::SeqCst);
        if !self.manners.answers_pings {
            return Ok(());
        }
        if self.manners.asks_first && !self.has_asked {
            (self.has_asked, self.held) = (true, Some(*header));
            let mut get = [0; 40];
            get[..16].copy_from_slice(&MY_HANDLE);
            get[16..24].copy_from_slice(&PING_BITS.to_le_bytes());
            get[32..36].copy_from_slice(&272_u32.to_le_bytes());
            return self.send(GET, &get, &[]);
        }
        self.answer(header)
    }

    fn answer(&mut self, ping: &[u8; 72]) -> Result<()> {
        let mut body = [0; 40];
        body[..16].copy_from_slice(&ping[32..48]);
        let mut info = self.ping_info();
        info.truncate(u32_at(ping, 64) as usize);
        self.send(REPLY, &body, &info)
    }

    fn answered(&mut self, header: &[u8; 72], payload: &[u8]) -> Result<()> {
        assert_eq!(header[32..48], MY_HANDLE);
        assert_eq!(u32_at(payload, 0), 0x7069_6e67);
        assert_eq!(u64_at(payload, 32), self.peer, "the first entry behind 0@lo is the node itself");
        self.seen.answers.fetch_add(1, Ordering::SeqCst);
        match self.held.take() {
            Some(ping) => self.answer(&ping),
            None => Ok(()),
        }
    }

    fn pushed(&mut self, header: &[u8; 72], payload: &[u8]) -> Result<()> {
        assert_eq!((u64_at(header, 48), u32_at(header, 64)), (PING_BITS, 0));
        assert_ne!(header[32..48], [0xff; 16], "an ACK is asked for");
        assert_eq!((u32_at(payload, 0), u64_at(payload, 32)), (0x7069_6e67, self.peer));
        self.seen.pushes.fetch_add(1, Ordering::SeqCst);
        if !self.manners.acknowledges_pushes {
            return Ok(());
        }
        let mut ack = [0; 40];
        ack[..24].copy_from_slice(&header[32..56]);
        ack[24..28].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        self.send(ACK, &ack, &[])?;
        match self.manners.pushes_back {
            Some(pause) => {
                thread::sleep(pause);
                self.push_back()
            }
            None => Ok(()),
        }
    }

    fn push_back(&mut self) -> Result<()> {
        let mut put = [0; 40];
        put[..16].copy_from_slice(&MY_PUSH);
        put[16..24].copy_from_slice(&PING_BITS.to_le_bytes());
        self.send(PUT, &put, &self.ping_info())
    }

    fn acknowledged(&mut self, header: &[u8; 72]) -> Result<()> {
        assert_eq!(header[32..48], MY_PUSH);
        assert_eq!(u32_at(header, 56) as usize, self.ping_info().len(), "all of it was taken");
        self.seen.acks.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn ping_info(&self) -> Vec<u8> {
        let Manners { features, addresses, claims_more, .. } = self.manners;
        let count = 1 + addresses.len() as u32 + claims_more;
        let mut info: Vec<u8> = [0x7069_6e67, *features, LNET_PID, count]
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes())
            .collect();
        let mut entry = |nid: u64, status: u32| {
            info.extend(nid.to_le_bytes());
            info.extend(status.to_le_bytes());
            info.extend([0; 4]);
        };
        const LOOPBACK: u64 = 9 << 48;
        entry(LOOPBACK, 5);
        addresses.iter().for_each(|&address| entry(nid4(address), 0x15aa_c0de));
        info
    }

    fn send(&mut self, kind: u32, body: &[u8; 40], payload: &[u8]) -> Result<()> {
        let mut bytes = vec![0; 24];
        bytes[0] = 0xc1;
        bytes.extend(self.peer.to_le_bytes());
        bytes.extend(nid4(self.manners.addresses[0]).to_le_bytes());
        for word in [LNET_PID, LNET_PID, kind, payload.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(body);
        bytes.extend(payload);
        self.stream.write_all(&bytes)
    }
}
