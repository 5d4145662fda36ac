//! The traffic on the wire after the handshakes (lnet-wire 25), read from the bytes without code of
//! the LND.

/// Length of the prefix of each message and each NOOP.
const PREFIX_LEN: usize = 24;

/// The type of prefix that a header follows.
const LNET: u32 = 0xc1;

/// The traffic of one host's program in one incarnation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) sent: Flow,
    pub(super) received: Flow,
    /// Connections taken from a listener's queue.
    pub(super) taken: u64,
    /// Hellos that answer others: those that accept, and those with NONE.
    pub(super) welcomes: u64,
    pub(super) refusals: u64,
    /// Accepting hellos received.
    pub(super) welcomed: u64,
}

/// The traffic of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flow {
    /// The number of all bytes.
    pub(super) bytes: u64,
    /// The number of messages with a complete header, and of those with a complete payload.
    pub(super) begun: u64,
    pub(super) messages: u64,
    /// The number of NOOPs.
    pub(super) noops: u64,
    /// The number of payload bytes.
    pub(super) payload: u64,
}

/// Finds the messages in a stream that begins after the handshake.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The prefix and header, as far as they have arrived.
    head: Vec<u8>,
    payload_left: usize,
}

impl Meter {
    /// Processes bytes of a connection of the protocol version `version`.
    pub(super) fn feed(&mut self, version: u32, mut bytes: &[u8], flow: &mut Flow) {
        let (header_len, length_at) = if version == 4 { (96, 52) } else { (72, 28) };
        flow.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let count = self.payload_left.min(bytes.len());
                self.payload_left -= count;
                flow.payload += count as u64;
                flow.messages += u64::from(self.payload_left == 0);
                bytes = &bytes[count..];
                continue;
            }
            let is_message = word(&self.head, 0) == Some(LNET);
            let wanted = if is_message { PREFIX_LEN + header_len } else { PREFIX_LEN };
            let count = (wanted - self.head.len()).min(bytes.len());
            self.head.extend(&bytes[..count]);
            bytes = &bytes[count..];
            if self.head.len() < wanted {
                continue;
            }
            if is_message {
                self.payload_left = word(&self.head, PREFIX_LEN + length_at).unwrap_or(0) as usize;
                flow.begun += 1;
                flow.messages += u64::from(self.payload_left == 0);
                self.head.clear();
            } else if word(&self.head, 0) != Some(LNET) {
                flow.noops += 1;
                self.head.clear();
            }
        }
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
}
