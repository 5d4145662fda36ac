//! The stamp at the front of each message: its sequence number and its time of sending.

use std::time::{Duration, Instant};

use super::wire::{Reader, Wire, WireError, Writer};

/// The first bytes of every message of the self-test: "nlxst", and the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"nlxst\0\0\x02");

/// Sequence number and time of sending by the clock of the sender, which alone can interpret the
/// time when the stamp comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) sequence: u64,
    /// Since the sender's epoch.
    pub(super) time: Duration,
}

impl Stamp {
    /// Length in bytes: magic, sequence, time.
    pub(super) const BYTES: usize = 24;

    /// Creates a stamp with the current time since `epoch`.
    pub(super) fn now(sequence: u64, epoch: Instant) -> Stamp {
        Stamp { sequence, time: epoch.elapsed() }
    }
}

impl Wire for Stamp {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        MAGIC.write(to)?;
        self.sequence.write(to)?;
        self.time.write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Stamp, WireError> {
        match u64::read(from)? {
            MAGIC => Ok(Stamp { sequence: u64::read(from)?, time: Duration::read(from)? }),
            value => Err(WireError::Unknown { object: "magic of a message", value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time lies within the call's bounds; magic, sequence and time survive the round trip.
    // Covers: MT-148
    #[test]
    fn a_stamp_comes_back_as_it_left() {
        let epoch = Instant::now();
        let before = epoch.elapsed();
        let stamp = Stamp::now(77, epoch);
        assert!(before <= stamp.time && stamp.time <= epoch.elapsed());
        let mut bytes = [0; Stamp::BYTES];
        stamp.write(&mut Writer::new(&mut bytes)).unwrap();
        assert!(bytes.starts_with(b"nlxst"));
        let read = Stamp::read(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((read.sequence, read.time.as_nanos()), (77, stamp.time.as_nanos()));
        bytes[0] ^= 1;
        assert!(matches!(Stamp::read(&mut Reader::new(&bytes)), Err(WireError::Unknown { .. })));
    }
}
