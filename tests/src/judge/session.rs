//! One life of the judge as a peer: connections that belong together, and what comes on them.

use std::collections::HashSet;
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

/// How long until the judge offers a connection again that was refused: while the node still notices that an earlier life's
/// connections are gone. A kernel waits 1 s.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// The sink of discovery's ping.
pub const DISCOVERY_SINK: u32 = 272;
/// From so many bytes on, with all that is in front of the payload, a message belongs on a bulk connection (lnet-wire 25.4).
pub const MIN_BULK: usize = 1024;
/// The sink of `lctl ping`.
pub const LCTL_SINK: u32 = 3960;

/// The judge as a peer of the node.
pub struct Session<'t> {
    target: &'t Target,
    /// The version of its hellos.
    pub version: u32,
    /// Its byte order: of hellos and prefixes.
    pub order: Order,
    /// The NID and PID it claims.
    pub own: (Nid, u32),
    /// Another PID that the judge speaks under.
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
    /// Who the judge is on it.
    identity: (Nid, u32),
    incarnation: u64,
}

impl<'t> Session<'t> {
    /// A peer without connections, of the version that its form of address goes with.
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

    /// A peer with these connections.
    pub fn with(target: &'t Target, kinds: &[u32]) -> Result<Session<'t>, String> {
        let mut session = Session::new(target);
        for &kind in kinds {
            session.open(kind)?;
        }
        Ok(session)
    }

    /// The three connections of a kernel node, in its order.
    pub fn full(target: &'t Target) -> Result<Session<'t>, String> {
        Session::with(target, &[kind::CONTROL, kind::BULK_IN, kind::BULK_OUT])
    }

    /// The hello of one of its connections.
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

    /// Opens a connection; one that is refused is offered again, as a kernel does.
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

    /// Makes an accepted connection one of this peer's; gives its number.
    pub fn take(&mut self, stream: TcpStream, kind: u32, incarnation: u64) -> Result<usize, String> {
        if self.links.iter().any(|link| link.incarnation != incarnation) {
            return Err(format!("incarnation {incarnation:#x}, and another one on the connections before"));
        }
        let identity = self.target.identity(&stream, self.own)?;
        let mut reader = stream.try_clone().map_err(|error| error.to_string())?;
        let (number, sender) = (self.links.len(), self.sender.clone());
        let (version, patience) = (self.version, self.target.patience);
        std::thread::spawn(move || {
            // The reader itself waits for ever; whoever reads the events has the patience.
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

    /// The node's NID.
    pub fn nid(&self) -> Nid {
        self.target.nid
    }

    /// Who the judge is on a connection.
    pub fn identity(&self, link: usize) -> (Nid, u32) {
        self.links[link].identity
    }

    /// A handle of the judge's, never given before in this life.
    pub fn handle(&mut self) -> [u8; 16] {
        self.handles += 1;
        let object = self.handles << 4 | 0x0f00_0000_0000_0001;
        let mut handle = [0; 16];
        // In the byte order of the kernel nodes that were measured.
        handle[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        handle[8..].copy_from_slice(&object.to_le_bytes());
        handle
    }

    /// Sends bytes as they are.
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

    /// Sends a prefix alone.
    pub fn send_noop(&mut self, link: usize, zc_req: u64, zc_ack: u64) -> Result<(), String> {
        let bytes = Prefix::noop(zc_req, zc_ack).bytes(self.order);
        self.send_bytes(link, &bytes)
    }

    /// The next frame, checked; keepalives, and what the node itself asks the judge, pings and pushes, are dealt with.
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
                    self.oblige(link, &message)?
                }
                Frame::Lnet(message) if message.prefix.zc_req != 0 => {
                    self.send_noop(link, 0, message.prefix.zc_req)?;
                    return Ok((link, Frame::Lnet(message)));
                }
                frame => return Ok((link, frame)),
            }
        }
    }

    /// Keepalives of the node come again and again: they must not renew the patience.
    fn event(&mut self, until: Instant) -> Result<(usize, Result<Frame, NoFrame>), String> {
        let left = until.saturating_duration_since(Instant::now());
        let (link, event) = self.events.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("what was due has not come in {:?}", self.target.patience),
            RecvTimeoutError::Disconnected => "no connection is left".to_string(),
        })?;
        if event.is_err() {
            self.ended.insert(link);
        }
        Ok((link, event))
    }

    /// What holds for every frame of a node (lnet-wire 6, 25.3, 25.4).
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

    /// Answers what the node asks.
    fn oblige(&mut self, link: usize, asked: &Message) -> Result<(), String> {
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

    /// The next frame must be a message.
    pub fn message(&mut self) -> Result<(usize, Message), String> {
        match self.next_frame()? {
            (link, Frame::Lnet(message)) => Ok((link, *message)),
            (_, Frame::Noop(prefix)) => Err(format!("{prefix:x?} where a message was due")),
        }
    }

    /// The GET of a ping.
    pub fn ping_request(&mut self, link: usize, sink: u32) -> Message {
        let handle = self.handle();
        let (own, pid) = self.links[link].identity;
        Message { src_pid: pid, ..Message::get(own, self.target.nid, 0, frame::PING_BITS, handle, sink) }
    }

    /// The answer to a GET must be next, on the connection for messages of its size.
    pub fn reply_to(&mut self, get: &Message) -> Result<Message, String> {
        let (link, reply) = self.message()?;
        judge_answer(get, &reply)?;
        self.judge_choice(link, &reply)?;
        Ok(reply)
    }

    /// lnet-wire 25.4: small messages on CONTROL, large ones on the bulk connection, if there is one.
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

    /// All connections must end, and nothing more may come but keepalives.
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

    /// Ends the judge's direction of one connection.
    pub fn shut(&self, link: usize) {
        let _ = self.links[link].stream.shutdown(Shutdown::Write);
    }
}

impl Drop for Session<'_> {
    /// Leaves when the node has noticed: the next check finds nothing of this one.
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
