//! How a transfer machine is started.

use std::time::Duration;

use crate::{CoreError, DescriptorForm, Random};

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
    /// Messages that find no receive buffer wait for one, instead of being lost: the portal is *lazy* (S-109) as long as
    /// at least one transfer machine on it wants so. [`TmOptions::lazy`] says what that costs.
    pub lazy: bool,
    /// The spin limit of waits for events; that of the domain if `None`. See [`TmOptions::spin`].
    pub spin: Option<Duration>,
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

impl MatchCounters {
    /// The store of random numbers, if the match bits come from there.
    ///
    /// # Errors
    /// Those of [`Random::new`].
    pub fn random(self) -> Result<Option<Random>, CoreError> {
        match self {
            MatchCounters::Sequential => Ok(None),
            MatchCounters::Random => Random::new().map(Some),
        }
    }
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

    /// With this spin limit: waits poll for up to that long before they sleep, while that pays. Zero turns spinning off; the default
    /// is the domain's, 50 µs; values above 10 ms are cut to 10 ms.
    #[must_use]
    pub const fn spin(mut self, time: Duration) -> TmOptions {
        self.spin = Some(time);
        self
    }

    /// With messages that wait for a receive buffer, or are lost without one.
    ///
    /// A portal is lazy or not as a whole, for all local NIDs and everybody on it. So with one lazy transfer machine
    /// messages wait for the others on its portal too, and those for ids that nobody has, and bulk data that comes too late
    /// for its buffer: that one of these is never posted costs what it costs below. Where that matters, a lazy transfer
    /// machine gets a portal of its own.
    ///
    /// Messages that wait are in memory, up to 2 MiB of a peer and 16 MiB in all. One beyond stops the connection that brought it
    /// (nothing behind it is read), also for answers and bulk data of the same peer, until a buffer is posted or the peer gives the
    /// connection up. 32,768 can wait on a portal; those beyond are lost, and counted ([`crate::CoreTm::dropped`]). When the last lazy
    /// transfer machine has stopped, those that still wait are lost; those for others on the portal are counted there.
    #[must_use]
    pub const fn lazy(mut self, lazy: bool) -> TmOptions {
        self.lazy = lazy;
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
            lazy: false,
            spin: None,
        }
    }
}
