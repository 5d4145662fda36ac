//! How a transfer machine is started.

use crate::DescriptorForm;

/// How a transfer machine is started.
///
/// ```
/// use nlx_core::{DescriptorForm, MatchCounters, TmOptions};
///
/// let options = TmOptions::default().descriptors(DescriptorForm::Extended).match_counters(MatchCounters::Random);
/// assert_eq!(options.events_max, TmOptions::default().events_max);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TmOptions {
    /// The most events that the operations in flight may need together; ENOMEM beyond. A receive buffer needs as many as it
    /// takes messages, all others one. The space for them grows with the need.
    pub events_max: u32,
    /// The form of the descriptors that passive operations give; the active ones take both.
    pub descriptors: DescriptorForm,
    /// How passive buffers get their match bits.
    pub match_counters: MatchCounters,
}

/// Where the lower 52 bits of a passive buffer's match bits come from. They never are those of another operation in flight
/// of the transfer machine, and never 0 (K5). Peers notice no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MatchCounters {
    /// A counter from 1 to 2⁵²−1, which then begins at 1 again and passes over what is still in use (S-409).
    #[default]
    Sequential,
    /// 32 unpredictable bits of the system's generator, above the number of the operation in flight.
    ///
    /// LNet asks a peer that reads from or writes into a passive buffer for its match bits and nothing else, and a sequential
    /// counter can be guessed: every node that reaches the portal could meddle with the transfers of others. With random
    /// counters it would have to try 2³¹ values on average while the buffer waits; each wrong try is dropped and counted by
    /// LNet. Nor does a descriptor of an operation that is over reach the next one, but by a chance of 1 in 2³².
    ///
    /// It does not protect against whoever sees the descriptor or the traffic, for LNet encrypts nothing; nor receive buffers
    /// for messages, which anybody may send to.
    Random,
}

impl TmOptions {
    /// With another limit of events.
    #[must_use]
    pub const fn events_max(mut self, events_max: u32) -> TmOptions {
        self.events_max = events_max;
        self
    }

    /// With descriptors of this form.
    #[must_use]
    pub const fn descriptors(mut self, form: DescriptorForm) -> TmOptions {
        self.descriptors = form;
        self
    }

    /// With match bits from there.
    #[must_use]
    pub const fn match_counters(mut self, counters: MatchCounters) -> TmOptions {
        self.match_counters = counters;
        self
    }
}

impl Default for TmOptions {
    fn default() -> TmOptions {
        TmOptions {
            // 32 MiB of events if they are ever all needed at once.
            events_max: 1 << 18,
            descriptors: DescriptorForm::default(),
            match_counters: MatchCounters::default(),
        }
    }
}
