//! The messages of nlx between clients and servers.

use std::time::{Duration, Instant};

use nlx::Descriptor;

use super::pattern;

/// The first bytes of every message of the self-test: "nlxst", and the version of the format.
const MAGIC: [u8; 8] = *b"nlxst\0\0\x02";

/// Bytes before a message's body: magic, sequence number, time, kind, lane, length.
pub(super) const HEAD_BYTES: usize = 8 + 8 + 8 + 1 + 4 + 8;

/// Default payload of an echo: with its head and LNet's own header it is still a small message for
/// LNet.
pub(super) const ECHO_BYTES: usize = 64;

/// The longest payload of an echo.
pub(super) const ECHO_MAX: usize = 64 << 10;

/// Largest number of descriptors in one message; an exchange needs two.
pub(super) const OFFER_MAX: usize = 16;

/// Returns the length of the longest message of a test with echoes of `echo` bytes.
pub(super) fn message_bytes(echo: usize) -> usize {
    /// The two descriptors of an exchange, each with its length, and their number.
    const OFFER_BYTES: usize = 2 + 2 * (2 + Descriptor::MAX_LEN);
    HEAD_BYTES + echo.max(OFFER_BYTES)
}

/// Direction of a pattern: each has a separate stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    FromClient,
    FromServer,
}

impl Direction {
    /// Returns the stream's number in tests with this seed.
    pub(super) fn stream(self, seed: u64) -> u64 {
        let direction = match self {
            Direction::FromClient => 1,
            Direction::FromServer => 2,
        };
        seed.rotate_left(32) ^ direction
    }
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Send the payload back, in the server's pattern.
    Echo,
    /// Read `length` bytes from the client's passive buffer and verify them.
    Write,
    /// Write `length` bytes into the client's passive buffer.
    Read,
    /// Read the first of two passive buffers, verify it, and write the same bytes into the second.
    Exchange,
    /// The answer after success; `length` bytes were verified.
    Good,
    /// The answer after an error.
    Bad,
}

impl Kind {
    /// In the order of their numbers.
    const ALL: [Kind; 6] = [Kind::Echo, Kind::Write, Kind::Read, Kind::Exchange, Kind::Good, Kind::Bad];
}

/// Sequence number and time of sending by the clock of the sender, which alone can interpret the
/// time when the stamp comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) sequence: u64,
    /// The time of sending, from the sender's epoch.
    pub(super) time: Duration,
}

impl Stamp {
    /// Creates a stamp with the current time since `epoch`.
    pub(super) fn now(sequence: u64, epoch: Instant) -> Stamp {
        Stamp { sequence, time: epoch.elapsed() }
    }
}

/// The reason why a message could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("{needed} bytes do not fit where {left} are left")]
    Short { needed: usize, left: usize },
    #[error("an offer of {count} descriptors; at most {OFFER_MAX} are allowed")]
    Long { count: usize },
    #[error("it is not one of the self-test's, or of another version")]
    Foreign,
    #[error("its offer ends early, or has other bytes than descriptors")]
    Offer,
}

/// The head of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The stamp of the client; the answer has the same.
    pub(super) stamp: Stamp,
    pub(super) kind: Kind,
    /// Index of the client's operation in flight to which it belongs.
    pub(super) lane: u32,
    pub(super) length: u64,
}

