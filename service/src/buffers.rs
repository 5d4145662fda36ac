//! The rules by which a service adds and frees request buffers, without a clock or a network.

use crate::BufferOptions;

/// The request buffers of one endpoint in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Supply {
    /// Buffers that exist.
    pub(crate) buffers: u32,
    /// Requests for which the posted ones have room.
    pub(crate) room: u64,
    /// The least room since the last call of [`Supply::unneeded`].
    pub(crate) least_room: u64,
}

impl Supply {
    /// Removes room that requests have taken, or that was taken back.
    pub(crate) fn take(&mut self, requests: u64) {
        self.room -= requests;
        self.least_room = self.least_room.min(self.room);
    }

    /// Returns whether another buffer must be posted.
    pub(crate) fn needs_more(&self, options: &BufferOptions) -> bool {
        let all = u64::from(self.buffers) * u64::from(options.requests_per_buffer);
        self.buffers < options.buffers_max && self.room * 100 < all * BufferOptions::LOW_WATER
    }

    /// Returns the number of buffers that were not needed since the last call: the others had enough
    /// room without them all the time. A buffer that fills up is posted again when its requests
    /// have ended, so the room at a single moment says nothing.
    pub(crate) fn unneeded(&mut self, options: &BufferOptions) -> u32 {
        let least_room = std::mem::replace(&mut self.least_room, self.room);
        let per_buffer = u64::from(options.requests_per_buffer);
        let is_spare = |count: u32| {
            let others = u64::from(self.buffers - count) * per_buffer;
            least_room
                .checked_sub(u64::from(count) * per_buffer)
                .is_some_and(|room| room * 100 >= others * BufferOptions::HIGH_WATER)
        };
        (1..=self.buffers.saturating_sub(options.buffers_min)).take_while(|&count| is_spare(count)).count()
            as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What was just freed is not needed again, and what was just added is not freed in the
        /// same interval.
        #[test]
        fn growing_and_shrinking_do_not_alternate(
            per_buffer in 1..=4096_u32, min in 2..=8_u32, more in 0..=64_u32, buffers in 2..=72_u32,
            full in any::<prop::sample::Index>(), least in any::<prop::sample::Index>(),
        ) {
            let options = BufferOptions {
                requests_per_buffer: per_buffer, buffers_min: min, buffers_max: min + more,
                ..BufferOptions::default()
            };
            let buffers = buffers.clamp(min, min + more);
            let all = u64::from(buffers) * u64::from(per_buffer);
            let room = full.index(all as usize + 1) as u64;
            let mut supply = Supply { buffers, room: all, least_room: least.index(all as usize + 1) as u64 };
            supply.take(all - room);
            prop_assert!(supply.room == room && supply.least_room <= room);
            if supply.needs_more(&options) {
                prop_assert!(buffers < min + more);
                let mut grown = Supply { buffers: buffers + 1, room: room + u64::from(per_buffer), ..supply };
                prop_assert_eq!(grown.unneeded(&options), 0);
            }
            let freed = supply.unneeded(&options);
            prop_assert_eq!(supply.least_room, room);
            prop_assert!(buffers - freed >= min);
            if freed > 0 {
                let shrunk = Supply {
                    buffers: buffers - freed, room: room - u64::from(freed * per_buffer), ..supply
                };
                prop_assert!(!shrunk.needs_more(&options));
            }
        }

        /// Without requests all buffers beyond the minimum are freed at once.
        #[test]
        fn an_idle_partition_frees_all_that_is_beyond_the_minimum(
            per_buffer in 1..=4096_u32, min in 2..=8_u32, more in 0..=64_u32,
        ) {
            let options = BufferOptions {
                requests_per_buffer: per_buffer, buffers_min: min, buffers_max: min + more,
                ..BufferOptions::default()
            };
            let room = u64::from(min + more) * u64::from(per_buffer);
            let mut supply = Supply { buffers: min + more, room, least_room: room };
            prop_assert_eq!(supply.unneeded(&options), more);
        }
    }
}
