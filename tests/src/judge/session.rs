//! The judge as a peer with one incarnation: its connections, and the frames on them.

use std::collections::{HashSet, VecDeque};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::Target;
use super::active::{Answer, new_incarnation};
use super::frame::{self, ACK, Frame, Message, NoFrame, PUT, Prefix, REPLY, read_frame};
use super::info::{PingInfo, feature};
use super::verdict::{judge_answer, judge_message, no_checksum};
use super::wire::{self, Nid, Order, PID, kind};

/// The delay before the judge offers a refused connection again: the node may not have noticed yet
/// that connections of an earlier incarnation are gone. A kernel waits 1 s.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// The reply size that discovery's ping requests, in bytes.
pub const DISCOVERY_SINK: u32 = 272;
/// The size in bytes, including everything before the payload, from which a message belongs on a
/// bulk connection (lnet-wire 25.4).
pub const MIN_BULK: usize = 1024;
/// The reply size that `lctl ping` requests, in bytes.
pub const LCTL_SINK: u32 = 3960;

/// The judge as a peer of the node.
pub struct Session<'t> {
    target: &'t Target,
    /// The version of its hellos.
    pub version: u32,
    /// The byte order of its hellos and prefixes.
    pub order: Order,
    /// The NID and PID it claims.
    pub own: (Nid, u32),
    /// A second PID that the judge uses.
    pub alias: Option<u32>,
    incarnation: u64,
    links: Vec<Link>,
    events: Receiver<(usize, Result<Frame, NoFrame>)>,
    sender: Sender<(usize, Result<Frame, NoFrame>)>,
    ended: HashSet<usize>,
    handles: u64,
}

struct Link {
    stream: TcpStream,
    kind: u32,
    /// The judge's NID and PID on this connection.
    identity: (Nid, u32),
    incarnation: u64,
}