impl Head {
    /// Writes a message without a body; returns its length. Numbers are little-endian.
    pub(super) fn put(&self, bytes: &mut [u8]) -> Result<usize, MessageError> {
        let Head { stamp: Stamp { sequence, time }, kind, lane, length } = *self;
        let left = bytes.len();
        let short = MessageError::Short { needed: HEAD_BYTES, left };
        let head: &mut [u8; HEAD_BYTES] = bytes.first_chunk_mut().ok_or(short)?;
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&sequence.to_le_bytes());
        head[16..24].copy_from_slice(&time_ns.to_le_bytes());
        head[24] = Kind::ALL.iter().position(|other| *other == kind).unwrap_or(Kind::ALL.len()) as u8;
        head[25..29].copy_from_slice(&lane.to_le_bytes());
        head[29..].copy_from_slice(&length.to_le_bytes());
        Ok(HEAD_BYTES)
    }

    /// Splits a message into its head and its body.
    pub(super) fn split(bytes: &[u8]) -> Result<(Head, &[u8]), MessageError> {
        let (head, body) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(MessageError::Foreign)?;
        let number = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let kind = Kind::ALL.get(usize::from(head[24])).filter(|_| head.starts_with(&MAGIC));
        let stamp = Stamp { sequence: number(8), time: Duration::from_nanos(number(16)) };
        let lane = number(25) as u32;
        Ok((Head { stamp, kind: *kind.ok_or(MessageError::Foreign)?, lane, length: number(29) }, body))
    }

    /// Writes an echo whose body is the stream's pattern; returns its length.
    pub(super) fn put_echo(&self, stream: u64, bytes: &mut [u8]) -> Result<usize, MessageError> {
        let body = self.put(bytes)?;
        let (left, needed) = (bytes.len() - body, self.length as usize);
        let room = bytes[body..].get_mut(..needed).ok_or(MessageError::Short { needed, left })?;
        pattern::fill(stream, self.stamp.sequence, room);
        Ok(body + needed)
    }

    /// Returns whether an echo's body is exactly the pattern that its head describes.
    pub(super) fn is_echo_of(&self, stream: u64, body: &[u8]) -> bool {
        body.len() as u64 == self.length && pattern::check(stream, self.stamp.sequence, body)
    }

    /// Writes a request that offers passive buffers: their number, and each descriptor with its length
    /// in front. Returns the length of the message.
    pub(super) fn put_offer(&self, offer: &[Descriptor], bytes: &mut [u8]) -> Result<usize, MessageError> {
        if offer.len() > OFFER_MAX {
            return Err(MessageError::Long { count: offer.len() });
        }
        let mut end = self.put(bytes)?;
        let mut put = |field: &[u8]| {
            let (needed, left) = (field.len(), bytes.len() - end);
            let room = bytes[end..].get_mut(..needed).ok_or(MessageError::Short { needed, left })?;
            room.copy_from_slice(field);
            end += needed;
            Ok::<_, MessageError>(())
        };
        put(&(offer.len() as u16).to_le_bytes())?;
        for descriptor in offer.iter().map(Descriptor::as_bytes) {
            put(&(descriptor.len() as u16).to_le_bytes())?;
            put(descriptor)?;
        }
        Ok(end)
    }
}

/// Reads the body that [`Head::put_offer`] writes; bytes behind it are an error.
pub(super) fn read_offer(body: &[u8]) -> Result<Vec<Descriptor>, MessageError> {
    fn number(bytes: &[u8]) -> Result<(usize, &[u8]), MessageError> {
        let (number, rest) = bytes.split_first_chunk().ok_or(MessageError::Offer)?;
        Ok((u16::from_le_bytes(*number).into(), rest))
    }
    let (count, mut rest) = number(body)?;
    if count > OFFER_MAX {
        return Err(MessageError::Long { count });
    }
    let mut offer = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, after) = number(rest)?;
        let (descriptor, after) = after.split_at_checked(length).ok_or(MessageError::Offer)?;
        offer.push(Descriptor::from_bytes(descriptor).map_err(|_| MessageError::Offer)?);
        rest = after;
    }
    if rest.is_empty() { Ok(offer) } else { Err(MessageError::Offer) }
}

#[cfg(test)]
mod tests {
    use nlx::{Domain, NodeConfig, Op, Queue, TmOptions};

    use super::*;

    fn head(kind: Kind) -> Head {
        let stamp = Stamp { sequence: u64::MAX - 3, time: Duration::from_nanos(17) };
        Head { stamp, kind, lane: 7, length: 40 }
    }

