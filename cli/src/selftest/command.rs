//! The messages between console and nodes: INIT, START, STATUS, STOP, and the answers
//! (motr-transport 10.2).
//!
//! An answer carries the number of its command, so a late one is not taken for that of another
//! command.

use std::time::Duration;

use nlx::Errno;

use super::protocol::ECHO_MAX;
use super::wire::{Reader, Wire, WireError, Writer, is_unique, wire_enum, wire_struct};

/// Length of the longest command or answer, as in Motr: an INIT for some 170 servers fits.
pub(super) const COMMAND_BYTES: usize = 16 << 10;

/// The first four bytes: "nlxc"; version 1 follows.
const MAGIC: u32 = u32::from_le_bytes(*b"nlxc");
const VERSION: u16 = 1;

/// The role of a node, set by INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

wire_enum!(Role as "role" { Client, Server });

/// The operations of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// None: commands are answered, nothing else happens.
    Stub,
    /// Messages that come back.
    Echo,
    /// Bulk from the servers.
    Read,
    /// Bulk to the servers.
    Write,
    /// Bulk to the servers, and the same bytes back.
    Exchange,
    /// All of these, in an order that the seed determines.
    Mixed,
}

wire_enum!(Load as "load" { Stub, Echo, Read, Write, Exchange, Mixed });

/// Delivery of events to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The node's thread waits for events: Motr's synchronous delivery.
    Wait,
    /// A thread of the transfer machine calls the node: Motr's automatic delivery.
    Callback,
}

wire_enum!(Delivery as "delivery" { Wait, Callback });

/// The content of INIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub role: Role,
    pub load: Load,
    pub delivery: Delivery,
    /// Address of the node's transfer machine for data; the last part may be `*`.
    pub address: String,
    /// For a client: the servers' transfer machines for data.
    pub peers: Vec<String>,
    /// Different for each INIT of a console, so that messages of one test are not taken for those
    /// of another.
    pub run: u16,
    /// Bytes of a bulk transfer, or of an echo's payload.
    pub size: u32,
    /// Operations in flight: of a client its own, of a server those of all clients.
    pub in_flight: u32,
    /// Time during which a client begins operations.
    pub duration: Duration,
    /// Largest number of operations that a client begins; 0 is no limit.
    pub count: u64,
    /// Time after which an operation that has not ended is lost.
    pub timeout: Duration,
    /// Largest number of tries of an operation.
    pub tries: u32,
    /// Messages per receive buffer.
    pub messages: u32,
    /// Time that a server waits before it moves bulk.
    pub delay: Duration,
    pub seed: u64,
    /// Rules that drop and delay messages on this node; empty for none.
    pub faults: String,
    /// Set if servers corrupt a byte now and then.
    pub spoil: bool,
}

wire_struct!(Plan {
    role,
    load,
    delivery,
    address,
    peers,
    run,
    size,
    in_flight,
    duration,
    count,
    timeout,
    tries,
    messages,
    delay,
    seed,
    faults,
    spoil,
});

/// Limit of a node's memory for data: a console is not trusted.
const MEMORY_MAX: u64 = 1 << 30;

/// Limit of a node's operations in flight; with their sequences and buffers they fit any table.
pub(super) const IN_FLIGHT_MAX: u32 = 16 << 10;

/// Limit of tries: each may wait for the whole timeout.
pub(super) const TRIES_MAX: u32 = 16;

/// Longer times than a day are mistakes.
const TIME_MAX: Duration = Duration::from_secs(86_400);

impl Plan {
    /// Checks the numbers; returns EINVAL or EFBIG with the reason.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Plan { load, size, in_flight, tries, messages, .. } = *self;
        let size_max = if load == Load::Echo { ECHO_MAX } else { super::BULK_BYTES };
        let whole = |name, value: u32, most: u32| {
            (1..=most).contains(&value).then_some(()).ok_or_else(|| {
                Refusal::new(Errno::EINVAL, format!("{name} {value} is not a number from 1 to {most}"))
            })
        };
        whole("size", size, size_max as u32)?;
        whole("concurrency", in_flight, IN_FLIGHT_MAX)?;
        whole("tries", tries, TRIES_MAX)?;
        whole("messages per buffer", messages, super::MESSAGES_MAX)?;
        if u64::from(size) * u64::from(in_flight) > MEMORY_MAX {
            let text = format!("{in_flight} operations of {size} bytes need more than {MEMORY_MAX} bytes");
            return Err(Refusal::new(Errno::EFBIG, text));
        }
        let times = [self.duration, self.timeout, self.delay];
        if self.timeout.is_zero() || times.iter().any(|time| *time > TIME_MAX) {
            let text = format!("times {times:?}: at most a day each, and a timeout above 0");
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        if !is_unique(&self.peers) {
            return Err(Refusal::new(Errno::EINVAL, "a server is named twice"));
        }
        if self.role == Role::Client && self.load != Load::Stub && self.peers.is_empty() {
            return Err(Refusal::new(Errno::EINVAL, "a client without servers"));
        }
        Ok(())
    }
}