impl<'t> Session<'t> {
    /// Creates a peer without connections, with the version of its form of address.
    pub fn new(target: &'t Target) -> Session<'t> {
        let (sender, events) = channel();
        Session {
            target,
            version: target.version(),
            order: Order::Little,
            own: (target.own, PID),
            alias: None,
            incarnation: new_incarnation(),
            links: Vec::new(),
            events,
            sender,
            ended: HashSet::new(),
            handles: 0,
        }
    }

    /// Creates a peer with connections of these types.
    pub fn with(target: &'t Target, kinds: &[u32]) -> Result<Session<'t>, String> {
        let mut session = Session::new(target);
        for &kind in kinds {
            session.open(kind)?;
        }
        Ok(session)
    }

    /// Creates a peer with the three connections of a kernel node, in its order.
    pub fn full(target: &'t Target) -> Result<Session<'t>, String> {
        Session::with(target, &[kind::CONTROL, kind::BULK_IN, kind::BULK_OUT])
    }

    /// Returns the hello for a connection of this type.
    pub fn hello(&self, kind: u32) -> wire::Hello {
        let (src, src_pid) = self.own;
        wire::Hello { src, src_pid, ..self.target.hello(self.version, kind, self.incarnation) }
    }

    /// Offers a connection once.
    pub fn offer(&self, kind: u32) -> Result<Answer, String> {
        let hello = self.hello(kind);
        let bytes = [wire::request(self.target.nid, self.order), hello.bytes(self.order)].concat();
        self.target.offer_bytes(&hello, &bytes)
    }

    /// Opens a connection; offers it again while it is refused, as a kernel does.
    pub fn open(&mut self, kind: u32) -> Result<usize, String> {
        let until = Instant::now() + self.target.patience;
        loop {
            match self.offer(kind)? {
                Answer::Accepted(stream, reply) => return self.take(stream, kind, reply.src_incarnation),
                Answer::Refused(_) if Instant::now() < until => std::thread::sleep(RETRY_AFTER),
                other => return Err(format!("{}: {other}", kind::name(kind))),
            }
        }
    }

    /// Adds an accepted connection to this peer; returns its index.
    pub fn take(&mut self, stream: TcpStream, kind: u32, incarnation: u64) -> Result<usize, String> {
        if self.links.iter().any(|link| link.incarnation != incarnation) {
            return Err(format!("incarnation {incarnation:#x} differs from that of earlier connections"));
        }
        let identity = self.target.identity(&stream, self.own)?;
        let mut reader = stream.try_clone().map_err(|error| error.to_string())?;
        let (number, sender) = (self.links.len(), self.sender.clone());
        let (version, patience) = (self.version, self.target.patience);
        std::thread::spawn(move || {
            // The reader has no timeout; the receiver of the events has one.
            let _ = reader.set_read_timeout(None);
            loop {
                let frame = read_frame(&mut reader, version, Order::Little);
                let over = frame.is_err();
                if sender.send((number, frame)).is_err() || over {
                    return;
                }
            }
        });
        stream.set_write_timeout(Some(patience)).map_err(|error| error.to_string())?;
        self.links.push(Link { stream, kind, identity, incarnation });
        Ok(number)
    }

    /// Returns the node's NID.
    pub fn nid(&self) -> Nid {
        self.target.nid
    }

    /// Returns the judge's NID and PID on a connection.
    pub fn identity(&self, link: usize) -> (Nid, u32) {
        self.links[link].identity
    }

    /// Returns a handle that was not used before in this incarnation.
    pub fn handle(&mut self) -> [u8; 16] {
        self.handles += 1;
        let object = self.handles << 4 | 0x0f00_0000_0000_0001;
        let mut handle = [0; 16];
        // In the byte order of the kernel nodes that were measured.
        handle[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        handle[8..].copy_from_slice(&object.to_le_bytes());
        handle
    }

    /// Sends raw bytes.
    pub fn send_bytes(&mut self, link: usize, bytes: &[u8]) -> Result<(), String> {
        let link = &mut self.links[link];
        link.stream
            .write_all(bytes)
            .map_err(|error| format!("cannot send on the {} connection: {error}", kind::name(link.kind)))
    }

    /// Sends a message.
    pub fn send(&mut self, link: usize, message: &Message) -> Result<(), String> {
        let bytes = message.bytes(self.version, self.order);
        self.send_bytes(link, &bytes)
    }

    /// Sends a message on the connection on which a kernel node sends one of its size.
    pub fn send_best(&mut self, message: &Message) -> Result<(), String> {
        let bulk = message.wire_bytes(self.version) >= MIN_BULK;
        let best = if bulk { kind::BULK_OUT } else { kind::CONTROL };
        let link = self.links.iter().position(|link| link.kind == best).unwrap_or(0);
        self.send(link, message)
    }

    /// Sends a NOOP.
    pub fn send_noop(&mut self, link: usize, zc_req: u64, zc_ack: u64) -> Result<(), String> {
        let bytes = Prefix::noop(zc_req, zc_ack).bytes(self.order);
        self.send_bytes(link, &bytes)
    }

    /// Returns the next frame, checked. Keepalives are skipped; pings and pushes from the node are
    /// answered.
    pub fn next_frame(&mut self) -> Result<(usize, Frame), String> {
        let until = Instant::now() + self.target.patience;
        loop {
            let (link, event) = self.event(until)?;
            let name = kind::name(self.links[link].kind);
            let frame = match event {
                Ok(frame) => frame,
                Err(NoFrame::End) => return Err(format!("it closed the {name} connection")),
                Err(NoFrame::Cut(error)) => return Err(format!("{name}: cut inside a frame: {error}")),
                Err(NoFrame::Wrong(words)) => return Err(format!("{name}: {words}")),
            };
            self.judge_frame(link, &frame).map_err(|fault| format!("{name}: {fault}"))?;
            match frame {
                Frame::Noop(prefix) if prefix.acked().is_empty() => {}
                Frame::Lnet(message) if message.is_ping() || message.is_push() => {
                    self.answer_request(link, &message)?
                }
                Frame::Lnet(message) if message.prefix.zc_req != 0 => {
                    self.send_noop(link, 0, message.prefix.zc_req)?;
                    return Ok((link, Frame::Lnet(message)));
                }
                frame => return Ok((link, frame)),
            }
        }
    }

    /// Keepalives of the node come repeatedly; they do not extend the time limit.
    fn event(&mut self, until: Instant) -> Result<(usize, Result<Frame, NoFrame>), String> {
        let left = until.saturating_duration_since(Instant::now());
        let (link, event) = self.events.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no expected frame within {:?}", self.target.patience),
            RecvTimeoutError::Disconnected => "no connection is left".to_string(),
        })?;
        if event.is_err() {
            self.ended.insert(link);
        }
        Ok((link, event))
    }

    /// Checks the rules for every frame of a node (lnet-wire 6, 25.3, 25.4).
    fn judge_frame(&self, link: usize, frame: &Frame) -> Result<(), String> {
        let Link { kind, identity, .. } = self.links[link];
        match frame {
            Frame::Noop(prefix) => no_checksum(prefix),
            Frame::Lnet(_) if kind == kind::ANY && self.version >= 3 => {
                Err("a message on an untyped connection".to_string())
            }
            Frame::Lnet(_) if kind == kind::BULK_OUT && self.version >= 3 => {
                Err("a message on the connection that it calls BULK_IN".to_string())
            }
            Frame::Lnet(message) => {
                let to = self.alias.filter(|&pid| pid == message.dest_pid).map(|pid| (identity.0, pid));
                judge_message(message, (self.target.nid, PID), to.unwrap_or(identity))
            }
        }
    }

    /// Answers a request of the node.
    fn answer_request(&mut self, link: usize, asked: &Message) -> Result<(), String> {
        let (own, pid) = self.links[link].identity;
        let answer = if asked.kind == PUT {
            asked.answer(ACK, own, &[])
        } else {
            let mut info = PingInfo::of(own, feature::SINGLE_RAIL).bytes();
            info.truncate(asked.sink() as usize);
            asked.answer(REPLY, own, &info)
        };
        self.send(link, &Message { src_pid: pid, ..answer })
    }

    /// Returns the next frame, which must be a message.
    pub fn message(&mut self) -> Result<(usize, Message), String> {
        match self.next_frame()? {
            (link, Frame::Lnet(message)) => Ok((link, *message)),
            (_, Frame::Noop(prefix)) => Err(format!("{prefix:x?} where a message was due")),
        }
    }

    /// Builds the GET of a ping.
    pub fn ping_request(&mut self, link: usize, sink: u32) -> Message {
        let handle = self.handle();
        let (own, pid) = self.links[link].identity;
        Message { src_pid: pid, ..Message::get(own, self.target.nid, 0, frame::PING_BITS, handle, sink) }
    }

    /// Returns the next frame, which must be the answer to a GET, on the connection for messages of
    /// its size.
    pub fn reply_to(&mut self, get: &Message) -> Result<Message, String> {
        let (link, reply) = self.message()?;
        judge_answer(get, &reply)?;
        self.judge_choice(link, &reply)?;
        Ok(reply)
    }

    /// Returns the answer to a GET, checked likewise; adds the PUTs that come before it to `others`.
    pub fn reply_among(&mut self, get: &Message, others: &mut VecDeque<Message>) -> Result<Message, String> {
        loop {
            let (link, message) = self.message()?;
            if message.kind == PUT {
                others.push_back(message);
                continue;
            }
            judge_answer(get, &message)?;
            self.judge_choice(link, &message)?;
            return Ok(message);
        }
    }

    /// Checks the connection of a message (lnet-wire 25.4): small messages are on CONTROL, large
    /// ones on the bulk connection, if there is one.
    pub fn judge_choice(&self, link: usize, message: &Message) -> Result<(), String> {
        let size = message.wire_bytes(self.version);
        // The judge's BULK_IN is the node's BULK_OUT.
        let best = if size < MIN_BULK { kind::CONTROL } else { kind::BULK_IN };
        let used = self.links[link].kind;
        if used != best && self.version >= 3 && self.links.iter().any(|link| link.kind == best) {
            let [used, best] = [used, best].map(kind::inverse).map(kind::name);
            return Err(format!("a message of {size} bytes on its {used}, though it has {best}"));
        }
        Ok(())
    }

    /// Pings the node as discovery does.
    pub fn ping(&mut self, link: usize) -> Result<PingInfo, String> {
        let request = self.ping_request(link, DISCOVERY_SINK);
        self.send(link, &request)?;
        PingInfo::parse(&self.reply_to(&request)?.payload)
    }

    /// Checks that all connections end, with nothing but keepalives before.
    pub fn expect_ends(&mut self) -> Result<(), String> {
        let until = Instant::now() + self.target.patience;
        while self.ended.len() < self.links.len() {
            match self.event(until)? {
                (_, Err(NoFrame::End | NoFrame::Cut(_))) => {}
                (_, Ok(Frame::Noop(prefix))) if prefix.acked().is_empty() => {}
                (_, Err(NoFrame::Wrong(words))) => return Err(words),
                (link, Ok(frame)) => {
                    let name = kind::name(self.links[link].kind);
                    return Err(format!("{frame:x?} on {name}, where the connection was to end"));
                }
            }
        }
        Ok(())
    }

    /// Shuts down the judge's direction of one connection.
    pub fn shut(&self, link: usize) {
        let _ = self.links[link].stream.shutdown(Shutdown::Write);
    }
}

impl Drop for Session<'_> {
    /// Returns once the node has closed its side: the next check must not see these connections.
    fn drop(&mut self) {
        for link in 0..self.links.len() {
            self.shut(link);
        }
        let until = Instant::now() + self.target.patience;
        while self.ended.len() < self.links.len() && self.event(until).is_ok() {}
        for link in &self.links {
            let _ = link.stream.shutdown(Shutdown::Both);
        }
    }
}
