//! The size of a transfer machine's ring of events: when it shrinks after a burst, and to what.

use nlx_bev_cqueue::{Consumer, Error, Heap};
use nlx_core::BufferEvent;

/// A ring of this number of slots or fewer is never shrunk: it takes 32 KiB, half of a processor's
/// L1 cache (instructions and data together).
const KEPT_SLOTS: u32 = 256;

/// A ring is shrunk when it has more than this multiple of the recent peak of slots, so that it
/// does not follow every change of the load.
const ROOMY: u32 = 4;

/// Decay of the remembered peak: each step takes off one part in `FORGOTTEN`, so a burst is
/// remembered for some ten steps. A step is due when the ring is empty and no operation is in
/// flight. If operations are always in flight, a step is due when the ring is empty and the number
/// of event slots released since the last step reaches the size of the ring: during one burst the
/// ring is empty many times, and must not shrink because of that.
const FORGOTTEN: u32 = 8;

/// The consumer's half of the queue, and the load that determines its size.
pub(crate) struct TmRing {
    pub(crate) consumer: Consumer<BufferEvent, Heap>,
    /// Recent peak of provisioned events; never less than the current number.
    peak: u32,
    /// Room released since the peak last decayed.
    released: u32,
}

impl TmRing {
    pub(crate) fn new(consumer: Consumer<BufferEvent, Heap>) -> TmRing {
        TmRing { consumer, peak: 0, released: 0 }
    }

    /// Makes room for further `events` events.
    pub(crate) fn provision(&mut self, events: u32) -> Result<(), Error> {
        self.consumer.provision(events)?;
        self.peak = self.peak.max(self.consumer.needed());
        Ok(())
    }

    /// Releases room. Returns the new size of the ring, if it is much too large and empty.
    pub(crate) fn release(&mut self, events: u32) -> Result<Option<u32>, Error> {
        self.consumer.release(events)?;
        let slots = self.consumer.slots();
        if slots <= KEPT_SLOTS {
            return Ok(None);
        }
        self.released = self.released.saturating_add(events);
        let is_due = self.consumer.needed() == 0 || self.released >= slots;
        Ok(if is_due && self.consumer.is_empty() { self.forget() } else { None })
    }

    /// Takes one decay step. Returns the new size of the ring if it is much too large.
    #[cold]
    fn forget(&mut self) -> Option<u32> {
        let wanted = (self.peak + 1).max(KEPT_SLOTS);
        self.released = 0;
        self.peak = (self.peak - self.peak.div_ceil(FORGOTTEN)).max(self.consumer.needed());
        (self.consumer.slots() / ROOMY > wanted).then_some(wanted)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use nlx_bev_cqueue::{MAX_SLOTS, heap};
    use proptest::prelude::*;

    use super::*;

    fn ring() -> TmRing {
        let (_, consumer) = heap(MAX_SLOTS).unwrap();
        TmRing::new(consumer)
    }

    fn burst(ring: &mut TmRing, events: u32) -> Option<u32> {
        ring.provision(events).unwrap();
        ring.release(events).unwrap()
    }

    #[test]
    fn a_burst_is_forgotten_after_a_while_and_not_at_once() {
        let mut ring = ring();
        assert_eq!(burst(&mut ring, 100_000), None);
        let moments = (1..1000).find_map(|moments| burst(&mut ring, 1).map(|slots| (moments, slots)));
        let (moments, slots) = moments.unwrap();
        assert!(moments > 5 && moments < 50, "{moments} moments");
        assert!(slots * ROOMY < 100_001, "{slots} slots");
    }

    #[test]
    fn a_steady_load_keeps_its_ring() {
        let mut ring = ring();
        assert!((0..1000).all(|_| burst(&mut ring, 10_000).is_none()));
    }

    /// A server that always has buffers posted.
    #[test]
    fn a_burst_is_forgotten_though_something_is_always_in_flight() {
        let mut ring = ring();
        ring.provision(1000).unwrap();
        assert_eq!(burst(&mut ring, 100_000), None);
        let smaller =
            (1..10_000_000u64).find_map(|moments| burst(&mut ring, 1).map(|slots| (moments, slots)));
        let (moments, slots) = smaller.unwrap();
        assert!(moments > 5 * 100_000, "{moments} operations");
        assert!(slots > 1000 && slots * ROOMY < 101_001, "{slots} slots");
    }

    /// A burst whose events come one by one, so that the ring is empty after each.
    #[test]
    fn bursts_that_end_slowly_keep_their_ring() {
        let mut ring = ring();
        for _ in 0..50 {
            ring.provision(10_000).unwrap();
            assert!((0..10_000).all(|_| ring.release(1).unwrap().is_none()));
        }
    }

    proptest! {
        /// Whatever the load, the ring is large enough for it, and the queue accepts every
        /// requested size.
        #[test]
        fn a_ring_shrinks_to_what_is_enough(
            bursts in prop::collection::vec(prop_oneof![3 => 0..4u32, 1 => 0..3000u32], 0..60),
            posted in 0..500u32,
        ) {
            let (mut producer, consumer) = heap(4096).unwrap();
            let mut ring = TmRing::new(consumer);
            ring.provision(posted).unwrap();
            for events in bursts {
                if let Some(slots) = burst(&mut ring, events) {
                    prop_assert!(slots >= KEPT_SLOTS && slots > events + posted);
                    prop_assert!(slots < ring.consumer.slots());
                    prop_assert_eq!(ring.consumer.shrink_with(slots, || &mut producer), Ok(()));
                    prop_assert_eq!(ring.consumer.slots(), slots);
                }
            }
        }
    }
}