/// The results of a node since START.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Status {
    /// Set when a client has ended its last operation, so that nothing more happens by itself.
    pub finished: bool,
    pub elapsed: Duration,
    pub operations: u64,
    pub bytes: u64,
    pub errors: u64,
    /// The first of the errors; empty if there was none.
    pub first_error: String,
    /// Number of tries that ended by their timeout.
    pub lost: u64,
    /// Number of further tries.
    pub retries: u64,
    /// Number of answers to tries that were lost.
    pub late: u64,
    pub verified_bytes: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bulk_sent: u64,
    pub bulk_received: u64,
    /// The node's NID, and the counters of its rules: nodes of one process share them.
    pub nid: String,
    pub rules: Vec<RuleStatus>,
    /// A part of the histogram of latencies: values in nanoseconds with their counts, from the
    /// requested index on.
    pub latencies: Vec<(u64, u64)>,
}

wire_struct!(Status {
    finished,
    elapsed,
    operations,
    bytes,
    errors,
    first_error,
    lost,
    retries,
    late,
    verified_bytes,
    messages_sent,
    messages_received,
    bulk_sent,
    bulk_received,
    nid,
    rules,
    latencies,
});

/// Counters of a rule on a node, since the node started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleStatus {
    pub rule: String,
    pub matched: u64,
    pub dropped: u64,
    pub delayed: u64,
}

wire_struct!(RuleStatus { rule, matched, dropped, delayed });

/// Number of values of a histogram in one [`Status`]: half of a command.
pub(super) const LATENCIES_MAX: usize = 512;

/// The reason why a node refuses a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub errno: Errno,
    pub reason: String,
}

impl Refusal {
    pub(super) fn new(errno: Errno, reason: impl Into<String>) -> Refusal {
        Refusal { errno, reason: reason.into() }
    }
}

impl Wire for Refusal {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        (self.errno as i32).write(to)?;
        let cut = self.reason.floor_char_boundary_at(super::wire::TEXT_MAX);
        self.reason[..cut].to_string().write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Refusal, WireError> {
        Ok(Refusal { errno: Errno::from_raw(i32::read(from)?), reason: String::read(from)? })
    }
}

/// Finds the end of the last whole character within `most` bytes.
pub(super) trait Cut {
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl Cut for str {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        (0..=most.min(self.len())).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// A command, or the answer to one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    Init(Plan),
    /// The address of the transfer machine for data.
    InitDone(String),
    Start,
    StartDone,
    /// With the index from which latencies are requested.
    Status(u32),
    StatusData(Box<Status>),
    Stop,
    StopDone,
    /// The answer to any command.
    Refused(Refusal),
}

/// A command with its number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Numbered {
    pub number: u32,
    pub command: Command,
}

impl Wire for Numbered {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        MAGIC.write(to)?;
        VERSION.write(to)?;
        self.number.write(to)?;
        match &self.command {
            Command::Init(plan) => (1_u8.write(to)?, plan.write(to)?).1,
            Command::InitDone(address) => (2_u8.write(to)?, address.write(to)?).1,
            Command::Start => 3_u8.write(to)?,
            Command::StartDone => 4_u8.write(to)?,
            Command::Status(from) => (5_u8.write(to)?, from.write(to)?).1,
            Command::StatusData(status) => (6_u8.write(to)?, status.write(to)?).1,
            Command::Stop => 7_u8.write(to)?,
            Command::StopDone => 8_u8.write(to)?,
            Command::Refused(refusal) => (9_u8.write(to)?, refusal.write(to)?).1,
        }
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Numbered, WireError> {
        let unknown = |object, value| Err(WireError::Unknown { object, value });
        match u32::read(from)? {
            MAGIC => {}
            value => return unknown("magic of a command", value.into()),
        }
        match u16::read(from)? {
            VERSION => {}
            value => return unknown("version of the commands", value.into()),
        }
        let number = u32::read(from)?;
        let command = match u8::read(from)? {
            1 => Command::Init(Plan::read(from)?),
            2 => Command::InitDone(String::read(from)?),
            3 => Command::Start,
            4 => Command::StartDone,
            5 => Command::Status(u32::read(from)?),
            6 => Command::StatusData(Box::new(Status::read(from)?)),
            7 => Command::Stop,
            8 => Command::StopDone,
            9 => Command::Refused(Refusal::read(from)?),
            value => return unknown("command", value.into()),
        };
        Ok(Numbered { number, command })
    }
}

impl Numbered {
    /// Returns the length of the encoded command in bytes.
    pub(super) fn length(&self) -> Result<usize, WireError> {
        let mut writer = Writer::measure();
        self.write(&mut writer)?;
        Ok(writer.length())
    }

    /// Writes it to the front of a buffer; returns its length.
    pub(super) fn encode(&self, bytes: &mut [u8]) -> Result<usize, WireError> {
        let mut writer = Writer::new(bytes);
        self.write(&mut writer)?;
        Ok(writer.length())
    }

    /// Decodes a whole message.
    pub(super) fn decode(bytes: &[u8]) -> Result<Numbered, WireError> {
        let mut reader = Reader::new(bytes);
        let command = Numbered::read(&mut reader)?;
        reader.end()?;
        Ok(command)
    }
}
