//! Options for the start of a transfer machine.

use std::time::Duration;

use crate::{CoreError, DescriptorForm, RandomCounters};

/// Options for the start of a transfer machine.
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
    /// Largest number of events that the operations in flight may need together; further ones are
    /// refused with ENOMEM. A receive buffer needs one per message that it may take, all others
    /// need one. The space for them grows with the need.
    pub events_max: u32,
    /// Form of the descriptors that passive operations return; active operations accept both.
    pub descriptors: DescriptorForm,
    /// Source of the match bits of passive buffers.
    pub match_counters: MatchCounters,
    /// Messages that find no receive buffer wait for one instead of being lost: the portal is
    /// *lazy* (S-109) while at least one transfer machine on it has this set. See
    /// [`TmOptions::lazy`] for the costs.
    pub lazy: bool,
    /// Spin limit of waits for events; `None` is that of the domain. See [`TmOptions::spin`].
    pub spin: Option<Duration>,
}

/// Source of the lower 52 bits of a passive buffer's match bits. They are never those of another
/// operation in flight of the transfer machine, and never 0 (K5). Peers see no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MatchCounters {
    /// A counter from 1 to 2⁵²−1, which then starts at 1 again and skips values in use (S-409).
    #[default]
    Sequential,
    /// 32 unpredictable bits of the system's random generator, above the index of the operation in
    /// flight.
    ///
    /// LNet requires of a peer that reads or writes a passive buffer its match bits and nothing
    /// else, and a sequential counter can be guessed: every node that reaches the portal could
    /// interfere with the transfers of others. With random counters it would have to try 2³¹ values
    /// on average while the buffer waits; LNet drops and counts each wrong try. A descriptor of a
    /// completed operation reaches the next one only with a probability of 1 in 2³².
    ///
    /// It does not protect against a reader of the descriptor or of the traffic, for LNet encrypts
    /// nothing; nor does it protect receive buffers for messages, to which every node may send.
    Random,
}

impl MatchCounters {
    /// Returns the source of random numbers, if the match bits come from one.
    ///
    /// # Errors
    /// Those of [`RandomCounters::new`].
    pub fn random(self) -> Result<Option<RandomCounters>, CoreError> {
        match self {
            MatchCounters::Sequential => Ok(None),
            MatchCounters::Random => RandomCounters::new().map(Some),
        }
    }
}

impl TmOptions {
    /// Sets [`TmOptions::events_max`]: the largest number of events that the operations in flight
    /// may need together.
    #[must_use]
    pub const fn events_max(mut self, events_max: u32) -> TmOptions {
        self.events_max = events_max;
        self
    }

    /// Sets the form of the descriptors that passive operations return.
    #[must_use]
    pub const fn descriptors(mut self, form: DescriptorForm) -> TmOptions {
        self.descriptors = form;
        self
    }

    /// Sets the source of the match bits of passive buffers.
    #[must_use]
    pub const fn match_counters(mut self, counters: MatchCounters) -> TmOptions {
        self.match_counters = counters;
        self
    }

    /// Sets the spin limit: waits poll for up to this time before they sleep, while that pays. Zero
    /// turns spinning off; the default is the domain's, 50 µs; values above 10 ms are cut to 10 ms.
    #[must_use]
    pub const fn spin(mut self, time: Duration) -> TmOptions {
        self.spin = Some(time);
        self
    }

    /// Sets whether messages wait for a receive buffer, or are lost without one.
    ///
    /// A portal is lazy as a whole, for all local NIDs and all transfer machines on it. One lazy
    /// transfer machine therefore makes messages wait for the others on its portal too, also those
    /// for ids that no transfer machine has, and bulk data that arrives too late for its buffer.
    /// Messages for which no buffer is ever posted cost what is described below. Where that
    /// matters, give a lazy transfer machine a separate portal.
    ///
    /// Waiting messages are held in memory, up to 2 MiB of a peer and 16 MiB in all. A further
    /// message stops the connection on which it arrived: nothing behind it is read, including
    /// answers and bulk data of the same peer, until a buffer is posted or the peer closes the
    /// connection. Up to 32,768 messages wait on a portal; further ones are lost and counted
    /// ([`crate::CoreTm::dropped`]). When the last lazy transfer machine of the portal has stopped,
    /// waiting messages are lost; those for other transfer machines on the portal are counted
    /// there.
    #[must_use]
    pub const fn lazy(mut self, lazy: bool) -> TmOptions {
        self.lazy = lazy;
        self
    }
}

impl Default for TmOptions {
    fn default() -> TmOptions {
        TmOptions {
            // 32 MiB of events if all are needed at once.
            events_max: 1 << 18,
            descriptors: DescriptorForm::default(),
            match_counters: MatchCounters::default(),
            lazy: false,
            spin: None,
        }
    }
}
