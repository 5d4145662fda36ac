//! The rules by which a service adds and frees request buffers, without a clock or a network.

use crate::BufferOptions;

/// The request buffers of one endpoint in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Supply {
    /// Buffers that exist.
    pub(crate) buffers: u32,
    /// Requests for which the posted ones have room.
    pub(crate) room: u64,
}

impl Supply {
    /// Returns whether another buffer must be posted.
    pub(crate) fn needs_more(&self, options: &BufferOptions) -> bool {
        let all = u64::from(self.buffers) * u64::from(options.requests_per_buffer);
        self.buffers < options.buffers_max && self.room * 100 < all * BufferOptions::LOW_WATER
    }

    /// Returns whether a buffer that takes no more requests can be freed in place of being posted
    /// again: the others have enough room without it.
    pub(crate) fn has_too_many(&self, options: &BufferOptions) -> bool {
        let others = u64::from(self.buffers.saturating_sub(1)) * u64::from(options.requests_per_buffer);
        self.buffers > options.buffers_min && self.room * 100 >= others * BufferOptions::HIGH_WATER
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What was just freed is not needed again, and what was just added is not freed at once.
        #[test]
        fn growing_and_shrinking_do_not_alternate(
            per_buffer in 1..=4096_u32, min in 2..=8_u32, more in 0..=64_u32, buffers in 2..=72_u32,
            full in any::<prop::sample::Index>(),
        ) {
            let options = BufferOptions {
                requests_per_buffer: per_buffer, buffers_min: min, buffers_max: min + more,
                ..BufferOptions::default()
            };
            let buffers = buffers.clamp(min, min + more);
            let all = u64::from(buffers) * u64::from(per_buffer);
            let supply = Supply { buffers, room: full.index(all as usize + 1) as u64 };
            if supply.needs_more(&options) {
                prop_assert!(buffers < min + more);
                let grown = Supply { buffers: buffers + 1, room: supply.room + u64::from(per_buffer) };
                // The new buffer itself is posted, so another one would have to be given back.
                let given_back = Supply { room: supply.room, ..grown }.has_too_many(&options);
                prop_assert!(!given_back);
            }
            if supply.has_too_many(&options) {
                prop_assert!(buffers > min);
                let shrunk = Supply { buffers: buffers - 1, room: supply.room };
                prop_assert!(!shrunk.needs_more(&options));
            }
        }
    }
}
