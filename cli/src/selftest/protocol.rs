//! The messages of nlx between clients and servers.

use nlx::Descriptor;

use super::pattern;
use super::stamp::Stamp;
use super::wire::{Reader, Wire, WireError, Writer, wire_enum};

/// Bytes before a message's body: stamp, kind, lane, length.
pub(super) const HEAD_BYTES: usize = Stamp::BYTES + 1 + 4 + 8;

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

wire_enum!(Kind as "kind of a message" { Echo, Write, Read, Exchange, Good, Bad });

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

impl Wire for Head {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        self.stamp.write(to)?;
        self.kind.write(to)?;
        self.lane.write(to)?;
        self.length.write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Head, WireError> {
        Ok(Head {
            stamp: Stamp::read(from)?,
            kind: Kind::read(from)?,
            lane: u32::read(from)?,
            length: u64::read(from)?,
        })
    }
}

impl Head {
    /// Writes a message without a body; returns its length.
    pub(super) fn put(&self, bytes: &mut [u8]) -> Result<usize, WireError> {
        self.write(&mut Writer::new(bytes))?;
        Ok(HEAD_BYTES)
    }

    /// Splits a message into its head and its body.
    pub(super) fn split(bytes: &[u8]) -> Result<(Head, &[u8]), WireError> {
        let head = Head::read(&mut Reader::new(bytes))?;
        Ok((head, &bytes[HEAD_BYTES..]))
    }

    /// Writes an echo whose body is the stream's pattern; returns its length.
    pub(super) fn put_echo(&self, stream: u64, bytes: &mut [u8]) -> Result<usize, WireError> {
        let body = self.put(bytes)?;
        let (left, needed) = (bytes.len() - body, self.length as usize);
        let room = bytes[body..].get_mut(..needed).ok_or(WireError::Short { needed, left })?;
        pattern::fill(stream, self.stamp.sequence, room);
        Ok(body + needed)
    }

    /// Returns whether an echo's body is exactly the pattern that its head describes.
    pub(super) fn is_echo_of(&self, stream: u64, body: &[u8]) -> bool {
        body.len() as u64 == self.length && pattern::check(stream, self.stamp.sequence, body)
    }

    /// Writes a request that offers passive buffers; returns its length.
    pub(super) fn put_offer(&self, offer: &[Descriptor], bytes: &mut [u8]) -> Result<usize, WireError> {
        let mut writer = Writer::new(bytes);
        self.write(&mut writer)?;
        write_offer(offer, &mut writer)?;
        Ok(writer.length())
    }
}

/// Writes up to [`OFFER_MAX`] descriptors: their number, and each with its length in front.
fn write_offer(offer: &[Descriptor], to: &mut Writer<'_>) -> Result<(), WireError> {
    if offer.len() > OFFER_MAX {
        return Err(WireError::Long { object: "an offer", length: offer.len(), most: OFFER_MAX });
    }
    (offer.len() as u16).write(to)?;
    offer.iter().try_for_each(|descriptor| {
        let bytes = descriptor.as_bytes();
        (bytes.len() as u16).write(to)?;
        to.put(bytes)
    })
}

/// Reads the output of [`write_offer`]; bytes behind it are an error.
pub(super) fn read_offer(body: &[u8]) -> Result<Vec<Descriptor>, WireError> {
    let mut reader = Reader::new(body);
    let count = usize::from(u16::read(&mut reader)?);
    if count > OFFER_MAX {
        return Err(WireError::Long { object: "an offer", length: count, most: OFFER_MAX });
    }
    let mut offer = Vec::with_capacity(count);
    for _ in 0..count {
        let length = usize::from(u16::read(&mut reader)?);
        let bytes = reader.get(length)?;
        let invalid = |_| WireError::Unknown { object: "descriptor of this length", value: length as u64 };
        offer.push(Descriptor::from_bytes(bytes).map_err(invalid)?);
    }
    reader.end()?;
    Ok(offer)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nlx::{Domain, NodeConfig, Op, Queue, TmOptions};

    use super::*;

    fn head(kind: Kind) -> Head {
        let stamp = Stamp { sequence: u64::MAX - 3, time: Duration::from_nanos(17) };
        Head { stamp, kind, lane: 7, length: 40 }
    }

    #[test]
    fn a_head_reads_as_it_was_written() {
        for kind in Kind::ALL {
            let mut bytes = [0; HEAD_BYTES];
            assert_eq!(head(*kind).put(&mut bytes).unwrap(), HEAD_BYTES);
            assert_eq!(Head::split(&bytes).unwrap(), (head(*kind), &[][..]));
            assert!(Head::split(&bytes[..HEAD_BYTES - 1]).is_err());
        }
        assert!(Head::split(&[0xff; HEAD_BYTES]).is_err());
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
        assert_eq!(short, Err(WireError::Short { needed: 40, left: 39 }));
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
        assert!(matches!(head(Kind::Read).put_offer(&many, &mut [0; 4096]), Err(WireError::Long { .. })));
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