    /// Integers and kinds survive the round trip; a message that is too short, and one of another
    /// program, is refused.
    // Covers: MT-135, MT-136
    #[test]
    fn a_head_reads_as_it_was_written() {
        for kind in Kind::ALL {
            for number in [0, 1, 42, u64::MAX - 1, u64::MAX] {
                let stamp = Stamp { sequence: number, time: Duration::from_nanos(!number) };
                let head = Head { stamp, kind, lane: number as u32, length: number };
                let mut bytes = [0xee; HEAD_BYTES + 3];
                assert_eq!(head.put(&mut bytes).unwrap(), HEAD_BYTES);
                assert_eq!(Head::split(&bytes).unwrap(), (head, &[0xee; 3][..]));
                assert!(Head::split(&bytes[..HEAD_BYTES - 1]).is_err());
                let short = head.put(&mut bytes[..HEAD_BYTES - 1]);
                assert_eq!(short, Err(MessageError::Short { needed: HEAD_BYTES, left: HEAD_BYTES - 1 }));
                bytes[0] ^= 1;
                assert_eq!(Head::split(&bytes), Err(MessageError::Foreign));
            }
        }
        assert!(Head::split(&[0xff; HEAD_BYTES]).is_err());
    }

    /// The time lies within the call's bounds; magic, sequence and time survive the round trip.
    // Covers: MT-148
    #[test]
    fn a_stamp_comes_back_as_it_left() {
        let epoch = Instant::now();
        let before = epoch.elapsed();
        let stamp = Stamp::now(77, epoch);
        assert!(before <= stamp.time && stamp.time <= epoch.elapsed());
        let mut bytes = [0; HEAD_BYTES];
        Head { stamp, ..head(Kind::Echo) }.put(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"nlxst"));
        assert_eq!(Head::split(&bytes).unwrap().0.stamp, stamp);
    }

    #[test]
    fn an_echo_of_another_stream_or_length_is_found() {
        let (head, mut bytes) = (head(Kind::Echo), [0; 128]);
        let stream = Direction::FromClient.stream(9);
        let end = head.put_echo(stream, &mut bytes).unwrap();
        let body = &bytes[HEAD_BYTES..end];
        assert!(head.is_echo_of(stream, body));
        assert!(!head.is_echo_of(Direction::FromServer.stream(9), body));
        assert!(!head.is_echo_of(Direction::FromClient.stream(8), body));
        assert!(!head.is_echo_of(stream, &body[1..]));
        let short = head.put_echo(stream, &mut bytes[..HEAD_BYTES + 39]);
        assert_eq!(short, Err(MessageError::Short { needed: 40, left: 39 }));
    }

    /// 0 to 9 descriptors of two active passive buffers, packed and unpacked; then both buffers are
    /// cancelled.
    // Covers: MT-152
    #[test]
    fn descriptors_travel_in_a_message() {
        let domain = Domain::in_process(&NodeConfig::new()).unwrap();
        let tm = domain.transfer_machine("0@lo:12345:42:*", TmOptions::default()).unwrap();
        let receive = tm.start(Op::passive_receive(domain.allocate(4096).unwrap())).unwrap();
        let send = tm.start(Op::passive_send(domain.allocate(4096).unwrap())).unwrap();
        let [into, from] = [&receive, &send].map(|started| started.offer.descriptor(0));
        for count in 0..=9 {
            let offer: Vec<_> = [into, from].into_iter().cycle().take(count).collect();
            let mut bytes = vec![0; 1024];
            let end = head(Kind::Read).put_offer(&offer, &mut bytes).unwrap();
            let (read, body) = Head::split(&bytes[..end]).unwrap();
            assert_eq!((read, read_offer(body).unwrap()), (head(Kind::Read), offer));
            // One byte less or more is refused.
            assert!(read_offer(&body[..body.len() - 1]).is_err());
            assert!(read_offer(&bytes[HEAD_BYTES..end + 1]).is_err());
        }
        let many = vec![into; OFFER_MAX + 1];
        assert!(matches!(head(Kind::Read).put_offer(&many, &mut [0; 4096]), Err(MessageError::Long { .. })));
        assert!(tm.cancel(receive.op) && tm.cancel(send.op));
        let mut queues = [0, 1].map(|_| {
            let event = tm.wait(None).unwrap().unwrap();
            assert_eq!(event.status, Err(nlx::Errno::ECANCELED));
            event.queue.index()
        });
        queues.sort_unstable();
        assert_eq!(queues, [Queue::PassiveBulkReceive, Queue::PassiveBulkSend].map(Queue::index));
    }
}
