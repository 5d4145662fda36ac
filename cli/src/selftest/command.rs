//! The commands of a console, INIT, START, STATUS, STOP, and their answers (motr-transport 10.2): JSON
//! in requests of [`nlx::request`].

use std::collections::HashSet;
use std::time::Duration;

use nlx::Errno;
use serde::{Deserialize, Serialize};

use super::protocol::ECHO_MAX;

/// Length of the longest command or answer: an INIT for a thousand servers fits.
pub(super) const COMMAND_BYTES: usize = 64 << 10;

/// The role of a node, set by INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    Client,
    Server,
}

/// The operations of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Delivery of events to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Delivery {
    /// The node's thread waits for events: Motr's synchronous delivery.
    Wait,
    /// A thread of the transfer machine calls the node: Motr's automatic delivery.
    Callback,
}

/// The content of INIT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(with = "nanoseconds")]
    pub duration: Duration,
    /// Largest number of operations that a client begins; 0 is no limit.
    pub count: u64,
    /// Time after which an operation that has not ended is lost.
    #[serde(with = "nanoseconds")]
    pub timeout: Duration,
    /// Largest number of tries of an operation.
    pub tries: u32,
    /// Messages per receive buffer.
    pub messages: u32,
    /// Time that a server waits before it moves bulk.
    #[serde(with = "nanoseconds")]
    pub delay: Duration,
    pub seed: u64,
    /// Rules that drop and delay messages on this node; empty for none.
    pub faults: String,
    /// Set if servers corrupt a byte now and then.
    pub spoil: bool,
}

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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Status {
    /// Set when a client has ended its last operation, so that nothing more happens by itself.
    pub finished: bool,
    #[serde(with = "nanoseconds")]
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

/// Counters of a rule on a node, since the node started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RuleStatus {
    pub rule: String,
    pub matched: u64,
    pub dropped: u64,
    pub delayed: u64,
}

/// Number of values of a histogram in one [`Status`]: at most two thirds of an answer.
pub(super) const LATENCIES_MAX: usize = 1024;

/// The reason why a node refuses a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    errno: i32,
    pub reason: String,
}

impl Refusal {
    pub(super) fn new(errno: Errno, reason: impl Into<String>) -> Refusal {
        Refusal { errno: errno as i32, reason: reason.into() }
    }

    #[cfg(test)]
    pub(super) fn errno(&self) -> Errno {
        Errno::from_raw(self.errno)
    }
}

/// A command of the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Command {
    Init(Plan),
    Start,
    /// With the index from which latencies are requested.
    Status(u32),
    Stop,
}

/// A node's answer to a command that it does not refuse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// To INIT: the address of the transfer machine for data.
    Address(String),
    /// To STATUS.
    Status(Box<Status>),
    /// To START and STOP.
    Done,
}

/// A duration in nanoseconds: 64 bits hold 584 years.
mod nanoseconds {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

/// Returns whether no text occurs twice.
pub(super) fn is_unique(texts: &[String]) -> bool {
    let mut seen = HashSet::with_capacity(texts.len());
    texts.iter().all(|text| seen.insert(text))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;
    use serde::de::DeserializeOwned;

    use super::*;

    /// An INIT with all its fields, for 64 servers.
    pub(in crate::selftest) fn plan() -> Plan {
        Plan {
            role: Role::Client,
            load: Load::Mixed,
            delivery: Delivery::Callback,
            address: "0@lo:12345:42:*".into(),
            peers: (0..64).map(|server| format!("192.168.100.{server}@tcp:12345:42:{server}")).collect(),
            run: 5,
            size: 1 << 20,
            in_flight: 17,
            duration: Duration::from_millis(1500),
            count: u64::MAX,
            timeout: Duration::from_secs(3),
            tries: 3,
            messages: 64,
            delay: Duration::from_nanos(1),
            seed: 0x0123_4567_89ab_cdef,
            faults: "drop 1/100 put".into(),
            spoil: true,
        }
    }

    /// The longest status.
    pub(in crate::selftest) fn status() -> Status {
        Status {
            finished: true,
            elapsed: Duration::from_nanos(u64::MAX),
            operations: 1,
            bytes: 2,
            errors: 3,
            first_error: "a byte was wrong".into(),
            lost: 4,
            retries: 5,
            late: 6,
            verified_bytes: 7,
            messages_sent: 8,
            messages_received: 9,
            bulk_sent: 10,
            bulk_received: 11,
            nid: "0@lo".into(),
            rules: vec![RuleStatus { rule: "drop 1/2".into(), matched: 12, dropped: 13, delayed: 14 }],
            latencies: vec![(u64::MAX, u64::MAX); LATENCIES_MAX],
        }
    }

    fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> usize {
        let bytes = serde_json::to_vec(value).unwrap();
        assert_eq!(serde_json::from_slice::<T>(&bytes).unwrap(), *value);
        for short in [0, bytes.len() / 2, bytes.len() - 1] {
            assert!(serde_json::from_slice::<T>(&bytes[..short]).is_err(), "{value:?}");
        }
        bytes.len()
    }

    /// Commands and answers read as they were written, and the longest fit; texts of any letters, and
    /// lists of none to 64 texts, with an empty one at the end.
    // Covers: MT-137, MT-138, MT-139, MT-140
    #[test]
    fn commands_and_answers_read_as_they_were_written() {
        for command in [Command::Init(plan()), Command::Start, Command::Status(512), Command::Stop] {
            assert!(round_trip(&command) < COMMAND_BYTES / 2);
        }
        for answer in [Answer::Address("0@lo:12345:42:4095".into()), Answer::Done] {
            round_trip(&Ok::<_, Refusal>(answer));
        }
        assert!(round_trip(&Ok::<_, Refusal>(Answer::Status(Box::new(status())))) < COMMAND_BYTES / 4 * 3);
        for text in ["", "a", "ein l\u{e4}ngerer Text", "\u{0}\"\\\u{1b}"] {
            round_trip(&Err::<Answer, _>(Refusal::new(Errno::EINVAL, text)));
        }
        for count in 0..=64 {
            let peers = (0..count).map(|node| format!("node{node}")).chain([String::new()]).collect();
            round_trip(&Command::Init(Plan { peers, ..plan() }));
        }
    }

    /// A pattern that repeats after ten texts.
    // Covers: MT-141
    #[test]
    fn what_occurs_twice_is_found() {
        let texts: Vec<_> = (0..64).map(|number| format!("node{}", number % 10)).collect();
        for count in 0..=64 {
            assert_eq!(is_unique(&texts[..count]), count <= 10, "{count}");
        }
    }

    proptest! {
        /// Bytes that are no command are refused, whatever they are: a command with one byte changed.
        #[test]
        fn any_bytes_are_read_or_refused(at: prop::sample::Index, byte: u8) {
            let mut bytes = serde_json::to_vec(&Command::Init(plan())).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(read) = serde_json::from_slice::<Command>(&bytes) {
                round_trip(&read);
            }
        }
    }
}
